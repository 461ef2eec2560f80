package namesrv

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/internal/config"
	"github.com/ratchetmq/ratchet/internal/vfs"
	"github.com/ratchetmq/ratchet/protocol"
)

const (
	waitLong = 30 * time.Second
	waitStep = 5 * time.Millisecond
)

// A late close of an old connection never removes a broker that registered again over another.
func TestScenario4_01LateCloseOfAnOldConnection(t *testing.T) {
	s := start(t, Config{})
	first, second, client := dial(t, s), dial(t, s), dial(t, s)
	requireCode(t, protocol.Success, first.register(full(1, "T")))
	requireCode(t, protocol.Success, second.register(full(1, "T")))
	require.NoError(t, first.conn.Close())
	open := func() int { return s.Stats().Connections }
	require.Eventually(t, func() bool {
		_, code := client.route("T")
		require.Equal(t, protocol.Success, code)
		return open() == 2
	}, waitLong, waitStep)
	// The close has been seen; OnClose follows it. Route reads until a later close has been handled too.
	marker := dial(t, s)
	requireCode(t, protocol.Success, marker.register(as(full(1, "M"), "m", 0, "10.0.0.9:1", 0)))
	require.NoError(t, marker.conn.Close())
	require.Eventually(t, func() bool {
		_, code := client.route("T")
		require.Equal(t, protocol.Success, code)
		_, code = client.route("M")
		return code == protocol.TopicNotExist
	}, waitLong, waitStep)

	require.NoError(t, second.conn.Close())
	require.Eventually(t, func() bool {
		_, code := client.route("T")
		return code == protocol.TopicNotExist
	}, waitLong, waitStep, "the last connection's close does remove it")
}

// An address under a new broker name replaces the old name.
func TestScenario4_03BrokerRenamed(t *testing.T) {
	s := start(t, Config{})
	p := dial(t, s)
	requireCode(t, protocol.Success, p.register(as(full(1, "T"), "old-name", 0, "10.0.0.1:10911", 0)))
	requireCode(t, protocol.Success, p.register(as(full(1, "T"), "new-name", 0, "10.0.0.1:10911", 0)))
	rep := p.ask(protocol.GetBrokerClusterInfo, nil, nil, nil)
	var info protocol.ClusterInfo
	require.NoError(t, protocol.Unmarshal(rep.Body, &info))
	require.Equal(t, map[string][]string{"c": {"new-name"}}, info.ClusterAddrTable)
	require.Len(t, info.BrokerAddrTable, 1)
	for topic, code := range map[string]protocol.ResponseCode{"old-name": protocol.TopicNotExist, "new-name": 0, "T": 0} {
		route, got := p.route(topic)
		require.Equal(t, code, got, topic)
		if route != nil {
			require.Equal(t, []string{"new-name:6/0@10.0.0.1:10911"}, route.brokers())
		}
	}
}

// A name server that has just started does not say that a topic does not exist, until the first broker has registered.
func TestScenario4_05FreshNameServer(t *testing.T) {
	var mu sync.Mutex
	clock := time.Now()
	now := func() time.Time { mu.Lock(); defer mu.Unlock(); return clock }
	pass := func(d time.Duration) { mu.Lock(); defer mu.Unlock(); clock = clock.Add(d) }

	ask := func(p *peer) protocol.Command {
		return p.ask(protocol.GetRouteInfoByTopic, &protocol.GetRouteInfoRequest{Topic: "T"}, nil, nil)
	}
	s := start(t, Config{Now: now})
	p := dial(t, s)
	rep := ask(p)
	requireCode(t, protocol.SystemError, rep)
	require.Contains(t, rep.Remark, "name server not ready")
	requireCode(t, protocol.Success, p.register(full(1)))
	requireCode(t, protocol.TopicNotExist, ask(p)) // at once, and not only after the grace
	p.register(body(2, "T"))
	requireCode(t, protocol.Success, ask(p))

	alone := dial(t, start(t, Config{Now: now}))
	pass(29 * time.Second)
	requireCode(t, protocol.SystemError, ask(alone))
	pass(time.Second)
	requireCode(t, protocol.TopicNotExist, ask(alone))

	requireCode(t, protocol.TopicNotExist, ask(dial(t, start(t, Config{Now: now, StartGrace: -1}))))

	set := new(config.Namesrv)
	config.Defaults(set)
	set.NeedWait = true
	waiting := dial(t, start(t, Config{Now: now, Settings: config.NewLive(set, nil, config.OSEnv())}))
	requireCode(t, protocol.Success, waiting.register(full(1)))
	requireCode(t, protocol.SystemError, ask(waiting))
	pass(45 * time.Second)
	requireCode(t, protocol.TopicNotExist, ask(waiting))
}

