package broker_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/protocol"
	"github.com/ratchetmq/ratchet/remoting"
)

// The numbers are those of public reports about RocketMQ: consumer progress that was reset, jumped, or was lost.

// An offset beyond the end is answered with the end, never with 0.
func TestScenario1_01(t *testing.T) {
	p := newPeer(t)
	p.createTopic("T", 1)
	p.sendMany("T", 0, 10)
	answer := p.pull(pullHeader("G", "T", 0, 1000))
	require.Equal(t, protocol.PullOffsetMoved, answer.code)
	require.Equal(t, int64(10), answer.NextBeginOffset)

	// At an empty queue it is not moved by an error, but starts where the queue will.
	p.createTopic("Empty", 1)
	answer = p.pull(pullHeader("G", "Empty", 0, 1000))
	require.Equal(t, protocol.PullNotFound, answer.code)
	require.Zero(t, answer.NextBeginOffset)
}

// Progress that was acknowledged survives a restart that comes at once; crash/ does the same with kill -9.
func TestScenario1_04(t *testing.T) {
	p := newPeer(t)
	p.createTopic("T", 1)
	p.pull(pullHeader("G", "T", 0, 0)) // makes the group
	for range 20 {
		p.send("T", 0, "x")
	}
	p.must(protocol.UpdateConsumerOffset, commitHeader("G", "T", 0, 15), nil)
	p.broker.Restart()
	o, ok := p.query("G", "T", 0)
	require.True(t, ok)
	require.Equal(t, int64(15), o)
	require.Equal(t, int64(20), p.maxOffset("T", 0))
}

// Where a new group starts.
func TestScenario1_06(t *testing.T) {
	young := func(t *testing.T, p *peer) {
		p.createTopic("T", 1)
		p.sendMany("T", 0, 100)
	}
	no := protocol.Opt[bool]{Value: false, Set: true}
	t.Run("a client that says so is told that there is none", func(t *testing.T) {
		p := newPeer(t)
		young(t, p)
		_, ok := p.queryWith(&protocol.QueryConsumerOffsetRequest{ConsumerGroup: "New", Topic: "T", SetZeroIfNotFound: no})
		require.False(t, ok)
	})
	t.Run("a young queue begins at 0", func(t *testing.T) {
		p := newPeer(t)
		young(t, p)
		o, ok := p.query("New", "T", 0)
		require.True(t, ok)
		require.Zero(t, o)
	})
	t.Run("with strictFromLast it does not", func(t *testing.T) {
		p := newPeer(t, "strictFromLast=true")
		young(t, p)
		_, ok := p.query("New", "T", 0)
		require.False(t, ok)
	})
	t.Run("an empty queue begins at 0 in any case, so that its first message is not skipped", func(t *testing.T) {
		p := newPeer(t, "strictFromLast=true")
		p.createTopic("T", 1)
		o, ok := p.query("New", "T", 0)
		require.True(t, ok)
		require.Zero(t, o)
	})
}

// A commit of a number that the queue can't have had is refused; going back on purpose is not.
func TestScenario1_08(t *testing.T) {
	p := newPeer(t)
	p.createTopic("T", 1)
	p.sendMany("T", 0, 10)
	p.pull(pullHeader("G", "T", 0, 0))
	p.refused(protocol.InvalidParameter, protocol.UpdateConsumerOffset, commitHeader("G", "T", 0, 999), nil, "999", "10")
	p.refused(protocol.InvalidParameter, protocol.UpdateConsumerOffset, commitHeader("G", "T", 0, -7), nil, "-7")
	p.must(protocol.UpdateConsumerOffset, commitHeader("G", "T", 0, -1), nil) // the Go client's "nothing yet"
	_, ok := p.queryWith(&protocol.QueryConsumerOffsetRequest{
		ConsumerGroup: "G", Topic: "T", SetZeroIfNotFound: protocol.Opt[bool]{Set: true},
	})
	require.False(t, ok, "nothing of that was stored")
	p.must(protocol.UpdateConsumerOffset, commitHeader("G", "T", 0, 8), nil)
	p.must(protocol.UpdateConsumerOffset, commitHeader("G", "T", 0, 3), nil)
	p.broker.Restart()
	o, _ := p.query("G", "T", 0)
	require.Equal(t, int64(3), o)
}

// A group that is deleted with its offsets starts anew; one deleted without them goes on.
func TestScenario1_13(t *testing.T) {
	for _, clean := range []bool{true, false} {
		p := newPeer(t, "strictFromLast=true")
		p.createTopic("T", 1)
		p.sendMany("T", 0, 10)
		p.pull(pullHeader("G", "T", 0, 0))
		p.must(protocol.UpdateConsumerOffset, commitHeader("G", "T", 0, 5), nil)
		p.must(protocol.DeleteSubscriptionGroup, &protocol.DeleteSubscriptionGroupRequest{GroupName: "G", CleanOffset: clean}, nil)
		p.broker.Restart()
		p.must(protocol.UpdateAndCreateSubscriptionGroup, nil, []byte(`{"groupName":"G"}`))
		o, ok := p.query("G", "T", 0)
		require.Equal(t, !clean, ok)
		if !clean {
			require.Equal(t, int64(5), o)
		}
	}
}

