package broker_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/protocol"
)

// TestScenario1_12 commits at the slave although the master lives, as clients do that take any broker of a group
// (apache/rocketmq#3603): the master learns of it soon, and neither goes back afterwards.
func TestScenario1_12(t *testing.T) {
	master, slave := pair(t, "SYNC_MASTER")
	master.createTopic("T", 1)
	master.sendMany("T", 0, 200)
	level(t, master, slave)
	knows := func(p *peer, want int64) func() bool {
		return func() bool {
			at, ok := p.query("Reader", "T", 0)
			return ok && at == want
		}
	}
	require.Len(t, master.bodies("T", 0, 0), 200)
	level(t, master, slave) // the group as well
	slave.must(protocol.UpdateConsumerOffset, commitHeader("Reader", "T", 0, 100), nil)
	require.Eventually(t, knows(master, 100), waitLimit, waitStep)
	master.must(protocol.UpdateConsumerOffset, commitHeader("Reader", "T", 0, 150), nil)
	slave.must(protocol.UpdateConsumerOffset, commitHeader("Reader", "T", 0, 120), nil) // comes late, or the group is in two places
	require.Eventually(t, knows(slave, 150), waitLimit, waitStep)
	require.True(t, knows(master, 150)(), "the master does not go back")
	slave.must(protocol.UpdateConsumerOffset, commitHeader("Reader", "T", 0, 130), nil) // later still: the master's table is no other
	require.Eventually(t, knows(slave, 150), waitLimit, waitStep)

	// An operator's reset counts at both, and what was committed before it is not told to the master any more.
	master.must(protocol.InvokeBrokerToResetOffset, &protocol.ResetOffsetRequest{
		Group: "Reader", Topic: "T", IsForce: true, QueueID: protocol.Some(int32(0)), Offset: protocol.Some(int64(10)),
	}, nil)
	require.Eventually(t, knows(slave, 10), waitLimit, waitStep)
	slave.must(protocol.UpdateConsumerOffset, commitHeader("Reader", "T", 0, 10), nil) // it follows
	slave.must(protocol.UpdateConsumerOffset, commitHeader("Reader", "T", 0, 60), nil)
	require.Eventually(t, knows(master, 60), waitLimit, waitStep)
	require.True(t, knows(slave, 60)())
}

// TestGroupBeginsAtTheSlave: the master did not know of it.
func TestGroupBeginsAtTheSlave(t *testing.T) {
	master, slave := pair(t, "SYNC_MASTER")
	master.createTopic("T", 1)
	master.sendMany("T", 0, 20)
	level(t, master, slave)
	slave.bodies("T", 0, 0) // makes the group
	slave.must(protocol.UpdateConsumerOffset, commitHeader("Reader", "T", 0, 12), nil)
	require.Eventually(t, func() bool {
		at, ok := master.query("Reader", "T", 0)
		return ok && at == 12
	}, waitLimit, waitStep)
	level(t, master, slave)
	at, ok := slave.query("Reader", "T", 0)
	require.True(t, ok)
	require.EqualValues(t, 12, at)
}

// TestSlaveRefusesImpossibleProgress: it may lack what the master has given out, but not any number of messages. A master
// that comes back would keep as many places free.
func TestSlaveRefusesImpossibleProgress(t *testing.T) {
	master, slave := pair(t, "SYNC_MASTER", "maxUnflushedMessages=1000")
	master.createTopic("T", 1)
	master.sendMany("T", 0, 20)
	require.Len(t, master.bodies("T", 0, 0), 20)
	level(t, master, slave) // the group as well
	slave.must(protocol.UpdateConsumerOffset, commitHeader("Reader", "T", 0, 1020), nil)
	slave.refused(protocol.InvalidParameter, protocol.UpdateConsumerOffset, commitHeader("Reader", "T", 0, 1<<40), nil, "beyond")
	require.Eventually(t, func() bool { // the master knows better
		at, _ := master.query("Reader", "T", 0)
		return at <= 20
	}, waitLimit, waitStep)
}

// TestNobodyIsSentBackWhileRolesAreSwitched: the new master has given out messages before the old one knows that it is none.
func TestNobodyIsSentBackWhileRolesAreSwitched(t *testing.T) {
	first, second := pair(t, "SYNC_MASTER")
	first.createTopic("T", 1)
	first.sendMany("T", 0, 1)
	level(t, first, second)
	var load sync.WaitGroup
	over := make(chan struct{})
	send := func(p *peer) {
		for {
			select {
			case <-over:
				return
			default:
				p.call(protocol.SendMessageV2, sendHeader("T", 0), []byte("x")) // refused by a slave
			}
		}
	}
	var next atomic.Int64 // of the queue, as far as anybody has read
	read := func(p *peer) {
		for {
			select {
			case <-over:
				return
			default:
			}
			from := next.Load()
			answer := p.pull(pullHeader("Reader", "T", 0, from))
			if answer.code == protocol.ServiceNotAvailable {
				continue // it is about to open
			}
			if answer.NextBeginOffset < from {
				t.Errorf("pull from %d: %v, sent back to %d", from, answer.code, answer.NextBeginOffset)
				return
			}
			next.CompareAndSwap(from, answer.NextBeginOffset)
		}
	}
	for _, p := range []*peer{first, second} {
		load.Go(func() { send(join(t, p.broker)) })
		for range 3 {
			load.Go(func() { read(join(t, p.broker)) })
		}
	}
	for master, slave := first, second; !t.Failed() && next.Load() < 500; master, slave = slave, master {
		require.Eventually(t, func() bool { return slave.replica().State == "following" }, waitLimit, waitStep)
		inSync(t, master)
		body, err := protocol.Marshal(protocol.SwitchRequest{Slave: slave.broker.Addr})
		require.NoError(t, err)
		master.must(protocol.SwitchMaster, nil, body)
	}
	close(over)
	load.Wait()
}
