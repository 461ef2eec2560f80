package broker_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/protocol"
	"github.com/ratchetmq/ratchet/ratchettest"
)

// pair is a master and its slave, each with a name server of its own that the other knows.
func pair(t *testing.T, role string, settings ...string) (master, slave *peer) {
	t.Helper()
	master = newPeer(t, append([]string{"brokerRole=" + role, "haSendHeartbeatInterval=200", "slaveTimeout=20000"}, settings...)...)
	slave = join(t, ratchettest.Start(t, append([]string{
		"brokerRole=SLAVE", "brokerId=1", "haSendHeartbeatInterval=200", "slaveTimeout=20000",
		"namesrvAddr=" + master.broker.NameServer,
	}, settings...)...))
	inSync(t, master)
	return master, slave
}

// inSync waits until the master is open, and has a slave that counts.
func inSync(t *testing.T, master *peer) {
	t.Helper()
	require.Eventually(t, func() bool {
		s := master.replica()
		return s.State == "open" && len(s.Slaves) == 1 && s.Slaves[0].InSync
	}, waitLimit, waitStep)
}

// replica is what the broker says of its part in replication.
func (p *peer) replica() (s protocol.ReplicaStatus) {
	p.t.Helper()
	require.NoError(p.t, protocol.Unmarshal(p.must(protocol.GetReplicaStatus, nil, nil).Body, &s))
	return s
}

// level waits until the slave has what the master has, and shows it.
func level(t *testing.T, master, slave *peer) {
	t.Helper()
	sameLog(t, master, slave)
	for _, code := range []protocol.RequestCode{protocol.GetAllTopicConfig, protocol.GetAllSubscriptionGroupConfig} {
		require.Eventually(t, func() bool {
			return string(master.must(code, nil, nil).Body) == string(slave.must(code, nil, nil).Body)
		}, waitLimit, waitStep)
	}
}

func sameLog(t *testing.T, master, slave *peer) {
	t.Helper()
	require.Eventually(t, func() bool {
		m, s := master.replica(), slave.replica()
		return s.End == m.End && s.Shown == m.End && m.Shown == m.End && len(m.Slaves) > 0 && m.Slaves[0].Acked == m.End
	}, waitLimit, waitStep)
}

func TestSlaveHasWhatItsMasterHas(t *testing.T) {
	master, slave := pair(t, "SYNC_MASTER")
	master.createTopic("T", 2)
	for i := range 50 {
		master.send("T", int32(i%2), fmt.Sprint(i))
	}
	level(t, master, slave)
	require.Equal(t, master.bodies("T", 0, 0), slave.bodies("T", 0, 0))
	require.Len(t, slave.bodies("T", 1, 0), 25)
	slave.refused(protocol.ServiceNotAvailable, protocol.SendMessageV2, sendHeader("T", 0), []byte("x"), "slave")

	// A slave holds the place of a consumer that is ahead of it.
	ahead := slave.pull(pullHeader("Reader", "T", 0, 1000))
	require.Equal(t, protocol.PullNotFound, ahead.code)
	require.EqualValues(t, 1000, ahead.NextBeginOffset)
}

func TestSyncMasterAnswersForItsSlave(t *testing.T) {
	master, slave := pair(t, "SYNC_MASTER")
	master.createTopic("T", 1)
	master.send("T", 0, "with")
	require.Equal(t, master.replica().End, slave.replica().End)
	slave.broker.Stop()
	require.Eventually(t, func() bool { return len(master.replica().Slaves) == 0 }, waitLimit, waitStep)
	master.refused(protocol.SlaveNotAvailable, protocol.SendMessageV2, sendHeader("T", 0), []byte("without"), "slaves")
	require.Eventually(t, func() bool { return len(master.bodies("T", 0, 0)) == 2 }, waitLimit, waitStep)
	require.True(t, master.replica().Exposed)
}

// TestReturningMasterFetchesWhatItLacks: its disk is a new one, the slave has everything.
func TestReturningMasterFetchesWhatItLacks(t *testing.T) {
	master, slave := pair(t, "SYNC_MASTER")
	master.createTopic("T", 1)
	master.sendMany("T", 0, 40)
	require.Len(t, master.bodies("T", 0, 0), 40)
	level(t, master, slave)
	slave.must(protocol.UpdateConsumerOffset, commitHeader("Reader", "T", 0, 33), nil)
	master.broker.Stop()
	master.broker.Wipe()
	master.broker.Start()

	require.Eventually(t, func() bool { return master.replica().State == "open" }, waitLimit, waitStep)
	inSync(t, master)
	level(t, master, slave)
	require.Len(t, master.bodies("T", 0, 0), 40)
	at, ok := master.query("Reader", "T", 0)
	require.True(t, ok)
	require.EqualValues(t, 33, at, "progress made on the slave is still there")
	// Nobody can say whether the old disk had more, which readers have seen while the slave was away.
	require.EqualValues(t, 40+1_000_000, master.send("T", 0, "next").QueueOffset)
	level(t, master, slave)
	require.Len(t, slave.bodies("T", 0, 0), 41)
}

