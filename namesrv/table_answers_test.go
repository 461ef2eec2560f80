package namesrv

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestZones(t *testing.T) {
	b := newBed(t)
	zone := func(r Registration, z string) Registration { r.Zone = z; return r }
	b.register(zone(full(1, "T"), "East"))
	b.register(zone(as(full(1, "T"), "b2", 0, "10.0.0.2:10911", 2), "west"))
	b.register(as(full(1, "T"), "b3", 0, "10.0.0.3:10911", 3))
	b.register(zone(as(full(1, "T"), "b3", 1, "10.0.0.4:10911", 4), "far"))
	b.ConnClosed(3)
	names := func(zone string) (all []string) {
		body, ok := b.ZoneRoute("T", zone, true)
		require.True(t, ok)
		d := parseRoute(t, body)
		require.Len(t, d.QueueDatas, len(d.BrokerDatas))
		for _, bd := range d.BrokerDatas {
			all = append(all, bd.BrokerName)
		}
		return all
	}
	require.Equal(t, []string{"b", "b3"}, names("east"))
	require.Equal(t, []string{"b2", "b3"}, names("WEST"))
	require.Equal(t, []string{"b3"}, names("nowhere"), "without a master it is for everybody")
	require.Len(t, b.route("T").BrokerDatas, 3)
	require.Equal(t, "East", b.route("T").BrokerDatas[0].ZoneName)
	_, ok := b.ZoneRoute("U", "east", true)
	require.False(t, ok)
}

func TestFilterServersAndOrderConf(t *testing.T) {
	b := newBed(t)
	r := full(1, "T")
	r.FilterServers = []string{"f:1", "f:2"}
	b.register(r)
	require.Equal(t, map[string][]string{"10.0.0.1:10911": {"f:1", "f:2"}}, b.route("T").FilterServerTable)
	r.FilterServers = nil
	b.register(r)
	require.Len(t, b.route("T").FilterServerTable, 1)
	r.FilterServers = []string{}
	b.register(r)
	require.Empty(t, b.route("T").FilterServerTable)

	conf := ""
	b.SetOptions(Options{OrderTopicConf: func(topic string) string {
		if topic == "T" {
			return conf
		}
		return ""
	}})
	require.Empty(t, b.route("T").OrderTopicConf)
	conf = `b:4;"x"`
	b.Invalidate()
	require.Equal(t, conf, b.route("T").OrderTopicConf)
	require.Empty(t, b.route("b").OrderTopicConf)
}

func TestMappingsAreShown(t *testing.T) {
	b := newBed(t)
	r := full(1, "T")
	r.Topics[3].Mapping = []byte(`{"topic":"T","currIdMap":{"0":0}}`)
	b.register(r)
	body, _ := b.Route("T", true)
	require.Contains(t, string(body), `"topicQueueMappingByBroker":{"b":{"topic":"T","currIdMap":{"0":0}}}`)
	require.NotNil(t, b.route("T"))
	body, _ = b.Route("b", true)
	require.NotContains(t, string(body), "Mapping")
}

func TestDeleteAndRegisterTopic(t *testing.T) {
	b := newBed(t)
	b.register(full(1, "T"))
	far := as(full(1, "T"), "b2", 0, "10.0.0.2:10911", 2)
	far.Cluster = "d"
	b.register(far)
	require.Equal(t, 0, b.DeleteTopic("X", ""))
	require.Equal(t, 1, b.DeleteTopic("T", "d"))
	require.Equal(t, []string{"b:6/0@10.0.0.1:10911"}, b.route("T").brokers())
	require.Equal(t, 0, b.DeleteTopic("T", "d"))
	require.Equal(t, 1, b.DeleteTopic("T", ""))
	require.Nil(t, b.route("T"))
	b.register(full(1, "T"))
	require.NotNil(t, b.route("T"), "a broker that still has it brings it back")

	n, err := b.RegisterTopic("N", map[string]TopicEntry{
		"b": {ReadQueues: 3, WriteQueues: 3, Perm: 6}, "nobody": {ReadQueues: 3, WriteQueues: 3, Perm: 6},
	})
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Equal(t, []string{"b:6/0@10.0.0.1:10911"}, b.route("N").brokers())
	b.pass(time.Minute)
	b.register(full(2, "T"))
	require.NotNil(t, b.route("N"), "the full body may be older than the message")
	b.register(full(3, "T"))
	require.Nil(t, b.route("N"))
	_, err = b.RegisterTopic("../x", map[string]TopicEntry{"b": {Perm: 6}})
	require.ErrorIs(t, err, ErrName)
}

