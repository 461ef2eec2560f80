package state

import (
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/internal/vfs/vfstest"
	"github.com/ratchetmq/ratchet/protocol"
)

func topicOptions(fsys *vfstest.Mem) TopicOptions {
	return TopicOptions{
		Files: Files{FS: fsys, Dir: dir, Now: newClock().Now}, Broker: "BrokerA", Cluster: "C", AutoCreate: yes,
		DefaultQueues: 8, DelayLevels: 18, ReviveQueues: 8, ClusterTopic: true, BrokerTopic: true,
	}
}

func openTopics(t testing.TB, o TopicOptions) *Topics {
	t.Helper()
	topics, err := OpenTopics(o)
	require.NoError(t, err)
	return topics
}

func requireTopic(t testing.TB, topics *Topics, name string, queues, perm int32) *protocol.TopicConfig {
	t.Helper()
	c, ok := topics.Get(name)
	require.True(t, ok, name)
	require.Equal(t, []int32{queues, queues, perm}, []int32{c.ReadQueueNums, c.WriteQueueNums, c.Perm}, name)
	require.Equal(t, name, c.TopicName)
	return c
}

func TestSystemTopicsAreThereFromTheStart(t *testing.T) {
	o := topicOptions(vfstest.New())
	o.TraceTopic = "RMQ_SYS_TRACE_TOPIC"
	topics := openTopics(t, o)
	for name, want := range map[string][2]int32{
		"TBW102": {8, 7}, "SELF_TEST_TOPIC": {1, 6}, "BenchmarkTest": {1024, 6}, "C": {16, 7}, "BrokerA": {1, 7},
		"OFFSET_MOVED_EVENT": {1, 6}, "SCHEDULE_TOPIC_XXXX": {18, 6}, "RMQ_SYS_TRACE_TOPIC": {1, 6}, "C_REPLY_TOPIC": {1, 6},
		"RMQ_SYS_TRANS_HALF_TOPIC": {1, 6}, "RMQ_SYS_TRANS_OP_HALF_TOPIC": {1, 6}, "rmq_sys_wheel_timer": {1, 6},
		"rmq_sys_REVIVE_LOG_C": {8, 6},
	} {
		requireTopic(t, topics, name, want[0], want[1])
		require.True(t, topics.IsSystem(name), name)
	}
	require.Equal(t, 13, topics.Len())
	require.False(t, topics.IsSystem("T"))

	o = topicOptions(vfstest.New())
	o.AutoCreate, o.Broker, o.ClusterTopic, o.ReviveQueues = no, "../x", false, 0
	topics = openTopics(t, o)
	for _, name := range []string{"TBW102", "../x", "C", "rmq_sys_REVIVE_LOG_C", "RMQ_SYS_TRACE_TOPIC", ""} {
		_, ok := topics.Get(name)
		require.False(t, ok, name)
	}
}

func TestTopicsOfJavaBrokersAreRead(t *testing.T) {
	for _, version := range []string{"4.9.7", "5.4.0"} {
		fsys := vfstest.New()
		fsys.WriteFile(at("topics.json"), fixture(t, "topics-"+version+".json"))
		topics := openTopics(t, topicOptions(fsys))
		c := requireTopic(t, topics, "T", 4, 6)
		require.Equal(t, protocol.SingleTag, string(c.TopicFilterType))
		require.NotNil(t, c.Attributes)
		requireTopic(t, topics, "%RETRY%G1", 1, 6)
		requireTopic(t, topics, "TBW102", 8, 7) // 4 in the file: the configuration counts
		require.Greater(t, topics.Version().Counter, int64(2))
	}
}

// Scenario 4-09: the route of TBW102 goes on to attract producers in RocketMQ.
func TestWithoutAutoCreateThereIsNoPattern(t *testing.T) {
	fsys := vfstest.New()
	openTopics(t, topicOptions(fsys))
	auto := false
	o := topicOptions(killed(fsys))
	o.AutoCreate = func() bool { return auto }
	topics := openTopics(t, o)
	_, ok := topics.Get("TBW102")
	require.False(t, ok)

	auto = true
	topics = openTopics(t, o)
	requireTopic(t, topics, "TBW102", 8, 7)
	auto = false // switched off at run time: the first send that would use it takes it away
	var changes []TopicChange
	topics.OnChange(func(c TopicChange) { changes = append(changes, c) })
	_, err := topics.CreateOnSend("T", "TBW102", 4, false)
	require.ErrorIs(t, err, ErrNoTopic)
	_, ok = topics.Get("TBW102")
	require.False(t, ok)
	require.Len(t, changes, 1)
	require.Equal(t, []string{"TBW102"}, changes[0].Deleted)
}

