package store

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/message"
)

// Expired is the part of a queue that goes with the log's oldest segments.
type Expired struct {
	Topic string
	Queue int32
	Bounds
}

// runCleaner looks at the disk from time to time until ctx is done: it refuses appends while the disk is too full, and
// lets go of what is kept no longer.
func (s *Store) runCleaner(ctx context.Context) error {
	ticker := time.NewTicker(s.opts.CleanInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
		if _, err := s.clean(false); err != nil {
			s.logger.Error("old segments not removed", "err", err)
		}
	}
}

// Clean lets go, at once, of segments that are older than Retention.Reserved, whatever the hour. It returns how many
// went.
func (s *Store) Clean() (segments int, err error) {
	for {
		n, err := s.clean(true)
		if segments += n; err != nil || n == 0 {
			return segments, err
		}
	}
}

func (s *Store) clean(command bool) (n int, err error) {
	s.cleaning.Lock()
	defer s.cleaning.Unlock()
	policy := s.opts.Retention()
	used := s.watchDisk(&policy)
	for {
		h := holding{now: s.opts.Now(), lastWrite: s.lastWrites(), used: used, command: command}
		k, why := policy.decide(h)
		if k == 0 {
			return n, nil
		}
		if err := s.expire(k, why, used); err != nil {
			return n, err
		}
		if n += k; why != byForce {
			return n, nil
		}
		used = s.watchDisk(&policy)
	}
}

// watchDisk is how full the emptiest of the log's disks is, 0 to 1, or -1 when none can say. Above the limit appends
// are refused until there is room again.
func (s *Store) watchDisk(policy *Retention) float64 {
	used, where := -1.0, ""
	for _, dir := range s.opts.CommitLogDirs {
		u, err := s.opts.FS.Usage(dir)
		if err != nil || u.Total <= 0 {
			continue
		}
		if ratio := u.Ratio(); used < 0 || ratio < used {
			used, where = ratio, dir
		}
	}
	was := s.tooFull.Load()
	switch {
	case used > policy.Refuse:
		err := fmt.Errorf("%w: %s is %.1f %% full, the limit is %.0f %%", ErrFull, where, 100*used, 100*policy.Refuse)
		s.tooFull.Store(&err)
		if was == nil {
			s.logger.Error("disk too full, sends are refused", "path", where, "used", used, "limit", policy.Refuse)
		}
	case was != nil:
		s.tooFull.Store(nil)
		s.logger.Info("disk has room again, sends are taken", "path", where, "used", used, "limit", policy.Refuse)
	}
	return used
}

// lastWrites is when each segment that may go was last written to: when the first record behind it was stored or,
// where there is none, when its file changed.
func (s *Store) lastWrites() (times []time.Time) {
	list := *s.log.segments.Load()
	flushed := s.log.flushed.load()
	for i := 0; i+1 < len(list) && list[i].end <= flushed && list[i+1].start < s.log.written.load(); i++ {
		at := s.opts.Now()
		if ms, ok := s.firstStoreTime(list[i+1]); ok && list[i+1].start == list[i].end {
			times = append(times, time.UnixMilli(ms))
			continue
		}
		if info, err := s.opts.FS.Stat(list[i].file.Name()); err == nil {
			at = info.ModTime()
		}
		times = append(times, at)
	}
	return times
}

// firstStoreTime is when the first record of a segment was stored, in ms.
func (s *Store) firstStoreTime(seg *segment) (int64, bool) {
	raw, err := s.Record(seg.start, nil)
	if err != nil {
		return 0, false
	}
	r, err := message.Parse(raw)
	return r.StoreTimestamp, err == nil
}

// expire lets the k oldest segments go: first their messages' places in the queues are worked out and told, then the
// files go, oldest first, so that a crash leaves no gap in the log.
func (s *Store) expire(k int, why reason, used float64) error {
	list := *s.log.segments.Load()
	low := list[k].start
	// What the files lack could not be rebuilt any more, and a queue's numbers would be given out again.
	if err := s.writeTails(); err != nil {
		return err
	}
	if err := s.tellExpired(low); err != nil {
		return err
	}
	s.logger.Info("old segments removed", "count", k, "before", int64(list[0].start), "phy", int64(low),
		"reason", string(why), "used", used)
	err := s.log.dropHead(k)
	for _, q := range s.queues.all() {
		err = errors.Join(err, s.dropEntries(q))
	}
	if s.opts.Index != nil {
		err = errors.Join(err, s.opts.Index.DeleteBefore(low))
	}
	return err
}

func (s *Store) tellExpired(low offset.Physical) error {
	if s.opts.OnExpire == nil {
		return nil
	}
	for _, q := range s.queues.all() {
		b, err := s.bounds(q)
		if err != nil {
			return err
		}
		to, err := s.findLow(q, int64(b.High), int64(low))
		if err != nil {
			return err
		}
		if offset.Queue(to) > b.Low {
			s.opts.OnExpire(Expired{Topic: q.topic, Queue: q.id, Bounds: Bounds{Low: b.Low, High: offset.Queue(to)}})
		}
	}
	return nil
}

// dropHead removes the k oldest segments. A read that is under way in one of them ends well or fails as not found.
func (l *commitLog) dropHead(k int) error {
	l.grow.Lock()
	list := *l.segments.Load()
	rest := slices.Clone(list[k:])
	l.segments.Store(&rest)
	if len(rest) > 0 { // nobody who looked at the log before makes one of them anew
		l.begin = max(l.begin, rest[0].start)
	}
	l.grow.Unlock()
	for _, seg := range list[:k] {
		path := seg.file.Name()
		err := errors.Join(l.fs.Remove(path), l.fs.SyncDir(filepath.Dir(path)), seg.file.Close())
		if err != nil && seg.readOnly {
			l.logger.Warn("old segment stays in a read-only folder", "path", path, "err", err)
			continue
		}
		if err != nil {
			return fmt.Errorf("remove segment: %w", err)
		}
	}
	return nil
}

// dropEntries removes the files of a queue that only have entries below its low end. The last one stays, since it
// keeps the queue's numbering.
func (s *Store) dropEntries(q *queue) error {
	b, err := s.bounds(q)
	if err != nil {
		return err
	}
	s.dispatcher.mu.Lock() // the list of files is the dispatcher's
	files := *q.files.Load()
	k := 0
	for k+1 < len(files) && files[k]+s.files.units <= int64(b.Low) {
		k++
	}
	rest := slices.Clone(files[k:])
	q.files.Store(&rest)
	s.dispatcher.mu.Unlock()
	for _, first := range files[:k] {
		key := fileKey{q, first}
		err = errors.Join(err, s.files.cache.drop(func(open fileKey) bool { return open == key }),
			s.opts.FS.Remove(s.files.path(key)))
	}
	return err
}