// TestMasterWaitsForASilentReplica when its own disk is empty, until it is told to go on.
func TestMasterWaitsForASilentReplica(t *testing.T) {
	master, slave := pair(t, "SYNC_MASTER")
	master.createTopic("T", 1)
	master.sendMany("T", 0, 3)
	level(t, master, slave)
	slave.broker.Stop()
	master.broker.Stop()
	master.broker.Wipe()
	master.broker.Start("replicaAddrs=" + slave.broker.Addr)
	require.Eventually(t, func() bool {
		s := master.replica()
		require.Equal(t, "closed", s.State)
		return strings.Contains(s.Waiting, slave.broker.Addr)
	}, waitLimit, waitStep)
	master.refused(protocol.ServiceNotAvailable, protocol.SendMessageV2, sendHeader("T", 0), []byte("x"), "not open", slave.broker.Addr)
	require.False(t, master.routed(master.broker.NameServer, "T"), "it is no master yet")
	master.must(protocol.OpenMaster, nil, nil)
	require.Eventually(t, func() bool { return master.replica().State == "open" }, waitLimit, waitStep)
}

func TestRolesAreSwitchedWithoutLoss(t *testing.T) {
	first, second := pair(t, "SYNC_MASTER")
	first.createTopic("T", 1)
	first.sendMany("T", 0, 20)
	body, err := protocol.Marshal(protocol.SwitchRequest{Slave: second.broker.Addr})
	require.NoError(t, err)
	first.must(protocol.SwitchMaster, nil, body)
	require.Eventually(t, func() bool {
		return second.replica().State == "open" && first.replica().State == "following"
	}, waitLimit, waitStep)
	inSync(t, second)
	require.EqualValues(t, 20, second.send("T", 0, "next").QueueOffset)
	level(t, second, first)
	require.Len(t, first.bodies("T", 0, 0), 21)
	first.refused(protocol.ServiceNotAvailable, protocol.SendMessageV2, sendHeader("T", 0), []byte("x"), "slave")
	first.broker.Restart()
	require.Equal(t, "following", first.replica().State, "the switch outlives a restart")
}

// TestSlaveFollowsWhereItHadDiverged: it has a tail that the master has not.
func TestSlaveFollowsWhereItHadDiverged(t *testing.T) {
	master, slave := pair(t, "ASYNC_MASTER")
	master.createTopic("T", 1)
	master.sendMany("T", 0, 10)
	level(t, master, slave)
	// The slave becomes a master of its own, does not know any more that it followed one, and gets a message that nobody
	// else has.
	slave.broker.Stop()
	slave.broker.Remove("replication.json")
	slave.broker.Remove("replication.json.bak")
	slave.broker.Start("brokerRole=ASYNC_MASTER", "brokerName=alone")
	slave.send("T", 0, "nobody else has this")
	slave.broker.Stop()
	master.sendMany("T", 0, 10)
	slave.broker.Start()
	inSync(t, master)
	sameLog(t, master, slave)
	require.Equal(t, master.bodies("T", 0, 0), slave.bodies("T", 0, 0))
	require.Len(t, slave.broker.Files("diverged"), 1)
}

func TestSlaveFollowsAgainAfterItsMasterRestarts(t *testing.T) {
	master, slave := pair(t, "SYNC_MASTER")
	master.createTopic("T", 1)
	for round := range 3 {
		master.sendMany("T", 0, 10)
		level(t, master, slave)
		master.broker.Restart()
		inSync(t, master)
		require.Len(t, master.replica().Epochs, round+2)
	}
}

// TestIdleSlaveOfAnEmptyMasterStaysConnected: its heartbeats say that it has nothing, which the master has, too.
func TestIdleSlaveOfAnEmptyMasterStaysConnected(t *testing.T) {
	master, slave := pair(t, "SYNC_MASTER", "haSendHeartbeatInterval=20")
	first := master.replica().Slaves[0]
	require.Eventually(t, func() bool {
		now := master.replica().Slaves
		require.Len(t, now, 1)
		require.Equal(t, first.Since, now[0].Since)
		return now[0].Heard-first.Heard > 300
	}, waitLimit, waitStep)
	require.Empty(t, slave.replica().Waiting)
}

// TestSlaveThatIsMadeTheMasterGivesNothingOutTwice: an operator makes it the master by its file while the old one is away
// with a message that nobody else has. When that comes back, as a slave, the message gets its place.
func TestSlaveThatIsMadeTheMasterGivesNothingOutTwice(t *testing.T) {
	old, next := pair(t, "ASYNC_MASTER", "maxUnflushedBytes=1048576", "maxUnflushedMessages=1000", "recoverFromReplicaTimeoutMs=300")
	old.createTopic("T", 1)
	old.sendMany("T", 0, 10)
	level(t, old, next)
	next.broker.Stop()
	last := old.send("T", 0, "only the old master has this")
	require.EqualValues(t, 10, last.QueueOffset)
	old.broker.Stop()

	next.broker.Start("brokerRole=ASYNC_MASTER")
	require.Eventually(t, func() bool { return next.replica().State == "open" }, waitLimit, waitStep)
	require.Len(t, next.replica().Gaps, 1)
	first := next.send("T", 0, "sent to the new master")
	require.EqualValues(t, 1010, first.QueueOffset)
	next.arrived("T", 0, first.QueueOffset)
	require.Equal(t, "sent to the new master", next.bodies("T", 0, 10)[0])

	old.broker.Start("brokerRole=SLAVE", "brokerId=1", "namesrvAddr="+next.broker.NameServer+";"+old.broker.NameServer)
	inSync(t, next)
	sameLog(t, next, old)
	require.Equal(t, []string{"only the old master has this", "sent to the new master"}, next.bodies("T", 0, 10))
	require.Equal(t, next.bodies("T", 0, 0), old.bodies("T", 0, 0))
	require.Empty(t, old.broker.Files("diverged"))
}
