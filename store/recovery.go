package store

import (
	"errors"
	"fmt"
	"math"
	"sort"
	"sync"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/message"
)

// Recovery, in the order of this file:
//
//  1. Where to begin: a place before which log, queues and index are known to be complete. The checkpoint tells from where
//     on they may not be durable either; where a mere kill has taken nothing from the kernel, they are complete much further.
//  2. From there the log is read record by record, and all entries are written into the queues again, each at the
//     place that the record names; what stands there already is left alone. Damage is skipped if the log goes on
//     behind it. Where it does not is the log's end.
//  3. Behind the ends of log and queues all is made zero, so that nothing there can be taken for data later.
//
// With several workers the log is read and checked ahead of step 2 (ahead.go), and queues are gone through side by side;
// what is decided does not depend on that.
//
// Doing it twice, or being killed in the midst of it, changes nothing: until the next checkpoint it begins at the same
// place and decides the same.

// Span is a part of the log: [From, To).
type Span = offset.Span[offset.Physical]

type recovery struct {
	s        *Store
	clean    bool
	start    offset.Physical
	durable  offset.Physical // what is before it need not be synced
	end      offset.Physical
	history  *history
	segment  int64  // of the log; what is in round is of none other
	damage   []Span // skipped, in order
	round    round  // entries not yet written
	gathered int    // how many
	passed   int64  // bytes of the log that progress does not know of
	progress *progress
}

var errMisplaced = fmt.Errorf("%w: queue or queue offset is another one's", message.ErrCorrupt)

const (
	// gatherMost is how many entries are kept before they are written: 20 MiB of them. With 20,000 queues each has some.
	gatherMost = 1 << 20
	// calmAfter is how far the log must be in order behind damage before it is read ahead again, so that much damage
	// does not cost many times its own size.
	calmAfter = 4 << 20
)

func newRecovery(s *Store, clean bool) *recovery {
	return &recovery{s: s, clean: clean, history: newHistory(), progress: s.progress}
}

func (s *Store) recover(clean bool) error {
	r := newRecovery(s, clean)
	began := s.opts.Now()
	if err := r.finishDeletions(); err != nil {
		return fmt.Errorf("finish deletions: %w", err)
	}
	if err := r.findStart(); err != nil {
		return fmt.Errorf("find where to begin: %w", err)
	}
	if err := r.baseQueues(); err != nil {
		return err
	}
	if err := r.scan(); err != nil {
		return fmt.Errorf("scan from %d: %w", r.start, err)
	}
	if err := r.settleQueues(); err != nil {
		return err
	}
	if err := r.settleLog(); err != nil {
		return err
	}
	if index := s.opts.Index; index != nil && index.End() >= r.end {
		if err := index.Reset(r.end); err != nil {
			return fmt.Errorf("cut index at %d: %w", r.end, err)
		}
	}
	r.progress.begin("", 0)
	s.log.written.raise(r.end)
	s.log.flushed.raise(r.end)
	s.dispatcher.done.raise(r.end)
	s.dispatcher.lastTime = r.history.lastTime
	s.put.lastTime = r.history.lastTime
	if err := s.noteDamage(offset.Without(s.gaps.get().Damaged, Span{From: r.start, To: math.MaxInt64}), r.damage...); err != nil {
		return fmt.Errorf("note what is damaged: %w", err)
	}
	s.logger.Info("store recovered", "clean", clean, "start", r.start, "phy", r.end, "damaged", len(r.damage),
		"queues", len(s.queues.all()), "dur", s.opts.Now().Sub(began))
	return nil
}

// findStart sets start and durable.
func (r *recovery) findStart() error {
	segments := *r.s.log.segments.Load()
	if len(segments) == 0 {
		return r.startWithoutLog()
	}
	heads, err := r.heads(segments)
	if err != nil {
		return err
	}
	var i int
	if r.clean {
		covered, err := r.covered()
		if err != nil {
			return err
		}
		i = cleanStart(heads, covered)
	} else {
		safe := r.s.checkpoint.safeTime(r.s.opts.Now().UnixMilli())
		i, err = uncleanStart(heads, safe, r.known)
		if err != nil {
			return err
		}
	}
	r.durable = heads[i].start
	if !r.clean && r.s.opts.SameBoot {
		if i, err = keptStart(heads, i, r.written); err != nil {
			return err
		}
	}
	r.start, err = r.startForIndex(heads[:i+1])
	return err
}

