//go:build conformance && linux

package crash

import (
	"math/rand/v2"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/protocol"
)

// storyPatience is how long a master of ours waits for slaves that don't answer.
const storyPatience = 15 * time.Second

// sendToOne sends some messages that the slave, which is paused, does not get: none of them may be SEND_OK.
func (s *story) sendToOne() {
	s.t.Helper()
	master, slave := s.groups[0][0], s.groups[0][1]
	require.NoError(s.t, slave.server.Pause())
	s.producer.tell(time.Minute, "SEND", "lag", 24, master.name)
	require.Empty(s.t, s.acked("lag"), "SEND_OK, but the slave does not have them")
	<-time.After(time.Second) // for consumers to read what they are shown
}

// cutWhileReturning kills the master and cuts its power again while it gets back what it has lost, or right after.
func (s *story) cutWhileReturning() {
	master := s.groups[0][0]
	for n := range 3 {
		master.start()
		after := rand.N(3 * time.Second)
		<-time.After(after)
		master.cutPower()
		s.log("the power is cut again, time %d, %v after the start", n+2, after.Round(time.Millisecond))
	}
}

// makeTopicAgain does what an operator does: the consumers are stopped, the topic goes, and comes back empty.
func (s *story) makeTopicAgain() {
	s.t.Helper()
	s.each(func(c *storyClient) { c.tell(time.Minute, "STOP") })
	var w *wire
	answer, err := callOnce(s.namesrv, &w, protocol.DeleteTopicInNamesrv, &protocol.DeleteTopicFromNamesrvRequest{Topic: storyTopic})
	require.NoError(s.t, err)
	require.Equal(s.t, protocol.Success, protocol.ResponseCode(answer.Code), answer.Remark)
	require.NoError(s.t, w.Close())
	for _, g := range s.groups {
		answer, err := g[0].call(protocol.DeleteTopicInBroker, &protocol.DeleteTopicRequest{Topic: storyTopic})
		require.NoError(s.t, err)
		require.Equal(s.t, protocol.Success, protocol.ResponseCode(answer.Code), answer.Remark)
	}
	for _, g := range s.groups {
		require.Eventually(s.t, func() bool { return !g[1].hasTopic() }, 30*time.Second, 50*time.Millisecond)
		g[0].createTopic()
	}
	for _, g := range s.groups {
		g[1].awaitTopic()
		require.Zero(s.t, g[0].high(0), "%s: the topic is empty", g[0].name)
		require.Zero(s.t, g[1].high(0), "%s: the topic is empty on the slave", g[0].name)
	}
	s.startConsumers()
	s.log("the topic is made again")
}

// pullBeyond asks the broker for, and commits, an offset that was never given out. It must not come to believe in it.
func (s *story) pullBeyond(b *storyBroker) {
	s.t.Helper()
	const beyond = int64(1) << 40
	for queue := range int32(storyQueues) {
		high := b.high(queue)
		answer, err := b.call(protocol.UpdateConsumerOffset, &protocol.UpdateConsumerOffsetRequest{
			ConsumerGroup: "crash", Topic: storyTopic, QueueID: queue, CommitOffset: beyond,
		})
		require.NoError(s.t, err)
		s.t.Logf("commit of %d to %s/%d: code %d %s", beyond, b.name, b.id, answer.Code, answer.Remark)
		var at protocol.QueryConsumerOffsetResponse
		answer, err = b.call(protocol.QueryConsumerOffset, &protocol.QueryConsumerOffsetRequest{
			ConsumerGroup: "crash", Topic: storyTopic, QueueID: queue,
		})
		require.NoError(s.t, err)
		if protocol.ResponseCode(answer.Code) == protocol.Success {
			require.NoError(s.t, answer.ReadHeader(&at))
			require.LessOrEqual(s.t, at.Offset, high, "%s/%d believes in a commit", b.name, b.id)
		}
		answer, err = b.call(protocol.PullMessage, pullHeader(storyTopic, queue, beyond, 0))
		require.NoError(s.t, err)
		var h protocol.PullMessageResponse
		require.NoError(s.t, answer.ReadHeader(&h), "%d %s", answer.Code, answer.Remark)
		require.GreaterOrEqual(s.t, h.NextBeginOffset, high, "%s/%d sends a consumer back", b.name, b.id)
		if b.id == 0 {
			require.Equal(s.t, protocol.PullOffsetMoved, protocol.ResponseCode(answer.Code))
			require.Equal(s.t, high, h.NextBeginOffset)
		}
	}
}

// hasTopic says whether the broker knows the story's topic.
func (b *storyBroker) hasTopic() bool {
	answer, err := b.call(protocol.GetAllTopicConfig, nil)
	return err == nil && strings.Contains(string(answer.Body), `"`+storyTopic+`"`)
}

// high is where the queue ends.
func (b *storyBroker) high(queue int32) int64 {
	b.t.Helper()
	var most protocol.GetMaxOffsetResponse
	answer, err := b.call(protocol.GetMaxOffset, &protocol.GetMaxOffsetRequest{Topic: storyTopic, QueueID: queue})
	require.NoError(b.t, err)
	require.NoError(b.t, answer.ReadHeader(&most), "%d %s", answer.Code, answer.Remark)
	return most.Offset
}
