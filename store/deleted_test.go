package store

import (
	"fmt"
	"strings"
	"syscall"
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

// TestADeletionThatCanNotBeNotedIsNone: what is sent to the topic then goes on behind what it has, and is found after a kill, too.
func TestADeletionThatCanNotBeNotedIsNone(t *testing.T) {
	for _, file := range []string{deletionsFile, gapsFile} {
		t.Run(file, func(t *testing.T) {
			m := vfstest.New()
			s := mustRun(t, small(m))
			put(t, s, text("T", 0, "1"))
			_, err := s.Leave(Lost{Queue: func(_ string, _ int32, next offset.Queue) offset.Queue { return next + 10 }})
			require.NoError(t, err)
			put(t, s, text("T", 0, "2"))
			level(t, s)
			gaps := s.Gaps()
			m.SetFault(func(op vfstest.Op) *vfstest.Fault {
				if op.Kind == vfstest.OpWrite && strings.Contains(op.Name, file) {
					return &vfstest.Fault{Err: syscall.ENOSPC}
				}
				return nil
			})
			require.ErrorIs(t, s.DeleteTopic("T"), syscall.ENOSPC)
			m.SetFault(nil)
			require.EqualValues(t, 12, put(t, s, text("T", 0, "3")).Queue)
			require.Equal(t, gaps, s.Gaps())
			require.Empty(t, s.Deleted())
			level(t, s)
			for _, s := range []*Store{s, mustRun(t, small(kill(m)))} {
				require.Equal(t, []string{"1", "2", "3"}, bodies(readQueue(t, s, "T", 0)))
			}
			require.NoError(t, s.DeleteTopic("T"))
			require.EqualValues(t, 0, put(t, s, text("T", 0, "new")).Queue)
			level(t, s)
			require.Equal(t, []string{"new"}, bodies(readQueue(t, mustRun(t, small(kill(m))), "T", 0)))
		})
	}
}

// TestADeletionIsFinished: it was noted, and the files of the topic's queues could not be removed, or some of them.
func TestADeletionIsFinished(t *testing.T) {
	deletes := func(t *testing.T) (*vfstest.Mem, *Store) {
		m := vfstest.New()
		s := mustRun(t, small(m))
		for i := range 20 {
			put(t, s, text("T", 0, fmt.Sprint("old ", i)))
			put(t, s, text("T", 1, fmt.Sprint("old ", i)))
		}
		level(t, s)
		require.NoError(t, s.files.sync())
		m.SetFault(vfstest.FailNth(1, func(op vfstest.Op) bool { return op.Kind == vfstest.OpRemove }, syscall.EIO))
		require.ErrorIs(t, s.DeleteTopic("T"), syscall.EIO)
		m.SetFault(nil)
		return m, s
	}
	requireNew := func(t *testing.T, s *Store) {
		t.Helper()
		require.EqualValues(t, 0, put(t, s, text("T", 0, "new")).Queue)
		level(t, s)
		require.Equal(t, []string{"new"}, bodies(readQueue(t, s, "T", 0)))
		require.Empty(t, readQueue(t, s, "T", 1))
	}
	t.Run("sent to since", func(t *testing.T) {
		m, s := deletes(t)
		requireNew(t, s)
		s = mustRun(t, small(kill(m)))
		require.Equal(t, []string{"new"}, bodies(readQueue(t, s, "T", 0)))
		require.Empty(t, readQueue(t, s, "T", 1))
	})
	t.Run("killed", func(t *testing.T) {
		m, _ := deletes(t)
		s := mustRun(t, small(kill(m)))
		_, known := s.Bounds("T", 0)
		require.False(t, known)
		requireNew(t, s)
	})
	t.Run("stopped", func(t *testing.T) {
		m, s := deletes(t)
		require.NoError(t, s.Close())
		requireNew(t, mustRun(t, small(m)))
	})
}

// TestWhatADeletionReachedIsTriedAgain: a clamp that could not be noted is none.
func TestWhatADeletionReachedIsTriedAgain(t *testing.T) {
	m := vfstest.New()
	s := mustOpen(t, small(m))
	put(t, s, text("T", 0, "old"))
	require.NoError(t, s.DeleteTopic("T"))
	m.SetFault(func(op vfstest.Op) *vfstest.Fault {
		if op.Kind == vfstest.OpWrite && strings.Contains(op.Name, deletionsFile) {
			return &vfstest.Fault{Err: syscall.ENOSPC}
		}
		return nil
	})
	d := s.dispatcher.deleted
	require.ErrorIs(t, d.clamp(10), syscall.ENOSPC)
	m.SetFault(nil)
	require.NoError(t, d.clamp(10))
	noted, err := loadDeletions(m, d.path)
	require.NoError(t, err)
	require.Equal(t, map[string]offset.Physical{"T": 10}, noted.topics)
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

// TestNothingNewIsTakenForDeleted: the end of the log may be lost, up to which a topic was deleted.
func TestNothingNewIsTakenForDeleted(t *testing.T) {
	m := vfstest.New()
	s := mustOpen(t, small(m))
	for range 5 {
		_, err := s.Append(text("T", 0, "old"))
		require.NoError(t, err)
	}
	require.NoError(t, s.dispatcher.drain())
	require.NoError(t, s.DeleteTopic("T"))
	s = mustOpen(t, small(m.CrashClone(vfstest.KeepNothing, 1)))
	require.Zero(t, s.Written())
	_, err := s.Leave(Lost{Queue: func(_ string, _ int32, next offset.Queue) offset.Queue { return next }})
	require.NoError(t, err)
	put(t, s, text("T", 0, "new"))
	level(t, s)
	require.Equal(t, []string{"new"}, bodies(readQueue(t, s, "T", 0)))
}

// TestACopyIsToldOfDeletions before what came later, and has the same numbers then.
func TestACopyIsToldOfDeletions(t *testing.T) {
	m := vfstest.New()
	master, slave := mustOpen(t, small(vfstest.New())), mustOpen(t, small(m))
	var forgotten []string
	slave.OnDeleted(func(topic string) error {
		forgotten = append(forgotten, topic)
		return nil
	})
	for range 3 {
		put(t, master, text("T", 0, "old"))
	}
	put(t, master, text("Other", 0, "kept"))
	require.NoError(t, copyLog(t, master, slave, 1))
	level(t, slave)
	before := master.Deletions()
	require.NoError(t, master.DeleteTopic("T"))
	require.Greater(t, master.Deletions(), before)
	put(t, master, text("T", 0, "new"))
	for range 2 {
		require.NoError(t, slave.AdoptDeleted(master.Deleted()))
	}
	require.Equal(t, []string{"T"}, forgotten)
	require.NoError(t, copyLog(t, master, slave, 1))
	level(t, slave)
	for _, s := range []*Store{slave, mustRun(t, small(kill(m)))} {
		require.Equal(t, []string{"new"}, bodies(readQueue(t, s, "T", 0)))
		require.Equal(t, []string{"kept"}, bodies(readQueue(t, s, "Other", 0)))
		require.Equal(t, master.Given("T", 0), s.Given("T", 0))
		require.Equal(t, master.Deleted(), s.Deleted())
	}
}
