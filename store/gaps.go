package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sync/atomic"

	"github.com/ratchetmq/ratchet/internal/atomicfile"
	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/internal/vfs"
)

// QueueSpan is a part of a queue: offsets [From, To).
type QueueSpan struct {
	Topic string       `json:"topic"`
	Queue int32        `json:"queue"`
	From  offset.Queue `json:"from"`
	To    offset.Queue `json:"to"`
}

// Gaps are the places that are kept free because something was lost that had them: a new message never gets an offset or
// a position that was given out before. Readers step over them. What can't be read is noted with them.
type Gaps struct {
	Log    []Span      `json:"log"` // each ends where a segment does; its bytes are blank records
	Queues []QueueSpan `json:"queues"`
	// Filled are parts of the log that were gaps, in order: another broker may have copied them before they were filled.
	Filled []Span `json:"filled,omitempty"`
	// Damaged are parts of the log that hold no records, in order: see Store.Damaged.
	Damaged []Span `json:"damaged,omitempty"`
	Unseen  Unseen `json:"unseen,omitzero"`
}

// gaps are those of a store, kept in a file of Ratchet's own, gaps.json.
type gaps struct {
	fs   vfs.FS
	path string

	now     atomic.Pointer[Gaps] // never nil after load, never changed but replaced, under the put lock
	changes atomic.Uint64        // how often, since load
}

