package store

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/internal/vfs"
	"github.com/ratchetmq/ratchet/internal/vfs/vfstest"
)

// A full disk refuses what needs a new file, and nothing else; when there is room again the store goes on by itself.
func TestFullDiskPasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := vfstest.New()
		s := mustRun(t, small(disk))
		body := strings.Repeat("x", 1000)
		sent := 0
		disk.SetLimit(32 << 10)
		var err error
		for err == nil {
			if _, err = s.Append(text("T", 0, body)); err == nil {
				sent++
			}
		}
		require.ErrorIs(t, err, ErrFull)
		require.NoError(t, s.Err())
		require.Greater(t, sent, 10)
		_, err = s.Append(text("T", 0, "small"))
		require.NoError(t, err, "there is room in the segment")
		sent++
		end := s.Written()
		for range 10 {
			_, err = s.Append(text("T", 0, body))
			require.ErrorIs(t, err, ErrFull)
			require.Equal(t, end, s.Written())
		}
		disk.SetLimit(0)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		_, err = s.Append(text("T", 0, body))
		require.NoError(t, err)
		sent++
		synctest.Wait()
		time.Sleep(time.Second) // queue files may have been in want of room, too
		synctest.Wait()
		got := readQueue(t, s, "T", 0)
		require.Len(t, got, sent)
		for i, r := range got {
			require.EqualValues(t, i, r.QueueOffset)
		}
		require.NoError(t, s.Close())
	})
}

// On a file system that can't reserve room the disk may be full in the midst of a write.
func TestFullDiskInAWrite(t *testing.T) {
	for _, short := range []int{0, 10, 60, 120} {
		disk := vfstest.New()
		s := mustOpen(t, small(disk))
		put(t, s, text("T", 0, "a"))
		failed := false
		disk.SetFault(func(op vfstest.Op) *vfstest.Fault {
			if op.Kind != vfstest.OpWrite || failed {
				return nil
			}
			failed = true
			return &vfstest.Fault{Err: syscall.ENOSPC, Short: short}
		})
		_, err := s.Append(tagged("T", 0, "tag", "lost"), tagged("T", 0, "tag", "lost too"))
		require.ErrorIs(t, err, ErrFull)
		require.NoError(t, s.Err())
		spans, err := s.log.dataBehind(s.Written())
		require.NoError(t, err)
		require.Empty(t, spans)
		require.EqualValues(t, 1, put(t, s, text("T", 0, "b")).Queue)
		require.Equal(t, []string{"a", "b"}, bodies(readQueue(t, s, "T", 0)))
	}
}

// Queue files that can't be written hold dispatch up, and nobody loses anything.
func TestDispatchGoesOnAfterAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := vfstest.New()
		s := mustRun(t, small(disk))
		queues := 0
		disk.SetFault(func(op vfstest.Op) *vfstest.Fault {
			if op.Kind == vfstest.OpWrite && strings.Contains(op.Name, "/consumequeue/") {
				if queues++; queues%3 != 0 {
					return &vfstest.Fault{Err: syscall.ENOSPC, Short: op.Len / 2}
				}
			}
			return nil
		})
		for i := range 10 {
			_, err := s.Append(text("T", int32(i%3), fmt.Sprint(i)))
			require.NoError(t, err)
		}
		synctest.Wait()
		require.Less(t, s.Dispatched(), s.Written())
		tries := queues
		time.Sleep(400 * time.Millisecond)
		synctest.Wait()
		require.Equal(t, tries, queues, "no busy loop")
		disk.SetFault(nil)
		time.Sleep(200 * time.Millisecond)
		synctest.Wait()
		require.Equal(t, s.Written(), s.Dispatched())
		require.Len(t, readQueue(t, s, "T", 0), 4)
	})
}

