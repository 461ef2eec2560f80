//go:build conformance

package crash

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/protocol"
)

// TestKill9Commits kills the broker right after a consumer's progress was acknowledged, the first time only moments after
// the very first start. RocketMQ writes it every 5 s, and loses all of it in the first 10 s.
func TestKill9Commits(t *testing.T) {
	s := newServer(t)
	const topic, messages = "Commits", 500
	w, err := dial(s.broker)
	require.NoError(t, err)
	for range messages {
		answer, err := w.call(protocol.SendMessageV2, sendHeader(topic, 0, "k"), []byte("x"))
		require.NoError(t, err)
		_, _, err = sent(answer)
		require.NoError(t, err)
	}
	_, err = w.call(protocol.PullMessage, pullHeader(topic, 0, 0, 0), nil) // makes the group
	require.NoError(t, err)
	committed := int64(0)
	for round := range rounds(t, 10) {
		for range 20 {
			committed = (committed + 7) % messages
			answer, err := w.call(protocol.UpdateConsumerOffset, &protocol.UpdateConsumerOffsetRequest{
				ConsumerGroup: "crash", Topic: topic, CommitOffset: committed,
			}, nil)
			require.NoError(t, err)
			require.Equal(t, int32(protocol.Success), answer.Code, answer.Remark)
		}
		w.Close()
		if round%3 == 2 {
			s.stop()
		} else {
			s.kill9()
		}
		s.start()
		w, err = dial(s.broker)
		require.NoError(t, err)
		answer, err := w.call(protocol.QueryConsumerOffset, &protocol.QueryConsumerOffsetRequest{ConsumerGroup: "crash", Topic: topic}, nil)
		require.NoError(t, err)
		var h protocol.QueryConsumerOffsetResponse
		require.NoError(t, answer.ReadHeader(&h))
		require.Equal(t, committed, h.Offset)
	}
	w.Close()
}
