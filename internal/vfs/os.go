package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// ErrLocked is what Lock fails with when another process, or another user in this one, has the lock.
var ErrLocked = errors.New("file locked by another process")

// OS is the operating system's file system. Its zero value is ready for use.
type OS struct{}

var _ FS = OS{}

// osFile is an os.File with the calls that package os does not have.
type osFile struct{ *os.File }

// Size implements File.
func (f osFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// Sync implements File. It must not be tried again after an error: the kernel has then dropped the pages.
func (f osFile) Sync() error {
	if err := datasync(f.File); err != nil {
		return &fs.PathError{Op: "fdatasync", Path: f.Name(), Err: err}
	}
	return nil
}

// Preallocate implements File. When room is short the file keeps the length that it had.
func (f osFile) Preallocate(size int64) error {
	old, err := f.Size()
	if err != nil {
		return err
	}
	err = allocate(f.File, size)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		if old >= size {
			return nil
		}
		return f.Truncate(size)
	case err != nil:
		// fallocate may have got some blocks before it failed; give them back.
		err = &fs.PathError{Op: "fallocate", Path: f.Name(), Err: err}
		if back := f.Truncate(old); back != nil {
			return errors.Join(err, back)
		}
		return err
	}
	return nil
}

// NextData is the first position at or behind off that may hold something else than zeros; io.EOF when there is none.
// File systems that don't know answer off. See DataSeeker.
func (f osFile) NextData(off int64) (int64, error) { return nextData(f.File, off) }

// NextHole is the first position at or behind off from which on nothing was ever written. See DataSeeker.
func (f osFile) NextHole(off int64) (int64, error) {
	if hole, ok := nextHole(f.File, off); ok {
		return hole, nil
	}
	return f.Size()
}

// Open implements FS.
func (OS) Open(name string) (File, error) { return open(name, os.O_RDWR) }

// OpenReadOnly implements FS.
func (OS) OpenReadOnly(name string) (File, error) { return open(name, os.O_RDONLY) }

// Create implements FS.
func (OS) Create(name string) (File, error) { return open(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC) }

// Make implements FS.
func (OS) Make(name string, fill func(File) error) (File, error) {
	f, err := makeUnnamed(name, fill)
	if errors.Is(err, errors.ErrUnsupported) {
		return makeNamed(name, fill)
	}
	return f, err
}

// makeNamed is Make where a file has a name from the first.
func makeNamed(name string, fill func(File) error) (File, error) {
	f, err := open(name, os.O_RDWR|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return nil, err
	}
	if err := fill(f); err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(name))
	}
	return f, nil
}

func open(name string, flag int) (File, error) {
	f, err := os.OpenFile(name, flag, 0o644)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

// ReadDir implements FS.
func (OS) ReadDir(name string) ([]fs.DirEntry, error) { return os.ReadDir(name) }

// Stat implements FS.
func (OS) Stat(name string) (fs.FileInfo, error) { return os.Stat(name) }

// MkdirAll implements FS.
func (OS) MkdirAll(name string) error { return os.MkdirAll(name, 0o755) }

// Rename implements FS.
func (OS) Rename(oldName, newName string) error { return os.Rename(oldName, newName) }

// Remove implements FS.
func (OS) Remove(name string) error { return os.Remove(name) }

// RemoveAll implements FS.
func (OS) RemoveAll(name string) error { return os.RemoveAll(name) }

// SyncDir implements FS.
func (OS) SyncDir(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// held lists the lock files of this process. A POSIX lock belongs to the process: a second fcntl would succeed, and
// closing any other handle of the file would drop the lock. So a file that is in the list is not even opened.
var held struct {
	mu    sync.Mutex
	files []fs.FileInfo // guarded by mu
}

// Lock implements FS.
func (OS) Lock(name string) (io.Closer, error) {
	held.mu.Lock()
	defer held.mu.Unlock()
	if info, err := os.Stat(name); err == nil && heldIndex(info) >= 0 {
		return nil, fmt.Errorf("lock %s: %w", name, ErrLocked)
	}
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	if err := lockFirstByte(f); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", name, err), f.Close())
	}
	if _, err := f.WriteAt([]byte("lock"), 0); err != nil { // what Java's broker leaves in it
		return nil, errors.Join(err, f.Close())
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	held.files = append(held.files, info)
	return &osLock{file: f, info: info}, nil
}

// heldIndex is the place of a file in held, -1 when it is not there. The caller has held.mu.
func heldIndex(info fs.FileInfo) int {
	for i, h := range held.files {
		if os.SameFile(h, info) {
			return i
		}
	}
	return -1
}

type osLock struct {
	once sync.Once
	file *os.File
	info fs.FileInfo
}

// Close gives the lock back; a second call does nothing.
func (l *osLock) Close() (err error) {
	l.once.Do(func() {
		held.mu.Lock()
		defer held.mu.Unlock()
		if i := heldIndex(l.info); i >= 0 {
			held.files = append(held.files[:i], held.files[i+1:]...)
		}
		err = l.file.Close()
	})
	return err
}

// Usage implements FS. A folder that is not there yet counts as its nearest parent that is.
func (OS) Usage(name string) (Usage, error) {
	for {
		u, err := usage(name)
		if parent := filepath.Dir(name); errors.Is(err, fs.ErrNotExist) && parent != name {
			name = parent
			continue
		}
		return u, err
	}
}
