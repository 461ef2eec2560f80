package namesrv

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/internal/config"
	"github.com/ratchetmq/ratchet/internal/vfs"
	"github.com/ratchetmq/ratchet/protocol"
)

func writeFile(t testing.TB, path, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

func settings(t testing.TB, change func(*config.Namesrv)) *config.Live[config.Namesrv] {
	t.Helper()
	set := new(config.Namesrv)
	config.Defaults(set)
	change(set)
	return config.NewLive(set, nil, config.OSEnv())
}

func TestMalformedHeadersNameTheField(t *testing.T) {
	p := dial(t, start(t, Config{}))
	for _, c := range []struct {
		code   protocol.RequestCode
		fields []protocol.KV
		want   string
	}{
		{protocol.GetRouteInfoByTopic, nil, "topic"},
		{protocol.RegisterBroker, nil, "brokerName"},
		{protocol.RegisterBroker, kv("brokerName", "b", "brokerAddr", "a:1", "clusterName", "c", "haServerAddr", "h"), "brokerId"},
		{protocol.RegisterBroker, kv("brokerName", "b", "brokerAddr", "a:1", "clusterName", "c", "haServerAddr", "h", "brokerId", "x"), "brokerId"},
		{protocol.UnregisterBroker, kv("brokerName", "b"), "brokerAddr"},
		{protocol.QueryDataVersion, kv("brokerName", "b"), "brokerAddr"},
		{protocol.BrokerHeartbeat, kv("brokerName", "b"), "clusterName"},
		{protocol.GetBrokerMemberGroup, kv("brokerName", "b"), "clusterName"},
		{protocol.RegisterTopicInNamesrv, nil, "topic"},
		{protocol.PutKVConfig, kv("namespace", "n", "value", "v"), "key"},
		{protocol.GetKVConfig, kv("key", "k"), "namespace"},
		{protocol.DeleteKVConfig, kv("namespace", "n"), "key"},
		{protocol.GetKVListByNamespace, nil, "namespace"},
		{protocol.WipeWritePermOfBroker, nil, "brokerName"},
		{protocol.AddWritePermOfBroker, nil, "brokerName"},
		{protocol.GetTopicsByCluster, nil, "cluster"},
		{protocol.DeleteTopicInNamesrv, nil, "topic"},
	} {
		rep := p.ask(c.code, nil, c.fields, nil)
		requireCode(t, protocol.SystemError, rep)
		require.Contains(t, rep.Remark, c.want, "%s", c.code)
	}
}

func TestRegistrationBodies(t *testing.T) {
	s := start(t, Config{})
	p := dial(t, s)
	r := full(1, "T")
	body := encode(t, r)
	h := header(r)

	h.BodyCRC32 = protocol.BodyCRC(body) + 1
	rep := p.ask(protocol.RegisterBroker, h, nil, body)
	requireCode(t, protocol.SystemError, rep)
	require.Contains(t, rep.Remark, "crc32 not match")
	require.False(t, s.table.Registered())
	h.BodyCRC32 = 0

	for _, bad := range [][]byte{
		[]byte("{"), []byte("[]x"), []byte(strings.Repeat("[", 5000)), []byte(`{"topicConfigSerializeWrapper":7}`),
		body[:len(body)-1],
		{0xff, 0, 1},
	} {
		rep := p.ask(protocol.RegisterBroker, h, nil, bad)
		requireCode(t, protocol.SystemError, rep)
		require.Contains(t, rep.Remark, "malformed")
	}
	h.Compressed = true
	for _, bad := range [][]byte{[]byte("{}"), {0x78, 0xda, 1}} {
		rep := p.ask(protocol.RegisterBroker, h, nil, bad)
		requireCode(t, protocol.SystemError, rep)
		require.Contains(t, rep.Remark, "malformed")
	}
	require.False(t, s.table.Registered())

	var b protocol.RegisterBrokerBody
	require.NoError(t, protocol.Unmarshal(body, &b))
	for _, version := range []int32{protocol.Version, 407} {
		packed, err := protocol.EncodeRegisterBody(&b, true, version)
		require.NoError(t, err)
		h.BodyCRC32 = protocol.BodyCRC(packed)
		h.Compressed = version == 407 // brokers of 5.x say that it is not
		p.send(asVersion(protocol.AppendRequest(nil, protocol.JSON, protocol.RegisterBroker, 7, false, h, nil, packed), version))
		requireCode(t, protocol.Success, p.receive())
		route, _ := p.route("T")
		require.Equal(t, []string{"b:6/0@10.0.0.1:10911"}, route.brokers())
		p.ask(protocol.UnregisterBroker, &protocol.UnregisterBrokerRequest{BrokerName: "b", BrokerAddr: r.Addr, ClusterName: "c"}, nil, nil)
	}
	h.Compressed, h.BodyCRC32 = false, 0
	requireCode(t, protocol.Success, p.ask(protocol.RegisterBroker, h, nil, nil)) // no body, no topics
	rep = p.ask(protocol.RegisterBroker, header(as(full(1), "n", 0, "10.0.0.8:1", 0)), nil, encode(t, Registration{Topics: full(1).Topics[:1]}))
	requireCode(t, protocol.SystemError, rep)
	require.Contains(t, rep.Remark, "register broker failed")
}

// asVersion changes the version in a JSON frame.
func asVersion(frame []byte, version int32) []byte {
	old := fmt.Sprintf(`"version":%d`, protocol.Version)
	return bytes.Replace(frame, []byte(old), fmt.Appendf(nil, `"version":%d`, version), 1)
}

func TestSlaveGetsItsMasterInTheAnswer(t *testing.T) {
	s := start(t, Config{})
	master, slave := dial(t, s), dial(t, s)
	r := as(full(1, "T"), "b", 1, "10.0.0.2:10911", 0)
	rep := slave.register(r)
	_, ok := rep.Fields.Get("masterAddr")
	require.False(t, ok)
	rep = master.register(full(1, "T"))
	_, ok = rep.Fields.Get("masterAddr")
	require.False(t, ok)
	rep = slave.register(r)
	addr, _ := rep.Fields.Get("masterAddr")
	require.Equal(t, "10.0.0.1:10911", addr)
	addr, _ = rep.Fields.Get("haServerAddr")
	require.Equal(t, "10.0.0.1:10912", addr)
}

func TestZonesOnTheWire(t *testing.T) {
	p := dial(t, start(t, Config{}))
	for i, zone := range []string{"z1", "z2"} {
		r := as(full(1, "T"), "b"+zone, 0, fmt.Sprintf("10.0.0.%d:1", i), 0)
		requireCode(t, protocol.Success, p.ask(protocol.RegisterBroker, header(r), kv(fieldZoneName, zone), encode(t, r)))
	}
	ask := func(fields ...string) int {
		rep := p.ask(protocol.GetRouteInfoByTopic, nil, kv(append(fields, "topic", "T", "acceptStandardJsonOnly", "true")...), nil)
		return len(parseRoute(t, rep.Body).BrokerDatas)
	}
	require.Equal(t, 2, ask())
	require.Equal(t, 2, ask(fieldZoneName, "z1"))
	require.Equal(t, 2, ask(fieldZoneName, "z1", fieldZoneMode, "false"))
	require.Equal(t, 2, ask(fieldZoneName, " ", fieldZoneMode, "true"))
	require.Equal(t, 1, ask(fieldZoneName, "z1", fieldZoneMode, "true"))
}

func TestBrokerIDsAreQuotedForThoseWhoReadThat(t *testing.T) {
	p := dial(t, start(t, Config{}))
	p.register(full(1, "T"))
	for _, c := range []struct {
		version int32
		flag    bool
		want    string
	}{{317, false, "{0:"}, {400, false, "{0:"}, {401, false, `{"0":`}, {493, false, `{"0":`}, {317, true, `{"0":`}} {
		frame := protocol.AppendRequest(nil, protocol.JSON, protocol.GetRouteInfoByTopic, 1, false,
			&protocol.GetRouteInfoRequest{Topic: "T", AcceptStandardJSONOnly: c.flag}, nil, nil)
		p.send(asVersion(frame, c.version))
		require.Contains(t, string(p.receive().Body), `"brokerAddrs":`+c.want, "version %d, flag %v", c.version, c.flag)
	}
}

func TestHeartbeatAndTopicRegistration(t *testing.T) {
	s := start(t, Config{})
	p := dial(t, s)
	requireCode(t, protocol.Success, p.register(full(1, "T")))
	requireCode(t, protocol.Success, p.ask(protocol.BrokerHeartbeat, nil,
		kv("clusterName", "c", "brokerName", "b", "brokerAddr", "10.0.0.1:10911"), nil))
	requireCode(t, protocol.Success, p.ask(protocol.BrokerHeartbeat, nil,
		kv("clusterName", "c", "brokerName", "x", "brokerAddr", "10.0.0.9:10911"), nil))
	requireCode(t, protocol.Success, p.ask(protocol.RegisterTopicInNamesrv, nil, kv("topic", "N"),
		[]byte(`{"brokerDatas":[],"queueDatas":[{"brokerName":"b","perm":6,"readQueueNums":3,"writeQueueNums":3,"topicSysFlag":0}]}`)))
	route, _ := p.route("N")
	require.EqualValues(t, 3, route.QueueDatas[0].WriteQueueNums)
	requireCode(t, protocol.SystemError, p.ask(protocol.RegisterTopicInNamesrv, nil, kv("topic", "N"), []byte("{")))
	requireCode(t, protocol.SystemError, p.ask(protocol.QueryDataVersion, nil,
		kv("clusterName", "c", "brokerName", "b", "brokerAddr", "10.0.0.1:10911", "brokerId", "0"), []byte("{")))
	rep := p.ask(protocol.GetBrokerMemberGroup, nil, kv("clusterName", "c", "brokerName", "b"), nil)
	require.JSONEq(t, `{"brokerMemberGroup":{"brokerAddrs":{"0":"10.0.0.1:10911"},"brokerName":"b","cluster":"c"}}`, string(rep.Body))
}

func TestOrderTopics(t *testing.T) {
	live := settings(t, func(*config.Namesrv) {})
	p := dial(t, start(t, Config{Settings: live}))
	require.Empty(t, p.register(full(1, "T")).Body)
	p.ask(protocol.PutKVConfig, nil, kv("namespace", "ORDER_TOPIC_CONFIG", "key", "T", "value", "b:4"), nil)
	require.JSONEq(t, `{"table":{"T":"b:4"}}`, string(p.register(full(1, "T")).Body))
	route, _ := p.route("T")
	require.Empty(t, route.OrderTopicConf, "orderMessageEnable is off by default")
	requireCode(t, protocol.Success, p.ask(protocol.UpdateNamesrvConfig, nil, nil, []byte("orderMessageEnable=true\nreturnOrderTopicConfigToBroker=false")))
	route, _ = p.route("T")
	require.Equal(t, "b:4", route.OrderTopicConf)
	require.Empty(t, p.register(full(1, "T")).Body)
	p.ask(protocol.PutKVConfig, nil, kv("namespace", "ORDER_TOPIC_CONFIG", "key", "T", "value", "b:5"), nil)
	route, _ = p.route("T")
	require.Equal(t, "b:5", route.OrderTopicConf)
	p.ask(protocol.DeleteKVConfig, nil, kv("namespace", "ORDER_TOPIC_CONFIG", "key", "T"), nil)
	route, _ = p.route("T")
	require.Empty(t, route.OrderTopicConf)
}

func TestSettings(t *testing.T) {
	path := t.TempDir() + "/namesrv.conf"
	writeFile(t, path, "# mine\nlistenPort=0\norderMessageEnable = false\n")
	p := dial(t, start(t, Config{Settings: settings(t, func(n *config.Namesrv) {
		n.ConfPath = path
		n.BlackList = config.List{"supportActingMaster"}
	})}))
	text := string(p.ask(protocol.GetNamesrvConfig, nil, nil, nil).Body)
	require.Contains(t, text, "orderMessageEnable=false\n")
	for _, key := range []string{"configBlackList", "configStorePath", "kvConfigPath", "supportActingMaster"} {
		rep := p.ask(protocol.UpdateNamesrvConfig, nil, nil, []byte("orderMessageEnable=true\n"+key+"=true"))
		requireCode(t, protocol.NoPermission, rep)
		require.Contains(t, rep.Remark, "black list")
	}
	requireCode(t, protocol.SystemError, p.ask(protocol.UpdateNamesrvConfig, nil, nil, []byte("orderMessageEnable=maybe")))
	require.Equal(t, text, string(p.ask(protocol.GetNamesrvConfig, nil, nil, nil).Body), "nothing of a refused change is left")
	requireCode(t, protocol.Success, p.ask(protocol.UpdateNamesrvConfig, nil, nil, nil))
	requireCode(t, protocol.Success, p.ask(protocol.UpdateNamesrvConfig, nil, nil, []byte("orderMessageEnable=true\nenableAllTopicList=false\nenableTopicList=false")))
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Contains(t, string(data), "# mine\nlistenPort=0\n")
	require.Contains(t, string(data), "orderMessageEnable = true\n")
	for _, c := range []protocol.RequestCode{protocol.GetAllTopicListFromNameServer, protocol.GetSystemTopicListFromNS, protocol.GetUnitTopicList} {
		rep := p.ask(c, nil, nil, nil)
		requireCode(t, protocol.SystemError, rep)
		require.Equal(t, "disable", rep.Remark)
	}
}

func TestKVIsKept(t *testing.T) {
	dir := t.TempDir()
	path := dir + "/sub/kvConfig.json"
	live := func() *config.Live[config.Namesrv] {
		return settings(t, func(n *config.Namesrv) { n.KVPath = path })
	}
	s, err := New(Config{Addrs: []string{"127.0.0.1:0"}, Settings: live()})
	require.NoError(t, err)
	stop := run(t, s)
	p := dial(t, s)
	requireCode(t, protocol.QueryNotFound, p.ask(protocol.GetKVListByNamespace, nil, kv("namespace", "N"), nil))
	for i := range 3 {
		requireCode(t, protocol.Success, p.ask(protocol.PutKVConfig, nil, kv("namespace", "N", "key", fmt.Sprint(i), "value", "v"), nil))
	}
	requireCode(t, protocol.Success, p.ask(protocol.DeleteKVConfig, nil, kv("namespace", "N", "key", "1"), nil))
	requireCode(t, protocol.Success, p.ask(protocol.DeleteKVConfig, nil, kv("namespace", "X", "key", "1"), nil))
	stop()

	p = dial(t, start(t, Config{Settings: live()}))
	rep := p.ask(protocol.GetKVListByNamespace, nil, kv("namespace", "N"), nil)
	require.JSONEq(t, `{"table":{"0":"v","2":"v"}}`, string(rep.Body))

	for _, damaged := range []string{"", "{", "\x00\x00\x00", "[]"} {
		require.NoError(t, os.RemoveAll(path+".bak"))
		writeFile(t, path, damaged)
		p := dial(t, start(t, Config{Settings: live()}))
		requireCode(t, protocol.QueryNotFound, p.ask(protocol.GetKVConfig, nil, kv("namespace", "N", "key", "0"), nil))
		aside, err := os.ReadFile(path + damagedSuffix)
		require.NoError(t, err)
		require.Equal(t, damaged, string(aside))
	}
}

func TestKVChangesNothingThatItCannotSave(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir+"/file", "")
	log := slog.New(slog.DiscardHandler)
	kv, err := openKV(vfs.OS{}, dir+"/kv.json", log)
	require.NoError(t, err)
	require.NoError(t, kv.put("N", "a", "1"))
	kv.path = dir + "/file/kv.json" // a folder that cannot be made
	require.Error(t, kv.put("N", "a", "2"))
	require.Error(t, kv.delete("N", "a"))
	v, err := kv.get("N", "a")
	require.NoError(t, err)
	require.Equal(t, "1", v)
	_, err = openKV(vfs.OS{}, dir+"/file/kv.json", log)
	require.Error(t, err, "a disk that does not answer is no empty table")
}

