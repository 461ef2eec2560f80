package store

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/internal/vfs"
)

// queue is one consume queue. There may be 20,000, so it is small; its files are opened through a cache.
type queue struct {
	topic string
	name  []byte // the topic's bytes
	id    int32
	run   int32 // of the dispatcher: 1 + place in its round, 0 for none

	next offset.Queue // guarded by the put lock; what the next append gets

	high atomic.Int64 // entries below are there to read; raised by dispatch
	low  atomic.Int64 // the first entry whose message the log still has, as far as that was looked up
	seen atomic.Int64 // the log's low that low was looked up for, -1 for none

	files atomic.Pointer[[]int64] // the first entry of each file, in order
	tail  atomic.Pointer[tail]    // entries that are not in them yet; nil when there are none
}

func newQueue(topic string, id int32) *queue {
	q := &queue{topic: topic, name: []byte(topic), id: id}
	q.seen.Store(-1)
	q.files.Store(&[]int64{})
	return q
}

// given notes that a number is in use. The put lock is held.
func (q *queue) given(index int64) { q.next = max(q.next, offset.Queue(index+1)) }

// first is the number of the first entry that the files have room for.
func (q *queue) first() int64 {
	if files := *q.files.Load(); len(files) > 0 {
		return files[0]
	}
	return 0
}

// queueFiles reads and writes the files of all queues.
type queueFiles struct {
	fs     vfs.FS
	root   string // the consumequeue folder
	units  int64  // entries of a file
	cache  *fileCache
	logger *slog.Logger
	tails  tails

	syncers int // at a time; changed when nobody appends any more

	dirtyMu   sync.Mutex
	dirty     map[fileKey]struct{} // guarded by dirtyMu; files written and not synced
	dirtyDirs map[string]struct{}  // guarded by dirtyMu; folders with new names
}

func newQueueFiles(o *Options) *queueFiles {
	atOnce := syncers
	if o.Flush == SyncFlush {
		atOnce = politeSyncers
	}
	return &queueFiles{
		fs: o.FS, root: filepath.Join(o.Root, queueFolder), units: int64(o.ConsumeQueueUnits), logger: o.Logger, syncers: atOnce,
		cache: newFileCache(o.FS, o.MaxOpenQueueFiles), tails: tails{most: tailsMost}, dirty: map[fileKey]struct{}{}, dirtyDirs: map[string]struct{}{},
	}
}

func (f *queueFiles) dir(q *queue) string {
	return filepath.Join(f.root, q.topic, strconv.Itoa(int(q.id)))
}

func (f *queueFiles) path(key fileKey) string {
	return filepath.Join(f.dir(key.queue), fileName(key.first*entrySize))
}

// open opens the file that has entry index. fs.ErrNotExist when there is none.
func (f *queueFiles) open(q *queue, index int64) (*openFile, error) {
	key := fileKey{q, index - index%f.units}
	files := *q.files.Load()
	i := sort.Search(len(files), func(i int) bool { return files[i] >= key.first })
	if i == len(files) || files[i] != key.first {
		return nil, fs.ErrNotExist
	}
	return f.cache.acquire(key, func() string { return f.path(key) })
}

// read fills b with the entries from index on. Places in files that are missing read as blank.
func (f *queueFiles) read(q *queue, index int64, b []byte) error {
	if t := q.tail.Load(); t != nil {
		// The tail first: what it has no more when it is asked is in the file then.
		from, to := t.read(index, b)
		if err := f.readFiles(q, index, b[:(from-index)*entrySize]); err != nil {
			return err
		}
		index, b = to, b[(to-index)*entrySize:]
	}
	return f.readFiles(q, index, b)
}

