package store

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/internal/vfs/vfstest"
	"github.com/ratchetmq/ratchet/message"
)

// entriesOf are all entries of all queues, from the files.
func entriesOf(t *testing.T, s *Store) map[string][]entry {
	t.Helper()
	all := map[string][]entry{}
	for _, q := range s.queues.all() {
		low, high := q.low.Load(), q.high.Load()
		b := make([]byte, (high-low)*entrySize)
		require.NoError(t, s.files.read(q, low, b))
		var list []entry
		for ; len(b) > 0; b = b[entrySize:] {
			list = append(list, parseEntry(b))
		}
		if len(list) > 0 {
			all[fmt.Sprintf("%s/%d from %d", q.topic, q.id, low)] = list
		}
	}
	return all
}

// rebuilt is the store that a folder without queues becomes: what it says comes from the log alone.
func rebuilt(t *testing.T, fsys *vfstest.Mem) *Store {
	t.Helper()
	again := fsys.CrashClone(vfstest.KeepAll, 1)
	require.NoError(t, again.RemoveAll(testRoot+"/consumequeue"))
	return mustOpen(t, small(again))
}

// TestFreshRecordsDispatchAsTheLogDoes: what dispatch gets from appends makes the queues that it makes from the log, whether it
// follows closely or has fallen behind by more than is kept for it.
func TestFreshRecordsDispatchAsTheLogDoes(t *testing.T) {
	fsys := vfstest.New()
	s := mustOpen(t, small(fsys))
	random := rand.New(rand.NewPCG(1, 2))
	one := func() Message {
		m := tagged(fmt.Sprint("T", random.IntN(3)), random.Int32N(3), fmt.Sprint("tag", random.IntN(9)), strings.Repeat("x", random.IntN(40)))
		if random.IntN(8) == 0 {
			m.SysFlag = message.FlagPrepared
		}
		if random.IntN(8) == 0 {
			m.Properties = nil
		}
		return m
	}
	for _, lag := range []int{1, 2, 7, 100, 1000, freshRequests + 500, 3} {
		for n := 0; n < lag; {
			batch := make([]Message, 1+random.IntN(10))
			for i := range batch {
				batch[i] = one()
			}
			_, err := s.Append(batch...)
			require.NoError(t, err)
			n += len(batch)
		}
		require.NoError(t, s.dispatcher.drain())
		require.Equal(t, s.Written(), s.Dispatched())
	}
	require.NoError(t, s.log.flush())
	require.Equal(t, entriesOf(t, rebuilt(t, fsys)), entriesOf(t, s))
}

// TestFreshRecordsAreNotReadAgain: an append is dispatched though its log can't be read.
func TestFreshRecordsAreNotReadAgain(t *testing.T) {
	fsys := vfstest.New()
	s := mustOpen(t, small(fsys))
	put(t, s, text("T", 0, "before"))
	broken := errors.New("unreadable")
	fsys.SetFault(func(op vfstest.Op) *vfstest.Fault {
		if op.Kind == vfstest.OpRead && strings.Contains(op.Name, "commitlog") {
			return &vfstest.Fault{Err: broken}
		}
		return nil
	})
	a, err := s.Append(text("T", 0, "one"), text("T", 0, "two"))
	require.NoError(t, err)
	require.NoError(t, s.dispatcher.drain())
	require.Equal(t, a.End, s.Dispatched())
	fsys.SetFault(nil)
	require.Equal(t, []string{"before", "one", "two"}, bodies(readQueue(t, s, "T", 0)))
}

// TestFreshRecordsWaitForTheLimit: dispatch that may not go on has them later.
func TestFreshRecordsWaitForTheLimit(t *testing.T) {
	o := small(vfstest.New())
	var confirmed offset.Physical
	o.Confirmed = func() offset.Physical { return confirmed }
	s := mustOpen(t, o)
	var ends []offset.Physical
	for i := range 4 {
		a, err := s.Append(text("T", 0, fmt.Sprint(i)))
		require.NoError(t, err)
		ends = append(ends, a.End)
	}
	for i, end := range ends {
		confirmed = end - 1
		require.NoError(t, s.dispatcher.drain())
		require.Len(t, readQueue(t, s, "T", 0), i)
		confirmed = end
		require.NoError(t, s.dispatcher.drain())
		require.Len(t, readQueue(t, s, "T", 0), i+1)
	}
}

// TestFreshRecordsGoWithTheLog: what was cut off is not dispatched in the place of what came instead.
func TestFreshRecordsGoWithTheLog(t *testing.T) {
	for _, fetched := range []bool{false, true} {
		o := small(vfstest.New())
		var confirmed offset.Physical
		o.Confirmed = func() offset.Physical { return confirmed }
		s := mustOpen(t, o)
		first, err := s.Append(tagged("T", 0, "a", "stays"))
		require.NoError(t, err)
		_, err = s.Append(tagged("T", 0, "b", "gone!"))
		require.NoError(t, err)
		if confirmed = first.End; fetched {
			require.NoError(t, s.dispatcher.drain())
		}
		_, err = s.Truncate(first.End)
		require.NoError(t, err)
		_, err = s.Append(tagged("T", 0, "c", "after"))
		require.NoError(t, err)
		confirmed = s.Written()
		level(t, s)
		list := entriesOf(t, s)["T/0 from 0"]
		require.Len(t, list, 2)
		require.EqualValues(t, 'c', list[1].tags)
		require.Equal(t, []string{"stays", "after"}, bodies(readQueue(t, s, "T", 0)))
	}
}
