package store

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/internal/vfs/vfstest"
)

// A deleted topic stays deleted though the process is killed right after, and its messages are still in the log; what
// was sent to the topic since then is all that it has.
func TestDeletedTopicStaysDeleted(t *testing.T) {
	for _, again := range []int{0, 3, 30} {
		t.Run(fmt.Sprintf("%d sent since", again), func(t *testing.T) {
			m := vfstest.New()
			s := mustRun(t, small(m))
			for i := range 20 {
				put(t, s, text("T", 0, fmt.Sprint("old ", i)))
				put(t, s, text("Other", 0, fmt.Sprint(i)))
			}
			level(t, s)
			require.NoError(t, s.DeleteTopic("T"))
			for i := range again {
				require.Equal(t, offset.Queue(i), put(t, s, text("T", 0, fmt.Sprint("new ", i))).Queue)
			}
			level(t, s)
			killed := mustRun(t, small(kill(m)))
			var want []string
			for i := range again {
				want = append(want, fmt.Sprint("new ", i))
			}
			require.Equal(t, want, bodies(readQueue(t, killed, "T", 0)))
			require.Len(t, readQueue(t, killed, "Other", 0), 20)
			require.Equal(t, offset.Queue(again), put(t, killed, text("T", 0, "next")).Queue)
		})
	}
}

// TestTopicOfANewStoreIsDeleted: no queue has a file yet.
func TestTopicOfANewStoreIsDeleted(t *testing.T) {
	s := mustOpen(t, small(vfstest.New()))
	_, err := s.Append(text("T", 0, "not yet dispatched"))
	require.NoError(t, err)
	require.NoError(t, s.DeleteTopic("T"))
	level(t, s)
	require.EqualValues(t, 0, put(t, s, text("T", 0, "new")).Queue)
	require.Equal(t, []string{"new"}, bodies(readQueue(t, s, "T", 0)))
}