func TestExpiredBrokerIsCutOff(t *testing.T) {
	s := start(t, Config{Settings: settings(t, func(n *config.Namesrv) { n.ScanEvery = 20 * time.Millisecond })})
	p, client := dial(t, s), dial(t, s)
	h := header(full(1, "T"))
	h.HeartbeatTimeoutMillis = protocol.Some[int64](200)
	requireCode(t, protocol.Success, p.ask(protocol.RegisterBroker, h, nil, encode(t, full(1, "T"))))
	_, err := p.read()
	require.ErrorIs(t, err, io.EOF, "the connection is closed")
	_, code := client.route("T")
	require.Equal(t, protocol.TopicNotExist, code)
}

func TestSeveralNameServersAreIndependent(t *testing.T) {
	a, b := dial(t, start(t, Config{StartGrace: -1})), dial(t, start(t, Config{StartGrace: -1}))
	requireCode(t, protocol.Success, a.register(full(1, "T")))
	_, code := b.route("T")
	require.Equal(t, protocol.TopicNotExist, code)
}

func TestPortInUse(t *testing.T) {
	s := start(t, Config{})
	other, err := New(Config{Addrs: []string{s.Addr().String()}})
	require.NoError(t, err)
	require.Error(t, other.Run(t.Context()))
}

