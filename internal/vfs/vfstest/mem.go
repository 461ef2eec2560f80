package vfstest

import (
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ratchetmq/ratchet/internal/vfs"
)

// PageSize is the unit in which the model loses bytes that were not synced.
const PageSize = 4096

// Mem is a file system in memory. Make one with New. All methods may be called from any goroutine.
type Mem struct {
	mu      sync.Mutex
	names   map[string]*inode // guarded by mu; every path is clean and absolute, "/" is there
	durable map[string]*inode // guarded by mu; the names that a power cut leaves
	locks   map[string]bool   // guarded by mu
	fault   func(Op) *Fault   // guarded by mu
	ops     map[Kind]int      // guarded by mu; done or tried, by kind
	limit   int64             // guarded by mu; bytes of pages and reservations that fit; 0 = no limit
	used    int64             // guarded by mu
}

var _ vfs.FS = (*Mem)(nil)

// inode is a file or folder, whatever its names are. It is guarded by Mem.mu.
type inode struct {
	dir     bool
	data    []byte
	synced  []byte         // the content that a power cut leaves at least
	dirty   map[int64]bool // pages of data that differ from synced, or may
	held    map[int64]bool // pages that take room
	modTime time.Time
}

func newFile() *inode {
	return &inode{dirty: map[int64]bool{}, held: map[int64]bool{}, modTime: time.Now()}
}

// New is an empty file system without a limit.
func New() *Mem {
	root := &inode{dir: true}
	return &Mem{
		names: map[string]*inode{"/": root}, durable: map[string]*inode{"/": root},
		locks: map[string]bool{}, ops: map[Kind]int{},
	}
}

// SetLimit sets the room in bytes; 0 means no limit. Room counts by whole pages that were written or reserved.
func (m *Mem) SetLimit(bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.limit = bytes
}

// Used is the room taken, in bytes.
func (m *Mem) Used() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.used
}

// clean turns any path into the form that the maps have.
func clean(name string) string { return filepath.Clean("/" + name) }

func pathError(op, name string, err error) error { return &fs.PathError{Op: op, Path: name, Err: err} }

// start counts an operation and asks the fault hook. The caller has mu.
func (m *Mem) start(op Op) *Fault {
	m.ops[op.Kind]++
	if m.fault == nil {
		return nil
	}
	return m.fault(op)
}

// begin is start for operations that can only fail as a whole.
func (m *Mem) begin(kind Kind, name string) error {
	if f := m.start(Op{Kind: kind, Name: name}); f != nil {
		return pathError(kind.String(), name, f.Err)
	}
	return nil
}

func (m *Mem) file(kind Kind, name string) (*inode, error) {
	if err := m.begin(kind, name); err != nil {
		return nil, err
	}
	node := m.names[clean(name)]
	switch {
	case node == nil:
		return nil, pathError("open", name, fs.ErrNotExist)
	case node.dir:
		return nil, pathError("open", name, syscall.EISDIR)
	}
	return node, nil
}

// Open implements vfs.FS.
func (m *Mem) Open(name string) (vfs.File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	node, err := m.file(OpOpen, name)
	if err != nil {
		return nil, err
	}
	return &file{fs: m, node: node, name: name}, nil
}

// OpenReadOnly implements vfs.FS.
func (m *Mem) OpenReadOnly(name string) (vfs.File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	node, err := m.file(OpOpen, name)
	if err != nil {
		return nil, err
	}
	return &file{fs: m, node: node, name: name, readOnly: true}, nil
}

// Create implements vfs.FS.
func (m *Mem) Create(name string) (vfs.File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	path, err := m.place(name)
	if err != nil {
		return nil, err
	}
	node := m.names[path]
	switch {
	case node == nil:
		node = newFile()
		m.names[path] = node
	case node.dir:
		return nil, pathError("create", name, syscall.EISDIR)
	default:
		m.resize(node, 0)
	}
	return &file{fs: m, node: node, name: name}, nil
}

// Make implements vfs.FS. OpCreate is where the file gets its name.
func (m *Mem) Make(name string, fill func(vfs.File) error) (vfs.File, error) {
	node := newFile()
	f := &file{fs: m, node: node, name: name}
	err := fill(f)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil {
		err = m.link(name, node)
	}
	if err != nil {
		m.free(node)
		return nil, err
	}
	return f, nil
}

// place begins an OpCreate; there must be a folder for the name. The caller has mu.
func (m *Mem) place(name string) (path string, err error) {
	if err := m.begin(OpCreate, name); err != nil {
		return "", err
	}
	path = clean(name)
	if parent := m.names[filepath.Dir(path)]; parent == nil || !parent.dir {
		return "", pathError("create", name, fs.ErrNotExist)
	}
	return path, nil
}

// link gives a new file its name. The caller has mu.
func (m *Mem) link(name string, node *inode) error {
	path, err := m.place(name)
	if err != nil {
		return err
	}
	if m.names[path] != nil {
		return pathError("make", name, fs.ErrExist)
	}
	m.names[path] = node
	return nil
}