// Lists of 60,000 topics, and registrations of as many, do not hold up route reads.
func TestScenario4_07ManyTopics(t *testing.T) {
	const n = 60_000
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("topic-with-a-usual-name-%05d", i)
	}
	// An event loop that waits for its sockets keeps its processor for up to 10 ms, which the clients, being in the same
	// process here, then lack.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(8))
	s := start(t, Config{})
	broker := dial(t, s)
	requireCode(t, protocol.Success, broker.register(full(1, names...)))

	for attempt := 1; ; attempt++ {
		slowest, reads, others := listWhileReading(t, s, broker, names, int64(100*attempt))
		p99, otherP99 := reads[len(reads)*99/100], others[len(others)*99/100]
		t.Logf("%d topics: slowest list %v; %d route reads, median %v, p99 %v, slowest %v; p99 of requests without a table %v",
			n, slowest, len(reads), reads[len(reads)/2], p99, reads[len(reads)-1], otherP99)
		// Requests that do not look at the table wait for the processor as long as all others do.
		if slowest < time.Second && p99 < max(20*time.Millisecond, 2*otherP99) {
			return
		}
		require.Less(t, attempt, 5, "neither in any of %d rounds", attempt)
	}
}

// listWhileReading lists all topics 15 times, with a new topic before each, while 50 clients read routes and 20 ask for
// what does not exist. It returns the time of the slowest list and, sorted, of all the others.
func listWhileReading(
	t *testing.T, s *Server, broker *peer, names []string, counter int64,
) (slowest time.Duration, reads, others []time.Duration) {
	t.Helper()
	stop := make(chan struct{})
	var clients sync.WaitGroup
	times := make([][]time.Duration, 70)
	for i := range times {
		p := dial(t, s)
		c, want := protocol.GetRouteInfoByTopic, protocol.Success
		if i >= 50 {
			c, want = 70000, protocol.RequestCodeNotSupported
		}
		clients.Go(func() {
			for k := i; ; k += 977 {
				select {
				case <-stop:
					return
				case <-time.After(20 * time.Millisecond): // a pace: 3,500 requests a second
				}
				began := time.Now()
				rep := p.ask(c, &protocol.GetRouteInfoRequest{Topic: names[k%len(names)]}, nil, nil)
				if code(rep) != want {
					t.Errorf("%s: %s", names[k%len(names)], rep.Remark)
					return
				}
				times[i] = append(times[i], time.Since(began))
			}
		})
	}
	admin := dial(t, s)
	var last protocol.TopicList
	for i := range int64(15) {
		name := fmt.Sprintf("another-%d", counter+i)
		requireCode(t, protocol.Success, broker.register(body(counter+i, name)))
		began := time.Now()
		rep := admin.ask(protocol.GetAllTopicListFromNameServer, nil, nil, nil)
		slowest = max(slowest, time.Since(began))
		require.True(t, bytes.Contains(rep.Body, []byte(`"`+name+`"`)))
		if i == 14 {
			require.NoError(t, protocol.Unmarshal(rep.Body, &last))
		}
		<-time.After(100 * time.Millisecond)
	}
	close(stop)
	clients.Wait()
	require.Greater(t, len(last.TopicList), len(names)+15)
	reads, others = slices.Concat(times[:50]...), slices.Concat(times[50:]...)
	slices.Sort(reads)
	slices.Sort(others)
	return slowest, reads, others
}

