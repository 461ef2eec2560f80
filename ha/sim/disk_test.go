package sim

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ratchetmq/ratchet/internal/vfs"
	"github.com/ratchetmq/ratchet/internal/vfs/vfstest"
)

var errDead = errors.New("the process is dead")

// disk is a model disk as one process has it. When that dies nothing it still does changes anything, and it may die in the
// midst of any operation.
type disk struct {
	*vfstest.Mem
	dead  atomic.Bool
	left  atomic.Int64 // operations until die is called; 0: not to be
	stall atomic.Int64 // ns, of each sync of the log
	die   atomic.Pointer[func()]

	failure atomic.Int64 // when an operation failed last, ns; 0: none has
	trusted bool         // a write that failed is taken for done
}

// hurt lets an operation fail that changes the disk, the n-th from now: of a write that is short some bytes are written.
func (d *disk) hurt(n int, short bool) {
	d.SetFault(func(op vfstest.Op) *vfstest.Fault {
		if !op.Kind.Changes() {
			return nil
		}
		if n--; n != 0 {
			return nil
		}
		f := &vfstest.Fault{Err: syscall.EIO}
		if short {
			f.Short = op.Len / 2
		}
		return f
	})
}

// fill leaves room for so many pages more.
func (d *disk) fill(pages int64) { d.SetLimit(d.Used() + pages*vfstest.PageSize) }

// judge notes an operation's error.
func (d *disk) judge(err error) error {
	if errors.Is(err, syscall.EIO) || errors.Is(err, syscall.ENOSPC) {
		d.failure.Store(time.Now().UnixNano())
	}
	return err
}

func (d *disk) failed() bool { return d.failure.Load() > 0 }

// failedLately says whether something may be in memory alone, since the disk did not take it. After a while it has been written again.
func (d *disk) failedLately() bool {
	const again = 15 * time.Second
	return d.failed() && time.Since(time.Unix(0, d.failure.Load())) < again
}

// setDie lets the process die at its n-th operation from now, and with power its machine.
func (d *disk) setDie(n int64, power func(), cut bool) {
	if cut {
		d.die.Store(&power)
	}
	d.left.Store(n)
}

// after is the disk as the end of the process, or of the machine, leaves it. Unless damage is wanted, the beginning of what
// was not synced of the log is kept, up to some page, and nothing behind.
func (d *disk) after(keep vfstest.Keep, damage bool, seed uint64) *vfstest.Mem {
	left := d.CrashClone(keep, seed)
	if keep != vfstest.KeepSome || damage {
		return left
	}
	all, synced := d.CrashClone(vfstest.KeepAll, seed), d.CrashClone(vfstest.KeepNothing, seed)
	rnd, lost := rand.New(rand.NewPCG(seed, 2)), false
	for _, path := range all.Files() {
		if !strings.HasPrefix(path, root+"/commitlog/") {
			continue
		}
		kept, err := synced.ReadFile(path)
		if err != nil {
			continue // its name was not synced
		}
		data, _ := all.ReadFile(path)
		for at := 0; at < len(data); at += vfstest.PageSize {
			page, old := data[at:min(at+vfstest.PageSize, len(data))], kept[min(at, len(kept)):min(at+vfstest.PageSize, len(kept))]
			if bytes.Equal(page, old) {
				continue
			}
			if lost = lost || rnd.IntN(3) == 0; lost {
				clear(page[copy(page, old):])
			}
		}
		left.WriteFile(path, data)
	}
	return left
}

// op is asked before an operation that changes the disk; half says that this one is the last, and done in part.
func (d *disk) op() (half bool, err error) {
	if d.dead.Load() {
		return false, errDead
	}
	if d.left.Load() > 0 && d.left.Add(-1) == 0 {
		return true, nil
	}
	return false, nil
}

// do carries out an operation that is done or not.
func (d *disk) do(fn func() error) error {
	half, err := d.op()
	switch {
	case err != nil:
		return err
	case half:
		(*d.die.Load())()
		return errDead
	}
	return d.judge(fn())
}

func (d *disk) Open(name string) (vfs.File, error) {
	f, err := d.Mem.Open(name)
	if err != nil {
		return nil, err
	}
	return &diskFile{f, d}, nil
}

func (d *disk) Create(name string) (f vfs.File, err error) {
	err = d.do(func() error {
		f, err = d.Mem.Create(name)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &diskFile{f, d}, nil
}

func (d *disk) Make(name string, fill func(vfs.File) error) (f vfs.File, err error) {
	err = d.do(func() error {
		f, err = d.Mem.Make(name, func(f vfs.File) error { return fill(&diskFile{f, d}) })
		return err
	})
	if err != nil {
		return nil, err
	}
	return &diskFile{f, d}, nil
}

func (d *disk) MkdirAll(name string) error { return d.do(func() error { return d.Mem.MkdirAll(name) }) }

func (d *disk) Rename(from, to string) error {
	return d.do(func() error { return d.Mem.Rename(from, to) })
}
func (d *disk) Remove(name string) error { return d.do(func() error { return d.Mem.Remove(name) }) }
func (d *disk) RemoveAll(name string) error {
	return d.do(func() error { return d.Mem.RemoveAll(name) })
}

func (d *disk) SyncDir(name string) error { return d.do(func() error { return d.Mem.SyncDir(name) }) }

func (d *disk) Lock(name string) (io.Closer, error) {
	if d.dead.Load() {
		return nil, errDead
	}
	lock, err := d.Mem.Lock(name)
	return lock, d.judge(err)
}

func (d *disk) Stat(name string) (fs.FileInfo, error) { return d.Mem.Stat(name) }

type diskFile struct {
	vfs.File
	disk *disk
}

func (f *diskFile) WriteAt(b []byte, off int64) (int, error) {
	half, err := f.disk.op()
	switch {
	case err != nil:
		return 0, err
	case half:
		n, _ := f.File.WriteAt(b[:len(b)/2], off)
		(*f.disk.die.Load())()
		return n, errDead
	}
	n, err := f.File.WriteAt(b, off)
	if f.disk.judge(err) != nil && f.disk.trusted {
		return len(b), nil
	}
	return n, err
}

func (f *diskFile) Sync() error {
	if stall := f.disk.stall.Load(); stall > 0 && strings.HasPrefix(f.Name(), root+"/commitlog/") {
		time.Sleep(time.Duration(stall))
	}
	return f.disk.do(f.File.Sync)
}

func (f *diskFile) Truncate(size int64) error {
	return f.disk.do(func() error { return f.File.Truncate(size) })
}

func (f *diskFile) Preallocate(size int64) error {
	return f.disk.do(func() error { return f.File.Preallocate(size) })
}
