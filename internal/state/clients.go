package state

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ratchetmq/ratchet/protocol"
)

// ClientExpiry is how long a client counts as alive after its last heartbeat. Clients send one every 30 s.
const ClientExpiry = 120 * time.Second

// Conn is a client's connection; the package knows no more of the network.
type Conn interface {
	ID() uint64 // never used twice while the process lives
	RemoteAddr() netip.AddrPort
}

// Client is who sent a heartbeat, and what its frame's header said.
type Client struct {
	ID       string // the client's own name
	Language protocol.Language
	Version  int32
}

// Member is a client in one group. It is never changed once it is published, but for the time of its last heartbeat.
type Member struct {
	Client
	Conn Conn
	// Subscriptions, by topic, are the member's own; nil for producers. Shared, not to be changed.
	Subscriptions map[string]*protocol.SubscriptionData

	kind      groupKind
	signature string // of the subscriptions without their versions
	seen      *atomic.Int64
}

// LastSeen is when the member's last heartbeat came.
func (m *Member) LastSeen() time.Time { return time.UnixMilli(m.seen.Load()) }

// groupKind is how a group consumes, as its members say.
type groupKind struct {
	consumeType, messageModel, consumeFrom protocol.EnumText
	unit                                   bool
}

// Clients knows the connected producers and consumers by group.
type Clients struct {
	now func() time.Time

	consumers sync.Map // group → *ConsumerGroup; read without a lock by each pull

	mu        sync.Mutex                    // one change of membership at a time
	producers map[string]map[uint64]*Member // guarded by mu: group → connection → member
	conns     map[uint64]*connGroups        // guarded by mu
	turn      int                           // guarded by mu: for PickProducer
}

// connGroups is what a connection is a member of.
type connGroups struct{ consumer, producer map[string]struct{} }

// ClientOptions is what Clients needs.
type ClientOptions struct {
	Now func() time.Time // nil: time.Now
}

// NewClients starts with nobody connected.
func NewClients(o ClientOptions) *Clients {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Clients{now: o.Now, producers: map[string]map[uint64]*Member{}, conns: map[uint64]*connGroups{}}
}

// Beat is what a heartbeat changed.
type Beat struct {
	// Groups are the consumer groups that somebody joined, or that subscribe to other topics now: tell their members.
	Groups []string
	// Conflicts began with this heartbeat; one that lasts is not named again.
	Conflicts []Conflict
	// NeedFull: the heartbeat left its subscriptions out, and they are not known here.
	NeedFull bool
}

// Heartbeat notes what the client produces and consumes for over the connection. One that tells nothing new changes
// nothing but the time. It keeps nothing of data.
func (c *Clients) Heartbeat(conn Conn, client Client, data *protocol.HeartbeatData) Beat {
	var beat Beat
	for i := range data.ProducerDataSet {
		c.registerProducer(conn, client, data.ProducerDataSet[i].GroupName)
	}
	for i := range data.ConsumerDataSet {
		consumer := &data.ConsumerDataSet[i]
		if data.WithoutSub {
			beat.NeedFull = !c.refresh(conn.ID(), consumer.GroupName) || beat.NeedFull
			continue
		}
		change, conflict := c.registerConsumer(conn, client, consumer)
		if change {
			beat.Groups = append(beat.Groups, consumer.GroupName)
		}
		if conflict != nil {
			beat.Conflicts = append(beat.Conflicts, *conflict)
		}
	}
	return beat
}

// Conflict is two members of one group that subscribe to different things. In RocketMQ each heartbeat then overwrites
// the subscriptions of the whole group, and messages are lost silently. Here each member keeps its own, but queues are
// still shared out between members of which some do not want them.
type Conflict struct {
	Group            string
	Client, Other    string
	Topic            string // the first that differs
	Wanted, OtherHas string // the expressions for it; empty: not subscribed
}

func (c *Clients) groupsOf(conn uint64) *connGroups {
	g, ok := c.conns[conn]
	if !ok {
		g = &connGroups{consumer: map[string]struct{}{}, producer: map[string]struct{}{}}
		c.conns[conn] = g
	}
	return g
}