// One producer's send creates the topic; another's, which comes while that is still being written, must not be answered
// before: its message could be safe, and its topic not.
func TestNobodySendsToATopicThatIsNotOnTheDiskYet(t *testing.T) {
	fsys := vfstest.New()
	topics := openTopics(t, topicOptions(fsys))
	second := make(chan error, 1)
	asked, early := false, false
	fsys.SetFault(func(op vfstest.Op) *vfstest.Fault {
		if op.Kind != vfstest.OpSync || asked {
			return nil
		}
		asked = true
		go func() { // owned: by this test, which waits for second
			_, err := topics.CreateOnSend("T", "TBW102", 4, false)
			second <- err
		}()
		select {
		case err := <-second:
			early = true
			second <- err
		case <-time.After(50 * time.Millisecond):
		}
		return nil
	})
	_, err := topics.CreateOnSend("T", "TBW102", 4, false)
	require.NoError(t, err)
	require.NoError(t, <-second)
	require.False(t, early, "the second send went on before the topic was on the disk")
}

// TestNobodySendsToATopicThatCanNotBeNoted: the log's file has its room already, so that the message would be stored and answered,
// and its topic unknown after the next start.
func TestNobodySendsToATopicThatCanNotBeNoted(t *testing.T) {
	fsys := vfstest.New()
	_, err := openTopics(t, topicOptions(fsys)).CreateOnSend("old", "TBW102", 4, false)
	require.NoError(t, err)
	topics := openTopics(t, topicOptions(fsys))
	for range 2 {
		fsys.SetFault(vfstest.FailNth(1, nil, syscall.ENOSPC))
		_, err = topics.CreateOnSend("T", "TBW102", 4, false)
		fsys.SetFault(nil)
		if err == nil { // the message is stored
			_, ok := openTopics(t, topicOptions(killed(fsys))).Get("T")
			require.True(t, ok)
		}
		require.ErrorIs(t, err, syscall.ENOSPC)
		fsys.SetFault(vfstest.FailNth(1, nil, syscall.ENOSPC))
		_, err = topics.CreateOnSend("old", "TBW102", 4, false)
		fsys.SetFault(nil)
		require.NoError(t, err, "others go on")
	}
	_, err = topics.CreateOnSend("T", "TBW102", 4, false)
	require.NoError(t, err)
	_, ok := openTopics(t, topicOptions(killed(fsys))).Get("T")
	require.True(t, ok)
}

func TestCreateOnSend(t *testing.T) {
	fsys := vfstest.New()
	topics := openTopics(t, topicOptions(fsys))
	_, err := topics.Put(
		protocol.TopicConfig{TopicName: "pattern", ReadQueueNums: 2, WriteQueueNums: 3, Perm: 5, TopicFilterType: protocol.MultiTag},
		protocol.TopicConfig{TopicName: "closed", ReadQueueNums: 2, WriteQueueNums: 3, Perm: 6},
	)
	require.NoError(t, err)
	for _, c := range []struct {
		topic, pattern string
		queues         int32
		want           int32 // 0: refused
		perm           int32
	}{
		{"a", "TBW102", 4, 4, 6},
		{"b", "TBW102", 100, 8, 6},
		{"c", "pattern", 4, 3, 4},
		{"d", "closed", 4, 0, 0},
		{"e", "nosuch", 4, 0, 0},
		{"f", "", 4, 0, 0},
		{"g", "TBW102", -3, 1, 6},
		{"rmq_sys_x", "TBW102", 4, 0, 0},
		{"closed", "nosuch", 4, -1, 6}, // is there: its settings count
	} {
		got, err := topics.CreateOnSend(c.topic, c.pattern, c.queues, false)
		if c.want == 0 {
			require.ErrorIs(t, err, ErrNoTopic, c.topic)
			continue
		}
		require.NoError(t, err, c.topic)
		require.Equal(t, c.perm, got.Perm, c.topic)
		if c.want > 0 {
			requireTopic(t, topics, c.topic, c.want, c.perm)
		}
	}
	c, err := topics.CreateOnSend("unit", "pattern", 1, true)
	require.NoError(t, err)
	require.Equal(t, protocol.TopicUnit, c.TopicSysFlag)
	require.Equal(t, protocol.MultiTag, string(c.TopicFilterType))
	requireTopic(t, openTopics(t, topicOptions(killed(fsys))), "a", 4, 6)
}