// A deleted topic that is made again has nothing of its former life: neither messages nor progress.
func TestScenario1_14(t *testing.T) {
	p := newPeer(t)
	p.createTopic("T", 1)
	p.sendMany("T", 0, 75)
	p.pull(pullHeader("G", "T", 0, 0))
	p.must(protocol.UpdateConsumerOffset, commitHeader("G", "T", 0, 70), nil)
	p.must(protocol.DeleteTopicInBroker, &protocol.DeleteTopicRequest{Topic: "T"}, nil)
	p.createTopic("T", 1)
	require.Zero(t, p.maxOffset("T", 0))
	p.sendMany("T", 0, 60)
	require.Len(t, p.bodies("T", 0, 0), 60)
	p.broker.Restart()
	require.Equal(t, int64(60), p.maxOffset("T", 0))
	require.Len(t, p.bodies("T", 0, 0), 60)
	o, ok := p.query("G", "T", 0)
	require.True(t, ok)
	require.Zero(t, o)
}

// An operator's reset wins: it counts at once for a group that is offline, and a late commit of the old position by a
// client does not undo it.
func TestScenario1_16(t *testing.T) {
	p := newPeer(t)
	p.createTopic("T", 1)
	p.sendMany("T", 0, 100)
	p.pull(pullHeader("G", "T", 0, 0))
	p.must(protocol.UpdateConsumerOffset, commitHeader("G", "T", 0, 10), nil)
	reset := func(to int64) {
		p.must(protocol.InvokeBrokerToResetOffset, &protocol.ResetOffsetRequest{
			Topic: "T", Group: "G", Timestamp: -1, IsForce: true,
			QueueID: protocol.Opt[int32]{Set: true}, Offset: protocol.Opt[int64]{Value: to, Set: true},
		}, nil)
	}
	reset(100)
	o, _ := p.query("G", "T", 0)
	require.Equal(t, int64(100), o, "forward, while nobody is online")

	reset(50)
	p.must(protocol.UpdateConsumerOffset, commitHeader("G", "T", 0, 11), nil) // from before the reset: answered, ignored
	o, _ = p.query("G", "T", 0)
	require.Equal(t, int64(50), o)
	answer := p.pull(pullHeader("G", "T", 0, 11))
	require.Equal(t, protocol.PullOffsetMoved, answer.code)
	require.Equal(t, int64(50), answer.NextBeginOffset)
	require.Equal(t, protocol.Success, p.pull(pullHeader("G", "T", 0, 50)).code)
	p.must(protocol.UpdateConsumerOffset, commitHeader("G", "T", 0, 60), nil)
	o, _ = p.query("G", "T", 0)
	require.Equal(t, int64(60), o, "the consumer has followed and goes on")
}

// A reset reaches a consumer whose pull is held at once.
func TestResetWakesAHeldPull(t *testing.T) {
	p := newPeer(t)
	p.createTopic("T", 1)
	p.sendMany("T", 0, 10)
	p.pull(pullHeader("G", "T", 0, 0)) // makes the group
	h := pullHeader("G", "T", 0, 10)
	h.SysFlag |= 2
	h.SuspendTimeoutMillis = 2 * waitLimit.Milliseconds()
	answers := make(chan pulled, 1)
	other := join(t, p.broker)
	go func() { answers <- other.pull(h) }()
	require.Eventually(t, func() bool { // the pull may still be on its way
		p.must(protocol.InvokeBrokerToResetOffset, &protocol.ResetOffsetRequest{
			Topic: "T", Group: "G", Timestamp: 0, IsForce: true,
		}, nil)
		select {
		case answer := <-answers:
			require.Equal(t, protocol.PullOffsetMoved, answer.code)
			require.Zero(t, answer.NextBeginOffset)
			return true
		case <-time.After(50 * time.Millisecond):
			return false
		}
	}, waitLimit, time.Millisecond)
}

// After a restart of the broker its consumers are known again with their next heartbeat, and each is told of the others.
func TestScenario1_18(t *testing.T) {
	b := newPeer(t).broker
	told := make(chan struct{}, 100)
	watch := func() *peer {
		client, err := remoting.NewClient(remoting.ClientConfig{Handler: notified(told)})
		require.NoError(t, err)
		t.Cleanup(client.Close)
		return &peer{t: t, broker: b, client: client}
	}
	one, two := watch(), watch()
	for range 2 {
		one.beat("c1", "G", subscription{"T", "*", nil, 1})
		two.beat("c2", "G", subscription{"T", "*", nil, 1})
		for range 2 { // both hear of the second one's coming
			select {
			case <-told:
			case <-time.After(waitLimit):
				t.Fatal("nobody was told that the group has another member")
			}
		}
		resp := one.must(protocol.GetConsumerListByGroup, &protocol.GetConsumerListByGroupRequest{ConsumerGroup: "G"}, nil)
		require.JSONEq(t, `{"consumerIdList":["c1","c2"]}`, string(resp.Body))
		b.Restart()
	}
}

// A master that is to be synchronous and has no slave says so, and never OK.
func TestScenario2_18(t *testing.T) {
	p := newPeer(t, "brokerRole=SYNC_MASTER", "inSyncReplicas=1")
	p.createTopic("T", 1)
	p.refused(protocol.SlaveNotAvailable, protocol.SendMessageV2, sendHeader("T", 0), []byte("x"), "slave")
	p.must(protocol.SendMessageV2, sendHeader("T", 0, "WAIT", "false"), []byte("y"))
	require.Eventually(t, func() bool { return len(p.bodies("T", 0, 0)) == 2 }, waitLimit, waitStep)
}
