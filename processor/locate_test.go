package processor

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/protocol"
	"github.com/ratchetmq/ratchet/store"
)

// TestLocate is the table of pull answers in docs/never-backwards.md.
func TestLocate(t *testing.T) {
	for _, c := range []struct {
		name      string
		status    store.Status
		low, high offset.Queue
		next      offset.Queue // what the store says, where it says something
		from      offset.Queue
		given     offset.Queue
		want      verdict
	}{
		{"found", store.Found, 0, 10, 8, 5, 10, verdict{protocol.Success, "FOUND", 8, false}},
		{"nothing matches", store.NoMatch, 0, 10, 9, 5, 10, verdict{protocol.PullRetryImmediately, "NO_MATCHED_MESSAGE", 9, false}},
		{"on a message that the log no longer has", store.Hole, 0, 10, 7, 5, 10, verdict{protocol.PullRetryImmediately, "MESSAGE_WAS_REMOVING", 7, false}},
		{"at the end", store.AtEnd, 0, 10, 0, 10, 10, verdict{protocol.PullNotFound, "OFFSET_OVERFLOW_ONE", 10, true}},
		{"at the end of an empty queue", store.AtEnd, 0, 0, 0, 0, 0, verdict{protocol.PullNotFound, "NO_MESSAGE_IN_QUEUE", 0, true}},
		{"below the beginning", store.BelowLow, 4, 10, 0, 1, 10, verdict{protocol.PullOffsetMoved, "OFFSET_TOO_SMALL", 4, false}},
		{"ahead, where a group has been", store.BeyondEnd, 0, 10, 0, 15, 15, verdict{protocol.PullNotFound, "OFFSET_OVERFLOW_ONE", 15, true}},
		{"ahead, below where a group has been", store.BeyondEnd, 0, 10, 0, 12, 15, verdict{protocol.PullNotFound, "OFFSET_OVERFLOW_ONE", 12, true}},
		{"never given out", store.BeyondEnd, 0, 10, 0, 1000, 10, verdict{protocol.PullOffsetMoved, "OFFSET_OVERFLOW_BADLY", 10, false}},
		{"never given out, but a group is ahead of the queue", store.BeyondEnd, 0, 10, 0, 1000, 15, verdict{protocol.PullOffsetMoved, "OFFSET_OVERFLOW_BADLY", 15, false}},
		{"empty queue, where a group has been", store.NoQueue, 0, 0, 0, 15, 15, verdict{protocol.PullNotFound, "OFFSET_OVERFLOW_ONE", 15, true}},
		{"empty queue, never given out", store.NoQueue, 0, 0, 0, 15, 0, verdict{protocol.PullNotFound, "NO_MESSAGE_IN_QUEUE", 0, false}},
		{"queue not written yet", store.NoQueue, 0, 0, 0, 0, 0, verdict{protocol.PullNotFound, "OFFSET_OVERFLOW_ONE", 0, true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := locate(store.Batch{Status: c.status, Bounds: store.Bounds{Low: c.low, High: c.high}, Next: c.next}, c.from, known{given: c.given})
			require.Equal(t, c.want, got)
		})
	}
}

// TestLocateNeverGoesBack walks over every small situation: the answer is below what was asked for only when that was
// never given out, and a consumer is never sent to 0 from a queue that has messages.
func TestLocateNeverGoesBack(t *testing.T) {
	const n = 6
	seen := map[store.Status]bool{}
	for low := range offset.Queue(n) {
		for high := low; high < n; high++ {
			for given := high; given < n+2; given++ {
				for from := range offset.Queue(n + 4) {
					b := situation(low, high, from)
					seen[b.Status] = true
					v := locate(b, from, known{given: given})
					for _, short := range []bool{false, true} {
						// A slave may lack what its master has: it moves nobody, except past what is gone on both.
						s := locate(b, from, known{given: given, slave: true, short: short})
						require.GreaterOrEqual(t, s.next, from)
						if from < low && high > 0 && short || b.Status == store.BeyondEnd || b.Status == store.NoQueue {
							require.Equal(t, verdict{s.code, s.remark, from, true}, s)
							require.Equal(t, protocol.PullNotFound, s.code)
						} else {
							require.Equal(t, v, s)
						}
					}
					if v.next < from {
						require.Greater(t, from, given, "low %d high %d from %d given %d: sent back to %d", low, high, from, given, v.next)
						require.GreaterOrEqual(t, v.next, given, "sent back below what was given out")
					}
					if v.hold {
						require.Equal(t, from, v.next)
						require.Equal(t, protocol.PullNotFound, v.code)
					}
				}
			}
		}
	}
	require.Len(t, seen, 5)
}

// situation is what a store that has low..high answers to a pull at from.
func situation(low, high, from offset.Queue) store.Batch {
	b := store.Batch{Bounds: store.Bounds{Low: low, High: high}}
	switch {
	case high == 0:
		b.Status = store.NoQueue
	case from < low:
		b.Status = store.BelowLow
	case from == high:
		b.Status = store.AtEnd
	case from > high:
		b.Status = store.BeyondEnd
	default:
		b.Status, b.Next = store.Found, from+1
	}
	return b
}