// startForIndex is the beginning of the last of the segments, or what the index has last if that is before it. If that is no
// record, it is the beginning of its segment.
func (r *recovery) startForIndex(heads []head) (offset.Physical, error) {
	i := len(heads) - 1
	index := r.s.opts.Index
	if index == nil || index.End() == 0 && !index.Lost() || heads[i].start <= index.End() {
		return heads[i].start, nil
	}
	c := cursor{log: r.s.log}
	if f, err := c.lookSmall(index.End(), heads[i].start); err != nil || f.kind == isRecord {
		return index.End(), err
	}
	for i > 0 && heads[i].start > index.End() {
		i--
	}
	return heads[i].start, nil
}

// head is the beginning of a segment.
type head struct {
	start   offset.Physical
	present bool // it begins with a record
	record  message.Record
}

func (r *recovery) heads(segments []*segment) ([]head, error) {
	heads := make([]head, len(segments))
	for i, seg := range segments {
		heads[i].start = seg.start
		c := cursor{log: r.s.log} // one each: the record's bytes live in it
		f, err := c.lookSmall(seg.start, seg.end)
		if err != nil {
			return nil, err
		}
		heads[i].present, heads[i].record = f.kind == isRecord, f.record
	}
	return heads, nil
}

// cleanStart: after a clean stop queues and index are complete up to covered. The last file that has records is read
// all the same, to find the log's end.
func cleanStart(heads []head, covered offset.Physical) int {
	i := len(heads) - 1
	for i > 0 && (!heads[i].present || heads[i].start > covered) {
		i--
	}
	return i
}

// uncleanStart: all that is older than the time safe was durable, in log and queues. A segment whose first record is
// so old, and is known to its queue, will do; else the first.
func uncleanStart(heads []head, safe int64, known func(*message.Record) (bool, error)) (int, error) {
	for i := len(heads) - 1; i > 0; i-- {
		if !heads[i].present || heads[i].record.StoreTimestamp > safe {
			continue
		}
		if ok, err := known(&heads[i].record); ok || err != nil {
			return i, err
		}
	}
	return 0, nil
}

// keptStart: the kernel has all that was written before a kill, and no entry of a segment is written before all of the segments
// in front of it. So the last segment will do whose first record has its entry; where it has none, as in a deleted topic,
// that says nothing. durable will do in any case.
func keptStart(heads []head, durable int, written func(*message.Record) (bool, error)) (int, error) {
	for i := len(heads) - 1; i > durable; i-- {
		if !heads[i].present {
			continue
		}
		if ok, err := written(&heads[i].record); ok || err != nil {
			return i, err
		}
	}
	return durable, nil
}

// known says whether the record's queues have their entries. So a consumequeue folder that was removed is rebuilt.
func (r *recovery) known(rec *message.Record) (bool, error) {
	_, missing, err := r.entriesOf(rec)
	return missing == 0, err
}

// written says whether the record has an entry, and its queues have all of them.
func (r *recovery) written(rec *message.Record) (bool, error) {
	found, missing, err := r.entriesOf(rec)
	return found > 0 && missing == 0, err
}

// entriesOf counts the record's entries that its queues have, and those which they should have.
func (r *recovery) entriesOf(rec *message.Record) (found, missing int, err error) {
	request := rec.DispatchRequest(0)
	r.s.dispatcher.deleted.eachTarget(&request, func(t target) {
		missing++
		q := r.s.queues.find(t.topic, t.id)
		if q == nil {
			return
		}
		e, e2 := r.s.files.entry(q, t.index)
		if err = errors.Join(err, e2); e2 == nil && e.phy == rec.PhysicalOffset && e.size == rec.Size {
			found, missing = found+1, missing-1
		}
	})
	return found, missing, err
}

// covered is the position up to which the queues of a clean stop go: the end of the last message that any has.
func (r *recovery) covered() (offset.Physical, error) {
	var end watermark
	var raising sync.Mutex
	err := r.eachQueue("queue ends", func(q *queue) error {
		n, err := r.countEntries(q, entry.present)
		if err != nil || n == q.first() {
			return err
		}
		e, err := r.s.files.entry(q, n-1)
		if err == nil && !e.blank() {
			raising.Lock()
			defer raising.Unlock()
			end.raise(e.phy + offset.Physical(e.size))
		}
		return err
	})
	return end.load(), err
}

// eachQueue calls fn for all queues, several at a time.
func (r *recovery) eachQueue(phase string, fn func(*queue) error) error {
	list := r.s.queues.all()
	r.progress.begin(phase, int64(len(list)))
	return spread(r.s.opts.OpenWorkers, list, func(q *queue) error {
		if err := fn(q); err != nil {
			return fmt.Errorf("queue %s/%d: %w", q.topic, q.id, err)
		}
		r.progress.add(1)
		return nil
	})
}

