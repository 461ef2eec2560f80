package broker

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/internal/config"
	"github.com/ratchetmq/ratchet/internal/state"
	"github.com/ratchetmq/ratchet/internal/vfs/vfstest"
	"github.com/ratchetmq/ratchet/protocol"
	"github.com/ratchetmq/ratchet/remoting"
)

// nameServer takes registrations as RocketMQ's 4.9 does: once it has a table of some version it looks at no other of the
// same version.
type nameServer struct {
	testing.TB
	addr string

	mu      sync.Mutex
	version protocol.DataVersion
	topics  map[string]protocol.TopicConfig
	taken   int           // registrations
	slow    time.Duration // each takes so long
}

func newNameServer(t testing.TB) *nameServer { return newSlowNameServer(t, 0) }

func newSlowNameServer(t testing.TB, slow time.Duration) *nameServer {
	n := &nameServer{TB: t, topics: map[string]protocol.TopicConfig{}, slow: slow}
	server, err := remoting.NewServer(remoting.ServerConfig{
		Addrs: []string{"127.0.0.1:0"}, Handler: n, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = server.Run(ctx) })
	t.Cleanup(func() {
		stop()
		running.Wait()
	})
	n.addr = server.Addrs()[0].String()
	return n
}

func (n *nameServer) Serve(_ context.Context, r *remoting.Request) {
	if protocol.RequestCode(r.Code) == protocol.RegisterBroker {
		<-time.After(n.slow)
		var body protocol.RegisterBrokerBody
		if err := protocol.Unmarshal(r.Body, &body); err != nil {
			n.Error(err)
		}
		n.mu.Lock()
		if table := body.TopicConfigSerializeWrapper; table.DataVersion != n.version {
			n.version = table.DataVersion
			for name, c := range table.TopicConfigTable {
				n.topics[name] = c
			}
		}
		n.taken++
		n.mu.Unlock()
	}
	r.Reply(protocol.Reply{})
}

func (n *nameServer) topic(name string) (protocol.TopicConfig, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	c, ok := n.topics[name]
	return c, ok
}

func (n *nameServer) knows(topic string) bool {
	_, ok := n.topic(topic)
	return ok
}

// startRegistrar keeps the name server informed of a table of topics until the test ends. Changes wait until it knows.
func startRegistrar(t testing.TB, n *nameServer, perm func() int32) (*registrar, *state.Topics) {
	topics, err := state.OpenTopics(state.TopicOptions{
		Files: state.Files{FS: vfstest.New(), Dir: filepath.FromSlash("/store/config")}, Broker: "b", Cluster: "c",
		AutoCreate: func() bool { return true }, DefaultQueues: 4,
	})
	require.NoError(t, err)
	client, err := remoting.NewClient(remoting.ClientConfig{Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	g := newRegistrar(identity{
		cluster: "c", name: "b", id: func() int64 { return 0 }, addr: "127.0.0.1:1", heartbeat: time.Hour,
	}, topics, client, perm,
		slog.New(slog.DiscardHandler))
	g.patience = time.Minute
	ctx, stop := context.WithCancel(context.Background())
	t.Cleanup(func() {
		stop()
		g.wait()
		client.Close()
	})
	g.start(ctx, []string{n.addr})
	return g, topics
}

func everything() int32 { return protocol.PermRead | protocol.PermWrite }

// Two topics are made at the same time, and the word of the first is on its way when both are in the table. What tells
// of the first carries the version that stands for both.
func TestRegistrationTellsOfAllThatItsVersionStandsFor(t *testing.T) {
	n := newNameServer(t)
	g, topics := startRegistrar(t, n, everything)
	put := func(name string) state.TopicChange {
		c := protocol.TopicConfig{TopicName: name, ReadQueueNums: 1, WriteQueueNums: 1, Perm: everything()}
		_, err := topics.Put(c)
		require.NoError(t, err)
		return state.TopicChange{Put: []*protocol.TopicConfig{&c}, Version: topics.Version()}
	}
	first := put("First")
	second := put("Second")
	g.topicsChanged(first)
	g.topicsChanged(second)
	for _, name := range []string{"First", "Second"} {
		_, ok := n.topic(name)
		require.True(t, ok, name)
	}
	require.Equal(t, topics.Version(), n.version)
}

// Clients come as soon as a broker is started: it is known to its name servers then, though one is slow.
func TestStartWaitsForASlowNameServer(t *testing.T) {
	n := newSlowNameServer(t, 2*topicChangeWait)
	startRegistrar(t, n, everything)
	require.True(t, n.knows(protocol.TopicSelfTest))
}

// TestStartedMeansRegistered, for a broker that has nothing to wait for.
func TestStartedMeansRegistered(t *testing.T) {
	n := newSlowNameServer(t, 3*time.Second)
	settings, _, err := config.LoadBroker("test", []byte(strings.Join([]string{
		"bindAddress=127.0.0.1", "listenPort=0", "vipPortEnable=false", "namesrvAddr=" + n.addr, "mappedFileSizeCommitLog=1048576",
		"maxHashSlotNum=1000", "maxIndexNum=4000",
	}, "\n")), "/store", config.OSEnv())
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	b, err := Start(ctx, Config{Settings: settings, FS: vfstest.New(), Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	require.True(t, n.knows(protocol.TopicSelfTest))
	stop()
	require.NoError(t, b.Wait())
}

// Nobody waits for a name server that is away, nor do those pile up who did not.
func TestNobodyWaitsForANameServerThatIsAway(t *testing.T) {
	n := newNameServer(t)
	n.addr = "127.0.0.1:1"
	g, _ := startRegistrar(t, n, everything)
	for range 3 {
		g.topicsChanged(state.TopicChange{})
	}
	l := g.links[n.addr]
	l.mu.Lock()
	defer l.mu.Unlock()
	require.Empty(t, l.waiters)
	require.True(t, l.away)
}

// A topic that is told of is not told of again until it changes.
func TestRegistrationLeavesOutWhatIsKnown(t *testing.T) {
	n := newNameServer(t)
	g, topics := startRegistrar(t, n, everything)
	topics.OnChange(g.topicsChanged)
	put := func(name string, queues int32) {
		_, err := topics.Put(protocol.TopicConfig{TopicName: name, ReadQueueNums: queues, WriteQueueNums: queues, Perm: everything()})
		require.NoError(t, err)
	}
	put("T", 1)
	_, ok := n.topic("T")
	require.True(t, ok)
	n.mu.Lock()
	n.topics = map[string]protocol.TopicConfig{}
	n.mu.Unlock()
	put("U", 2)
	n.mu.Lock()
	require.Len(t, n.topics, 1)
	n.mu.Unlock()
	put("T", 3)
	c, _ := n.topic("T")
	require.EqualValues(t, 3, c.WriteQueueNums)
	_, err := topics.Delete("U")
	require.NoError(t, err)
	_, ok = n.topic("TBW102")
	require.True(t, ok, "when one is gone, all others are told")
}

// A name server learns of a broker's new permission although no topic has changed.
func TestRegistrationTellsOfThePermission(t *testing.T) {
	n := newNameServer(t)
	var perm atomic.Int32
	perm.Store(everything())
	g, _ := startRegistrar(t, n, perm.Load)
	c, _ := n.topic(protocol.TopicSelfTest)
	require.Equal(t, everything(), c.Perm)
	perm.Store(protocol.PermRead)
	g.RegisterAll()
	require.Eventually(t, func() bool {
		c, _ := n.topic(protocol.TopicSelfTest)
		return c.Perm == protocol.PermRead
	}, time.Minute, 5*time.Millisecond)
}
