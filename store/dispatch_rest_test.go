package store

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

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

// TestPace: who waits is told at once of messages that are far apart, of some together when they come thick, and as soon as
// dispatch comes to it when there is a throng.
func TestPace(t *testing.T) {
	at, messages := time.Now(), int64(0)
	p := pace{apart: dispatchRest}
	come := func(steps int, apart time.Duration, each int64) {
		for range steps {
			at, messages = at.Add(apart), messages+each
			p.look(messages, at)
		}
	}
	come(100, 300*time.Microsecond, 1)
	require.False(t, p.thick())
	come(10, 100*time.Microsecond, 1)
	require.False(t, p.thick(), "ten messages may be all there are")
	come(10, 100*time.Microsecond, 1)
	require.True(t, p.thick())
	come(100, dispatchRest, 10)
	require.True(t, p.thick(), "as many, told of together")
	come(1, dispatchRest, 2)
	require.False(t, p.thick(), "the rest has gathered two")
	come(20, 100*time.Microsecond, 1)
	require.True(t, p.thick())
	come(1, time.Hour, 1)
	require.False(t, p.thick(), "nothing came for long")
	come(100, dispatchRest, 200)
	require.False(t, p.thick(), "a throng")
}