func TestListsAndClusters(t *testing.T) {
	b := newBed(t)
	require.JSONEq(t, `{"topicList":[]}`, string(b.TopicList()))
	require.JSONEq(t, `{"topicList":[]}`, string(b.SystemTopics()))
	require.JSONEq(t, `{"brokerAddrTable":{},"clusterAddrTable":{}}`, string(b.ClusterInfo()))
	r := full(1, "T", "U", "V")
	r.Topics[3].SysFlag, r.Topics[4].SysFlag, r.Topics[5].SysFlag = 1, 2, 3
	b.register(r)
	far := as(body(1, "W", "b"), "b2", 0, "10.0.0.2:10911", 2)
	far.Cluster = "d"
	b.register(far)
	b.register(as(body(1), "b", 1, "10.0.0.3:10911", 3))

	requireTopics := func(want []string, body []byte) {
		t.Helper()
		var l struct{ TopicList []string }
		require.NoError(t, json.Unmarshal(body, &l))
		require.ElementsMatch(t, want, l.TopicList)
	}
	requireTopics([]string{"T", "V"}, b.UnitTopics())
	requireTopics([]string{"U", "V"}, b.UnitSubTopics(false))
	requireTopics([]string{"U"}, b.UnitSubTopics(true))
	requireTopics([]string{"W", "b2"}, b.ClusterTopics("d"))
	require.JSONEq(t, `{"topicList":[]}`, string(b.ClusterTopics("x")))
	require.JSONEq(t, `{"brokerAddr":"10.0.0.1:10911","topicList":["b","c","b2","d"]}`, string(b.SystemTopics()))
	require.JSONEq(t, `{"brokerAddrTable":{
		"b":{"brokerAddrs":{"0":"10.0.0.1:10911","1":"10.0.0.3:10911"},"brokerName":"b","cluster":"c","enableActingMaster":false},
		"b2":{"brokerAddrs":{"0":"10.0.0.2:10911"},"brokerName":"b2","cluster":"d","enableActingMaster":false}},
		"clusterAddrTable":{"c":["b"],"d":["b2"]}}`, string(b.ClusterInfo()))
	require.JSONEq(t, `{"brokerMemberGroup":{"brokerAddrs":{"0":"10.0.0.1:10911","1":"10.0.0.3:10911"},"brokerName":"b","cluster":"c"}}`,
		string(b.MemberGroup("c", "b")))
	require.JSONEq(t, `{"brokerMemberGroup":{"brokerAddrs":{},"brokerName":"x","cluster":"c"}}`, string(b.MemberGroup("c", "x")))
	b.ConnClosed(2)
	require.NotContains(t, b.topicNames(), "W")
}

func TestNamesInRegistrations(t *testing.T) {
	b := newBed(t)
	for _, bad := range []string{"../b", "a/b", `a\b`, "", ".", "..", "a\x00b", "a\nb", strings.Repeat("x", 256)} {
		r := full(1)
		r.Broker = bad
		_, err := b.Register(r)
		require.ErrorIs(t, err, ErrName, "broker %q", bad)
		r = full(1)
		r.Cluster = bad
		_, err = b.Register(r)
		require.ErrorIs(t, err, ErrName, "cluster %q", bad)
	}
	for _, bad := range []string{"", "a:1,b:2", "a 1", "a/b"} {
		r := full(1)
		r.Addr = bad
		_, err := b.Register(r)
		require.ErrorIs(t, err, ErrName, "address %q", bad)
	}
	bad := []string{"../../../../tmp/x", "a/b", `a\b`, "", "ü", "a b", "a.b", strings.Repeat("x", 128), "%RETRY%" + strings.Repeat("x", 249)}
	good := []string{strings.Repeat("x", 127), "%RETRY%" + strings.Repeat("x", 248), "A-z_0|9%"}
	res := b.register(full(1, append(slices.Clone(bad), good...)...))
	require.Len(t, res.Refused, len(bad))
	for _, err := range res.Refused {
		require.ErrorIs(t, err, ErrName)
	}
	require.Len(t, b.topicNames(), 3+len(good), "the rest is registered")
	for _, name := range good {
		require.NotNil(t, b.route(name), "%s", name)
	}
}

func TestHostNamesAreBrokerNames(t *testing.T) {
	b := newBed(t)
	r := body(1, selfTestTopic, "node-1.example.org", "Größe", "Größe_REPLY_TOPIC", syncMemberPrefix+"node-1.example.org")
	r.Broker, r.Cluster = "node-1.example.org", "Größe"
	require.Empty(t, b.register(r).Refused)
	require.NotNil(t, b.route("Größe_REPLY_TOPIC"))
}

func TestRouteTextIsEscaped(t *testing.T) {
	require.Equal(t, `"a\"b\\c\u000a\u001fü"`, string(appendString(nil, "a\"b\\c\n\x1fü")))
}