// Scenario 6-03, for topics and for groups.
func TestNamesThatCouldLeaveTheStoreAreRefused(t *testing.T) {
	topics := openTopics(t, topicOptions(vfstest.New()))
	n := topics.Len()
	for _, name := range []string{"../../../../tmp/x", "a/b", `a\b`, "", " ", ".", "..", strings.Repeat("a", 128), "é", "a\x00b", "a b"} {
		_, err := topics.CreateOnSend(name, "TBW102", 4, false)
		require.ErrorIs(t, err, protocol.ErrTopicName, name)
		_, err = topics.Put(protocol.TopicConfig{TopicName: name, ReadQueueNums: 1, WriteQueueNums: 1, Perm: 6})
		require.ErrorIs(t, err, protocol.ErrTopicName, name)
		group := name
		if len(group) == 128 {
			group = strings.Repeat("a", 249) // with %RETRY% before it, 256
		}
		_, err = topics.CreateRetry(group, 1, false)
		require.Error(t, err, name)
		if len(group) != 249 {
			_, err = topics.CreateDLQ(group)
			require.ErrorIs(t, err, protocol.ErrGroupName, name)
		}
	}
	require.Equal(t, n, topics.Len())
	_, err := topics.CreateOnSend(strings.Repeat("a", 127), "TBW102", 4, false)
	require.NoError(t, err)

	fsys := vfstest.New()
	fsys.WriteFile(at("topics.json"), []byte(`{"topicConfigTable":{"../x":{"perm":6},"10.0.0.1":{"perm":6},"T":{"perm":6}}}`))
	topics = openTopics(t, topicOptions(fsys))
	_, ok := topics.Get("../x")
	require.False(t, ok, "nor from a file that somebody edited")
	_, ok = topics.Get("10.0.0.1")
	require.True(t, ok, "brokers are named so, and have topics")
	foreign := map[string]protocol.TopicConfig{"../x": {}, "U": {}, "V": {ReadQueueNums: -1}}
	require.NoError(t, topics.Adopt(foreign, protocol.DataVersion{Counter: 77}, nil))
	_, err = topics.AddMissing(foreign, protocol.DataVersion{})
	require.NoError(t, err)
	_, ok = topics.Get("V")
	require.False(t, ok)
	_, ok = topics.Get("../x")
	require.False(t, ok)
	_, ok = topics.Get("U")
	require.True(t, ok)
}

func TestRetryAndDeadLetterTopics(t *testing.T) {
	topics := openTopics(t, topicOptions(vfstest.New()))
	c, err := topics.CreateRetry("g", 2, true)
	require.NoError(t, err)
	require.Equal(t, protocol.TopicUnitSub, c.TopicSysFlag)
	requireTopic(t, topics, "%RETRY%g", 2, 6)
	again, err := topics.CreateRetry("g", 5, false)
	require.NoError(t, err)
	require.Same(t, c, again)
	_, err = topics.CreateDLQ("g")
	require.NoError(t, err)
	requireTopic(t, topics, "%DLQ%g", 1, 6) // scenario 3-11: it can be read
	first := topics.CreateSystem("TRANS_CHECK_MAX_TIME_TOPIC", 1)
	require.Same(t, first, topics.CreateSystem("TRANS_CHECK_MAX_TIME_TOPIC", 1))
}

