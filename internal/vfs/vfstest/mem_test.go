package vfstest

import (
	"bytes"
	"errors"
	"io/fs"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/internal/vfs"
)

func create(t *testing.T, m *Mem, name string) vfs.File {
	t.Helper()
	f, err := m.Create(name)
	require.NoError(t, err)
	return f
}

func write(t *testing.T, f vfs.File, at int64, text string) {
	t.Helper()
	_, err := f.WriteAt([]byte(text), at)
	require.NoError(t, err)
}

func content(t *testing.T, m *Mem, name string) string {
	t.Helper()
	b, err := m.ReadFile(name)
	require.NoError(t, err)
	return string(b)
}

func TestPowerCutTakesWhatWasNotSynced(t *testing.T) {
	m := New()
	f := create(t, m, "/f")
	require.NoError(t, m.SyncDir("/"))
	write(t, f, 0, "synced")
	require.NoError(t, f.Sync())
	write(t, f, 0, "LOST..and more")
	require.Equal(t, "LOST..and more", content(t, m, "/f"))
	require.Equal(t, "synced", content(t, m.CrashClone(KeepNothing, 0), "/f"))
	require.Equal(t, "LOST..and more", content(t, m.CrashClone(KeepAll, 0), "/f"))
	require.Equal(t, "LOST..and more", content(t, m, "/f"), "the crashed disk goes on")
}

func TestNamesAreDurableAfterSyncDir(t *testing.T) {
	m := New()
	require.NoError(t, m.MkdirAll("/a/b"))
	f := create(t, m, "/a/b/f")
	write(t, f, 0, "x")
	require.NoError(t, f.Sync())
	require.NoError(t, m.SyncDir("/a/b"))
	require.Empty(t, m.CrashClone(KeepNothing, 0).Files(), "the folder itself is not durable")
	require.NoError(t, m.SyncDir("/"))
	require.NoError(t, m.SyncDir("/a"))
	require.Equal(t, []string{"/a/b/f"}, m.CrashClone(KeepNothing, 0).Files())

	require.NoError(t, m.Rename("/a/b/f", "/a/b/g"))
	require.Equal(t, []string{"/a/b/f"}, m.CrashClone(KeepNothing, 0).Files())
	require.Equal(t, []string{"/a/b/g"}, m.CrashClone(KeepAll, 0).Files())
	require.NoError(t, m.SyncDir("/a/b"))
	require.Equal(t, []string{"/a/b/g"}, m.CrashClone(KeepNothing, 0).Files())

	require.NoError(t, m.Remove("/a/b/g"))
	require.Equal(t, []string{"/a/b/g"}, m.CrashClone(KeepNothing, 0).Files())
	require.NoError(t, m.SyncDir("/a/b"))
	require.Empty(t, m.CrashClone(KeepNothing, 0).Files())
}

// KeepSome keeps whole pages, some and not others, the same for the same seed.
func TestPowerCutBetweenPages(t *testing.T) {
	m := New()
	f := create(t, m, "/f")
	require.NoError(t, f.Truncate(8*PageSize))
	require.NoError(t, f.Sync())
	require.NoError(t, m.SyncDir("/"))
	for p := range int64(8) {
		write(t, f, p*PageSize, string(bytes.Repeat([]byte{'x'}, PageSize)))
	}
	outcomes := map[string]bool{}
	for seed := range uint64(50) {
		got := content(t, m.CrashClone(KeepSome, seed), "/f")
		require.Equal(t, got, content(t, m.CrashClone(KeepSome, seed), "/f"))
		require.Len(t, got, 8*PageSize)
		for p := range 8 {
			page := bytes.Trim([]byte(got[p*PageSize:(p+1)*PageSize]), "\x00")
			require.Contains(t, []int{0, PageSize}, len(page))
		}
		outcomes[got] = true
	}
	require.Greater(t, len(outcomes), 20)
}

func TestFailedSyncLosesThePages(t *testing.T) {
	m := New()
	f := create(t, m, "/f")
	require.NoError(t, m.SyncDir("/"))
	write(t, f, 0, "x")
	bad := errors.New("bad")
	m.SetFault(FailNth(1, func(op Op) bool { return op.Kind == OpSync }, bad))
	require.ErrorIs(t, f.Sync(), bad)
	m.SetFault(nil)
	require.NoError(t, f.Sync(), "the second try looks as if it had worked")
	require.NotEqual(t, "x", content(t, m.CrashClone(KeepNothing, 0), "/f"))
	require.Equal(t, "x", content(t, m.CrashClone(KeepAll, 0), "/f"))
}

