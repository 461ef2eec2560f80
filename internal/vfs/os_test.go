package vfs_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/internal/vfs"
)

func TestFileReadsWhatWasWritten(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f")
	_, err := vfs.OS{}.Open(name)
	require.ErrorIs(t, err, fs.ErrNotExist)
	f, err := vfs.OS{}.Create(name)
	require.NoError(t, err)
	require.Equal(t, name, f.Name())
	_, err = f.WriteAt([]byte("abc"), 2)
	require.NoError(t, err)
	require.NoError(t, f.Sync())
	b := make([]byte, 5)
	_, err = f.ReadAt(b, 0)
	require.NoError(t, err)
	require.Equal(t, "\x00\x00abc", string(b))
	require.NoError(t, f.Truncate(10))
	size, err := f.Size()
	require.NoError(t, err)
	require.EqualValues(t, 10, size)
	require.NoError(t, f.Close())

	r, err := vfs.OS{}.OpenReadOnly(name)
	require.NoError(t, err)
	_, err = r.WriteAt([]byte("x"), 0)
	require.ErrorIs(t, err, syscall.EBADF)
	require.NoError(t, r.Close())
	require.NoError(t, vfs.OS{}.Rename(name, name+"2"))
	require.NoError(t, vfs.OS{}.SyncDir(filepath.Dir(name)))
	list, err := vfs.OS{}.ReadDir(filepath.Dir(name))
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.NoError(t, vfs.OS{}.Remove(name+"2"))
	require.ErrorIs(t, vfs.OS{}.SyncDir(name), fs.ErrNotExist)
}

func TestMake(t *testing.T) {
	for _, c := range []struct {
		name  string
		make  func(string, func(vfs.File) error) (vfs.File, error)
		named bool // from the first
	}{{"unnamed", vfs.OS{}.Make, false}, {"named", vfs.MakeNamed, true}} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			name := filepath.Join(dir, "f")
			errFill := errors.New("fill")
			_, err := c.make(name, func(vfs.File) error { return errFill })
			require.ErrorIs(t, err, errFill)
			list, err := os.ReadDir(dir)
			require.NoError(t, err)
			require.Empty(t, list)

			f, err := c.make(name, func(f vfs.File) error {
				_, err := f.WriteAt([]byte("abc"), 2)
				require.NoError(t, err)
				require.Equal(t, name, f.Name())
				_, err = os.Stat(name)
				require.Equal(t, c.named, err == nil)
				return f.Sync()
			})
			require.NoError(t, err)
			require.Equal(t, name, f.Name())
			_, err = f.WriteAt([]byte("d"), 5)
			require.NoError(t, err)
			require.NoError(t, f.Close())
			content, err := os.ReadFile(name)
			require.NoError(t, err)
			require.Equal(t, "\x00\x00abcd", string(content))
			info, err := os.Stat(name)
			require.NoError(t, err)
			created := filepath.Join(dir, "created")
			f, err = vfs.OS{}.Create(created)
			require.NoError(t, err)
			require.NoError(t, f.Close())
			other, err := os.Stat(created)
			require.NoError(t, err)
			require.Equal(t, other.Mode(), info.Mode())

			_, err = c.make(name, func(f vfs.File) error { return f.Truncate(1) })
			require.ErrorIs(t, err, fs.ErrExist)
			content, err = os.ReadFile(name)
			require.NoError(t, err)
			require.Len(t, content, 6, "not touched")
			_, err = c.make(filepath.Join(dir, "none", "f"), func(vfs.File) error { return nil })
			require.ErrorIs(t, err, fs.ErrNotExist)
		})
	}
}

// More pieces than a system call takes.
func TestPieces(t *testing.T) {
	f, err := vfs.OS{}.Create(filepath.Join(t.TempDir(), "f"))
	require.NoError(t, err)
	defer f.Close()
	var pieces [][]byte
	for i := range 2500 {
		pieces = append(pieces, bytes.Repeat([]byte{byte(i)}, 1+i%70))
	}
	want := slices.Concat(pieces...)
	n, err := vfs.WritePiecesAt(f, pieces, 3)
	require.NoError(t, err)
	require.Equal(t, len(want), n)
	got := make([]byte, len(want))
	_, err = f.ReadAt(got, 3)
	require.NoError(t, err)
	require.Equal(t, want, got)

	r, err := vfs.OS{}.OpenReadOnly(f.Name())
	require.NoError(t, err)
	defer r.Close()
	n, err = vfs.WritePiecesAt(r, [][]byte{{1}, {2}}, 0)
	require.ErrorIs(t, err, syscall.EBADF)
	require.Zero(t, n)
}

