package store

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/internal/vfs/vfstest"
)

// damagedCopy is a log and a copy of it that has lost a piece of its midst.
func damagedCopy(t *testing.T, at int64, size int) (whole, copied *Store, fsys *vfstest.Mem) {
	t.Helper()
	whole, fsys = mustOpen(t, small(vfstest.New())), vfstest.New()
	fillLog(t, whole, 40)
	copied, err := Open(small(fsys))
	require.NoError(t, err)
	require.NoError(t, copyLog(t, whole, copied, 1))
	level(t, copied)
	require.NoError(t, copied.Close())
	patch(t, fsys, logFile(4096), at, make([]byte, size))
	require.NoError(t, fsys.RemoveAll(testRoot+"/consumequeue"))
	fsys.WriteFile(testRoot+"/"+abortFile, nil)
	copied = mustOpen(t, small(fsys))
	require.Len(t, copied.Damaged(), 1)
	require.Equal(t, whole.Written(), copied.Written())
	return whole, copied, fsys
}

// repairs feeds a repair with what another log has.
func repairs(t *testing.T, s, from *Store) error {
	t.Helper()
	damage := s.Damaged()[0]
	stream := s.RepairStream(damage)
	for stream.Next() < damage.To {
		b := make([]byte, min(300, damage.To-stream.Next()))
		n, err := from.ReadLog(stream.Next(), b)
		require.NoError(t, err)
		if err := stream.Write(b[:n]); err != nil {
			return err
		}
	}
	return nil
}

// TestADamagedPartIsRepaired, in the midst of a segment and at its end, and readers get what was there, after a power cut, too.
func TestADamagedPartIsRepaired(t *testing.T) {
	for _, at := range []int64{700, 4096 - 512} {
		whole, copied, fsys := damagedCopy(t, at, 512)
		require.NoError(t, repairs(t, copied, whole))
		require.Empty(t, copied.Damaged())
		requireSameLogs(t, whole, copied)
		again := mustOpen(t, small(fsys.CrashClone(vfstest.KeepNothing, 1)))
		require.Empty(t, again.Damaged())
		requireSameLogs(t, whole, again)
	}
}

// TestADamagedPartIsNotRepairedFromAnotherLog, whose records end elsewhere: nothing is changed.
func TestADamagedPartIsNotRepairedFromAnotherLog(t *testing.T) {
	_, copied, _ := damagedCopy(t, 700, 512)
	damage := copied.Damaged()
	other := mustOpen(t, small(vfstest.New()))
	for stream := other.Stream(false); stream.Next() < damage[0].From; {
		b := make([]byte, min(300, damage[0].From-stream.Next()))
		n, err := copied.ReadLog(stream.Next(), b)
		require.NoError(t, err)
		require.NoError(t, stream.Write(b[:n]))
	}
	require.Equal(t, damage[0].From, other.Written())
	before := make([]byte, 4096)
	_, err := copied.ReadLog(4096, before)
	require.NoError(t, err)
	for other.Written() < damage[0].To {
		put(t, other, text("T", 0, "of another life"))
	}
	_ = repairs(t, copied, other) // it may be cut in the midst of a record, which is no error yet
	after := make([]byte, 4096)
	_, err = copied.ReadLog(4096, after)
	require.NoError(t, err)
	require.Equal(t, before, after)
	require.Equal(t, damage, copied.Damaged())

	_, err = copied.Truncate(0)
	require.NoError(t, err)
	require.Empty(t, copied.Damaged())
	require.Equal(t, offset.Physical(0), copied.Written())
}
