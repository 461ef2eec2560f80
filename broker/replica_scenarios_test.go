package broker_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/message"
	"github.com/ratchetmq/ratchet/protocol"
	"github.com/ratchetmq/ratchet/ratchettest"
)

// The numbers are those of public reports about RocketMQ that need a master and a slave. 1-12 is in slave_progress_test.go,
// 2-18 in progress_test.go; conformance has them with Java's brokers on either side.

// opens waits until a master that was started serves.
func opens(t *testing.T, master *peer) {
	t.Helper()
	require.Eventually(t, func() bool { return master.replica().State == "open" }, waitLimit, waitStep)
}

// A group reads on at the slave while the master is away; its progress is not overwritten when the master is back.
func TestScenario1_02(t *testing.T) {
	master, slave := pair(t, "SYNC_MASTER")
	master.createTopic("T", 1)
	for i := range 600 {
		master.send("T", 0, fmt.Sprint(i))
	}
	require.Len(t, master.bodies("T", 0, 0), 600)
	master.must(protocol.UpdateConsumerOffset, commitHeader("Reader", "T", 0, 300), nil)
	level(t, master, slave)
	committed := func(p *peer, want int64) {
		t.Helper()
		require.Eventually(t, func() bool {
			at, ok := p.query("Reader", "T", 0)
			return ok && at == want
		}, waitLimit, waitStep)
	}
	committed(slave, 300)
	master.broker.Stop()
	require.Len(t, slave.bodies("T", 0, 300), 300)
	slave.must(protocol.UpdateConsumerOffset, commitHeader("Reader", "T", 0, 600), nil)
	master.broker.Start()
	opens(t, master)
	inSync(t, master)
	committed(master, 600)
	master.send("T", 0, "next")
	level(t, master, slave) // tables are looked at, too
	committed(slave, 600)
	committed(master, 600)
	require.Equal(t, []string{"next"}, master.bodies("T", 0, 600))
}

// A slave that lacks the last messages when its master goes: readers that are ahead keep their place, and their progress.
func TestScenario1_10(t *testing.T) {
	master, slave := pair(t, "ASYNC_MASTER")
	master.createTopic("T", 1)
	master.sendMany("T", 0, 20)
	require.Len(t, master.bodies("T", 0, 0), 20)
	level(t, master, slave)
	slave.broker.Stop()
	for i := range 5 {
		master.send("T", 0, fmt.Sprint(20+i))
	}
	master.arrived("T", 0, 24)
	require.Len(t, master.bodies("T", 0, 0), 25)
	master.must(protocol.UpdateConsumerOffset, commitHeader("Reader", "T", 0, 25), nil)
	master.broker.Stop()
	slave.broker.Start()
	require.EqualValues(t, 20, slave.maxOffset("T", 0))
	for _, ahead := range []int64{21, 23, 25} {
		answer := slave.pull(pullHeader("Reader", "T", 0, ahead))
		require.Equal(t, protocol.PullNotFound, answer.code)
		require.Equal(t, ahead, answer.NextBeginOffset)
	}
	slave.must(protocol.UpdateConsumerOffset, commitHeader("Reader", "T", 0, 25), nil)
	master.broker.Start()
	opens(t, master)
	inSync(t, master)
	level(t, master, slave)
	for _, p := range []*peer{master, slave} {
		at, ok := p.query("Reader", "T", 0)
		require.True(t, ok)
		require.EqualValues(t, 25, at)
		require.Empty(t, p.bodies("T", 0, at), "nothing comes twice")
	}
}

// A topic that is deleted and made again has nothing of its former life on the slave, whether that has compared the tables in
// between or not.
func TestScenario1_14OnTheSlave(t *testing.T) {
	for _, seen := range []bool{true, false} {
		t.Run(fmt.Sprintf("seen=%v", seen), func(t *testing.T) { deletedAndMadeAgain(t, seen) })
	}
}

