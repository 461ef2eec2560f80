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
type Client[C Conn] struct {
	Conn     C
	ID       string // the client's own name
	Language protocol.Language
	Version  int32
}

// Member is a client in one group. It is never changed once it is published, but for the time of its last heartbeat.
type Member[C Conn] struct {
	Client[C]
	// Subscriptions, by topic, are the member's own; nil for producers. Shared, not to be changed.
	Subscriptions map[string]*protocol.SubscriptionData

	kind      groupKind
	signature string // of the subscriptions without their versions
	seen      *atomic.Int64
}

// LastSeen is when the member's last heartbeat came.
func (m *Member[C]) LastSeen() time.Time { return time.UnixMilli(m.seen.Load()) }

// groupKind is how a group consumes, as its members say.
type groupKind struct {
	consumeType, messageModel, consumeFrom protocol.EnumText
	unit                                   bool
}

// Clients knows the connected producers and consumers by group.
type Clients[C Conn] struct {
	now func() time.Time

	consumers sync.Map // group → *ConsumerGroup[C]; read without a lock by each pull

	mu        sync.Mutex                       // one change of membership at a time
	producers map[string]map[uint64]*Member[C] // guarded by mu: group → connection → member
	conns     map[uint64]*connGroups           // guarded by mu
	turn      int                              // guarded by mu: for PickProducer
}

// connGroups is what a connection is a member of.
type connGroups struct{ consumer, producer map[string]struct{} }

// NewClients starts with nobody connected. now nil: time.Now.
func NewClients[C Conn](now func() time.Time) *Clients[C] {
	if now == nil {
		now = time.Now
	}
	return &Clients[C]{now: now, producers: map[string]map[uint64]*Member[C]{}, conns: map[uint64]*connGroups{}}
}

// Change is what happened to a consumer group, for whoever tells its members (code 40).
type Change[C Conn] struct {
	Group        string
	Joined, Left bool // somebody did
	Resubscribed bool // the set of topics that the group subscribes to is another
	Broadcasting bool // the group's members don't share queues, so they need not know
	Members      []C  // all connections of the group, that of the change too
	// Conflict is set when members began to subscribe to different things, each pair once while it lasts.
	Conflict *Conflict
}

// Worth tells whether the members need to know.
func (c *Change[C]) Worth() bool { return (c.Joined || c.Left || c.Resubscribed) && !c.Broadcasting }

// Conflict is two members of one group that subscribe to different things. In RocketMQ each heartbeat then overwrites
// the subscriptions of the whole group, and messages are lost silently. Here each member keeps its own, but queues are
// still shared out between members of which some do not want them.
type Conflict struct {
	Group            string
	Client, Other    string
	Topic            string // the first that differs
	Wanted, OtherHas string // the expressions for it; empty: not subscribed
}

func (c *Clients[C]) groupsOf(conn uint64) *connGroups {
	g, ok := c.conns[conn]
	if !ok {
		g = &connGroups{consumer: map[string]struct{}{}, producer: map[string]struct{}{}}
		c.conns[conn] = g
	}
	return g
}

func (c *Clients[C]) forget(conn uint64, g *connGroups) {
	if len(g.consumer) == 0 && len(g.producer) == 0 {
		delete(c.conns, conn)
	}
}

// RegisterProducer notes that the client sends for the group.
func (c *Clients[C]) RegisterProducer(client Client[C], group string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := client.Conn.ID()
	members, ok := c.producers[group]
	if !ok {
		members = map[uint64]*Member[C]{}
		c.producers[group] = members
	}
	m, ok := members[id]
	if !ok || m.Client.ID != client.ID || m.Language != client.Language || m.Version != client.Version {
		m = &Member[C]{Client: client, seen: new(atomic.Int64)}
		members[id] = m
		c.groupsOf(id).producer[group] = struct{}{}
	}
	m.seen.Store(c.now().UnixMilli())
}

// Producers lists the members of a producer group, by client id.
func (c *Clients[C]) Producers(group string) []*Member[C] {
	c.mu.Lock()
	defer c.mu.Unlock()
	return sortedMembers(c.producers[group])
}

// ProducerGroups lists the producer groups that have members, sorted.
func (c *Clients[C]) ProducerGroups() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.producers))
}

// PickProducer returns one of the group's members, another each time: to check a transaction with.
func (c *Clients[C]) PickProducer(group string) (*Member[C], bool) {
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
func (c *Clients[C]) Producer(clientID string) (*Member[C], bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var found *Member[C]
	for _, members := range c.producers {
		for _, m := range members {
			if m.Client.ID == clientID && (found == nil || m.seen.Load() > found.seen.Load()) {
				found = m
			}
		}
	}
	return found, found != nil
}

func sortedMembers[C Conn](members map[uint64]*Member[C]) []*Member[C] {
	return slices.SortedFunc(maps.Values(members), func(a, b *Member[C]) int {
		return cmp.Or(strings.Compare(a.Client.ID, b.Client.ID), cmp.Compare(a.Conn.ID(), b.Conn.ID()))
	})
}

// Unregister takes a connection out of a producer group, a consumer group, or both; "" is none. The change is that of
// the consumer group, nil when it had no such member.
func (c *Clients[C]) Unregister(conn uint64, producerGroup, consumerGroup string) *Change[C] {
	c.mu.Lock()
	defer c.mu.Unlock()
	g, ok := c.conns[conn]
	if !ok {
		return nil
	}
	defer c.forget(conn, g)
	c.dropProducer(conn, producerGroup, g)
	return c.dropConsumer(conn, consumerGroup, g)
}

func (c *Clients[C]) dropProducer(conn uint64, group string, g *connGroups) {
	delete(g.producer, group)
	delete(c.producers[group], conn)
	if len(c.producers[group]) == 0 {
		delete(c.producers, group)
	}
}

// Closed takes a connection out of all groups, and returns how the consumer groups changed.
func (c *Clients[C]) Closed(conn uint64) []Change[C] {
	c.mu.Lock()
	defer c.mu.Unlock()
	g, ok := c.conns[conn]
	if !ok {
		return nil
	}
	for group := range maps.Clone(g.producer) {
		c.dropProducer(conn, group, g)
	}
	var changes []Change[C]
	for _, group := range slices.Sorted(maps.Keys(g.consumer)) {
		if change := c.dropConsumer(conn, group, g); change != nil {
			changes = append(changes, *change)
		}
	}
	delete(c.conns, conn)
	return changes
}

// Expire takes out the members that were not heard of for ClientExpiry, and returns how the consumer groups changed and
// the connections that are in no group any more, to be closed. Call it every 10 s or so.
func (c *Clients[C]) Expire() (changes []Change[C], idle []C) {
	oldest := c.now().Add(-ClientExpiry).UnixMilli()
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn, g := range c.conns {
		var last C
		for group := range maps.Clone(g.producer) {
			if m := c.producers[group][conn]; m.seen.Load() < oldest {
				last = m.Conn
				c.dropProducer(conn, group, g)
			}
		}
		for _, group := range slices.Sorted(maps.Keys(g.consumer)) {
			m, ok := c.consumerGroup(group).member(conn)
			if !ok || m.seen.Load() >= oldest {
				continue
			}
			last = m.Conn
			if change := c.dropConsumer(conn, group, g); change != nil {
				changes = append(changes, *change)
			}
		}
		if len(g.consumer) == 0 && len(g.producer) == 0 {
			delete(c.conns, conn)
			idle = append(idle, last)
		}
	}
	return changes, idle
}