func TestPutAndDelete(t *testing.T) {
	fsys := vfstest.New()
	topics := openTopics(t, topicOptions(fsys))
	var changes []TopicChange
	topics.OnChange(func(c TopicChange) { changes = append(changes, c) })
	version := topics.Version()
	conf := protocol.TopicConfig{TopicName: "T", ReadQueueNums: 4, WriteQueueNums: 4, Perm: 6, Attributes: map[string]string{"a": "1"}}
	changed, err := topics.Put(conf)
	require.NoError(t, err)
	require.True(t, changed)
	conf.Attributes["a"] = "2" // ours now, theirs stays
	require.Equal(t, "1", requireTopic(t, topics, "T", 4, 6).Attributes["a"])
	require.Equal(t, version.Counter+1, topics.Version().Counter)

	conf.Attributes["a"] = "1"
	changed, err = topics.Put(conf)
	require.NoError(t, err)
	require.False(t, changed)
	require.Equal(t, version.Counter+1, topics.Version().Counter, "what is so already raises no version")

	before, _ := topics.Snapshot()
	existed, err := topics.Delete("T")
	require.NoError(t, err)
	require.True(t, existed)
	require.Contains(t, before, "T", "a snapshot does not change")
	existed, err = topics.Delete("T")
	require.NoError(t, err)
	require.False(t, existed)
	require.Len(t, changes, 2)
	require.Equal(t, "T", changes[0].Put[0].TopicName)
	require.Equal(t, []string{"T"}, changes[1].Deleted)
	_, ok := openTopics(t, topicOptions(killed(fsys))).Get("T")
	require.False(t, ok)

	for _, name := range []string{"TBW102", "C", "BrokerA", "C_REPLY_TOPIC", "rmq_sys_anything"} {
		_, err = topics.Delete(name)
		require.ErrorIs(t, err, ErrSystemTopic)
		_, err = topics.Put(protocol.TopicConfig{TopicName: name, Perm: 6})
		require.ErrorIs(t, err, ErrSystemTopic)
	}
	for _, c := range []protocol.TopicConfig{{ReadQueueNums: -1}, {WriteQueueNums: 1 << 20}, {Perm: 16}, {Perm: -1}} {
		c.TopicName = "T"
		_, err = topics.Put(protocol.TopicConfig{TopicName: "good", Perm: 6}, c)
		require.ErrorIs(t, err, ErrTopicConfig)
	}
	_, ok = topics.Get("good")
	require.False(t, ok, "all or none")
}

func TestOrderFlagsFollowTheNameServers(t *testing.T) {
	topics := openTopics(t, topicOptions(vfstest.New()))
	_, err := topics.Put(protocol.TopicConfig{TopicName: "A", Perm: 6}, protocol.TopicConfig{TopicName: "B", Perm: 6, Order: true})
	require.NoError(t, err)
	version := topics.Version()
	require.NoError(t, topics.MarkOrder(map[string]string{"A": "BrokerA:4", "nosuch": "x"}))
	a, _ := topics.Get("A")
	b, _ := topics.Get("B")
	require.True(t, a.Order)
	require.False(t, b.Order)
	require.Equal(t, version.Counter+1, topics.Version().Counter)
	require.NoError(t, topics.MarkOrder(map[string]string{"A": "BrokerA:4"}))
	require.Equal(t, version.Counter+1, topics.Version().Counter)
}

func TestAReplicaTakesItsMastersTableOver(t *testing.T) {
	topics := openTopics(t, topicOptions(vfstest.New()))
	_, err := topics.Put(protocol.TopicConfig{TopicName: "mine", Perm: 6})
	require.NoError(t, err)
	other := map[string]protocol.TopicConfig{
		"theirs": {Perm: 6}, "SELF_TEST_TOPIC": {Perm: 2, ReadQueueNums: 9}, "TBW102": {Perm: 7, ReadQueueNums: 1},
	}
	version := protocol.DataVersion{Counter: 5, Timestamp: 6, StateVersion: 7}
	require.NoError(t, topics.Adopt(other, version, nil))
	require.Equal(t, version, topics.Version())
	requireTopic(t, topics, "mine", 0, 6)
	require.Equal(t, []string{"mine"}, topics.Lacking(other))
	require.NoError(t, topics.Adopt(other, version, []string{"mine", "theirs", "OFFSET_MOVED_EVENT"}))
	_, ok := topics.Get("mine")
	require.False(t, ok)
	requireTopic(t, topics, "theirs", 0, 6)
	_, ok = topics.Get("OFFSET_MOVED_EVENT")
	require.True(t, ok, "its own topics stay")
	requireTopic(t, topics, "SELF_TEST_TOPIC", 1, 6)
	requireTopic(t, topics, "TBW102", 8, 7)
}

