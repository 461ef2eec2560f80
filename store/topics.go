package store

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
)

// EachQueue calls fn for every queue, in no order. Queues that come or go meanwhile may be missed.
func (s *Store) EachQueue(fn func(topic string, queue int32, b Bounds)) {
	for _, q := range s.queues.all() {
		b, err := s.bounds(q)
		if err != nil {
			s.logger.Error("low end of a queue not found", "topic", q.topic, "queue", q.id, "err", err)
		}
		fn(q.topic, q.id, b)
	}
}

// DeleteTopic removes the queues of a topic. Its messages stay in the log until that is cleaned, but nobody finds them
// by queue any more. A message that is sent to the topic later begins it anew at queue offset 0.
func (s *Store) DeleteTopic(topic string) error {
	d := &s.dispatcher
	d.mu.Lock() // no step is under way, none begins
	defer d.mu.Unlock()
	s.put.mu.Lock() // no append is numbered by the old queues
	gone := s.queues.take(topic)
	written := s.log.written.load()
	forgotten := s.gaps.forget(topic)
	s.put.mu.Unlock()
	if len(gone) == 0 || forgotten != nil {
		return forgotten
	}
	for _, q := range gone {
		q.files.Store(&[]int64{})
		s.files.dropTail(q)
	}
	err := d.deleted.add(topic, written, s.log.low())
	err = errors.Join(err, s.files.cache.drop(func(key fileKey) bool { return key.queue.topic == topic }))
	if e := s.opts.FS.RemoveAll(filepath.Join(s.files.root, topic)); e != nil && !errors.Is(e, fs.ErrNotExist) {
		err = errors.Join(err, e)
	}
	if e := s.opts.FS.SyncDir(s.files.root); !errors.Is(e, fs.ErrNotExist) { // else no queue has a file yet
		err = errors.Join(err, e)
	}
	if err != nil {
		return fmt.Errorf("delete topic %s: %w", topic, err)
	}
	return nil
}
