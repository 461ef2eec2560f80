package state

import (
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/protocol"
)

type fakeConn uint64

func (c fakeConn) ID() uint64                 { return uint64(c) }
func (c fakeConn) RemoteAddr() netip.AddrPort { return netip.AddrPort{} }

// sub is a subscription written as topic, expression, version.
func sub(topic, expression string, version int64) protocol.SubscriptionData {
	return protocol.SubscriptionData{Topic: topic, SubString: expression, SubVersion: version, ExpressionType: protocol.ExpressionTag}
}

func consumes(group string, subs ...protocol.SubscriptionData) *protocol.HeartbeatData {
	return &protocol.HeartbeatData{ConsumerDataSet: []protocol.ConsumerData{{
		GroupName: group, ConsumeType: protocol.ConsumePassively, MessageModel: protocol.Clustering,
		ConsumeFromWhere: protocol.ConsumeFromLastOffset, SubscriptionDataSet: subs,
	}}}
}

func produces(groups ...string) *protocol.HeartbeatData {
	data := &protocol.HeartbeatData{}
	for _, g := range groups {
		data.ProducerDataSet = append(data.ProducerDataSet, protocol.ProducerData{GroupName: g})
	}
	return data
}

func newTestClients() (*Clients, *clock) {
	c := newClock()
	return NewClients(ClientOptions{Now: c.Now}), c
}

func ids(c *Clients, group string) []string {
	g, ok := c.Group(group)
	if !ok {
		return nil
	}
	return g.ClientIDs()
}

func TestMembersComeAndGo(t *testing.T) {
	c, _ := newTestClients()
	a, b := fakeConn(1), fakeConn(2)
	require.Equal(t, []string{"G"}, c.Heartbeat(a, Client{ID: "a"}, consumes("G", sub("T", "*", 1))).Groups)
	require.Empty(t, c.Heartbeat(a, Client{ID: "a"}, consumes("G", sub("T", "*", 1))).Groups, "nothing new")
	require.Equal(t, []string{"G"}, c.Heartbeat(b, Client{ID: "b"}, consumes("G", sub("T", "*", 1))).Groups)
	require.Equal(t, []string{"a", "b"}, ids(c, "G"))
	require.Equal(t, []string{"G"}, c.ConsumerGroups())
	require.Equal(t, []string{"G"}, c.Subscribers("T"))
	require.Empty(t, c.Subscribers("U"))

	require.Empty(t, c.Unregister(b, "other", "", "G"), "a client speaks for itself only")
	require.Empty(t, c.Unregister(fakeConn(9), "b", "", "G"))
	require.Equal(t, []string{"G"}, c.Unregister(b, "b", "", "G"))
	require.Equal(t, []string{"a"}, ids(c, "G"))
	require.Empty(t, c.Closed(b))
	require.Equal(t, []string{"G"}, c.Closed(a))
	_, ok := c.Group("G")
	require.False(t, ok)
	require.Empty(t, c.conns, "nothing is left of a connection")
	require.Empty(t, c.ConsumerGroups())
}

func TestATopicMoreOrLessIsAChangeForAllMembers(t *testing.T) {
	c, _ := newTestClients()
	beat := func(subs ...protocol.SubscriptionData) []string {
		return c.Heartbeat(fakeConn(1), Client{ID: "a"}, consumes("G", subs...)).Groups
	}
	beat(sub("T", "*", 1))
	require.Equal(t, []string{"G"}, beat(sub("T", "*", 1), sub("U", "*", 1)))
	require.Empty(t, beat(sub("T", "x", 2), sub("U", "*", 1)), "another expression is not")
	require.Equal(t, []string{"G"}, beat(sub("T", "x", 2)))
	require.Equal(t, []string{"G"}, beat(sub("U", "x", 2)), "as many, but others")
	g, _ := c.Group("G")
	require.Len(t, g.Subscriptions, 1)
	require.Equal(t, protocol.EnumText(protocol.ConsumePassively), g.ConsumeType)
	require.False(t, g.Broadcasting())
}

