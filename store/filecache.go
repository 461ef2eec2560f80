package store

import (
	"container/list"
	"errors"
	"sync"

	"github.com/ratchetmq/ratchet/internal/vfs"
)

// fileCache keeps the consume queue files open that were used last: with 20,000 queues not all can be.
type fileCache struct {
	fs  vfs.FS
	max int

	mu    sync.Mutex
	files map[fileKey]*list.Element // guarded by mu; of *openFile
	order *list.List                // guarded by mu; the last used is at the front
}

// fileKey is one file of a queue, by the number of its first entry.
type fileKey struct {
	queue *queue
	first int64
}

type openFile struct {
	key  fileKey
	file vfs.File
	uses int  // guarded by fileCache.mu
	gone bool // guarded by fileCache.mu; not in the cache any more: the last user closes it
}

func newFileCache(fsys vfs.FS, limit int) *fileCache {
	return &fileCache{fs: fsys, max: limit, files: map[fileKey]*list.Element{}, order: list.New()}
}

// acquire opens a file, or takes the open one. The caller calls release when it has read or written.
func (c *fileCache) acquire(key fileKey, path func() string) (*openFile, error) {
	c.mu.Lock()
	if el := c.files[key]; el != nil {
		f := el.Value.(*openFile)
		f.uses++
		c.order.MoveToFront(el)
		c.mu.Unlock()
		return f, nil
	}
	c.mu.Unlock()
	file, err := c.fs.Open(path())
	if err != nil {
		return nil, err
	}
	return c.add(key, file), nil
}

// add puts a file that was just opened into the cache, in use by the caller. When another goroutine was faster, its
// handle is taken.
func (c *fileCache) add(key fileKey, file vfs.File) *openFile {
	var old []vfs.File
	c.mu.Lock()
	el := c.files[key]
	if el == nil {
		el = c.order.PushFront(&openFile{key: key, file: file})
		c.files[key] = el
	} else {
		old = append(old, file)
	}
	f := el.Value.(*openFile)
	f.uses++
	for last := c.order.Back(); c.order.Len() > c.max && last != el; last = c.order.Back() {
		old = c.evict(last, old)
	}
	c.mu.Unlock()
	for _, file := range old {
		_ = file.Close() // only bytes that were not synced could be lost by that, and a close does not lose them
	}
	return f
}

// evict takes a file out of the cache and adds it to the ones to close if nobody uses it. The caller has mu.
func (c *fileCache) evict(el *list.Element, old []vfs.File) []vfs.File {
	f := c.order.Remove(el).(*openFile)
	delete(c.files, f.key)
	f.gone = true
	if f.uses == 0 {
		old = append(old, f.file)
	}
	return old
}

// release ends the use of a file.
func (c *fileCache) release(f *openFile) {
	c.mu.Lock()
	f.uses--
	unused := f.gone && f.uses == 0
	c.mu.Unlock()
	if unused {
		_ = f.file.Close()
	}
}

// drop closes the files for which match is true, all when it is nil; those in use are closed after that.
func (c *fileCache) drop(match func(fileKey) bool) error {
	var old []vfs.File
	c.mu.Lock()
	for el := c.order.Front(); el != nil; {
		next := el.Next()
		if match == nil || match(el.Value.(*openFile).key) {
			old = c.evict(el, old)
		}
		el = next
	}
	c.mu.Unlock()
	var errs []error
	for _, f := range old {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// open is how many files are open through the cache, those that it gave up but that are in use not counted.
func (c *fileCache) open() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.order.Len()
}