// ReadDir implements vfs.FS.
func (m *Mem) ReadDir(name string) ([]fs.DirEntry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.begin(OpReadDir, name); err != nil {
		return nil, err
	}
	path := clean(name)
	if node := m.names[path]; node == nil || !node.dir {
		return nil, pathError("readdir", name, fs.ErrNotExist)
	}
	var list []fs.DirEntry
	for p, node := range m.names {
		if p != "/" && filepath.Dir(p) == path {
			list = append(list, fs.FileInfoToDirEntry(node.info(filepath.Base(p))))
		}
	}
	slices.SortFunc(list, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return list, nil
}

// Stat implements vfs.FS.
func (m *Mem) Stat(name string) (fs.FileInfo, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.begin(OpStat, name); err != nil {
		return nil, err
	}
	node := m.names[clean(name)]
	if node == nil {
		return nil, pathError("stat", name, fs.ErrNotExist)
	}
	return node.info(filepath.Base(name)), nil
}

// MkdirAll implements vfs.FS.
func (m *Mem) MkdirAll(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.begin(OpMkdir, name); err != nil {
		return err
	}
	path := clean(name)
	for i := 1; i <= len(path); i++ {
		if i < len(path) && path[i] != '/' {
			continue
		}
		switch node := m.names[path[:i]]; {
		case node == nil:
			m.names[path[:i]] = &inode{dir: true, modTime: time.Now()}
		case !node.dir:
			return pathError("mkdir", name, syscall.ENOTDIR)
		}
	}
	return nil
}

// Rename implements vfs.FS, for files.
func (m *Mem) Rename(oldName, newName string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.begin(OpRename, newName); err != nil {
		return err
	}
	from, to := clean(oldName), clean(newName)
	node := m.names[from]
	if node == nil || m.names[filepath.Dir(to)] == nil {
		return pathError("rename", oldName, fs.ErrNotExist)
	}
	if old := m.names[to]; old != nil && old != node {
		m.free(old)
	}
	delete(m.names, from)
	m.names[to] = node
	if node.dir {
		for p, n := range m.names {
			if rest, ok := strings.CutPrefix(p, from+"/"); ok {
				delete(m.names, p)
				m.names[to+"/"+rest] = n
			}
		}
	}
	return nil
}

// Remove implements vfs.FS.
func (m *Mem) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.begin(OpRemove, name); err != nil {
		return err
	}
	path := clean(name)
	node := m.names[path]
	if node == nil {
		return pathError("remove", name, fs.ErrNotExist)
	}
	if node.dir {
		for p := range m.names {
			if strings.HasPrefix(p, path+"/") {
				return pathError("remove", name, syscall.ENOTEMPTY)
			}
		}
	}
	delete(m.names, path)
	m.free(node)
	return nil
}

// RemoveAll implements vfs.FS.
func (m *Mem) RemoveAll(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.begin(OpRemove, name); err != nil {
		return err
	}
	path := clean(name)
	for p, node := range m.names {
		if p == path || strings.HasPrefix(p, path+"/") {
			delete(m.names, p)
			m.free(node)
		}
	}
	return nil
}

// SyncDir implements vfs.FS.
func (m *Mem) SyncDir(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.begin(OpSyncDir, name); err != nil {
		return err
	}
	path := clean(name)
	if node := m.names[path]; node == nil || !node.dir {
		return pathError("syncdir", name, fs.ErrNotExist)
	}
	for p, node := range m.durable {
		if filepath.Dir(p) == path && m.names[p] != node {
			delete(m.durable, p)
			for below := range m.durable { // they were in the folder that is gone, not in one that has its name now
				if strings.HasPrefix(below, p+"/") {
					delete(m.durable, below)
				}
			}
		}
	}
	for p, node := range m.names {
		if filepath.Dir(p) == path {
			m.durable[p] = node
		}
	}
	return nil
}

// Lock implements vfs.FS.
func (m *Mem) Lock(name string) (io.Closer, error) {
	f, err := m.Open(name)
	if err != nil {
		if f, err = m.Create(name); err != nil {
			return nil, err
		}
	}
	if _, err := f.WriteAt([]byte("lock"), 0); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	path := clean(name)
	if m.locks[path] {
		return nil, fmt.Errorf("lock %s: %w", name, vfs.ErrLocked)
	}
	m.locks[path] = true
	return &memLock{fs: m, path: path}, nil
}

type memLock struct {
	once sync.Once
	fs   *Mem
	path string
}

func (l *memLock) Close() error {
	l.once.Do(func() {
		l.fs.mu.Lock()
		defer l.fs.mu.Unlock()
		delete(l.fs.locks, l.path)
	})
	return nil
}

// Usage implements vfs.FS. Without a limit the disk has a tebibyte.
func (m *Mem) Usage(string) (vfs.Usage, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	total := m.limit
	if total == 0 {
		total = 1 << 40
	}
	return vfs.Usage{Total: total, Available: max(0, total-m.used)}, nil
}

// ReadFile is the present content of a file.
func (m *Mem) ReadFile(name string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	node := m.names[clean(name)]
	if node == nil || node.dir {
		return nil, pathError("read", name, fs.ErrNotExist)
	}
	return slices.Clone(node.data), nil
}

// WriteFile makes a file with that content, its folders, and all of it durable.
func (m *Mem) WriteFile(name string, data []byte) {
	_ = m.MkdirAll(filepath.Dir(clean(name)))
	m.mu.Lock()
	defer m.mu.Unlock()
	node := &inode{data: slices.Clone(data), dirty: map[int64]bool{}, held: map[int64]bool{}, modTime: time.Now()}
	m.names[clean(name)] = node
	for p := range pages(0, int64(len(data))) {
		node.dirty[p] = true
		m.take(node, p)
	}
	m.sync(node)
	for p := clean(name); p != "/"; p = filepath.Dir(p) {
		m.durable[p] = m.names[p]
	}
}

// Files lists the paths of all files, sorted.
func (m *Mem) Files() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []string
	for p, node := range m.names {
		if !node.dir {
			list = append(list, p)
		}
	}
	slices.Sort(list)
	return list
}