func (f *queueFiles) readFiles(q *queue, index int64, b []byte) error {
	for len(b) > 0 {
		n := min(int64(len(b)), (f.units-index%f.units)*entrySize)
		file, err := f.open(q, index)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			appendBlanks(b[:0], n/entrySize)
		case err != nil:
			return fmt.Errorf("queue %s/%d: %w", q.topic, q.id, err)
		default:
			err = readFull(file.file, b[:n], index%f.units*entrySize)
			f.cache.release(file)
			if err != nil {
				return fmt.Errorf("queue %s/%d: %w", q.topic, q.id, err)
			}
		}
		index, b = index+n/entrySize, b[n:]
	}
	return nil
}

// present is the first place from index on that is in a file; limit when there is none before it. It spares going
// through files that are missing.
func (f *queueFiles) present(q *queue, index, limit int64) int64 {
	files := *q.files.Load()
	i := sort.Search(len(files), func(i int) bool { return files[i]+f.units > index })
	if i == len(files) {
		return limit
	}
	return min(max(index, files[i]), limit)
}

// entry reads one entry.
func (f *queueFiles) entry(q *queue, index int64) (entry, error) {
	var b [entrySize]byte
	if err := f.read(q, index, b[:]); err != nil {
		return entry{}, err
	}
	return parseEntry(b[:]), nil
}

// write puts entries at index, in files made as needed. It is called by the dispatcher, recovery before it.
func (f *queueFiles) write(q *queue, index int64, b []byte) error {
	for len(b) > 0 {
		n := min(int64(len(b)), (f.units-index%f.units)*entrySize)
		file, err := f.open(q, index)
		if errors.Is(err, fs.ErrNotExist) {
			file, err = f.create(q, index-index%f.units)
		}
		if err == nil {
			_, err = file.file.WriteAt(b[:n], index%f.units*entrySize)
			f.markDirty(file.key)
			f.cache.release(file)
		}
		if err != nil {
			return fmt.Errorf("queue %s/%d: %w", q.topic, q.id, err)
		}
		index, b = index+n/entrySize, b[n:]
	}
	return nil
}

// create makes a file of full length, which takes no room on disk until it is written.
func (f *queueFiles) create(q *queue, first int64) (*openFile, error) {
	key := fileKey{q, first}
	path := f.path(key)
	if err := f.fs.MkdirAll(filepath.Dir(path)); err != nil {
		return nil, err
	}
	if len(*q.files.Load()) == 0 {
		if err := f.removeLeft(q); err != nil {
			return nil, err
		}
	}
	file, err := f.fs.Make(path, func(file vfs.File) error { return file.Truncate(f.units * entrySize) })
	if err != nil {
		return nil, err
	}
	old := *q.files.Load()
	i := sort.Search(len(old), func(i int) bool { return old[i] >= first })
	files := make([]int64, 0, len(old)+1)
	files = append(append(append(files, old[:i]...), first), old[i:]...)
	q.files.Store(&files)

	f.markNew(path)
	return f.cache.add(key, file), nil
}

// removeLeft removes the files that a queue without any has, if they could not be removed when its topic was deleted.
func (f *queueFiles) removeLeft(q *queue) error {
	left, err := listDataFiles(f.fs, f.dir(q))
	for _, file := range left {
		err = errors.Join(err, f.fs.Remove(file.path))
	}
	return err
}

// markNew notes that a file's name may not be durable.
func (f *queueFiles) markNew(path string) {
	f.dirtyMu.Lock()
	defer f.dirtyMu.Unlock()
	dir := filepath.Dir(path)
	for range 3 { // the queue's folder, the topic's, and the one of all
		f.dirtyDirs[dir] = struct{}{}
		dir = filepath.Dir(dir)
	}
	f.dirtyDirs[dir] = struct{}{}
}

// suspect notes that the files of [from, to) may not be durable, though nothing was written to them.
func (f *queueFiles) suspect(q *queue, from, to int64) {
	for _, first := range *q.files.Load() {
		if key := (fileKey{q, first}); first < to && from < first+f.units {
			f.markDirty(key)
			f.markNew(f.path(key))
		}
	}
}

