package store

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/internal/vfs/vfstest"
	"github.com/ratchetmq/ratchet/message"
)

// TestPartsOfTheLogAreFilled: a write that comes into another part of a segment has zeros behind it up to the part's end, or
// the segment's; others write their records alone. It is so for appends and for another broker's records.
func TestPartsOfTheLogAreFilled(t *testing.T) {
	type write struct{ from, to int64 }
	recorded := func(fsys *vfstest.Mem) *[]write {
		var all []write
		fsys.SetFault(func(op vfstest.Op) *vfstest.Fault {
			if op.Kind == vfstest.OpWrite && strings.Contains(op.Name, "/commitlog/") {
				all = append(all, write{op.Off, op.Off + int64(op.Len)})
			}
			return nil
		})
		return &all
	}
	big := func(fsys *vfstest.Mem) *Store {
		o := small(fsys)
		o.SegmentSize = 3*fillSize - 100
		return mustOpen(t, o)
	}
	fsys, copyFS := vfstest.New(), vfstest.New()
	s, replica := big(fsys), big(copyFS)
	put(t, s, text("T", 0, "before any write that is looked at"))
	writes, copied := recorded(fsys), recorded(copyFS)

	var ends []int64 // of the appends
	for _, size := range []int{10, fillSize, 10, fillSize / 2, 10, fillSize / 2} {
		a, err := s.Append(text("T", 0, strings.Repeat("x", size)))
		require.NoError(t, err)
		ends = append(ends, int64(a.End))
	}
	filled := []int64{ends[0], 2 * fillSize, ends[2], ends[3], ends[4], 3*fillSize - 100}
	require.Len(t, *writes, len(filled))
	for i, w := range *writes {
		require.Equal(t, filled[i], w.to, "write %d, its records end at %d", i, ends[i])
	}

	b := make([]byte, s.Written())
	_, err := s.ReadLog(0, b)
	require.NoError(t, err)
	first, err := message.Parse(b)
	require.NoError(t, err)
	stream := replica.Stream(true)
	for _, part := range [][]byte{b[:first.Size], b[first.Size:ends[0]], b[ends[0]:]} {
		require.NoError(t, stream.Write(part))
	}
	require.Equal(t, []write{{0, fillSize}, {int64(first.Size), ends[0]}, {ends[0], 3*fillSize - 100}}, *copied)
	level(t, s)
	level(t, replica)
	require.Equal(t, bodies(readQueue(t, s, "T", 0)), bodies(readQueue(t, replica, "T", 0)))
}
