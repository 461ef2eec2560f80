package state

import (
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/ratchetmq/ratchet/protocol"
)

// ConsumerGroup is a consumer group's live members at one moment. It is never changed: a newer moment is another value.
// A nil ConsumerGroup has no members.
type ConsumerGroup struct {
	Name             string
	ConsumeType      protocol.EnumText
	MessageModel     protocol.EnumText
	ConsumeFromWhere protocol.EnumText
	UnitMode         bool
	// Subscriptions, by topic, are those of all members together: of each topic the newest. Shared, not to be changed.
	Subscriptions map[string]*protocol.SubscriptionData
	// Conflict names two members that subscribe to different things; nil: all agree.
	Conflict *Conflict

	members map[uint64]*Member // by connection
}

func (g *ConsumerGroup) member(conn uint64) (*Member, bool) {
	if g == nil {
		return nil, false
	}
	m, ok := g.members[conn]
	return m, ok
}

// Broadcasting tells whether each member gets all messages.
func (g *ConsumerGroup) Broadcasting() bool { return g.MessageModel == protocol.Broadcasting }

// Members lists the members by client id.
func (g *ConsumerGroup) Members() []*Member { return sortedMembers(g.members) }

// Conns lists the members' connections.
func (g *ConsumerGroup) Conns() []Conn {
	conns := make([]Conn, 0, len(g.members))
	for _, m := range g.Members() {
		conns = append(conns, m.Conn)
	}
	return conns
}

// Member returns the member with that client id; of several connections with the id, the one heard of last.
func (g *ConsumerGroup) Member(clientID string) (*Member, bool) {
	var found *Member
	for _, m := range g.members {
		if m.ID == clientID && (found == nil || m.seen.Load() > found.seen.Load()) {
			found = m
		}
	}
	return found, found != nil
}