func deletedAndMadeAgain(t *testing.T, seen bool) {
	master, slave := pair(t, "SYNC_MASTER")
	master.createTopic("T", 1)
	master.sendMany("T", 0, 75)
	level(t, master, slave)
	require.Len(t, slave.bodies("T", 0, 0), 75)
	if seen {
		master.must(protocol.DeleteTopicInBroker, &protocol.DeleteTopicRequest{Topic: "T"}, nil)
		sameTopics(t, master, slave)
	} else {
		slave.broker.Stop()
		require.Eventually(t, func() bool { return len(master.replica().Slaves) == 0 }, waitLimit, waitStep)
		master.must(protocol.DeleteTopicInBroker, &protocol.DeleteTopicRequest{Topic: "T"}, nil)
	}
	master.createTopic("T", 1)
	var want []string
	for i := range 60 {
		want = append(want, fmt.Sprint("new ", i))
		master.call(protocol.SendMessageV2, sendHeader("T", 0), []byte(want[i]))
	}
	if !seen {
		slave.broker.Start()
	}
	sameLog(t, master, slave)
	sameTopics(t, master, slave)
	require.Equal(t, want, slave.bodies("T", 0, 0))
	require.EqualValues(t, 60, slave.maxOffset("T", 0))
}

func sameTopics(t *testing.T, master, slave *peer) {
	t.Helper()
	require.Eventually(t, func() bool {
		return string(master.must(protocol.GetAllTopicConfig, nil, nil).Body) == string(slave.must(protocol.GetAllTopicConfig, nil, nil).Body)
	}, waitLimit, waitStep)
}

// TestReadersOfASlaveDoNotMakeItsTablesNewer than the master's: what the master deletes afterwards goes at the slave, too.
// A consumer's heartbeat goes to both, and to either first.
func TestReadersOfASlaveDoNotMakeItsTablesNewer(t *testing.T) {
	master, slave := pair(t, "SYNC_MASTER")
	master.createTopic("T", 1)
	master.createTopic("Gone", 1)
	master.bodies("T", 0, 0) // makes the group
	level(t, master, slave)
	for i := range 5 {
		group := fmt.Sprint("AtTheSlave", i)
		slave.beat("client", group, subscription{topic: "T", expression: "*"})
		require.Equal(t, protocol.PullNotFound, slave.pull(pullHeader(group, "T", 0, 0)).code)
	}
	master.must(protocol.DeleteTopicInBroker, &protocol.DeleteTopicRequest{Topic: "Gone"}, nil)
	master.must(protocol.DeleteSubscriptionGroup, &protocol.DeleteSubscriptionGroupRequest{GroupName: "Reader", CleanOffset: true}, nil)
	level(t, master, slave)
}

// A slave without data gets the master's log from its beginning, or where it is told so its last file. One whose place the
// master has deleted says so, and sends do not wait for it.
func TestScenario2_15(t *testing.T) {
	const segment = 64 << 10
	settings := []string{
		fmt.Sprintf("mappedFileSizeCommitLog=%d", segment), "haSendHeartbeatInterval=200", "slaveTimeout=600000",
	}
	master := newPeer(t, append(settings, "brokerRole=SYNC_MASTER")...)
	master.createTopic("T", 1)
	fill := func() {
		t.Helper()
		for range 40 {
			master.call(protocol.SendMessageV2, sendHeader("T", 0), []byte(strings.Repeat("x", 8000)))
		}
	}
	fill()
	join1 := func(id int, more ...string) *peer {
		return join(t, ratchettest.Start(t, append(append(settings, "brokerRole=SLAVE", fmt.Sprint("brokerId=", id),
			"namesrvAddr="+master.broker.NameServer), more...)...))
	}
	slave := join1(1)
	inSync(t, master)
	level(t, master, slave)
	require.Greater(t, master.replica().End, int64(3*segment))
	require.Zero(t, slave.replica().Low)
	slave.broker.Stop()
	require.Eventually(t, func() bool { return len(master.replica().Slaves) == 0 }, waitLimit, waitStep)

	last := join1(2, "syncFromLastFile=true")
	inSync(t, master)
	require.Eventually(t, func() bool { return last.replica().End == master.replica().End }, waitLimit, waitStep)
	require.Equal(t, last.replica().End/segment*segment, last.replica().Low)
	last.broker.Stop()

	fill()
	old := slave.broker
	master.must(protocol.UpdateBrokerConfig, nil, []byte("fileReservedTime=0\n"))
	require.Eventually(t, func() bool {
		master.must(protocol.DeleteExpiredCommitLog, nil, nil)
		return master.replica().Low > 5*segment
	}, waitLimit, 50*time.Millisecond)
	old.Start()
	require.Eventually(t, func() bool {
		s := slave.replica()
		return s.State == "following" && strings.Contains(s.Waiting, "has lost what this one needs")
	}, waitLimit, waitStep)
	master.refused(protocol.SlaveNotAvailable, protocol.SendMessageV2, sendHeader("T", 0), []byte("x"), "slaves") // at once
}