// A topic deleted on one of two brokers leaves that broker's routes with its next full registration.
func TestScenario4_08TopicDeletedOnOneBroker(t *testing.T) {
	s := start(t, Config{})
	a, b := dial(t, s), dial(t, s)
	brokerA := func(r Registration) Registration { return as(r, "broker-a", 0, "10.0.0.1:10911", 0) }
	brokerB := func(r Registration) Registration { return as(r, "broker-b", 0, "10.0.0.2:10911", 0) }
	a.register(brokerA(full(1, "T", "U")))
	b.register(brokerB(full(1, "T", "U")))
	route, _ := a.route("T")
	require.Len(t, route.brokers(), 2)

	requireCode(t, protocol.Success, a.register(brokerA(full(2, "U"))))
	route, _ = a.route("T")
	require.Equal(t, []string{"broker-b:6/0@10.0.0.2:10911"}, route.brokers())
	route, _ = a.route("U")
	require.Len(t, route.brokers(), 2)

	// An increment deletes nothing.
	requireCode(t, protocol.Success, b.register(brokerB(body(2, "V"))))
	route, _ = a.route("T")
	require.Equal(t, []string{"broker-b:6/0@10.0.0.2:10911"}, route.brokers())
	requireCode(t, protocol.Success, b.register(brokerB(full(3, "U", "V"))))
	_, code := a.route("T")
	require.Equal(t, protocol.TopicNotExist, code)
}

// A broker that comes back without TBW102 is no longer a place to create topics.
func TestScenario4_09AutoCreateSwitchedOff(t *testing.T) {
	s := start(t, Config{})
	before := dial(t, s)
	before.register(full(1, protocol.TopicDefault))
	// A slave keeps the broker's routes while the master restarts.
	slave := dial(t, s)
	slave.register(as(full(1, protocol.TopicDefault), "b", 1, "10.0.0.2:10911", 0))
	require.NoError(t, before.conn.Close())
	require.Eventually(t, func() bool {
		route, _ := slave.route(protocol.TopicDefault)
		return slices.Equal(route.brokers(), []string{"b:6/1@10.0.0.2:10911"})
	}, waitLong, waitStep)

	after := dial(t, s)
	requireCode(t, protocol.Success, after.register(full(1)))
	_, code := after.route(protocol.TopicDefault)
	require.Equal(t, protocol.TopicNotExist, code)
	_, code = after.route("b")
	require.Equal(t, protocol.Success, code)
}

// A KV entry without a key is refused, and a file with one hurts nobody.
func TestScenario4_13NullKey(t *testing.T) {
	path := t.TempDir() + "/kvConfig.json"
	set := new(config.Namesrv)
	config.Defaults(set)
	set.KVPath = path
	writeFile(t, path, `{"configTable":{"ORDER_TOPIC_CONFIG":{null:"b:4","T":"b:8"},null:{"k":"v"}}}`)
	s := start(t, Config{Settings: config.NewLive(set, nil, config.OSEnv())})
	p := dial(t, s)
	for _, fields := range [][]protocol.KV{
		kv("namespace", "N", "value", "v"), kv("key", "k", "value", "v"), kv("namespace", "N", "key", "", "value", "v"),
		kv("namespace", "", "key", "k", "value", "v"), kv("namespace", "N", "key", "k"), nil,
	} {
		requireCode(t, protocol.SystemError, p.ask(protocol.PutKVConfig, nil, fields, nil))
	}
	rep := p.register(full(1, "T"))
	requireCode(t, protocol.Success, rep)
	require.JSONEq(t, `{"table":{"T":"b:8"}}`, string(rep.Body))
	requireCode(t, protocol.Success, p.ask(protocol.PutKVConfig, nil, kv("namespace", "N", "key", "k", "value", ""), nil))

	kv2, err := openKV(vfs.OS{}, path, s.log)
	require.NoError(t, err)
	require.Equal(t, kvTable{"ORDER_TOPIC_CONFIG": {"T": "b:8"}, "N": {"k": ""}}, *kv2.table.Load())
}

