package store

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/internal/vfs/vfstest"
)

// TestDispatchWaitsForWholeRecords lets a replica confirm the log in pieces that are cut anywhere: each message is shown when
// all of it is confirmed, and none is passed over.
func TestDispatchWaitsForWholeRecords(t *testing.T) {
	var confirmed atomic.Int64
	o := small(vfstest.New())
	o.Confirmed = func() offset.Physical { return offset.Physical(confirmed.Load()) }
	s := mustOpen(t, o)
	var ends []offset.Physical
	var sent []string
	for i := range 30 {
		sent = append(sent, fmt.Sprintf("%0*d", 50+i*17, i))
		a, err := s.Append(text("T", 0, sent[i]))
		require.NoError(t, err)
		ends = append(ends, a.End)
	}
	shown := 0
	for end := int64(s.Written()); confirmed.Load() < end; {
		confirmed.Store(min(confirmed.Load()+37, end))
		level(t, s)
		for shown < len(ends) && int64(ends[shown]) <= confirmed.Load() {
			shown++
		}
		require.Equal(t, sent[:shown], append([]string{}, bodies(readQueue(t, s, "T", 0))...), "confirmed up to %d", confirmed.Load())
	}
	require.Equal(t, len(sent), shown)
}