// Any peer can connect to the HA port: what it says that it has is no acknowledgement.
func TestScenario2_17(t *testing.T) {
	master := newPeer(t, "brokerRole=SYNC_MASTER", "slaveTimeout=300")
	master.createTopic("T", 1)
	for _, says := range [][]int64{{0, 1 << 40}, {1 << 40}, {1, 1 << 40}, {0, -1}, {-1}, {-1 << 63}, {0, 0, 1 << 62}} {
		conn, err := net.Dial("tcp", master.replica().HAAddr)
		require.NoError(t, err)
		for _, at := range says {
			_, err = conn.Write(binary.BigEndian.AppendUint64(nil, uint64(at)))
			require.NoError(t, err)
		}
		resp := master.call(protocol.SendMessageV2, sendHeader("T", 0), []byte("x"))
		require.Contains(t, []protocol.ResponseCode{protocol.SlaveNotAvailable, protocol.FlushSlaveTimeout},
			protocol.ResponseCode(resp.Code), "%v: %s", says, resp.Remark)
		conn.Close()
		require.Eventually(t, func() bool { return len(master.replica().Slaves) == 0 }, waitLimit, waitStep)
	}
	require.NotEmpty(t, master.bodies("T", 0, 0))
}

// TestRefusedReplicasAreLeft closes the connection of one that can't be a replica, at once.
func TestRefusedReplicasAreLeft(t *testing.T) {
	master := newPeer(t, "brokerRole=SYNC_MASTER")
	for _, says := range []uint64{1 << 63, 0xF052415443484554} { // a negative request; a greeting, and then none
		conn, err := net.Dial("tcp", master.replica().HAAddr)
		require.NoError(t, err)
		defer conn.Close()
		_, err = conn.Write(append(binary.BigEndian.AppendUint64(nil, says), 0, 0, 0, 1, 'x'))
		require.NoError(t, err)
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(waitLimit)))
		_, err = io.ReadAll(conn)
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
	}
}

// Nothing is sent for a long time: the connection stays, on both sides of three times their patience.
func TestScenario2_19(t *testing.T) {
	const patience = 3000 // ms; no pause of the machine's is as long
	master, slave := pair(t, "SYNC_MASTER", fmt.Sprint("haHousekeepingInterval=", patience))
	link := master.replica().Slaves[0]
	require.Eventually(t, func() bool {
		s := master.replica().Slaves
		require.Len(t, s, 1)
		require.Equal(t, link.Since, s[0].Since, "the same connection")
		return s[0].Heard-link.Heard > 3*patience
	}, waitLimit, waitStep)
	require.Empty(t, slave.replica().Waiting)
}

// A slave that becomes the master does not deliver again what its master had delivered, and becomes it at once: also when
// nothing would flush soon what it has copied.
func TestScenario3_17(t *testing.T) {
	master, slave := pair(t, "SYNC_MASTER", "flushCommitLogThoroughInterval=600000", "flushCommitLogLeastPages=100000")
	master.createTopic("T", 1)
	for i := range 200 {
		master.send("T", 0, fmt.Sprint(i), message.PropertyDelayLevel, "1")
	}
	master.arrived("T", 0, 199)
	level(t, master, slave)
	body, err := protocol.Marshal(protocol.SwitchRequest{Slave: slave.broker.Addr})
	require.NoError(t, err)
	master.must(protocol.SwitchMaster, nil, body)
	inSync(t, slave)
	slave.send("T", 0, "last", message.PropertyDelayLevel, "1")
	slave.arrived("T", 0, 200)
	all := slave.bodies("T", 0, 0)
	require.Len(t, all, 201)
	require.Equal(t, "last", all[200])
}
