package store

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/internal/vfs/vfstest"
)

// TestTruncateLeavesOffsetsFree: what is kept free was given out, wherever the log ends.
func TestTruncateLeavesOffsetsFree(t *testing.T) {
	s := mustOpen(t, small(vfstest.New()))
	put(t, s, text("T", 0, "one"))
	end := s.Written()
	_, err := s.Leave(Lost{Queue: func(_ string, _ int32, next offset.Queue) offset.Queue { return next + 10 }})
	require.NoError(t, err)
	put(t, s, text("T", 1, "another queue's"))
	level(t, s)
	_, err = s.Truncate(end)
	require.NoError(t, err)
	require.EqualValues(t, 11, s.Given("T", 0))
	require.EqualValues(t, 11, put(t, s, text("T", 0, "again")).Queue)
}

// lostTail is a log with one message, one with two, and one that has lost the second, kept its place free and gone on.
func lostTail(t *testing.T) (start, full, master *Store) {
	t.Helper()
	start, full, master = mustOpen(t, small(vfstest.New())), mustOpen(t, small(vfstest.New())), mustOpen(t, small(vfstest.New()))
	put(t, start, text("T", 0, "kept"))
	require.NoError(t, copyLog(t, start, full, 1))
	require.NoError(t, copyLog(t, start, master, 1))
	put(t, full, text("T", 0, "lost"))
	_, err := master.Leave(Lost{
		Log: full.Written() + 5000, Queue: func(_ string, _ int32, next offset.Queue) offset.Queue { return next + 10 },
	})
	require.NoError(t, err)
	put(t, master, text("T", 0, "new"))
	level(t, master)
	return start, full, master
}

// follow copies a log as a slave does that is told of the gaps.
func follow(t *testing.T, master, slave *Store) {
	t.Helper()
	gaps := master.Gaps()
	require.NoError(t, slave.Adopt(gaps.Queues, Unseen{}))
	stream := slave.Stream(true)
	stream.KeptFree(gaps.Log)
	for stream.Next() < master.Written() {
		b := make([]byte, 700)
		n, err := master.ReadLog(stream.Next(), b)
		require.NoError(t, err)
		require.NoError(t, stream.Write(b[:n]))
	}
}

// TestASlaveKnowsTheGapsThatItCopies, after a crash, too; and one whose log ends before a gap has none.
func TestASlaveKnowsTheGapsThatItCopies(t *testing.T) {
	_, _, master := lostTail(t)
	fsys := vfstest.New()
	slave := mustOpen(t, small(fsys))
	follow(t, master, slave)
	lost := fsys.CrashClone(vfstest.KeepNothing, 1)
	check := func(s *Store) {
		require.Equal(t, master.Gaps().Log, s.Gaps().Log)
		require.Equal(t, master.Gaps().Queues, s.Gaps().Queues)
		require.EqualValues(t, 10, s.Missing("T", 0, 0, 12))
		require.Equal(t, master.Given("T", 0), s.Given("T", 0))
	}
	check(slave)
	follow(t, master, slave)
	check(slave)
	check(mustOpen(t, small(kill(fsys))))

	before := mustOpen(t, small(lost))
	require.Less(t, before.Written(), master.Gaps().Log[0].From)
	require.Empty(t, before.Gaps().Log)
	follow(t, master, before)
	check(before)
	level(t, before)
	requireSameLogs(t, master, before)
}

// differs is where a log differs from another, -1 when nowhere, whatever pieces it comes in.
func differs(t *testing.T, own, other *Store, pass []Span) offset.Physical {
	t.Helper()
	found := map[offset.Physical]bool{}
	for _, size := range []int{1, 3, 7, 8, 700} {
		c, at := own.Compare(own.Low()), offset.Physical(-1)
		c.Pass(pass, nil)
		for at < 0 && c.Next() < min(own.Written(), other.Written()) {
			b := make([]byte, min(size, int(min(own.Written(), other.Written())-c.Next())))
			n, err := other.ReadLog(c.Next(), b)
			require.NoError(t, err)
			at, err = c.Write(b[:n])
			require.NoError(t, err)
		}
		found[at] = true
	}
	require.Len(t, found, 1)
	for at := range found {
		return at
	}
	return 0
}

// TestACopyOfAFilledGapIsNoOtherLog: a slave that compares nothing, as Java's, has copied a gap before it was filled.
func TestACopyOfAFilledGapIsNoOtherLog(t *testing.T) {
	start, full, master := lostTail(t)
	plain, knows := mustOpen(t, small(vfstest.New())), mustOpen(t, small(vfstest.New()))
	require.NoError(t, copyLog(t, master, plain, 1))
	follow(t, master, knows)
	gap := master.Gaps().Log[0]
	require.EqualValues(t, -1, differs(t, master, full, nil), "what belongs there is still to come")
	require.Equal(t, gap.From, differs(t, full, master, []Span{gap}), "a log that ends in the gap can't go on behind it")

	b := make([]byte, full.Written()-gap.From)
	_, err := full.ReadLog(gap.From, b)
	require.NoError(t, err)
	require.NoError(t, master.Refill(gap.From, b, false))
	require.Equal(t, []Span{{From: gap.From, To: full.Written()}}, master.Gaps().Filled)
	require.EqualValues(t, -1, differs(t, master, plain, nil))
	require.EqualValues(t, -1, differs(t, knows, master, nil))
	require.Equal(t, gap.From, differs(t, plain, master, nil))
	require.EqualValues(t, -1, differs(t, plain, master, []Span{gap}))

	other := mustOpen(t, small(vfstest.New()))
	require.NoError(t, copyLog(t, start, other, 1))
	put(t, other, text("T", 0, "what nobody lost"))
	require.Equal(t, gap.From, differs(t, master, other, nil), "other bytes in the filled place are another log")

	_, err = master.Truncate(gap.From)
	require.NoError(t, err)
	require.Empty(t, master.Gaps().Filled)
}
