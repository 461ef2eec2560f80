package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"
)

type queueKey struct {
	topic string
	id    int32
}

// queueSet is all consume queues by name.
type queueSet struct {
	mu   sync.RWMutex
	m    map[queueKey]*queue               // guarded by mu
	near [nearPlaces]atomic.Pointer[queue] // of m, those that were looked up last; written under mu
}

// nearPlaces is how many queues can be found without their hash: most messages go to few queues, again and again.
const nearPlaces = 1 << 10

// nearPlace is the place of a queue among those. Names that differ do so at the end, mostly.
func nearPlace(topic []byte, id int32) uint32 {
	h := uint64(len(topic))
	if len(topic) >= 8 {
		h += binary.NativeEndian.Uint64(topic[len(topic)-8:])
	} else {
		for _, c := range topic {
			h = h<<8 + uint64(c)
		}
	}
	return uint32((h*31+uint64(uint32(id)))*0x9E3779B97F4A7C15>>32) % nearPlaces
}

func (s *queueSet) get(topic string, id int32) *queue {
	return s.find(unsafe.Slice(unsafe.StringData(topic), len(topic)), id)
}

// find is get for a name in bytes, which it does not copy.
func (s *queueSet) find(topic []byte, id int32) *queue {
	near := &s.near[nearPlace(topic, id)]
	if q := near.Load(); q != nil && q.id == id && q.topic == string(topic) {
		return q
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	q := s.m[queueKey{string(topic), id}]
	if q != nil {
		near.Store(q)
	}
	return q
}

// ensure is the queue of that name, a new one if there was none.
func (s *queueSet) ensure(topic string, id int32) *queue {
	if q := s.get(topic, id); q != nil {
		return q
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.m[queueKey{topic, id}]
	if q == nil {
		q = newQueue(strings.Clone(topic), id)
		s.m[queueKey{q.topic, id}] = q
	}
	return q
}

// ensureNamed is ensure for a name in bytes, which it copies for a new queue only.
func (s *queueSet) ensureNamed(topic []byte, id int32) *queue {
	if q := s.find(topic, id); q != nil {
		return q
	}
	return s.ensure(string(topic), id)
}

// take removes the queues of a topic and returns them.
func (s *queueSet) take(topic string) []*queue {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []*queue
	for key, q := range s.m {
		if key.topic == topic {
			list = append(list, q)
			delete(s.m, key)
			s.near[nearPlace(q.name, q.id)].CompareAndSwap(q, nil)
		}
	}
	return list
}

// drop removes a queue.
func (s *queueSet) drop(q *queue) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.m, queueKey{q.topic, q.id})
	s.near[nearPlace(q.name, q.id)].CompareAndSwap(q, nil)
}

// has says whether a topic has a queue.
func (s *queueSet) has(topic string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for key := range s.m {
		if key.topic == topic {
			return true
		}
	}
	return false
}

func (s *queueSet) all() []*queue {
	s.mu.RLock()
	defer s.mu.RUnlock()
	list := make([]*queue, 0, len(s.m))
	for _, q := range s.m {
		list = append(list, q)
	}
	return list
}

// loadQueues finds the queues that have a folder. It opens no file.
func loadQueues(f *queueFiles, clean bool, workers int, progress *progress) (*queueSet, error) {
	set := &queueSet{m: map[queueKey]*queue{}}
	topics, err := f.fs.ReadDir(f.root)
	if errors.Is(err, fs.ErrNotExist) {
		return set, nil
	}
	if err != nil {
		return nil, err
	}
	progress.begin("queue folders", int64(len(topics)))
	return set, spread(workers, topics, func(t fs.DirEntry) error {
		defer progress.add(1)
		if !t.IsDir() {
			return nil
		}
		return set.loadTopic(f, t.Name(), clean)
	})
}

// loadTopic finds the queues of one topic.
func (s *queueSet) loadTopic(f *queueFiles, topic string, clean bool) error {
	ids, err := f.fs.ReadDir(filepath.Join(f.root, topic))
	if err != nil {
		return err
	}
	for _, id := range ids {
		n, err := strconv.ParseInt(id.Name(), 10, 32)
		if err != nil || !id.IsDir() {
			continue
		}
		q := newQueue(topic, int32(n))
		if err := f.load(q, clean); err != nil {
			return err
		}
		s.mu.Lock()
		s.m[queueKey{q.topic, q.id}] = q
		s.mu.Unlock()
	}
	return nil
}

// load finds the files of a queue. After an unclean stop files may be short: not all of a file's making came to the
// disk. What they lack is rebuilt from the log.
func (f *queueFiles) load(q *queue, clean bool) error {
	found, err := listDataFiles(f.fs, f.dir(q))
	if err != nil {
		return err
	}
	full := f.units * entrySize
	var files []int64
	for i, file := range found {
		switch {
		case file.size == 0 && i == len(found)-1:
			f.logger.Info("empty consume queue file removed", "path", file.path)
			if err := f.fs.Remove(file.path); err != nil {
				return err
			}
			continue
		case file.start%full != 0 || file.size > full || file.size < full && clean:
			return fmt.Errorf("%w: %s has %d bytes, consume queue files are to have %d", ErrLayout, file.path, file.size,
				full)
		case file.size < full:
			f.logger.Warn("short consume queue file filled up", "path", file.path, "size", file.size)
			if err := f.lengthen(fileKey{q, file.start / entrySize}); err != nil {
				return err
			}
		}
		files = append(files, file.start/entrySize)
	}
	q.files.Store(&files)
	return nil
}

func (f *queueFiles) lengthen(key fileKey) error {
	file, err := f.fs.Open(f.path(key))
	if err != nil {
		return err
	}
	f.markDirty(key)
	return errors.Join(file.Truncate(f.units*entrySize), file.Close())
}