func TestPreallocateKeepsContentAndReadsAsZeros(t *testing.T) {
	f, err := vfs.OS{}.Create(filepath.Join(t.TempDir(), "f"))
	require.NoError(t, err)
	defer f.Close()
	_, err = f.WriteAt([]byte("abc"), 0)
	require.NoError(t, err)
	require.NoError(t, f.Preallocate(1<<20))
	size, err := f.Size()
	require.NoError(t, err)
	require.EqualValues(t, 1<<20, size)
	b := make([]byte, 1<<20)
	_, err = f.ReadAt(b, 0)
	require.NoError(t, err)
	require.Equal(t, "abc", string(b[:3]))
	require.Equal(t, make([]byte, 1<<20-3), b[3:])
	require.NoError(t, f.Preallocate(1<<10), "a longer file stays as long")
	size, _ = f.Size()
	require.EqualValues(t, 1<<20, size)
	require.Error(t, f.Preallocate(1<<60), "no disk has that room")
	size, _ = f.Size()
	require.EqualValues(t, 1<<20, size)
}

// Whatever the file system knows about holes, no byte that was written may be passed over.
func TestNextDataNeverPassesOverData(t *testing.T) {
	f, err := vfs.OS{}.Create(filepath.Join(t.TempDir(), "f"))
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, f.Preallocate(1<<22))
	for _, at := range []int64{3 << 20, 1<<20 + 5} {
		_, err = f.WriteAt([]byte("x"), at)
		require.NoError(t, err)
	}
	seeker, ok := f.(vfs.DataSeeker)
	require.True(t, ok)
	at, err := seeker.NextData(0)
	require.NoError(t, err)
	require.LessOrEqual(t, at, int64(1<<20+5))
	at, err = seeker.NextData(2 << 20)
	require.NoError(t, err)
	require.GreaterOrEqual(t, at, int64(2<<20))
	require.LessOrEqual(t, at, int64(3<<20))
	_, err = seeker.NextData(1 << 22)
	require.ErrorIs(t, err, io.EOF)
	for _, data := range []int64{1<<20 + 5, 3 << 20} {
		hole, err := seeker.NextHole(data)
		require.NoError(t, err)
		require.Greater(t, hole, data)
		require.LessOrEqual(t, hole, int64(1<<22))
	}
}

func TestUsageOfAFolderThatIsNotThereYet(t *testing.T) {
	dir := t.TempDir()
	want, err := vfs.OS{}.Usage(dir)
	require.NoError(t, err)
	require.Positive(t, want.Total)
	got, err := vfs.OS{}.Usage(filepath.Join(dir, "a", "b"))
	require.NoError(t, err)
	require.Equal(t, want.Total, got.Total)
}

func TestLockWithinTheProcess(t *testing.T) {
	name := filepath.Join(t.TempDir(), "lock")
	first, err := vfs.OS{}.Lock(name)
	require.NoError(t, err)
	_, err = vfs.OS{}.Lock(name)
	require.ErrorIs(t, err, vfs.ErrLocked)
	require.NoError(t, os.Link(name, name+"2"))
	_, err = vfs.OS{}.Lock(name + "2")
	require.ErrorIs(t, err, vfs.ErrLocked, "the same file by another name")
	require.ErrorIs(t, lockElsewhere(t, name), vfs.ErrLocked, "the refused tries have not given it back")
	require.NoError(t, first.Close())
	require.NoError(t, first.Close())
	require.NoError(t, lockElsewhere(t, name))
	again, err := vfs.OS{}.Lock(name)
	require.NoError(t, err)
	require.NoError(t, again.Close())
	data, err := os.ReadFile(name) // while it was held, closing this handle would have given it back
	require.NoError(t, err)
	require.Equal(t, "lock", string(data))
}

func TestLockOfAnotherProcess(t *testing.T) {
	name := filepath.Join(t.TempDir(), "lock")
	cmd := exec.Command(os.Args[0], "-test.run", "^TestLockHelper$")
	cmd.Env = append(os.Environ(), "VFS_LOCK="+name, "VFS_HOLD=1")
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "held\n", line)
	_, err = vfs.OS{}.Lock(name)
	require.ErrorIs(t, err, vfs.ErrLocked)
	// A killed process leaves the file, not the lock.
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	_ = in.Close()
	lock, err := vfs.OS{}.Lock(name)
	require.NoError(t, err)
	require.NoError(t, lock.Close())
}

// lockElsewhere tries the lock in another process.
func lockElsewhere(t *testing.T, name string) error {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run", "^TestLockHelper$")
	cmd.Env = append(os.Environ(), "VFS_LOCK="+name)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 7 {
		return vfs.ErrLocked
	}
	require.NoError(t, err, string(out))
	return nil
}

// TestLockHelper is the other process of the tests above, and nothing on its own.
func TestLockHelper(*testing.T) {
	name := os.Getenv("VFS_LOCK")
	if name == "" {
		return
	}
	lock, err := vfs.OS{}.Lock(name)
	switch {
	case errors.Is(err, vfs.ErrLocked):
		os.Exit(7)
	case err != nil:
		os.Exit(1)
	}
	if os.Getenv("VFS_HOLD") != "" {
		_, _ = os.Stdout.WriteString("held\n")
		_, _ = os.Stdin.Read(make([]byte, 1))
	}
	_ = lock.Close()
}
