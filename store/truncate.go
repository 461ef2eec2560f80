package store

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/ratchetmq/ratchet/internal/atomicfile"
	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/message"
)

// Truncate cuts the log at a position, where a record begins, and queues and index with it: what stands behind has
// diverged from what the group's master has. The bytes are kept in the folder "diverged", in a file whose byte 0 is the
// byte at the position. It is done wholly or not at all, whatever happens in the midst of it. The store must take no
// appends, and nobody may wait for a flush.
func (s *Store) Truncate(to offset.Physical) (aside string, err error) {
	s.cleaning.Lock()
	defer s.cleaning.Unlock()
	s.dispatcher.mu.Lock()
	defer s.dispatcher.mu.Unlock()
	s.put.mu.Lock()
	defer s.put.mu.Unlock()
	if err := s.appendable(); err != nil {
		return "", err
	}
	before := s.log.written.load()
	if to < s.Low() || to > before {
		return "", fmt.Errorf("%w: the log has [%d, %d), not %d", ErrNotFound, s.Low(), before, to)
	}
	if err := s.files.writeTails(); err != nil {
		return "", err
	}
	spans, err := s.log.dataBehind(to)
	if err == nil && len(spans) > 0 {
		aside, err = s.putAside(divergedFolder, to, spans)
	}
	if err != nil {
		return "", err
	}
	intent := filepath.Join(s.opts.Root, truncationFile)
	if err := atomicfile.Write(s.opts.FS, intent, strconv.AppendInt(nil, int64(to), 10)); err != nil {
		return "", err
	}
	// From here on a failure leaves a store that only Open can bring in order.
	if err := s.truncate(to); err != nil {
		s.fail(err)
		return "", s.Err()
	}
	s.logger.Warn("log truncated", "before", int64(before), "after", int64(to), "path", aside)
	return aside, nil
}

// Cuts is another number when the log was cut: what was read before may be followed by something else.
func (s *Store) Cuts() uint64 { return s.cuts.Load() }

// truncate carries it out, the intent is noted.
func (s *Store) truncate(to offset.Physical) error {
	// What comes next may have older store times than what goes: nothing may be taken for durable by its time.
	s.checkpoint.phy, s.checkpoint.logic, s.checkpoint.index = 0, 0, 0
	if err := s.checkpoint.save(); err != nil {
		return err
	}
	if err := s.log.wipe(to); err != nil {
		return err
	}
	for _, q := range s.queues.all() {
		high, err := s.findLow(q, q.high.Load(), int64(to))
		if err == nil {
			err = s.files.cut(q, high)
		}
		if err != nil {
			return fmt.Errorf("queue %s/%d: %w", q.topic, q.id, err)
		}
		q.high.Store(high)
		q.low.Store(min(q.low.Load(), high))
		q.next = offset.Queue(high)
	}
	if err := s.countUndispatched(to); err != nil {
		return err
	}
	if index := s.opts.Index; index != nil {
		if err := index.Reset(to); err != nil {
			return err
		}
	}
	s.cuts.Add(1) // before anything can be appended in the place of what was read
	s.log.written.truncate(to)
	s.log.flushed.truncate(to)
	s.dispatcher.done.truncate(to)
	s.dispatcher.forget()
	s.dispatcher.lastTime = 0
	s.put.prepareAt = 0
	if err := s.gaps.truncate(to); err != nil {
		return err
	}
	s.keepOffsetsFree()
	if err := s.dispatcher.deleted.clamp(to); err != nil {
		return err
	}
	return s.endTruncation()
}

// countUndispatched keeps the numbers of records below end that are in no queue yet: they are given.
func (s *Store) countUndispatched(end offset.Physical) error {
	_, _, err := s.log.search(s.dispatcher.done.load(), end, func(r *message.Record) bool {
		request := r.DispatchRequest(0)
		s.dispatcher.deleted.eachTarget(&request, func(t target) {
			s.queues.ensureNamed(t.topic, t.id).given(t.index)
		})
		return false
	})
	return err
}

// finishTruncation does at Open what a crash has left of a Truncate. The queues follow by themselves, as after any crash.
func (s *Store) finishTruncation() error {
	var to offset.Physical
	path := filepath.Join(s.opts.Root, truncationFile)
	_, err := atomicfile.Read(s.opts.FS, path, func(b []byte) error {
		n, err := strconv.ParseInt(string(b), 10, 64)
		to = offset.Physical(n)
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	s.logger.Warn("truncation that a crash interrupted is finished", "phy", to)
	if err := s.log.wipe(to); err != nil {
		return err
	}
	if err := s.gaps.truncate(to); err != nil {
		return err
	}
	return s.endTruncation()
}

func (s *Store) endTruncation() error {
	path := filepath.Join(s.opts.Root, truncationFile)
	if err := s.opts.FS.Remove(path); err != nil {
		return err
	}
	return s.opts.FS.SyncDir(s.opts.Root)
}

// wipe makes zero, durably, what stands from a position on.
func (l *commitLog) wipe(from offset.Physical) error {
	spans, err := l.dataBehind(from)
	if err != nil {
		return err
	}
	zeros := make([]byte, chunk)
	var touched *segment
	for _, span := range spans {
		seg := l.at(span.From)
		if _, err := seg.file.WriteAt(zeros[:span.To-span.From], int64(span.From-seg.start)); err != nil {
			return err
		}
		if touched != nil && touched != seg {
			if err := touched.file.Sync(); err != nil {
				return err
			}
		}
		touched = seg
	}
	if touched == nil {
		return nil
	}
	return touched.file.Sync()
}

// truncate drops the gaps and the damage of the log behind its end. Gaps of queues stay: their offsets were given out.
func (g *gaps) truncate(to offset.Physical) error {
	now, next, behind := g.now.Load(), g.get(), Span{From: to, To: math.MaxInt64}
	next.Log = slices.DeleteFunc(next.Log, func(s Span) bool { return s.From >= to })
	next.Filled, next.Damaged = offset.Without(next.Filled, behind), offset.Without(next.Damaged, behind)
	if slices.Equal(now.Log, next.Log) && slices.Equal(now.Filled, next.Filled) && slices.Equal(now.Damaged, next.Damaged) {
		return nil
	}
	return g.save(next)
}