// countEntries is the number of the first entry for which ok is false; it must be true for all before and false from
// there on. It is the queue's first entry when there is none.
func (r *recovery) countEntries(q *queue, ok func(entry) bool) (int64, error) {
	files := *q.files.Load()
	if len(files) == 0 {
		return 0, nil
	}
	first, end := files[0], files[len(files)-1]+r.s.files.units
	w := entryWindow{files: r.s.files, queue: q, limit: end}
	var err error
	search := func(from, to int64) int64 {
		return from + int64(sort.Search(int(to-from), func(i int) bool {
			e, e2 := w.entry(from + int64(i))
			err = errors.Join(err, e2)
			return e2 != nil || !ok(e)
		}))
	}
	// Most queues are short: their end is in the first block, which is read as a whole.
	block := min(first+entryBlock, end)
	if _, err := w.entry(first); err != nil {
		return first, err
	}
	n := search(first, block)
	if n == block {
		n = search(block, end)
	}
	return n, err
}

// finishDeletions removes queues from before their topic was deleted: that was noted, and their files were still to go.
func (r *recovery) finishDeletions() error {
	for _, q := range r.s.queues.all() {
		below, ok := r.s.dispatcher.deleted.topics[q.topic]
		if !ok || len(*q.files.Load()) == 0 {
			continue
		}
		n, err := r.countEntries(q, func(e entry) bool { return e.present() && e.blank() })
		if err != nil {
			return err
		}
		e, err := r.s.files.entry(q, n)
		switch {
		case err != nil:
			return err
		case !e.present() || e.phy >= below:
			continue
		}
		r.s.logger.Info("queue of a deleted topic removed", "topic", q.topic, "queue", q.id)
		r.s.queues.drop(q)
		if err := r.s.files.cache.drop(func(key fileKey) bool { return key.queue == q }); err != nil {
			return err
		}
		if err := r.s.files.removeLeft(q); err != nil {
			return err
		}
	}
	return nil
}

// startWithoutLog: the log is gone but queues may be there. Their numbers stay used, and so do the positions that they
// point to: the log begins anew at the first file behind these.
func (r *recovery) startWithoutLog() error {
	covered, err := r.covered()
	if err != nil {
		return err
	}
	size := offset.Physical(r.s.log.size)
	r.start = (covered + size - 1) / size * size
	r.durable = r.start
	if covered > 0 {
		r.s.logger.Error("commit log is missing, but queues are there", "phy", r.start)
	}
	return nil
}

// baseQueues counts the entries of the queues before start: those are without holes, whatever is behind them, and those before
// durable are on the disk.
func (r *recovery) baseQueues() error {
	return r.eachQueue("queue entries", func(q *queue) error {
		n, err := r.countBefore(q, r.start)
		q.high.Store(n)
		if err != nil || r.durable >= r.start {
			return err
		}
		// Blank entries may be between two that are not durable: those count for none that is, rather for too few.
		from, err := r.countEntries(q, func(e entry) bool { return e.present() && !e.blank() && e.phy < r.durable })
		if from < n {
			r.s.files.suspect(q, from, n)
		}
		return err
	})
}

// countBefore is the number of the first entry that is not about the log before a position.
func (r *recovery) countBefore(q *queue, pos offset.Physical) (int64, error) {
	return r.countEntries(q, func(e entry) bool { return e.present() && (e.blank() || e.phy < pos) })
}

// scan reads the log from start on, feeds queues and index, and sets end.
func (r *recovery) scan() error {
	s, pos, c := r.s, r.start, cursor{log: r.s.log}
	defer r.round.reset()
	limit := r.start
	if list := *s.log.segments.Load(); len(list) > 0 {
		limit = list[len(list)-1].end
	}
	r.progress.begin("commit log", int64(limit-pos))
	for careful := int64(0); ; {
		if workers := s.opts.OpenWorkers; workers > 1 && careful <= 0 {
			var err error
			if pos, err = s.log.runAhead(workers, pos, limit, r.next, r.indexPart); err != nil {
				return err
			}
			careful = calmAfter
		}
		f, err := c.look(pos, limit)
		if err != nil {
			return err
		}
		ok, err := r.next(&f)
		if err != nil {
			return err
		}
		if ok {
			if f.kind == isRecord {
				r.index(&f.record)
			}
			pos += offset.Physical(f.size)
			careful -= f.size
			continue
		}
		next, found, err := s.log.search(pos+1, limit, r.history.resumes)
		if err != nil {
			return err
		}
		if !found {
			r.end = s.log.writableFrom(pos)
			return r.write()
		}
		r.s.logger.Error("damaged part of the log skipped", "phy", pos, "end", next, "err", f.why)
		r.damage = append(r.damage, Span{From: pos, To: next})
		pos, careful = next, calmAfter
	}
}