// Damaged requests: each is answered or closes its connection, and the server goes on.
func TestDamagedRequests(t *testing.T) {
	s := start(t, Config{})
	random := rand.New(rand.NewPCG(1, 2))
	var seeds [][]byte
	for _, name := range []string{"register-broker-full", "register-broker-increment", "route-found", "route-rocketmq", "ns-put-kv", "unregister-broker"} {
		request, _ := frames(t, name)
		seeds = append(seeds, request)
	}
	for i := range 600 {
		frame := slices.Clone(seeds[i%len(seeds)])
		for range 1 + random.IntN(4) {
			frame[4+random.IntN(len(frame)-4)] ^= byte(1 << random.IntN(8))
		}
		// An answer to what was damaged may not come (it may be one-way now), so ask something behind it.
		frame = protocol.AppendRequest(frame, protocol.JSON, protocol.GetBrokerClusterInfo, 1<<30, false, nil, nil, nil)
		p := dial(t, s)
		p.send(frame)
		for {
			rep, err := p.read()
			if err != nil || rep.Opaque == 1<<30 {
				break
			}
		}
		_ = p.conn.Close()
	}
	for _, lane := range s.Stats().Lanes {
		require.Zero(t, lane.Panics, lane.Name)
	}
	requireCode(t, protocol.Success, dial(t, s).ask(protocol.GetBrokerClusterInfo, nil, nil, nil))
}

func TestGarbageClosesOnlyItsConnection(t *testing.T) {
	s := start(t, Config{})
	good := dial(t, s)
	for _, junk := range [][]byte{[]byte("GET / HTTP/1.1\r\n\r\n"), binary.BigEndian.AppendUint32(nil, 1<<31), binary.BigEndian.AppendUint32(nil, 2)} {
		p := dial(t, s)
		p.send(append(junk, make([]byte, 16)...))
		_, err := p.read()
		require.Error(t, err)
		requireCode(t, protocol.Success, good.ask(protocol.GetBrokerClusterInfo, nil, nil, nil))
	}
}
