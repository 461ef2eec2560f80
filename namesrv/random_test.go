package namesrv

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// check fails unless all parts of the table agree with each other.
func (b *bed) check() {
	b.Helper()
	members := 0
	for name, g := range b.groups {
		require.Equal(b, name, g.name)
		require.NotEmpty(b, g.members, "group %s is empty", name)
		for id, m := range g.members {
			members++
			require.Equal(b, id, m.id)
			require.Same(b, g, m.group)
			require.Same(b, m, b.byAddr[m.addr], "%s is found by its address", m.addr)
			require.Contains(b, b.byConn[m.conn], m, "%s is found by its connection", m.addr)
		}
		for name, q := range g.queues {
			require.Same(b, g, q.group)
			require.Same(b, b.topics[name], q.topic)
			require.Contains(b, q.topic.queues, q)
		}
	}
	require.Len(b, b.byAddr, members, "nobody else is found by an address")
	byConn := 0
	for conn, ms := range b.byConn {
		require.NotEmpty(b, ms, "connection %d", conn)
		byConn += len(ms)
	}
	require.Equal(b, members, byConn)
	for name, tp := range b.topics {
		require.Equal(b, name, tp.name)
		require.NotEmpty(b, tp.queues, "topic %s has no queue", name)
		for i, q := range tp.queues {
			require.Same(b, q, q.group.queues[name])
			require.Same(b, q.group, b.groups[q.group.name])
			require.True(b, i == 0 || tp.queues[i-1].group.name < q.group.name)
		}
		// What is cached is what would be encoded now.
		for variant := range tp.cached {
			cached, ok := b.Route(name, variant == 1)
			tp.forget()
			fresh, okFresh := b.Route(name, variant == 1)
			require.Equal(b, okFresh, ok)
			require.Equal(b, string(fresh), string(cached))
		}
	}
	var list int
	for range b.topicNames() {
		list++
	}
	require.Equal(b, len(b.topics), list, "the list is up to date")
}

// Any order of anything leaves a table whose parts agree.
func TestRandomOperations(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 7))
			b := newBed(t)
			b.SetOptions(Options{SupportActingMaster: seed%2 == 0})
			pick := func(prefix string, n int) string { return fmt.Sprint(prefix, random.IntN(n)) }
			for range 400 {
				switch random.IntN(12) {
				case 0, 1, 2, 3, 4:
					var topics []string
					for range random.IntN(6) {
						topics = append(topics, pick("T", 8))
					}
					r := body(random.Int64N(20), topics...)
					if random.IntN(2) == 0 {
						r = full(random.Int64N(20), topics...)
					}
					r = as(r, pick("b", 3), random.Int64N(3), pick("10.0.0.", 6), random.Uint64N(6))
					r.Cluster, r.Zone = pick("c", 2), pick("z", 2)
					r.Version.StateVersion = random.Int64N(3)
					if random.IntN(2) == 0 {
						r = acting(r)
					}
					_, _ = b.Register(r)
				case 5:
					b.Unregister(pick("c", 2), pick("b", 3), pick("10.0.0.", 6))
				case 6:
					b.ConnClosed(random.Uint64N(6))
				case 7:
					b.pass(time.Duration(random.IntN(60)) * time.Second)
					b.Expire(20 * time.Second)
				case 8:
					b.Heartbeat(pick("c", 2), pick("10.0.0.", 6), random.Uint64N(6))
				case 9:
					b.SetWritable(pick("b", 3), random.IntN(2) == 0)
				case 10:
					b.DeleteTopic(pick("T", 8), [3]string{"", "c0", "c1"}[random.IntN(3)])
				case 11:
					_, err := b.RegisterTopic(pick("T", 8), map[string]TopicEntry{pick("b", 3): {Perm: 6, ReadQueues: 1}})
					require.NoError(t, err)
				}
				b.check()
			}
			for conn := range uint64(6) {
				b.ConnClosed(conn)
			}
			topics, brokers := b.Size()
			require.Zero(t, topics+brokers, "without brokers the table is empty")
			require.Empty(t, b.byAddr)
			require.Empty(t, b.byConn)
		})
	}
}

// Readers beside every kind of change; the race detector watches.
func TestReadersBesideWriters(t *testing.T) {
	table := NewTable(nil)
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			name := fmt.Sprint("T", i%50)
			table.Route(name, i%2 == 0)
			table.ZoneRoute(name, "z", true)
			table.TopicList()
			table.ClusterTopics("c")
			table.ClusterInfo()
			table.SystemTopics()
			table.MemberGroup("c", "b")
			table.UnitTopics()
		}
	}()
	var names []string
	for i := range 2000 {
		names = append(names, fmt.Sprint("T", i))
	}
	for i := range 40 {
		r := full(int64(i), names[:len(names)-10*i]...)
		r.FilterServers, r.Zone = []string{fmt.Sprint(i)}, "z"
		_, err := table.Register(r)
		require.NoError(t, err)
		table.SetWritable("b", i%2 == 0)
		table.DeleteTopic(names[i], "")
		table.SetOptions(Options{SupportActingMaster: i%2 == 0})
		_, err = table.Register(acting(as(full(1), "b", 1, "10.0.0.2:1", 2)))
		require.NoError(t, err)
		table.ConnClosed(2)
		if i%10 == 9 {
			table.ConnClosed(1)
		}
	}
	close(stop)
	<-done
}