// next takes what stands next in the log; false when the log does not go on with that.
func (r *recovery) next(f *finding) (bool, error) {
	switch {
	case f.kind == isRecord && r.history.continues(&f.record):
		if wrong, err := r.misplaced(&f.record); wrong || err != nil {
			f.why = errMisplaced
			return false, err
		}
		if r.passed += f.size; r.passed >= chunk {
			r.progress.add(r.passed)
			r.passed = 0
		}
		if segment := int64(f.record.PhysicalOffset) / r.s.log.size; segment != r.segment {
			if err := r.write(); err != nil {
				return false, err
			}
			r.segment = segment
		}
		r.take(&f.record)
		if r.gathered >= gatherMost {
			return true, r.write()
		}
		return true, nil
	case f.kind == isBlank:
		r.passed += f.size
		return true, nil
	}
	return false, nil
}

// take adds a record to its queues.
func (r *recovery) take(rec *message.Record) {
	r.history.add(rec)
	request := r.s.requestOf(rec)
	r.s.dispatcher.deleted.eachTarget(&request, func(t target) {
		r.round.add(r.s.queues.ensureNamed(t.topic, t.id), t.index, entryOf(&request))
		r.gathered++
	})
}

// index gives a record to the index.
func (r *recovery) index(rec *message.Record) {
	if index := r.s.opts.Index; index != nil {
		if err := index.Put(rec); err != nil {
			r.s.logger.Error("message not indexed", "phy", rec.PhysicalOffset, "err", err)
		}
	}
}

// indexPart gives to the index what was taken of a part.
func (r *recovery) indexPart(p *part) {
	for i := range p.findings[:p.taken] {
		if f := &p.findings[i]; f.kind == isRecord {
			r.index(&f.record)
		}
	}
}

// write puts the entries where the records say, and leaves alone what is there already. The last entry of a queue that
// was written is its end, even if there were higher ones: its topic was deleted then and made anew.
func (r *recovery) write() error {
	defer func() {
		r.round.reset()
		r.gathered = 0
	}()
	return spread(r.s.opts.OpenWorkers, r.round.byQueue(), func(runs []*run) error {
		for _, run := range runs {
			if err := r.writeRun(run); err != nil {
				return err
			}
		}
		return nil
	})
}

func (r *recovery) writeRun(run *run) error {
	q := run.queue
	if err := r.s.files.fillUp(q, q.high.Load(), run.from); err != nil {
		return err
	}
	if err := r.s.files.update(q, run.from, run.units); err != nil {
		return err
	}
	if !r.clean {
		// What is there may have been written by a process that was killed, and be with the kernel alone.
		r.s.files.suspect(q, run.from, run.end())
	}
	q.high.Store(run.end())
	return nil
}

// settleQueues gives each queue its end, and makes zero what is behind.
func (r *recovery) settleQueues() error { return r.eachQueue("queue files", r.settle) }

func (r *recovery) settle(q *queue) error {
	high := q.high.Load()
	files := *q.files.Load()
	if len(files) == 0 {
		q.next = offset.Queue(high)
		return nil
	}
	end := files[len(files)-1] + r.s.files.units
	stale := false
	for ; high < end; high++ {
		e, err := r.s.files.entry(q, high)
		if err != nil {
			return err
		}
		if stale = e.present(); !stale || !r.damaged(e.phy) {
			break // else a message that was there and can't be read: its number stays used
		}
	}
	q.high.Store(high)
	q.next = offset.Queue(high)
	if !stale && !r.clean {
		zero, err := r.s.files.zeroFrom(q, high)
		if err != nil {
			return err
		}
		stale = !zero
	}
	if stale {
		return r.s.files.cut(q, high)
	}
	return nil
}

func (r *recovery) damaged(pos offset.Physical) bool {
	for _, d := range r.damage {
		if d.From <= pos && pos < d.To {
			return true
		}
	}
	return false
}

// settleLog makes durable what was found, and zero what is behind.
func (r *recovery) settleLog() error {
	r.progress.begin("log end", 0)
	if err := r.s.wipeTail(r.end); err != nil {
		return fmt.Errorf("wipe behind the log's end %d: %w", r.end, err)
	}
	if r.clean {
		return nil
	}
	return r.s.log.sync(min(r.durable, r.start), r.end)
}