// 500 topics made at the same time, whose increments come in any order and mixed with full registrations, are all
// there in the end, on a name server that missed half of them too.
func TestScenario4_15ConcurrentCreation(t *testing.T) {
	s := start(t, Config{})
	var known []string
	counter := int64(1)
	var sendings []Registration
	for i := range 500 {
		name := fmt.Sprintf("T%03d", i)
		stale := full(counter, slices.Clone(known)...)
		counter++
		known = append(known, name)
		sendings = append(sendings, body(counter, name))
		if i%50 == 0 {
			// A table copied before the topic was made, with the version read after.
			stale.Version.Counter += int64(i/50) % 2
			sendings = append(sendings, stale)
		}
	}
	// What one connection sends arrives in order, but a broker hands its requests to it from ten threads.
	for i := 0; i+10 < len(sendings); i += 10 {
		slices.Reverse(sendings[i : i+10])
	}
	p := dial(t, s)
	requireCode(t, protocol.Success, p.register(full(1)))
	late := start(t, Config{})
	q := dial(t, late)
	for i, r := range sendings {
		requireCode(t, protocol.Success, p.register(r))
		if i == len(sendings)/2 {
			requireCode(t, protocol.Success, q.register(full(r.Version.Counter)))
		}
		if i > len(sendings)/2 {
			requireCode(t, protocol.Success, q.register(r))
		}
	}
	for _, name := range known {
		_, code := p.route(name)
		require.Equal(t, protocol.Success, code, "%s before the next full registration", name)
	}
	// The one that missed something asks for everything.
	changed := func(c *peer) string {
		version, err := protocol.Marshal(&protocol.DataVersion{Counter: counter, Timestamp: 1000})
		require.NoError(t, err)
		rep := c.ask(protocol.QueryDataVersion, &protocol.QueryDataVersionRequest{
			BrokerName: "b", BrokerAddr: "10.0.0.1:10911", ClusterName: "c",
		}, nil, version)
		requireCode(t, protocol.Success, rep)
		v, _ := rep.Fields.Get("changed")
		return v
	}
	require.Equal(t, "true", changed(q))
	requireCode(t, protocol.Success, q.register(full(counter, known...)))
	require.Equal(t, "false", changed(q))
	for _, name := range known {
		_, code := q.route(name)
		require.Equal(t, protocol.Success, code, name)
	}
}

// Registered names cannot lead out of a folder.
func TestScenario6_03NamesWithPaths(t *testing.T) {
	s := start(t, Config{})
	p := dial(t, s)
	for _, bad := range []string{"../../../../tmp/x", "a/b", `a\b`, "ä"} {
		rep := p.register(full(1, "T", bad))
		requireCode(t, protocol.SystemError, rep)
		require.Contains(t, rep.Remark, "not allowed")
		_, code := p.route(bad)
		require.Equal(t, protocol.TopicNotExist, code)
		_, code = p.route("T")
		require.Equal(t, protocol.Success, code, "the broker is not punished for one bad topic")
	}
	for _, r := range []Registration{as(full(1), "../b", 0, "10.0.0.3:1", 0), as(full(1), "a/b", 0, "10.0.0.3:1", 0)} {
		requireCode(t, protocol.SystemError, p.register(r))
	}
	_, brokers := s.table.Size()
	require.Equal(t, 1, brokers)
}

// Unknown request codes are answered at once.
func TestScenario6_20UnknownCode(t *testing.T) {
	p := dial(t, start(t, Config{}))
	for _, c := range []protocol.RequestCode{70000, -5, 0, 10, protocol.SendMessageV2} {
		rep := p.ask(c, nil, nil, nil)
		requireCode(t, protocol.RequestCodeNotSupported, rep)
		require.Equal(t, fmt.Sprintf(" request type %d not supported", int32(c)), rep.Remark)
	}
}