// Scenario 7-15: in RocketMQ A's pull is answered 24 after B's heartbeat.
func TestEachMemberKeepsItsOwnSubscription(t *testing.T) {
	c, _ := newTestClients()
	a, b := fakeConn(1), fakeConn(2)
	require.Empty(t, c.Heartbeat(a, Client{ID: "a"}, consumes("G", sub("TA", "x", 5), sub("%RETRY%G", "*", 5))).Conflicts)
	beat := c.Heartbeat(b, Client{ID: "b"}, consumes("G", sub("TB", "*", 9)))
	require.Equal(t, []Conflict{{Group: "G", Client: "a", Other: "b", Topic: "TA", Wanted: "x"}}, beat.Conflicts)
	require.Empty(t, c.Heartbeat(b, Client{ID: "b"}, consumes("G", sub("TB", "*", 10))).Conflicts, "reported once")

	g, _ := c.Group("G")
	require.NotNil(t, g.Conflict)
	require.Len(t, g.Subscriptions, 3)
	for _, want := range []struct {
		conn    fakeConn
		topic   string
		version int64
	}{{a, "TA", 5}, {b, "TB", 10}, {b, "TA", 5}, {a, "TB", 10}, {fakeConn(99), "TA", 5}} {
		s, ok := g.Subscription(want.topic, want.conn.ID())
		require.True(t, ok)
		require.Equal(t, want.version, s.SubVersion)
	}
	_, ok := g.Subscription("TC", 1)
	require.False(t, ok)

	// The same topic with another expression: each pulls by its own, the newest stands for the group.
	beat = c.Heartbeat(b, Client{ID: "b"}, consumes("G", sub("TA", "y", 11)))
	require.Equal(t, []Conflict{{Group: "G", Client: "a", Other: "b", Topic: "TA", Wanted: "x", OtherHas: "y"}}, beat.Conflicts)
	g, _ = c.Group("G")
	s, _ := g.Subscription("TA", a.ID())
	require.Equal(t, "x", s.SubString)
	s, _ = g.Subscription("TA", 99)
	require.Equal(t, "y", s.SubString)

	require.Empty(t, c.Heartbeat(a, Client{ID: "a"}, consumes("G", sub("TA", "y", 12))).Conflicts)
	g, _ = c.Group("G")
	require.Nil(t, g.Conflict, "they agree")
	c.Heartbeat(b, Client{ID: "b"}, consumes("G", sub("TB", "y", 13)))
	c.Closed(b)
	g, _ = c.Group("G")
	require.Nil(t, g.Conflict, "or the other left")
}

func TestASilentClientIsForgottenAfterTwoMinutes(t *testing.T) {
	c, now := newTestClients()
	c.Heartbeat(fakeConn(1), Client{ID: "a"}, consumes("G", sub("T", "*", 1)))
	c.Heartbeat(fakeConn(2), Client{ID: "b"}, consumes("G", sub("T", "*", 1)))
	c.Heartbeat(fakeConn(2), Client{ID: "b"}, produces("P"))
	now.advance(90 * time.Second)
	c.Heartbeat(fakeConn(1), Client{ID: "a"}, consumes("G", sub("T", "*", 1)))
	require.Empty(t, c.Expire(now.Now()))
	now.advance(31 * time.Second)
	require.Equal(t, []string{"G"}, c.Expire(now.Now()))
	require.Equal(t, []string{"a"}, ids(c, "G"))
	require.Empty(t, c.ProducerGroups())
	require.Len(t, c.conns, 1)
	g, _ := c.Group("G")
	require.Equal(t, 31*time.Second, now.Now().Sub(g.Members()[0].LastSeen()))
}

// Two entries with one name would leave queues without a reader: the members share them out by the list's length.
func TestAClientWithTwoConnectionsIsListedOnce(t *testing.T) {
	c, now := newTestClients()
	c.Heartbeat(fakeConn(1), Client{ID: "a"}, consumes("G", sub("T", "*", 1)))
	now.advance(time.Second)
	c.Heartbeat(fakeConn(2), Client{ID: "a"}, consumes("G", sub("T", "*", 1)))
	require.Equal(t, []string{"a"}, ids(c, "G"))
	g, _ := c.Group("G")
	require.Len(t, g.Conns(), 2)
	m, ok := g.Member("a")
	require.True(t, ok)
	require.Equal(t, fakeConn(2), m.Conn)
	_, ok = g.Member("b")
	require.False(t, ok)
	c.Closed(fakeConn(1))
	require.Equal(t, []string{"a"}, ids(c, "G"))
}