// ClientIDs lists the members' names, each once, sorted. A client whose old connection is not closed yet must not be
// listed twice: the members share the queues out by the length of this list.
func (g *ConsumerGroup) ClientIDs() []string {
	ids := make([]string, 0, len(g.members))
	for _, m := range g.members {
		ids = append(ids, m.ID)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// Subscription returns what counts for a pull of the topic over a connection: the member's own subscription, or else
// the group's. It allocates nothing.
func (g *ConsumerGroup) Subscription(topic string, conn uint64) (*protocol.SubscriptionData, bool) {
	if m, ok := g.members[conn]; ok {
		if sub, ok := m.Subscriptions[topic]; ok {
			return sub, true
		}
	}
	sub, ok := g.Subscriptions[topic]
	return sub, ok
}

// Group returns the live members of a consumer group; false: there are none. It takes no lock.
func (c *Clients) Group(group string) (*ConsumerGroup, bool) {
	g, ok := c.consumers.Load(group)
	if !ok {
		return nil, false
	}
	return g.(*ConsumerGroup), true
}

func (c *Clients) group(group string) *ConsumerGroup {
	g, _ := c.Group(group)
	return g
}

// ConsumerGroups lists the groups that have members, sorted.
func (c *Clients) ConsumerGroups() []string {
	var names []string
	c.consumers.Range(func(name, _ any) bool {
		names = append(names, name.(string))
		return true
	})
	slices.Sort(names)
	return names
}

// Subscribers lists the live groups that subscribe to a topic, sorted.
func (c *Clients) Subscribers(topic string) []string {
	var names []string
	c.consumers.Range(func(name, g any) bool {
		if _, ok := g.(*ConsumerGroup).Subscriptions[topic]; ok {
			names = append(names, name.(string))
		}
		return true
	})
	slices.Sort(names)
	return names
}

// registerConsumer notes that the client consumes for a group. It returns whether the members need to know, and a
// conflict that is new. A heartbeat that tells nothing new takes no lock.
func (c *Clients) registerConsumer(conn Conn, client Client, data *protocol.ConsumerData) (changed bool, conflict *Conflict) {
	id := conn.ID()
	kind := groupKind{data.ConsumeType, data.MessageModel, data.ConsumeFromWhere, data.UnitMode}
	if m, ok := c.group(data.GroupName).member(id); ok && m.Client == client && m.kind == kind && m.subscribes(data.SubscriptionDataSet) {
		m.seen.Store(c.now().UnixMilli())
		return false, nil
	}
	subs := make(map[string]*protocol.SubscriptionData, len(data.SubscriptionDataSet))
	for _, sub := range data.SubscriptionDataSet {
		if old, ok := subs[sub.Topic]; !ok || sub.SubVersion > old.SubVersion {
			subs[sub.Topic] = &sub
		}
	}
	m := &Member{Client: client, Conn: conn, Subscriptions: subs, kind: kind, signature: signature(data.GroupName, subs), seen: new(atomic.Int64)}
	m.seen.Store(c.now().UnixMilli())

	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.group(data.GroupName)
	_, known := before.member(id)
	members := map[uint64]*Member{}
	if before != nil {
		members = maps.Clone(before.members)
	}
	members[id] = m
	c.groupsOf(id).consumer[data.GroupName] = struct{}{}
	after := newConsumerGroup(data.GroupName, kind, members)
	c.consumers.Store(data.GroupName, after)
	if after.Conflict != nil && (before == nil || before.Conflict == nil || *before.Conflict != *after.Conflict) {
		conflict = after.Conflict
	}
	return !known || !sameTopics(before, after), conflict
}

func sameTopics(a, b *ConsumerGroup) bool {
	return maps.EqualFunc(a.Subscriptions, b.Subscriptions, func(_, _ *protocol.SubscriptionData) bool { return true })
}

// refresh notes a heartbeat without subscriptions, of a client that sent them before. ok = false: it did not, at least
// not over this connection.
func (c *Clients) refresh(conn uint64, group string) (ok bool) {
	m, ok := c.group(group).member(conn)
	if ok {
		m.seen.Store(c.now().UnixMilli())
	}
	return ok
}

// subscribes tells whether the subscriptions are those that the member has.
func (m *Member) subscribes(subs []protocol.SubscriptionData) bool {
	if len(subs) != len(m.Subscriptions) {
		return false
	}
	for i := range subs {
		have, ok := m.Subscriptions[subs[i].Topic]
		if !ok || have.SubVersion != subs[i].SubVersion || have.SubString != subs[i].SubString || have.ExpressionType != subs[i].ExpressionType {
			return false
		}
	}
	return true
}

// dropConsumer takes a connection out of a group. The caller holds mu.
func (c *Clients) dropConsumer(conn uint64, group string, g *connGroups) {
	delete(g.consumer, group)
	before := c.group(group)
	members := maps.Clone(before.members)
	delete(members, conn)
	if len(members) == 0 {
		c.consumers.Delete(group)
		return
	}
	kind := groupKind{before.ConsumeType, before.MessageModel, before.ConsumeFromWhere, before.UnitMode}
	c.consumers.Store(group, newConsumerGroup(group, kind, members))
}

// newConsumerGroup puts the members' subscriptions together. A topic stays as long as any member subscribes to it; in
// RocketMQ the latest heartbeat decides for all.
func newConsumerGroup(name string, kind groupKind, members map[uint64]*Member) *ConsumerGroup {
	g := &ConsumerGroup{
		Name: name, ConsumeType: kind.consumeType, MessageModel: kind.messageModel, ConsumeFromWhere: kind.consumeFrom, UnitMode: kind.unit,
		Subscriptions: map[string]*protocol.SubscriptionData{}, members: members,
	}
	agree, first := true, (*Member)(nil)
	owner := map[string]string{} // by topic: the client whose subscription stands for the group
	for _, m := range members {
		if first == nil {
			first = m
		}
		agree = agree && m.signature == first.signature
		for topic, sub := range m.Subscriptions {
			old, ok := g.Subscriptions[topic]
			if !ok || sub.SubVersion > old.SubVersion || sub.SubVersion == old.SubVersion && m.ID < owner[topic] {
				g.Subscriptions[topic], owner[topic] = sub, m.ID
			}
		}
	}
	if agree {
		return g
	}
	sorted := sortedMembers(members)
	for _, m := range sorted {
		if m.signature != sorted[0].signature {
			g.Conflict = conflictOf(name, sorted[0], m)
			break
		}
	}
	return g
}

func conflictOf(group string, a, b *Member) *Conflict {
	topics := maps.Clone(a.Subscriptions)
	maps.Copy(topics, b.Subscriptions)
	for _, topic := range slices.Sorted(maps.Keys(topics)) {
		x, y := expression(a.Subscriptions[topic]), expression(b.Subscriptions[topic])
		if x != y && topic != protocol.RetryTopic(group) {
			return &Conflict{Group: group, Client: a.ID, Other: b.ID, Topic: topic, Wanted: x, OtherHas: y}
		}
	}
	return nil
}

// expression is what a subscription asks for, in words; TAG is what goes without saying.
func expression(sub *protocol.SubscriptionData) string {
	switch {
	case sub == nil:
		return ""
	case sub.ExpressionType == "" || sub.ExpressionType == protocol.ExpressionTag:
		if sub.SubString == "" {
			return protocol.SubscribeAll
		}
		return sub.SubString
	default:
		return sub.ExpressionType + " " + sub.SubString
	}
}

// signature is equal for members that subscribe to the same. The group's retry topic does not count: some clients name
// it, some do not.
func signature(group string, subs map[string]*protocol.SubscriptionData) string {
	var b strings.Builder
	for _, topic := range slices.Sorted(maps.Keys(subs)) {
		if topic != protocol.RetryTopic(group) {
			b.WriteString(topic)
			b.WriteByte(0)
			b.WriteString(expression(subs[topic]))
			b.WriteByte(0)
		}
	}
	return b.String()
}
