package store

import (
	"bytes"
	"context"
	"fmt"
	"path"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/inspect"
	"github.com/ratchetmq/ratchet/internal/vfs"
	"github.com/ratchetmq/ratchet/internal/vfs/vfstest"
	"github.com/ratchetmq/ratchet/message"
)

// disks are file systems of different fullness under one root.
type disks struct {
	*vfstest.Mem
	used map[string]float64 // by path prefix
}

func (d disks) Usage(name string) (vfs.Usage, error) {
	for prefix, used := range d.used {
		if strings.HasPrefix(name, prefix) {
			return vfs.Usage{Total: 1000, Available: int64(1000 * (1 - used))}, nil
		}
	}
	return d.Mem.Usage(name)
}

// threeFolders are options for a log on three disks.
func threeFolders(fsys vfs.FS) Options {
	o := small(fsys)
	o.CommitLogDirs = []string{"/disk0/commitlog", "/disk1/commitlog", "/disk2/commitlog"}
	return o
}

// fill appends until the log has n segments.
func fill(t *testing.T, s *Store, n int64) (count int) {
	t.Helper()
	for ; int64(s.Written()) < n*s.opts.SegmentSize-300; count++ {
		put(t, s, text("T", 0, fmt.Sprint(count, strings.Repeat("x", 100))))
	}
	return count
}

// folderOf maps the number of each segment to its folder.
func folderOf(disk *vfstest.Mem, size int64) map[int64]string {
	at := map[int64]string{}
	for _, name := range disk.Files() {
		if strings.HasSuffix(path.Dir(name), "/commitlog") {
			start, _ := parseFileName(path.Base(name))
			at[start/size] = path.Dir(path.Dir(name))
		}
	}
	return at
}

// checkInspect wants the independent reader to find nothing wrong.
func checkInspect(t *testing.T, fsys vfs.FS, dirs ...string) {
	t.Helper()
	var out bytes.Buffer
	report, err := inspect.Check(context.Background(), &out, testRoot, inspect.Options{FS: fsys, LogDirs: dirs})
	require.NoError(t, err)
	require.True(t, report.Healthy(), out.String())
}

func TestSeveralFoldersFromEndToEnd(t *testing.T) {
	disk := vfstest.New()
	o := threeFolders(disk)
	o.Retention = func() Retention { return Retention{Reserved: time.Hour, MaxUsed: 2, Force: 2, Refuse: 2, Batch: 3} }
	now := time.UnixMilli(1_700_000_000_000)
	o.Now = func() time.Time { return now }
	s := mustOpen(t, o)
	n := fill(t, s, 7)
	require.NoError(t, s.Close())
	turns := folderOf(disk, o.SegmentSize)
	for k := range int64(7) {
		require.Equal(t, fmt.Sprint("/disk", k%3), turns[k])
	}
	checkInspect(t, disk, o.CommitLogDirs...)

	s = mustOpen(t, o)
	require.Len(t, readQueue(t, s, "T", 0), n)
	for range 20 {
		put(t, s, text("T", 0, strings.Repeat("y", 300)))
	}
	image := kill(disk)
	patch(t, image, path.Join(turns[5], "commitlog", fileName(5*o.SegmentSize)), 1000, make([]byte, 20)) // damage in the midst
	o.FS = image
	s = mustOpen(t, o)
	require.Len(t, s.Damaged(), 1)
	require.Len(t, readQueue(t, s, "T", 0), n+20-1)

	now = now.Add(2 * time.Hour)
	put(t, s, text("T", 0, "young"))
	gone, err := s.Clean()
	require.NoError(t, err)
	require.Greater(t, gone, 5)
	require.EqualValues(t, int64(gone)*o.SegmentSize, s.Low())
	left := folderOf(image, o.SegmentSize)
	for k := range int64(gone) {
		require.NotContains(t, left, k)
	}
	b, _ := s.Bounds("T", 0)
	require.Positive(t, b.Low)
	list := readQueue(t, s, "T", 0)
	require.Equal(t, "young", string(list[len(list)-1].Body))
	require.NoError(t, s.Close())
	checkInspect(t, image, o.CommitLogDirs...)
	s = mustOpen(t, o)
	require.Len(t, readQueue(t, s, "T", 0), len(list))
}