func TestProducers(t *testing.T) {
	c, now := newTestClients()
	c.Heartbeat(fakeConn(1), Client{ID: "a", Version: 1}, produces("P", "Q"))
	c.Heartbeat(fakeConn(2), Client{ID: "b"}, produces("P"))
	require.Equal(t, []string{"P", "Q"}, c.ProducerGroups())
	require.Len(t, c.Producers("P"), 2)
	seen := map[string]bool{}
	for range 4 {
		m, ok := c.PickProducer("P")
		require.True(t, ok)
		seen[m.ID] = true
	}
	require.Len(t, seen, 2, "each has its turn")
	_, ok := c.PickProducer("nosuch")
	require.False(t, ok)

	now.advance(time.Second)
	c.Heartbeat(fakeConn(3), Client{ID: "a", Version: 2}, produces("P"))
	m, ok := c.Producer("a")
	require.True(t, ok)
	require.Equal(t, int32(2), m.Version, "the connection heard of last")
	require.Empty(t, c.Unregister(fakeConn(3), "a", "P", ""))
	m, _ = c.Producer("a")
	require.Equal(t, int32(1), m.Version)
	c.Closed(fakeConn(1))
	_, ok = c.Producer("a")
	require.False(t, ok)
	require.Equal(t, []string{"P"}, c.ProducerGroups())
}

func TestAHeartbeatWithoutSubscriptionsNeedsThemToBeKnown(t *testing.T) {
	c, now := newTestClients()
	short := consumes("G")
	short.WithoutSub = true
	require.True(t, c.Heartbeat(fakeConn(1), Client{ID: "a"}, short).NeedFull)
	require.Empty(t, ids(c, "G"))
	c.Heartbeat(fakeConn(1), Client{ID: "a"}, consumes("G", sub("T", "*", 1)))
	now.advance(100 * time.Second)
	require.False(t, c.Heartbeat(fakeConn(1), Client{ID: "a"}, short).NeedFull)
	now.advance(100 * time.Second)
	require.Empty(t, c.Expire(now.Now()))
	g, _ := c.Group("G")
	require.Len(t, g.Subscriptions, 1)
}

func TestClientsFromManyGoroutines(t *testing.T) {
	c, _ := newTestClients()
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			conn := fakeConn(w)
			for i := range 100 {
				c.Heartbeat(conn, Client{ID: fmt.Sprint(w)}, consumes("G", sub("T", "*", int64(i))))
				if g, ok := c.Group("G"); ok {
					if s, ok := g.Subscription("T", conn.ID()); ok && s.SubVersion != int64(i) {
						panic("another member's subscription")
					}
				}
				if i%10 == 9 {
					c.Closed(conn)
				}
				c.Expire(time.UnixMilli(0))
			}
		})
	}
	wg.Wait()
	require.Empty(t, c.ConsumerGroups())
	require.Empty(t, c.conns)
}

func TestQueueLocks(t *testing.T) {
	now := newClock()
	l := NewLocks(LockOptions{Now: now.Now})
	q := func(id int32) protocol.MessageQueue {
		return protocol.MessageQueue{Topic: "T", BrokerName: "b", QueueID: id}
	}
	both := []protocol.MessageQueue{q(0), q(1)}
	require.Equal(t, both, l.Lock("G", "a", both))
	require.Empty(t, l.Lock("G", "b", both))
	require.Equal(t, both, l.Lock("H", "b", both), "another group")
	require.Equal(t, []protocol.MessageQueue{q(2)}, l.Lock("G", "b", []protocol.MessageQueue{q(0), q(2)}))
	holder, ok := l.Holder("G", q(0))
	require.True(t, ok)
	require.Equal(t, "a", holder)

	now.advance(40 * time.Second)
	require.Equal(t, []protocol.MessageQueue{q(0)}, l.Lock("G", "a", []protocol.MessageQueue{q(0)}), "renewed")
	now.advance(20 * time.Second)
	require.Equal(t, []protocol.MessageQueue{q(1)}, l.Lock("G", "b", both), "the other ran out after 60 s")
	l.Unlock("G", "b", both)
	holder, _ = l.Holder("G", q(0))
	require.Equal(t, "a", holder, "nobody unlocks what another holds")
	_, ok = l.Holder("G", q(1))
	require.False(t, ok)

	require.True(t, l.Held("G"))
	require.False(t, l.Held("nosuch"))
	now.advance(60 * time.Second)
	require.False(t, l.Held("G"))
	_, ok = l.Holder("G", q(0))
	require.False(t, ok)
	l.Expire()
	require.Empty(t, l.groups)
}
