package store

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"

	"github.com/ratchetmq/ratchet/internal/offset"
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
func (s *Store) DeleteTopic(topic string) error { return s.deleteTopic(topic, -1) }

// OnDeleted has fn called with topics that another broker has deleted, before they go here. Call it before Run.
func (s *Store) OnDeleted(fn func(topic string) error) { s.dispatcher.deletes = fn }

// Deleted are the topics that were deleted, each below a position of the log: they may have been made again since.
func (s *Store) Deleted() map[string]offset.Physical {
	s.put.mu.Lock()
	defer s.put.mu.Unlock()
	return maps.Clone(s.dispatcher.deleted.topics)
}

// Deletions is another number when the deletions have changed.
func (s *Store) Deletions() uint64 { return s.dispatcher.deleted.changes.Load() }

// AdoptDeleted deletes what another broker has deleted whose log this store copies, before it has anything that came to
// those topics later.
func (s *Store) AdoptDeleted(topics map[string]offset.Physical) error {
	own := s.Deleted()
	for topic, below := range topics {
		if below <= max(own[topic], s.Low()) {
			continue
		}
		if s.dispatcher.deletes != nil {
			if err := s.dispatcher.deletes(topic); err != nil {
				return err
			}
		}
		if err := s.deleteTopic(topic, below); err != nil {
			return err
		}
	}
	return nil
}

// deleteTopic deletes what a topic has below a position, -1: all.
func (s *Store) deleteTopic(topic string, below offset.Physical) error {
	d := &s.dispatcher
	d.mu.Lock() // no step is under way, none begins
	defer d.mu.Unlock()
	s.put.mu.Lock() // no append is numbered by the old queues
	err := s.noteDeletion(topic, below)
	var gone []*queue
	if err == nil { // else it is not deleted: what comes later would be lost among what a restart finds
		gone = s.queues.take(topic)
	}
	s.put.mu.Unlock()
	if len(gone) == 0 {
		return err
	}
	for _, q := range gone {
		q.files.Store(&[]int64{})
		s.files.dropTail(q)
	}
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

// noteDeletion notes it before anybody can see what comes later. The put lock is held.
func (s *Store) noteDeletion(topic string, below offset.Physical) error {
	gaps := s.gaps.get()
	if err := s.gaps.forget(topic); err != nil {
		return err
	}
	if below < 0 && !s.queues.has(topic) {
		return nil
	}
	if below < 0 {
		below = s.log.written.load()
	}
	err := s.dispatcher.deleted.add(topic, below, s.log.low())
	if err != nil && !slices.Equal(gaps.Queues, s.gaps.get().Queues) {
		err = errors.Join(err, s.gaps.save(gaps))
	}
	return err
}