// A master that returns takes what it lacks, and nothing else changes.
func TestAddMissingTopics(t *testing.T) {
	fsys := vfstest.New()
	topics := openTopics(t, topicOptions(fsys))
	_, err := topics.Put(protocol.TopicConfig{TopicName: "both", Perm: 6, ReadQueueNums: 4, WriteQueueNums: 4})
	require.NoError(t, err)
	version := topics.Version()
	other := map[string]protocol.TopicConfig{"both": {Perm: 2}, "new": {Perm: 6, ReadQueueNums: 3, WriteQueueNums: 3}}
	added, err := topics.AddMissing(other, protocol.DataVersion{})
	require.NoError(t, err)
	require.Equal(t, []string{"new"}, added)
	require.Equal(t, version.Counter+1, topics.Version().Counter)
	requireTopic(t, topics, "both", 4, 6)
	added, err = topics.AddMissing(other, protocol.DataVersion{})
	require.NoError(t, err)
	require.Empty(t, added)
	require.Equal(t, version.Counter+1, topics.Version().Counter)
	newer := protocol.DataVersion{Counter: 1000, StateVersion: 3}
	for range 2 {
		_, err = topics.AddMissing(other, newer)
		require.NoError(t, err)
		require.Equal(t, newer.Counter+1, topics.Version().Counter)
		require.Equal(t, newer.StateVersion, topics.Version().StateVersion)
	}
	requireTopic(t, openTopics(t, topicOptions(killed(fsys))), "new", 3, 6)
}

func TestManySendersOfNewTopics(t *testing.T) {
	fsys := vfstest.New()
	topics := openTopics(t, topicOptions(fsys))
	n, version := topics.Len(), topics.Version()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 20 {
				if _, err := topics.CreateOnSend(fmt.Sprint("T", i), "TBW102", 4, false); err != nil {
					panic(err)
				}
			}
		})
	}
	wg.Wait()
	require.Equal(t, n+20, topics.Len())
	require.Equal(t, version.Counter+20, topics.Version().Counter)
	require.Equal(t, n+20, openTopics(t, topicOptions(killed(fsys))).Len())
}

// A change whose file could not be written is in force, and the next change takes it to the disk with it.
func TestTopicsOnAFullDisk(t *testing.T) {
	fsys := vfstest.New()
	topics := openTopics(t, topicOptions(fsys))
	fsys.SetFault(vfstest.FailNth(1, nil, syscall.ENOSPC))
	_, err := topics.Put(protocol.TopicConfig{TopicName: "A", Perm: 6})
	require.ErrorIs(t, err, syscall.ENOSPC)
	_, err = topics.Put(protocol.TopicConfig{TopicName: "A", Perm: 6})
	require.ErrorIs(t, err, syscall.ENOSPC, "nor does asking again hide that it is not durable")
	_, err = topics.CreateOnSend("B", "TBW102", 4, false)
	require.ErrorIs(t, err, syscall.ENOSPC)
	fsys.SetFault(nil)
	changed, err := topics.Put(protocol.TopicConfig{TopicName: "A", Perm: 6})
	require.NoError(t, err)
	require.False(t, changed)
	again := openTopics(t, topicOptions(killed(fsys)))
	for _, name := range []string{"A", "B"} {
		_, ok := again.Get(name)
		require.True(t, ok)
	}
}

func TestACleanStopLeavesTheBackupAsFullAsTheFile(t *testing.T) {
	fsys := vfstest.New()
	topics := openTopics(t, topicOptions(fsys))
	groups := openGroups(t, fsys, yes)
	_, err := topics.CreateOnSend("T", "TBW102", 4, false)
	require.NoError(t, err)
	_, err = groups.GetOrCreate("G")
	require.NoError(t, err)
	fsys.SetFault(vfstest.FailNth(1, nil, syscall.ENOSPC))
	_, err = topics.CreateOnSend("U", "TBW102", 4, false) // not in the file yet
	require.ErrorIs(t, err, syscall.ENOSPC)
	fsys.SetFault(nil)
	require.NoError(t, topics.Close())
	require.NoError(t, groups.Close())
	for _, name := range []string{"topics.json", "subscriptionGroup.json"} {
		file, err := fsys.ReadFile(at(name))
		require.NoError(t, err)
		backup, err := fsys.ReadFile(at(name + ".bak"))
		require.NoError(t, err)
		require.Equal(t, string(file), string(backup))
	}
	_, ok := openTopics(t, topicOptions(killed(fsys))).Get("U")
	require.True(t, ok)
}
