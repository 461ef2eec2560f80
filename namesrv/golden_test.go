package namesrv

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/protocol"
)

// wire is what both sides of a captured exchange say, without what differs for good: who speaks, and what release.
type wire struct {
	Code   int32
	Opaque int32
	Codec  protocol.Codec
	Fields map[string]string
	Remark string
	Body   any
}

// meaning takes an answer apart so that two that mean the same are equal.
func meaning(t testing.TB, c *protocol.Command) wire {
	t.Helper()
	w := wire{Code: c.Code, Opaque: c.Opaque, Codec: c.Codec, Fields: map[string]string{}, Remark: c.Remark}
	require.NoError(t, c.Fields.Each(func(k, v []byte) error {
		w.Fields[string(k)] = string(v)
		return nil
	}))
	// The rest of RocketMQ's remark is an address to read on at.
	w.Remark, _, _ = strings.Cut(w.Remark, "\n")
	if len(c.Body) > 0 {
		require.NoError(t, protocol.Unmarshal(c.Body, &w.Body), "%s", c.Body)
		sortLists(w.Body)
	}
	return w
}

// sortLists makes lists of names comparable, which come in the order of a hash table.
func sortLists(v any) {
	m, ok := v.(map[string]any)
	if !ok {
		return
	}
	list, _ := m["topicList"].([]any)
	slices.SortFunc(list, func(a, b any) int { return strings.Compare(a.(string), b.(string)) })
}

func replay(t testing.TB, s *Server, name string) (got, want wire) {
	t.Helper()
	request, response := frames(t, name)
	p := dial(t, s)
	p.send(request)
	rep := p.receive()
	return meaning(t, &rep), meaning(t, response)
}

// wireBroker is the broker of the captures, with all topics that it has in them at the end.
func wireBroker(t testing.TB, addr string) Registration {
	t.Helper()
	_, list := frames(t, "ns-all-topic-list")
	var topics protocol.TopicList
	require.NoError(t, protocol.Unmarshal(list.Body, &topics))
	r := Registration{Cluster: "WireCluster", Broker: "wire-a", Addr: addr, HAAddr: "127.0.0.1:11912"}
	for _, name := range topics.TopicList {
		e := TopicEntry{Name: name, ReadQueues: 2, WriteQueues: 2, Perm: 6}
		if name == protocol.TopicDefault {
			e.ReadQueues, e.WriteQueues, e.Perm = 8, 8, 7
		}
		r.Topics = append(r.Topics, e)
	}
	return r
}

func TestGoldenRegistrations(t *testing.T) {
	s := start(t, Config{})
	for _, name := range []string{"register-broker-full", "register-broker-increment"} {
		got, want := replay(t, s, name)
		require.Equal(t, want, got, name)
	}
	// The broker's connections are closed, with it the broker, but not at once: so ask over the broker's own.
	p := dial(t, s)
	for _, name := range []string{"register-broker-full", "register-broker-increment"} {
		request, _ := frames(t, name)
		p.send(request)
		requireCode(t, protocol.Success, p.receive())
	}
	route, _ := p.route("T_j54")
	require.Equal(t, []string{"wire-a:6/0@127.0.0.2:11911"}, route.brokers())
	topics, _ := s.table.Size()
	require.Equal(t, 17, topics)
	for _, name := range []string{
		"route-default-topic", "route-found", "route-go-client", "route-497-client", "route-rocketmq",
		"cluster-info", "ns-system-topic-list-ns", "ns-unit-topic-list",
	} {
		got, want := replay(t, s, name)
		require.Equal(t, want, got, name)
	}
	request, _ := frames(t, "route-go-client")
	p.send(request)
	require.Contains(t, string(p.receive().Body), `{0:"127.0.0.2:11911"}`, "old clients get bare ids, as from RocketMQ")

	got, want := replay(t, s, "unregister-broker")
	require.Equal(t, want, got)
	got, want = replay(t, s, "route-not-found")
	require.Equal(t, want, got)
}

func TestGolden497Registrations(t *testing.T) {
	s := start(t, Config{})
	p := dial(t, s)
	request, response := frames(t, "register-broker-497-full")
	p.send(request)
	rep := p.receive()
	require.Equal(t, meaning(t, response), meaning(t, &rep))
	topics, _ := s.table.Size()
	require.Equal(t, 8, topics)
	oneway, none := frames(t, "register-broker-497-increment-oneway")
	require.Nil(t, none)
	p.send(oneway)
	route, _ := p.route("RMQ_SYS_TRANS_HALF_TOPIC") // the same lane, so after the registration
	require.Eventually(t, func() bool {             // or another, so soon
		route, _ = p.route("RMQ_SYS_TRANS_HALF_TOPIC")
		return route != nil
	}, waitLong, waitStep)
	require.Equal(t, []string{"wire-a:6/0@127.0.0.2:11921"}, route.brokers())

	// Another capture, of a 4.9.7 name server, which does not know enableActingMaster.
	p.register(wireBroker(t, "127.0.0.2:11931"))
	got, want := replay(t, s, "route-497-namesrv")
	broker := got.Body.(map[string]any)["brokerDatas"].([]any)[0].(map[string]any)
	require.Contains(t, broker, "enableActingMaster")
	delete(broker, "enableActingMaster")
	require.Equal(t, want, got)
}

func TestGoldenBinaryRegistration(t *testing.T) {
	s := start(t, Config{})
	p := dial(t, s)
	p.ask(protocol.PutKVConfig, nil, kv("namespace", "ORDER_TOPIC_CONFIG", "key", "k", "value", "v"), nil)
	p.ask(protocol.DeleteKVConfig, nil, kv("namespace", "ORDER_TOPIC_CONFIG", "key", "k"), nil)
	got, want := replay(t, s, "register-broker-rocketmq")
	require.Equal(t, want, got, "an order namespace that is empty is an empty table")
}

func TestGoldenTools(t *testing.T) {
	s := start(t, Config{})
	p := dial(t, s)
	requireCode(t, protocol.Success, p.register(wireBroker(t, "127.0.0.2:11911")))
	for _, name := range []string{
		"ns-all-topic-list", "ns-topics-by-cluster", "ns-wipe-write-perm", "ns-add-write-perm",
		"ns-put-kv", "ns-get-kv", "ns-kvlist-by-namespace", "ns-delete-kv", "ns-get-kv-missing", "ns-delete-topic-ns",
	} {
		got, want := replay(t, s, name)
		require.Equal(t, want, got, name)
	}
	_, code := p.route("TADM3")
	require.Equal(t, protocol.TopicNotExist, code)
}