func (g *gaps) load(fsys vfs.FS, root string) error {
	g.fs, g.path = fsys, filepath.Join(root, gapsFile)
	g.now.Store(&Gaps{})
	_, err := atomicfile.Read(fsys, g.path, func(b []byte) error {
		var read Gaps
		if err := json.Unmarshal(b, &read); err != nil {
			return err
		}
		g.now.Store(&read)
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// save replaces the gaps, durably, and then for readers.
func (g *gaps) save(next Gaps) error {
	b, err := json.MarshalIndent(next, "", " ")
	if err != nil {
		return err
	}
	if err := atomicfile.Write(g.fs, g.path, b); err != nil {
		return err
	}
	g.now.Store(&next)
	g.changes.Add(1)
	return nil
}

func (g *gaps) get() Gaps {
	now := g.now.Load()
	return Gaps{slices.Clone(now.Log), slices.Clone(now.Queues), slices.Clone(now.Filled), slices.Clone(now.Damaged), now.Unseen}
}

// after is the first offset from at on that is in no gap of the queue.
func (g *gaps) after(q *queue, at offset.Queue) offset.Queue {
	for _, s := range g.now.Load().Queues { // in order
		if s.Queue == q.id && s.Topic == q.topic && s.From <= at && at < s.To {
			at = s.To
		}
	}
	return at
}

// Gaps are the places kept free, in order.
func (s *Store) Gaps() Gaps { return s.gaps.get() }

// GapChanges is another number when the gaps have changed.
func (s *Store) GapChanges() uint64 { return s.gaps.changes.Load() }

// Missing is how many places of [from, to) are in gaps of the queue: no messages, whatever a difference of offsets says.
func (s *Store) Missing(topic string, queue int32, from, to offset.Queue) (n int64) {
	for _, g := range s.gaps.now.Load().Queues {
		if g.Queue == queue && g.Topic == topic {
			n += max(0, int64(min(g.To, to)-max(g.From, from)))
		}
	}
	return n
}

// Lost is what must not be given out again, as far as it is known from elsewhere: see Leave.
type Lost struct {
	// Log is a position up to which the log may have gone; 0: not above its end.
	Log offset.Physical
	// Queue is the next offset of a queue, whose end is high now.
	Queue func(topic string, queue int32, high offset.Queue) offset.Queue
	// Others are queues that this store may not know of.
	Others []QueueSpan
	// Unseen is for queues that nobody knows of: From is by how much they begin later than before.
	Unseen Unseen
}

// Leave keeps free what Lost says, durably: the next message of a queue gets an offset that is not below, and the log goes
// on behind the first segment's end that is not below. It must not overlap with appends that expect their order.
func (s *Store) Leave(g Lost) (Gaps, error) {
	s.dispatcher.mu.Lock()
	defer s.dispatcher.mu.Unlock()
	s.put.mu.Lock()
	defer s.put.mu.Unlock()
	added, err := s.leave(g)
	if err == nil {
		err = s.dispatcher.deleted.clamp(s.log.written.load())
	}
	return added, err
}

func (s *Store) leave(g Lost) (Gaps, error) {
	if err := s.appendable(); err != nil {
		return Gaps{}, err
	}
	next := s.gaps.get()
	var added Gaps
	if end := s.log.written.load(); g.Log > end {
		size := offset.Physical(s.log.size)
		added.Log = append(added.Log, Span{From: end, To: (g.Log + size - 1) / size * size})
	}
	others := map[*queue]offset.Queue{}
	for _, other := range g.Others {
		q := s.queues.ensure(other.Topic, other.Queue)
		others[q] = max(others[q], other.To)
	}
	for _, q := range s.queues.all() {
		to := max(g.Queue(q.topic, q.id, s.next(q)), others[q])
		if to > q.next {
			added.Queues = append(added.Queues, QueueSpan{q.topic, q.id, q.next, to})
		}
	}
	if g.Unseen.From > 0 {
		added.Unseen = Unseen{next.Unseen.From + g.Unseen.From, g.Unseen.Until}
	}
	next.Unseen = next.Unseen.over(added.Unseen)
	if len(added.Log)+len(added.Queues) == 0 && added.Unseen == (Unseen{}) {
		return added, nil
	}
	next.Log = append(next.Log, added.Log...)
	next.Queues = s.pruned(append(next.Queues, added.Queues...))
	sortQueueSpans(next.Queues)
	for _, g := range added.Log { // what is noted is to be done wholly
		for pos := g.From; pos < g.To; pos += offset.Physical(s.log.size) {
			if _, err := s.log.ensure(pos); err != nil {
				return Gaps{}, err
			}
		}
	}
	if err := s.gaps.save(next); err != nil {
		return Gaps{}, fmt.Errorf("gaps: %w", err)
	}
	return added, s.keepFree()
}

func sortQueueSpans(list []QueueSpan) {
	slices.SortFunc(list, func(a, b QueueSpan) int { return int(min(max(a.From-b.From, -1), 1)) })
}

// forget drops the gaps of a topic that is deleted.
func (g *gaps) forget(topic string) error {
	next := g.get()
	before := len(next.Queues)
	next.Queues = slices.DeleteFunc(next.Queues, func(s QueueSpan) bool { return s.Topic == topic })
	if len(next.Queues) == before {
		return nil
	}
	return g.save(next)
}

// Adopt keeps offsets free that another broker keeps free whose log this store copies, durably: no message shows that they
// were given out. Where this store has given out more itself, it knows better.
func (s *Store) Adopt(spans []QueueSpan, unseen Unseen) error {
	s.put.mu.Lock()
	defer s.put.mu.Unlock()
	if err := s.appendable(); err != nil {
		return err
	}
	next := s.gaps.get()
	before, known := len(next.Queues), next.Unseen
	next.Unseen = known.over(unseen)
	ends := map[*queue]offset.Queue{}
	for _, g := range spans { // those of a queue are in order
		q := s.queues.ensure(g.Topic, g.Queue)
		if from := max(g.From, q.next, ends[q]); from < g.To {
			next.Queues = append(next.Queues, QueueSpan{g.Topic, g.Queue, from, g.To})
			ends[q] = g.To
		}
	}
	if len(next.Queues) == before && next.Unseen == known {
		return nil
	}
	sortQueueSpans(next.Queues)
	if err := s.gaps.save(next); err != nil {
		return fmt.Errorf("gaps: %w", err)
	}
	return s.keepFree()
}

// copyGap notes that the rest of a segment, which is about to be written as unused, is one that another broker keeps free. The
// put lock is held.
func (s *Store) copyGap(gap Span) error {
	next := s.gaps.get()
	if next.Log = offset.With(next.Log, gap); slices.Equal(next.Log, s.gaps.now.Load().Log) {
		return nil
	}
	return s.gaps.save(next)
}

// dropGaps forgets gaps of the log behind its end, at Open: what stood before them is lost, and was copied from a broker that
// tells of them again.
func (s *Store) dropGaps() error {
	next, end := s.gaps.get(), s.log.written.load()
	before := len(next.Log)
	next.Log = slices.DeleteFunc(next.Log, func(g Span) bool { return g.From > end })
	if len(next.Log) == before {
		return nil
	}
	return s.gaps.save(next)
}

// pruned drops gaps that readers can't come to any more.
func (s *Store) pruned(list []QueueSpan) []QueueSpan {
	return slices.DeleteFunc(list, func(g QueueSpan) bool {
		q := s.queues.get(g.Topic, g.Queue)
		return q != nil && q.next > g.To && q.low.Load() >= int64(g.To)
	})
}

// keepFree brings log and queues to what the gaps say. The put lock is held, or nobody else has the store yet.
func (s *Store) keepFree() error {
	s.keepOffsetsFree()
	for _, g := range s.gaps.get().Log {
		for end := s.log.written.load(); g.From <= end && end < g.To; end = s.log.written.load() {
			seg, err := s.log.ensure(end)
			if err != nil {
				return err
			}
			if err := s.writeBlank(seg, end); err != nil {
				return err
			}
			s.appended(seg, seg.end, 0)
		}
	}
	return nil
}

func (s *Store) keepOffsetsFree() {
	for _, g := range s.gaps.now.Load().Queues {
		q := s.queues.ensure(g.Topic, g.Queue)
		q.next = max(q.next, g.To)
	}
}

// Refill puts back what was lost, into the log's gap that begins at pos: whole records, those of one segment, as another
// broker still has them. Their places in the queues are no gaps any more, and readers can see them. With blank the rest
// of the segment is done with as well.
func (s *Store) Refill(pos offset.Physical, b []byte, blank bool) error {
	if err := s.beside(func() error { return s.refill(pos, b, blank) }); err != nil {
		return fmt.Errorf("refill at %d: %w", pos, err)
	}
	return nil
}

// beside calls fn, which puts something back, with the dispatcher's lock held, and tells of what has arrived by that.
func (s *Store) beside(fn func() error) error {
	d := &s.dispatcher
	d.mu.Lock()
	ofStep := d.arrivals // the dispatcher's goroutine may be telling them
	d.arrivals = nil
	err := fn()
	arrivals := d.arrivals
	d.arrivals = ofStep
	d.mu.Unlock()
	if err == nil {
		d.tell(arrivals)
	}
	return err
}

func (s *Store) refill(pos offset.Physical, b []byte, blank bool) error {
	s.put.mu.Lock()
	defer s.put.mu.Unlock()
	if err := s.appendable(); err != nil {
		return err
	}
	next := s.gaps.get()
	seg, err := s.gapAt(pos, len(b))
	if err != nil {
		return err
	}
	defer s.dispatcher.round.reset()
	requests, err := s.putBack(seg, pos, b, true)
	if err != nil {
		return err
	}
	changed := false
	for i := range requests {
		eachTarget(&requests[i], func(t target) { next.Queues = filled(next.Queues, t, &changed) })
	}
	end := pos + offset.Physical(len(b))
	if blank {
		end = seg.end
	}
	if err := s.gaps.save(s.filledUp(next, Span{From: pos, To: end})); err != nil {
		return err
	}
	s.dispatcher.round.publish(s.files)
	return nil
}

// gapAt is the segment of a gap that begins at pos, and has room for so many bytes.
func (s *Store) gapAt(pos offset.Physical, size int) (*segment, error) {
	gap := Span{From: pos, To: pos + offset.Physical(size)}
	if !slices.ContainsFunc(s.gaps.now.Load().Log, func(g Span) bool { return g.From == pos && gap.To <= g.To }) {
		return nil, fmt.Errorf("%w: no gap of the log begins there", ErrOrder)
	}
	if seg := s.log.at(pos); seg != nil {
		return seg, nil
	}
	return nil, ErrNotFound
}

// filledUp is without a part that is no gap any more.
func (s *Store) filledUp(g Gaps, part Span) Gaps {
	g.Log = offset.Without(g.Log, part)
	g.Filled = offset.With(offset.Without(g.Filled, Span{To: s.Low()}), part)
	return g
}

// filled takes the place of a message out of the gaps, and sets changed if it was in one.
func filled(list []QueueSpan, t target, changed *bool) []QueueSpan {
	for i, g := range list {
		if g.Queue != t.id || g.Topic != string(t.topic) || offset.Queue(t.index) < g.From || offset.Queue(t.index) >= g.To {
			continue
		}
		*changed = true
		at := offset.Queue(t.index)
		rest := QueueSpan{g.Topic, g.Queue, at + 1, g.To}
		list[i].To = at
		if list[i].From == list[i].To {
			list = slices.Delete(list, i, i+1)
			i--
		}
		if rest.From < rest.To {
			list = slices.Insert(list, i+1, rest)
		}
		break
	}
	return list
}