func (c *Clients) registerProducer(conn Conn, client Client, group string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := conn.ID()
	m, ok := c.producers[group][id]
	if !ok || m.Client != client {
		m = &Member{Client: client, Conn: conn, seen: new(atomic.Int64)}
		if c.producers[group] == nil {
			c.producers[group] = map[uint64]*Member{}
		}
		c.producers[group][id] = m
		c.groupsOf(id).producer[group] = struct{}{}
	}
	m.seen.Store(c.now().UnixMilli())
}

// Producers lists the members of a producer group, by client id.
func (c *Clients) Producers(group string) []*Member {
	c.mu.Lock()
	defer c.mu.Unlock()
	return sortedMembers(c.producers[group])
}

// ProducerGroups lists the producer groups that have members, sorted.
func (c *Clients) ProducerGroups() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.producers))
}

// PickProducer returns one of the group's members, another each time: to check a transaction with.
func (c *Clients) PickProducer(group string) (*Member, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	members := sortedMembers(c.producers[group])
	if len(members) == 0 {
		return nil, false
	}
	c.turn++
	return members[c.turn%len(members)], true
}

// Producer returns the producer with that client id, of whatever group: the one that waits for a reply. Of several
// connections with the id it is the one heard of last.
func (c *Clients) Producer(clientID string) (*Member, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var found *Member
	for _, members := range c.producers {
		for _, m := range members {
			if m.ID == clientID && (found == nil || m.seen.Load() > found.seen.Load()) {
				found = m
			}
		}
	}
	return found, found != nil
}

func sortedMembers(members map[uint64]*Member) []*Member {
	return slices.SortedFunc(maps.Values(members), func(a, b *Member) int {
		return cmp.Or(strings.Compare(a.ID, b.ID), cmp.Compare(a.Conn.ID(), b.Conn.ID()))
	})
}

// Unregister takes a client out of a producer group, a consumer group, or both; "" is none. It returns the consumer
// group if it lost a member.
func (c *Clients) Unregister(conn Conn, clientID, producerGroup, consumerGroup string) (changed []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := conn.ID()
	g, ok := c.conns[id]
	if !ok {
		return nil
	}
	if m, ok := c.producers[producerGroup][id]; ok && m.ID == clientID {
		c.dropProducer(id, producerGroup, g)
	}
	if m, ok := c.group(consumerGroup).member(id); ok && m.ID == clientID {
		c.dropConsumer(id, consumerGroup, g)
		changed = []string{consumerGroup}
	}
	if len(g.consumer) == 0 && len(g.producer) == 0 {
		delete(c.conns, id)
	}
	return changed
}

func (c *Clients) dropProducer(conn uint64, group string, g *connGroups) {
	delete(g.producer, group)
	delete(c.producers[group], conn)
	if len(c.producers[group]) == 0 {
		delete(c.producers, group)
	}
}

// Closed takes a connection out of all groups, and returns the consumer groups that lost a member.
func (c *Clients) Closed(conn Conn) (changed []string) {
	return c.drop(conn.ID(), func(*Member) bool { return true })
}

// Expire takes out the members that were not heard of for ClientExpiry, and returns the consumer groups that lost one.
// Call it every 10 s or so.
func (c *Clients) Expire(now time.Time) (changed []string) {
	oldest := now.Add(-ClientExpiry).UnixMilli()
	c.mu.Lock()
	conns := slices.Collect(maps.Keys(c.conns))
	c.mu.Unlock()
	for _, conn := range conns {
		changed = append(changed, c.drop(conn, func(m *Member) bool { return m.seen.Load() < oldest })...)
	}
	slices.Sort(changed)
	return slices.Compact(changed)
}

// drop takes a connection out of the groups in which its member is gone, and returns the consumer groups among them.
func (c *Clients) drop(conn uint64, gone func(*Member) bool) (changed []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	g, ok := c.conns[conn]
	if !ok {
		return nil
	}
	for group := range maps.Clone(g.producer) {
		if gone(c.producers[group][conn]) {
			c.dropProducer(conn, group, g)
		}
	}
	for _, group := range slices.Sorted(maps.Keys(g.consumer)) {
		if m, ok := c.group(group).member(conn); ok && gone(m) {
			c.dropConsumer(conn, group, g)
			changed = append(changed, group)
		}
	}
	if len(g.consumer) == 0 && len(g.producer) == 0 {
		delete(c.conns, conn)
	}
	return changed
}
