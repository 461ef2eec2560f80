package store

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/internal/vfs/vfstest"
)

// TestGapsOfSeveralQueuesInOneStep: a slave gets both sides of the gaps that its master has left in two queues, and one step
// of dispatch sees them all. What stands before a gap must not be taken for a part of it.
func TestGapsOfSeveralQueuesInOneStep(t *testing.T) {
	master, slave := mustOpen(t, small(vfstest.New())), mustOpen(t, small(vfstest.New()))
	for q := range int32(2) {
		put(t, master, text("T", q, "before"))
	}
	_, err := master.Leave(Lost{Queue: func(_ string, _ int32, next offset.Queue) offset.Queue { return next + 10 }})
	require.NoError(t, err)
	for q := range int32(2) {
		put(t, master, text("T", q, "behind"))
	}
	require.NoError(t, copyLog(t, master, slave, 1))
	level(t, slave)
	for q := range int32(2) {
		b, _ := slave.Bounds("T", q)
		require.Equal(t, Bounds{0, 12}, b)
		require.Equal(t, []string{"before", "behind"}, bodies(readQueue(t, slave, "T", q)))
	}
}

// TestRefillOutlivesAPowerCut: what is filled in is older than the checkpoint, from which recovery begins.
func TestRefillOutlivesAPowerCut(t *testing.T) {
	full, fsys := mustOpen(t, small(vfstest.New())), vfstest.New()
	o := small(fsys)
	now := time.UnixMilli(1_000_000_000)
	o.Now = func() time.Time { return now }
	master := mustOpen(t, o)
	put(t, full, text("T", 0, "lost"))
	lost := full.Written()
	_, err := master.Leave(Lost{
		Log: lost, Queue: func(_ string, _ int32, next offset.Queue) offset.Queue { return next },
		Others: []QueueSpan{{Topic: "T", Queue: 0, To: 100}},
	})
	require.NoError(t, err)
	for range 2 { // a checkpoint counts for what is some seconds older than its last message
		put(t, master, text("T", 0, "new"))
		now = now.Add(time.Minute)
	}
	level(t, master)
	require.NoError(t, master.saveCheckpoint())
	b := make([]byte, lost)
	_, err = full.ReadLog(0, b)
	require.NoError(t, err)
	require.NoError(t, master.Refill(0, b, false))

	o.FS = fsys.CrashClone(vfstest.KeepNothing, 1)
	again := mustOpen(t, o)
	require.Equal(t, []string{"lost", "new", "new"}, bodies(readQueue(t, again, "T", 0)))
}

// TestBlanksOfAReplicaFillNoGap: one slave has copied the gap, another has what belongs there.
func TestBlanksOfAReplicaFillNoGap(t *testing.T) {
	full, master, copied := mustOpen(t, small(vfstest.New())), mustOpen(t, small(vfstest.New())), mustOpen(t, small(vfstest.New()))
	put(t, full, text("T", 0, "lost"))
	_, err := master.Leave(Lost{
		Log: full.Written(), Queue: func(_ string, _ int32, next offset.Queue) offset.Queue { return next },
		Others: []QueueSpan{{Topic: "T", Queue: 0, To: 10}},
	})
	require.NoError(t, err)
	put(t, master, text("T", 0, "new"))
	require.NoError(t, copyLog(t, master, copied, 1))
	level(t, master)
	fill := func(from *Store, to offset.Physical) {
		stream := master.RefillStream(0, false, false)
		for stream.Next() < to {
			b := make([]byte, min(100, to-stream.Next()))
			n, err := from.ReadLog(stream.Next(), b)
			require.NoError(t, err)
			require.NoError(t, stream.Write(b[:n]))
		}
	}
	gap := master.Gaps().Log[0]
	fill(copied, gap.To)
	require.Equal(t, []Span{gap}, master.Gaps().Log)
	fill(full, full.Written())
	require.Equal(t, []string{"lost", "new"}, bodies(readQueue(t, master, "T", 0)))
}

// TestUnusedPartOfALostSegmentIsFilledIn: what was lost began with the blank at a segment's end.
func TestUnusedPartOfALostSegmentIsFilledIn(t *testing.T) {
	full, master := mustOpen(t, small(vfstest.New())), mustOpen(t, small(vfstest.New()))
	put(t, full, text("T", 0, strings.Repeat("x", 2500)))
	require.NoError(t, copyLog(t, full, master, 1))
	put(t, full, text("T", 0, strings.Repeat("y", 2500)))
	from := master.Written()
	_, err := master.Leave(Lost{Log: full.Written(), Queue: func(_ string, _ int32, next offset.Queue) offset.Queue { return next + 9 }})
	require.NoError(t, err)
	stream := master.RefillStream(from, false, false)
	for stream.Next() < full.Written() {
		b := make([]byte, 5000)
		n, err := full.ReadLog(stream.Next(), b)
		require.NoError(t, err)
		require.NoError(t, stream.Write(b[:n]))
	}
	require.Equal(t, full.Written(), master.Gaps().Log[0].From)
	level(t, master)
	require.Len(t, readQueue(t, master, "T", 0), 2)
}