// A queue file that fails to sync must not be vouched for by a checkpoint, now or later.
func TestFailedQueueSyncEndsCheckpoints(t *testing.T) {
	disk := vfstest.New()
	s := mustOpen(t, small(disk))
	put(t, s, text("T", 0, "a"))
	disk.SetFault(func(op vfstest.Op) *vfstest.Fault {
		if op.Kind == vfstest.OpSync && strings.Contains(op.Name, "/consumequeue/") {
			return &vfstest.Fault{Err: errDisk}
		}
		return nil
	})
	require.ErrorIs(t, s.saveCheckpoint(), errDisk)
	disk.SetFault(nil)
	require.Error(t, s.saveCheckpoint())
	require.Error(t, s.Close())
	require.NotContains(t, disk.Files(), testRoot+"/checkpoint")
	require.Contains(t, disk.Files(), testRoot+"/abort")
	s = mustOpen(t, small(disk.CrashClone(vfstest.KeepNothing, 0)))
	require.Len(t, readQueue(t, s, "T", 0), 1)
}

func TestNextSegmentIsThereBeforeItIsNeeded(t *testing.T) {
	disk := vfstest.New()
	s := mustRun(t, small(disk))
	_, err := s.Append(text("T", 0, strings.Repeat("x", 2500)))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return s.log.at(4096) != nil }, time.Minute, time.Millisecond)
	require.Nil(t, s.log.at(8192))
	data, err := disk.ReadFile(logFile(4096))
	require.NoError(t, err)
	require.Len(t, data, 4096)
}

func TestSegmentsTakeTurnsInSeveralFolders(t *testing.T) {
	disk := vfstest.New()
	o := small(disk)
	o.CommitLogDirs = []string{"/disk0/commitlog", "/disk1/commitlog"}
	s := mustOpen(t, o)
	for i := range 100 {
		put(t, s, text("T", 0, fmt.Sprint(i, strings.Repeat("x", 100))))
	}
	require.NoError(t, s.Close())
	for i := range int64(4) {
		require.Contains(t, disk.Files(), fmt.Sprintf("/disk%d/commitlog/%020d", i%2, i*4096))
	}
	s = mustOpen(t, o)
	require.Len(t, readQueue(t, s, "T", 0), 100)
}

// Many queues cost neither as many open files nor goroutines, and little time.
func TestManyQueues(t *testing.T) {
	n := 5_000
	if testing.Short() {
		n = 1_000
	}
	o := Options{
		FS: unsafeFS{}, Root: t.TempDir(), SegmentSize: 1 << 22, ConsumeQueueUnits: 1000, MaxOpenQueueFiles: 100,
		StoreHost: testHost,
	}
	s := mustOpen(t, o)
	batch := make([]Message, 0, 100)
	for i := range n {
		if batch = append(batch, text(fmt.Sprint("topic", i/8), int32(i%8), "x")); len(batch) == cap(batch) {
			_, err := s.Append(batch...)
			require.NoError(t, err)
			batch = batch[:0]
		}
	}
	require.NoError(t, s.dispatcher.drain())
	require.LessOrEqual(t, s.files.cache.open(), 100)
	// As kill -9 leaves it: the abort file is there.
	require.NoError(t, s.Close())
	require.NoError(t, os.WriteFile(filepath.Join(o.Root, abortFile), nil, 0o600))
	began := time.Now()
	s = mustOpen(t, o)
	t.Logf("opened %d queues after a crash in %v", n, time.Since(began))
	require.LessOrEqual(t, s.files.cache.open(), 100)
	for _, i := range []int{0, n / 2, n - 1} {
		require.Len(t, readQueue(t, s, fmt.Sprint("topic", i/8), int32(i%8)), 1)
	}
	require.NoError(t, s.Close())
	began = time.Now()
	s = mustOpen(t, o)
	t.Logf("opened them after a clean stop in %v", time.Since(began))
	require.Len(t, s.queues.all(), n)
}

// unsafeFS is the real file system without its slow promise.
type unsafeFS struct{ vfs.OS }

func (u unsafeFS) Open(name string) (vfs.File, error) {
	f, err := u.OS.Open(name)
	return unsafeFile{f}, err
}

func (u unsafeFS) Create(name string) (vfs.File, error) {
	f, err := u.OS.Create(name)
	return unsafeFile{f}, err
}

func (u unsafeFS) Make(name string, fill func(vfs.File) error) (vfs.File, error) {
	f, err := u.OS.Make(name, func(f vfs.File) error { return fill(unsafeFile{f}) })
	return unsafeFile{f}, err
}

func (unsafeFS) SyncDir(string) error { return nil }

type unsafeFile struct{ vfs.File }

func (unsafeFile) Sync() error { return nil }
