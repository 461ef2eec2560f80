package store

import (
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