func (f *queueFiles) markDirty(key fileKey) {
	f.dirtyMu.Lock()
	f.dirty[key] = struct{}{}
	f.dirtyMu.Unlock()
}

const (
	// syncers is how many files are synced at a time. A file system makes many syncs that come together durable at once; one
	// after the other each waits for the disk.
	syncers = 32
	// politeSyncers is how many while the store runs with SyncFlush: producers wait for the log's syncs, which wait for these.
	politeSyncers = 2
)

// sync makes durable all that was written before the call.
func (f *queueFiles) sync() error {
	f.dirtyMu.Lock()
	files, dirs := f.dirty, f.dirtyDirs
	f.dirty, f.dirtyDirs = map[fileKey]struct{}{}, map[string]struct{}{}
	f.dirtyMu.Unlock()
	err := spread(f.syncers, slices.Collect(maps.Keys(files)), func(key fileKey) error {
		if err := f.syncFile(key); err != nil {
			return fmt.Errorf("queue %s/%d: %w", key.queue.topic, key.queue.id, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return spread(f.syncers, slices.Collect(maps.Keys(dirs)), func(dir string) error {
		if err := f.fs.SyncDir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
}

func (f *queueFiles) syncFile(key fileKey) error {
	file, err := f.open(key.queue, key.first)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the topic was deleted
	}
	if err != nil {
		return err
	}
	defer f.cache.release(file)
	return file.file.Sync()
}

// zeroFrom says whether all that stands from entry end on is known to be zero. Where that would take much reading it is
// not known: cut costs less then.
func (f *queueFiles) zeroFrom(q *queue, end int64) (bool, error) {
	const most = 64 << 10
	files := *q.files.Load()
	if len(files) == 0 || end >= files[len(files)-1]+f.units {
		return true, nil
	}
	if files[len(files)-1] > end {
		return false, nil
	}
	file, err := f.open(q, end)
	if err != nil {
		return false, err
	}
	defer f.cache.release(file)
	spans, err := extents(file.file, end%f.units*entrySize, f.units*entrySize)
	if err != nil {
		return false, err
	}
	for _, span := range spans {
		b := make([]byte, min(span.to-span.from, most+1))
		if len(b) > most {
			return false, nil
		}
		if err := readFull(file.file, b, span.from); err != nil || !allZero(b) {
			return false, err
		}
	}
	return true, nil
}

// cut makes zeros of all that stands from entry end on, and removes the files that begin behind it.
func (f *queueFiles) cut(q *queue, end int64) error {
	files := *q.files.Load()
	keep := sort.Search(len(files), func(i int) bool { return files[i] > end })
	for _, first := range files[keep:] {
		if err := f.remove(fileKey{q, first}); err != nil {
			return err
		}
	}
	files = slices.Clone(files[:keep])
	q.files.Store(&files)
	if keep > 0 && end < files[keep-1]+f.units {
		return f.cutFile(fileKey{q, files[keep-1]}, end-files[keep-1])
	}
	return nil
}

func (f *queueFiles) remove(key fileKey) error {
	path := f.path(key)
	f.logger.Warn("consume queue file behind the queue's end removed", "path", path)
	err := f.cache.drop(func(k fileKey) bool { return k == key })
	f.dirtyMu.Lock()
	f.dirtyDirs[filepath.Dir(path)] = struct{}{}
	f.dirtyMu.Unlock()
	return errors.Join(err, f.fs.Remove(path))
}

// cutFile shortens a file to n entries and gives it back its length, so that all behind them is zero.
func (f *queueFiles) cutFile(key fileKey, n int64) error {
	file, err := f.cache.acquire(key, func() string { return f.path(key) })
	if err != nil {
		return err
	}
	defer f.cache.release(file)
	f.markDirty(key)
	if err := file.file.Truncate(n * entrySize); err != nil {
		return err
	}
	return file.file.Truncate(f.units * entrySize)
}
