package vfstest

import (
	"io"
	"io/fs"
	"iter"
	"syscall"
	"time"
)

// file is an open handle.
type file struct {
	fs       *Mem
	node     *inode
	name     string
	readOnly bool
	closed   bool // guarded by fs.mu
}

// pages are the numbers of the pages that [from, to) touches.
func pages(from, to int64) iter.Seq[int64] {
	return func(yield func(int64) bool) {
		if from >= to {
			return
		}
		for p := from / PageSize; p*PageSize < to; p++ {
			if !yield(p) {
				return
			}
		}
	}
}

// take gives a page its room; false when the disk is full. The caller has mu, here and below.
func (m *Mem) take(node *inode, page int64) bool {
	if node.held[page] {
		return true
	}
	if m.limit > 0 && m.used+PageSize > m.limit {
		return false
	}
	node.held[page] = true
	m.used += PageSize
	return true
}

// free gives back the room of a file that lost its name. Handles to it stay usable.
func (m *Mem) free(node *inode) {
	m.used -= int64(len(node.held)) * PageSize
	node.held = map[int64]bool{}
}

// resize sets a file's length. What is cut off reads as zeros when the file grows again.
func (m *Mem) resize(node *inode, size int64) {
	old := int64(len(node.data))
	switch {
	case size > old:
		node.data = append(node.data, make([]byte, size-old)...)
	case size < old:
		clear(node.data[size:])
		node.data = node.data[:size]
		for p := range pages(size, old) {
			node.dirty[p] = true
			if p*PageSize >= size && node.held[p] {
				delete(node.held, p)
				m.used -= PageSize
			}
		}
	}
	node.modTime = time.Now()
}

// sync makes the content durable.
func (m *Mem) sync(node *inode) {
	size := int64(len(node.data))
	if int64(len(node.synced)) > size {
		node.synced = node.synced[:size]
	}
	if grow := size - int64(len(node.synced)); grow > 0 {
		node.synced = append(node.synced, make([]byte, grow)...)
	}
	for p := range node.dirty {
		if from := p * PageSize; from < size {
			to := min(from+PageSize, size)
			copy(node.synced[from:to], node.data[from:to])
		}
	}
	clear(node.dirty)
}

func (f *file) usable() error {
	if f.closed {
		return pathError("use", f.name, fs.ErrClosed)
	}
	return nil
}

// Name implements vfs.File.
func (f *file) Name() string { return f.name }

// Size implements vfs.File.
func (f *file) Size() (int64, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	return int64(len(f.node.data)), f.usable()
}

// ReadAt implements vfs.File.
func (f *file) ReadAt(b []byte, off int64) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.usable(); err != nil {
		return 0, err
	}
	if fault := f.fs.start(Op{Kind: OpRead, Name: f.name, Off: off, Len: len(b)}); fault != nil {
		return 0, pathError("read", f.name, fault.Err)
	}
	if off >= int64(len(f.node.data)) {
		return 0, io.EOF
	}
	n := copy(b, f.node.data[off:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

// WriteAt implements vfs.File.
func (f *file) WriteAt(b []byte, off int64) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.usable(); err != nil {
		return 0, err
	}
	if f.readOnly {
		return 0, pathError("write", f.name, syscall.EBADF)
	}
	var failure error
	if fault := f.fs.start(Op{Kind: OpWrite, Name: f.name, Off: off, Len: len(b)}); fault != nil {
		b, failure = b[:min(len(b), max(0, fault.Short))], fault.Err
	}
	end := off + int64(len(b))
	for p := range pages(off, end) {
		if !f.fs.take(f.node, p) {
			failure = syscall.ENOSPC
			end = max(off, p*PageSize)
			b = b[:end-off]
			break
		}
	}
	if len(b) > 0 {
		if end > int64(len(f.node.data)) {
			f.fs.resize(f.node, end)
		}
		copy(f.node.data[off:], b)
		for p := range pages(off, end) {
			f.node.dirty[p] = true
		}
		f.node.modTime = time.Now()
	}
	if failure != nil {
		return len(b), pathError("write", f.name, failure)
	}
	return len(b), nil
}

// Sync implements vfs.File.
func (f *file) Sync() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.usable(); err != nil {
		return err
	}
	if err := f.fs.begin(OpSync, f.name); err != nil {
		// As Linux does after a failed fsync: the pages count as clean although they never came to the disk.
		clear(f.node.dirty)
		return err
	}
	f.fs.sync(f.node)
	return nil
}

// Truncate implements vfs.File.
func (f *file) Truncate(size int64) error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.usable(); err != nil {
		return err
	}
	if err := f.fs.begin(OpTruncate, f.name); err != nil {
		return err
	}
	f.fs.resize(f.node, size)
	return nil
}

// Preallocate implements vfs.File.
func (f *file) Preallocate(size int64) error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.usable(); err != nil {
		return err
	}
	if err := f.fs.begin(OpPreallocate, f.name); err != nil {
		return err
	}
	var taken []int64
	for p := range pages(0, size) {
		if f.node.held[p] {
			continue
		}
		if !f.fs.take(f.node, p) {
			for _, t := range taken {
				delete(f.node.held, t)
				f.fs.used -= PageSize
			}
			return pathError("preallocate", f.name, syscall.ENOSPC)
		}
		taken = append(taken, p)
	}
	if size > int64(len(f.node.data)) {
		f.fs.resize(f.node, size)
	}
	return nil
}

// Close implements vfs.File. It syncs nothing.
func (f *file) Close() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.usable(); err != nil {
		return err
	}
	f.closed = true
	return nil
}

func (n *inode) info(name string) fs.FileInfo {
	return info{name: name, size: int64(len(n.data)), dir: n.dir, modTime: n.modTime}
}

type info struct {
	name    string
	size    int64
	dir     bool
	modTime time.Time
}

func (i info) Name() string       { return i.name }
func (i info) Size() int64        { return i.size }
func (i info) ModTime() time.Time { return i.modTime }
func (i info) IsDir() bool        { return i.dir }
func (i info) Sys() any           { return nil }
func (i info) Mode() fs.FileMode {
	if i.dir {
		return fs.ModeDir | 0o755
	}
	return 0o644
}
