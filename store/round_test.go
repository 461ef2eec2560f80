package store

import (
	"testing"

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