// A folder on a disk above the limit leaves its turn to the next; when all are above it the turns go on as ever.
func TestFullFolderIsPassedOver(t *testing.T) {
	fsys := disks{vfstest.New(), map[string]float64{"/disk0": 0.5, "/disk1": 0.9, "/disk2": 0.5}}
	o := threeFolders(fsys)
	o.Retention = func() Retention {
		return Retention{Reserved: time.Hour, MaxUsed: 2, Force: 0.85, Refuse: 0.95, Batch: 1}
	}
	s := mustOpen(t, o)
	folders := func() map[int64]string { return folderOf(fsys.Mem, o.SegmentSize) }
	fill(t, s, 5)
	require.Equal(t, map[int64]string{0: "/disk0", 1: "/disk2", 2: "/disk2", 3: "/disk0", 4: "/disk2"}, folders())
	fsys.used["/disk1"] = 0.5
	fill(t, s, 8)
	require.Equal(t, "/disk1", folders()[7])
	for disk := range fsys.used {
		fsys.used[disk] = 0.9
	}
	n := fill(t, s, 11)
	require.Positive(t, n)
	require.Equal(t, "/disk2", folders()[8])
	require.Equal(t, "/disk0", folders()[9])
	require.Equal(t, "/disk1", folders()[10])
	all := len(readQueue(t, s, "T", 0))
	require.NoError(t, s.Close())
	s = mustOpen(t, o)
	require.Len(t, readQueue(t, s, "T", 0), all)
	require.NoError(t, s.Close())
	checkInspect(t, fsys, o.CommitLogDirs...)
}

// A folder that really is full, whatever its disk says, leaves its turn as well.
func TestFolderWithoutRoomIsPassedOver(t *testing.T) {
	disk := vfstest.New()
	s := mustOpen(t, threeFolders(disk))
	disk.SetFault(func(op vfstest.Op) *vfstest.Fault {
		if op.Kind == vfstest.OpPreallocate && strings.HasPrefix(op.Name, "/disk1") {
			return &vfstest.Fault{Err: syscall.ENOSPC}
		}
		return nil
	})
	fill(t, s, 5)
	require.Equal(t, map[int64]string{0: "/disk0", 1: "/disk2", 2: "/disk2", 3: "/disk0", 4: "/disk2"},
		folderOf(disk, s.opts.SegmentSize))
}

// readOnlyDisk fails whatever would change something below a folder.
func readOnlyDisk(t *testing.T, disk *vfstest.Mem, folder string) {
	disk.SetFault(func(op vfstest.Op) *vfstest.Fault {
		if op.Kind.Changes() && strings.HasPrefix(op.Name, folder) {
			t.Errorf("%v of %s", op.Kind, op.Name)
		}
		return nil
	})
}

// The log is moved to a new disk: the old folder becomes read-only, with the log's end in the midst of a file.
func TestReadOnlyFolderIsOnlyRead(t *testing.T) {
	for _, clean := range []bool{true, false} {
		disk := vfstest.New()
		o := small(disk)
		s := mustOpen(t, o)
		n := fill(t, s, 2)
		n += 3
		for range 3 {
			put(t, s, text("T", 0, "end"))
		}
		end := s.Written()
		if clean {
			require.NoError(t, s.Close())
		}
		disk = kill(disk)
		o.FS = disk
		o.ReadOnlyCommitLogDirs, o.CommitLogDirs = []string{testRoot + "/commitlog"}, []string{testRoot + "/commitlog", "/new"}
		for life := range 4 {
			readOnlyDisk(t, disk, testRoot+"/commitlog")
			s = mustOpen(t, o)
			require.Empty(t, s.Damaged())
			require.Len(t, readQueue(t, s, "T", 0), n)
			a := put(t, s, text("T", 0, "new"))
			n++
			require.EqualValues(t, n-1, a.Queue)
			if life == 0 {
				require.Greater(t, a.Physical, end)
				require.Zero(t, int64(a.Physical)%o.SegmentSize, "the rest of the old file is left")
			}
			if life%2 == 0 {
				require.NoError(t, s.Close())
			}
			disk = kill(disk)
			o.FS = disk
		}
		files := disk.Files()
		require.Contains(t, files, "/new/"+fileName(3*o.SegmentSize))
	}
}

