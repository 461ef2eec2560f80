package store

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/internal/vfs/vfstest"
)

// TestDispatchRestsWhileNobodyWaits: it makes fewer steps, and comes to the end all the same.
func TestDispatchRestsWhileNobodyWaits(t *testing.T) {
	var asked atomic.Int64
	s := mustOpen(t, small(vfstest.New()))
	s.RestWhile(func() bool { asked.Add(1); return true })
	running(t, s)
	const n = 2000
	for i := range n {
		appended, err := s.Append(text("T", 0, fmt.Sprint(i)))
		require.NoError(t, err)
		if i == n-1 {
			waitDispatched(t, s, appended.End)
		}
	}
	require.Len(t, readQueue(t, s, "T", 0), n)
	require.Less(t, asked.Load(), int64(n), "several messages a step")
	require.Positive(t, asked.Load())
}