func TestFaults(t *testing.T) {
	m := New()
	bad := errors.New("bad")
	m.SetFault(FailNth(2, nil, bad))
	f := create(t, m, "/f")
	_, err := f.WriteAt([]byte("x"), 0)
	require.ErrorIs(t, err, bad)
	_, err = m.Create("/g")
	require.ErrorIs(t, err, bad)
	_, err = m.Stat("/f")
	require.NoError(t, err)
	m.SetFault(func(op Op) *Fault { return &Fault{Err: bad, Short: 2} })
	n, err := f.WriteAt([]byte("abcd"), 0)
	require.Equal(t, 2, n)
	require.ErrorIs(t, err, bad)
	m.SetFault(nil)
	require.Equal(t, "ab", content(t, m, "/f"))
	require.Equal(t, 2, m.Count(OpWrite))
}

func TestMake(t *testing.T) {
	m := New()
	bad := errors.New("bad")
	_, err := m.Make("/f", func(f vfs.File) error {
		require.NoError(t, f.Preallocate(PageSize))
		return bad
	})
	require.ErrorIs(t, err, bad)
	require.Empty(t, m.Files())
	require.Zero(t, m.Used())

	f, err := m.Make("/f", func(f vfs.File) error {
		write(t, f, 0, "abc")
		require.NoError(t, f.Sync())
		require.Empty(t, m.Files())
		require.Empty(t, m.CrashClone(KeepAll, 0).Files(), "killed")
		return nil
	})
	require.NoError(t, err)
	write(t, f, 1, "x")
	require.Equal(t, "axc", content(t, m, "/f"))
	require.Empty(t, m.CrashClone(KeepNothing, 0).Files())
	require.NoError(t, m.SyncDir("/"))
	require.Equal(t, "abc", content(t, m.CrashClone(KeepNothing, 0), "/f"))

	_, err = m.Make("/f", func(vfs.File) error { return nil })
	require.ErrorIs(t, err, fs.ErrExist)
	_, err = m.Make("/none/f", func(vfs.File) error { return nil })
	require.ErrorIs(t, err, fs.ErrNotExist)
	m.SetFault(FailNth(1, nil, bad))
	_, err = m.Make("/g", func(vfs.File) error { return nil })
	require.ErrorIs(t, err, bad)
}

func TestLimit(t *testing.T) {
	m := New()
	m.SetLimit(3 * PageSize)
	f := create(t, m, "/f")
	require.ErrorIs(t, f.Preallocate(4*PageSize), syscall.ENOSPC)
	require.Zero(t, m.Used())
	require.NoError(t, f.Preallocate(2*PageSize))
	g := create(t, m, "/g")
	require.NoError(t, g.Truncate(1<<20), "a hole takes no room")
	write(t, g, 0, "x")
	write(t, f, PageSize, "in the reserved room")
	n, err := g.WriteAt(make([]byte, 10), PageSize-5)
	require.Equal(t, 5, n)
	require.ErrorIs(t, err, syscall.ENOSPC)
	u, err := m.Usage("/")
	require.NoError(t, err)
	require.Equal(t, vfs.Usage{Total: 3 * PageSize}, u)
	require.EqualValues(t, 3*PageSize, m.CrashClone(KeepAll, 0).Used())
	require.EqualValues(t, 3*PageSize, m.Used())
	require.NoError(t, m.Remove("/f"))
	require.EqualValues(t, PageSize, m.Used())
	require.NoError(t, g.Truncate(0))
	require.Zero(t, m.Used())
}

func TestLocks(t *testing.T) {
	m := New()
	lock, err := m.Lock("/lock")
	require.NoError(t, err)
	_, err = m.Lock("/lock")
	require.ErrorIs(t, err, vfs.ErrLocked)
	other, err := m.CrashClone(KeepAll, 0).Lock("/lock")
	require.NoError(t, err, "a crash ends all processes")
	require.NoError(t, other.Close())
	require.NoError(t, lock.Close())
	require.NoError(t, lock.Close())
	_, err = m.Lock("/lock")
	require.NoError(t, err)
}

func TestClosedAndReadOnlyFiles(t *testing.T) {
	m := New()
	m.WriteFile("/d/f", []byte("abc"))
	require.Equal(t, "abc", content(t, m.CrashClone(KeepNothing, 0), "/d/f"))
	f, err := m.OpenReadOnly("/d/f")
	require.NoError(t, err)
	_, err = f.WriteAt([]byte("x"), 0)
	require.ErrorIs(t, err, syscall.EBADF)
	require.NoError(t, f.Close())
	require.ErrorIs(t, f.Close(), fs.ErrClosed)
	_, err = f.ReadAt(make([]byte, 1), 0)
	require.ErrorIs(t, err, fs.ErrClosed)
	_, err = m.Create("/none/f")
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorIs(t, m.Remove("/d"), syscall.ENOTEMPTY)
	list, err := m.ReadDir("/")
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.True(t, list[0].IsDir())
	require.NoError(t, m.RemoveAll("/d"))
	require.Empty(t, m.Files())
}