// Even what is damaged at the log's end stays as it is there.
func TestDamageInAReadOnlyFolderStays(t *testing.T) {
	disk := vfstest.New()
	o := small(disk)
	s := mustOpen(t, o)
	n := fill(t, s, 2)
	victim := put(t, s, text("T", 0, "end"))
	disk = kill(disk)
	flip(t, disk, logFile(4096), int64(victim.End)-4096-4)
	readOnlyDisk(t, disk, testRoot+"/commitlog")
	o.FS, o.ReadOnlyCommitLogDirs, o.CommitLogDirs = disk, []string{testRoot + "/commitlog"}, []string{"/new"}
	for range 3 {
		s = mustOpen(t, o)
		require.Len(t, readQueue(t, s, "T", 0), n)
		put(t, s, text("T", 0, "new"))
		n++
		require.NoError(t, s.Close())
	}
}

// A broker of the group that has what stood there can't help.
func TestDamageInAReadOnlyFolderIsNotRepaired(t *testing.T) {
	disk := vfstest.New()
	o := small(disk)
	s := mustOpen(t, o)
	fill(t, s, 1)
	victim := put(t, s, text("T", 0, "victim"))
	put(t, s, text("T", 0, "behind it"))
	whole, err := s.Record(victim.Physical, nil)
	require.NoError(t, err)
	disk = kill(disk)
	flip(t, disk, logFile(int64(victim.Physical)/4096*4096), int64(victim.Physical)%4096+message.PosMagic)
	readOnlyDisk(t, disk, testRoot+"/commitlog")
	o.FS, o.ReadOnlyCommitLogDirs, o.CommitLogDirs = disk, []string{testRoot + "/commitlog"}, []string{"/new"}
	s = mustOpen(t, o)
	require.Equal(t, []Span{{From: victim.Physical, To: victim.End}}, s.Damaged())
	require.ErrorIs(t, s.RepairStream(s.Damaged()[0]).Write(whole), message.ErrCorrupt)
	require.NoError(t, s.Err())
}

// Retention takes old segments out of the log also where their files can't be removed.
func TestOldSegmentsInAReadOnlyFolder(t *testing.T) {
	disk := vfstest.New()
	o := small(disk)
	now := time.UnixMilli(1_700_000_000_000)
	o.Now = func() time.Time { return now }
	o.Retention = func() Retention { return Retention{Reserved: time.Hour, MaxUsed: 2, Force: 2, Refuse: 2, Batch: 3} }
	s := mustOpen(t, o)
	fill(t, s, 3)
	require.NoError(t, s.Close())
	o.ReadOnlyCommitLogDirs, o.CommitLogDirs = []string{testRoot + "/commitlog"}, []string{"/new"}
	s = mustOpen(t, o)
	put(t, s, text("T", 0, "first in the new folder"))
	now = now.Add(2 * time.Hour)
	put(t, s, text("T", 0, "young"))
	disk.SetFault(func(op vfstest.Op) *vfstest.Fault {
		if op.Kind == vfstest.OpRemove && strings.HasPrefix(op.Name, testRoot+"/commitlog") {
			return &vfstest.Fault{Err: errDisk}
		}
		return nil
	})
	gone, err := s.Clean()
	require.NoError(t, err)
	require.Equal(t, 3, gone)
	require.Equal(t, []string{"first in the new folder", "young"}, bodies(readQueue(t, s, "T", 0)))
}

func TestAFolderToWriteToIsNeeded(t *testing.T) {
	o := small(vfstest.New())
	o.ReadOnlyCommitLogDirs = []string{testRoot + "/commitlog"}
	_, err := Open(o)
	require.ErrorIs(t, err, ErrLayout)
}
