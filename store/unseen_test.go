package store

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/internal/vfs/vfstest"
)

// TestQueuesThatNobodyKnowsBeginLater: a topic that only a lost disk had may be made anew at any moment, and its offsets were
// given out.
func TestQueuesThatNobodyKnowsBeginLater(t *testing.T) {
	now := time.Now()
	options := func(fsys *vfstest.Mem) Options {
		o := small(fsys)
		o.Now = func() time.Time { return now }
		return o
	}
	m := vfstest.New()
	s := mustOpen(t, options(m))
	put(t, s, text("Known", 0, "kept"))
	loses := func(others ...QueueSpan) {
		_, err := s.Leave(Lost{
			Queue:  func(_ string, _ int32, next offset.Queue) offset.Queue { return next + 10 },
			Others: others, Unseen: Unseen{10, now.Add(time.Hour).UnixMilli()},
		})
		require.NoError(t, err)
	}
	loses()
	require.EqualValues(t, 10, s.Given("T", 0), "a group that is ahead keeps its place")
	require.EqualValues(t, 11, put(t, s, text("Known", 0, "new")).Queue)
	require.EqualValues(t, 10, put(t, s, text("T", 0, "first")).Queue)
	require.EqualValues(t, 11, put(t, s, text("T", 0, "second")).Queue)

	s = mustOpen(t, options(kill(m)))
	require.EqualValues(t, 10, put(t, s, text("T", 1, "after a kill")).Queue)
	slave := mustOpen(t, options(vfstest.New()))
	require.NoError(t, slave.Adopt(s.Gaps().Queues, s.Gaps().Unseen))
	require.NoError(t, slave.Adopt(s.Gaps().Queues, Unseen{}))
	require.EqualValues(t, 10, put(t, slave, text("T", 0, "should the slave be the next master")).Queue)

	loses(QueueSpan{Topic: "T", Queue: 9})
	require.EqualValues(t, 20, put(t, s, text("T", 9, "those that it had are lost")).Queue)
	require.EqualValues(t, 20, put(t, s, text("T", 2, "it may have been the second such disk")).Queue)
	now = now.Add(2 * time.Hour)
	require.EqualValues(t, 0, put(t, s, text("T", 3, "nobody can have seen one")).Queue)
	require.EqualValues(t, 0, put(t, s, text("New", 0, "nor of this topic")).Queue)
}
