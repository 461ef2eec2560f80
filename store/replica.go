package store

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/message"
)

// growth tells of appends to whoever waits for one. An append that nobody waits for pays one load.
type growth struct {
	armed atomic.Bool
	mu    sync.Mutex
	ch    chan struct{} // guarded by mu; nil when nobody waits
}

// Grown returns a channel that is closed when the log has grown after the call. Who waits must look at Written once more
// after it has the channel.
func (s *Store) Grown() <-chan struct{} {
	g := &s.growth
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ch == nil {
		g.ch = make(chan struct{})
	}
	g.armed.Store(true)
	return g.ch
}

func (g *growth) ring() {
	if !g.armed.Load() {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ch != nil {
		close(g.ch)
		g.ch = nil
	}
	g.armed.Store(false)
}

// ReadLog fills b with the log's bytes from pos on, as far as they are written and in one segment, and says how many. It
// is 0 at the log's end; ErrNotFound where no segment is.
func (s *Store) ReadLog(pos offset.Physical, b []byte) (int, error) {
	end := s.log.written.load()
	if pos == end {
		return 0, nil
	}
	seg := s.log.at(pos)
	if seg == nil || pos > end {
		return 0, fmt.Errorf("%w: the log has [%d, %d), not %d", ErrNotFound, s.Low(), end, pos)
	}
	n := min(int64(len(b)), int64(min(seg.end, end)-pos))
	return int(n), readFull(seg.file, b[:n], int64(pos-seg.start))
}

// FirstRecord is the position of the first whole record at or behind pos, the log's end when there is none.
func (s *Store) FirstRecord(pos offset.Physical) (offset.Physical, error) {
	end := s.log.written.load()
	at, found, err := s.log.search(max(pos, s.Low()), end, func(*message.Record) bool { return true })
	if err != nil || !found {
		return end, err
	}
	return at, nil
}

// Messages is how many messages stand in the log from a position on, most+1 if there are more than most.
func (s *Store) Messages(pos offset.Physical, most int64) (n int64, err error) {
	_, _, err = s.log.search(pos, s.log.written.load(), func(*message.Record) bool {
		n++
		return n > most
	})
	return n, err
}

// appendRecords appends what another broker's log has at pos, which must be this log's end: whole records, which the caller
// has examined, those of one segment; with blank, the segment's rest is then not used, with gap as one that is kept free. It
// is written, not flushed. Errors are those of Append, and ErrOrder.
func (s *Store) appendRecords(pos offset.Physical, b []byte, records []message.Record, blank, gap bool) error {
	switch {
	case blank && gap:
		return s.appendReplica(pos, b, records, recordsThenGap)
	case blank:
		return s.appendReplica(pos, b, records, recordsThenBlank)
	}
	return s.appendReplica(pos, b, records, recordsOnly)
}

// appendDamaged appends bytes that are no records in another broker's log either, so that what comes behind them can follow.
func (s *Store) appendDamaged(pos offset.Physical, b []byte) error {
	s.logger.Error("damaged part of another broker's log taken over", "phy", int64(pos), "end", int64(pos)+int64(len(b)))
	return s.appendReplica(pos, b, nil, damagedBytes)
}

// replicaKind is what bytes of another broker's log are.
type replicaKind uint8

const (
	recordsOnly      replicaKind = iota
	recordsThenBlank             // the segment's rest behind them is not used
	recordsThenGap               // it is kept free
	damagedBytes                 // no records there either
)

func (s *Store) appendReplica(pos offset.Physical, b []byte, records []message.Record, kind replicaKind) error {
	if full := s.tooFull.Load(); full != nil {
		return fmt.Errorf("append at %d: %w", pos, *full)
	}
	for {
		wait, err := s.tryReplica(pos, b, records, kind)
		if err != nil {
			return fmt.Errorf("append at %d: %w", pos, err)
		}
		if wait == 0 {
			return nil
		}
		if err := s.awaitFlushed(wait); err != nil {
			return err
		}
	}
}

func (s *Store) tryReplica(pos offset.Physical, b []byte, records []message.Record, kind replicaKind) (
	wait offset.Physical, err error,
) {
	s.put.mu.Lock()
	finished := false
	defer s.endPut(&finished)
	wait, err = s.replicaLocked(pos, b, records, kind)
	finished = true
	return wait, err
}

func (s *Store) replicaLocked(pos offset.Physical, b []byte, records []message.Record, kind replicaKind) (
	wait offset.Physical, err error,
) {
	if err := s.appendable(); err != nil {
		return 0, err
	}
	end := s.log.written.load()
	if end != pos {
		return 0, fmt.Errorf("%w: the log ends at %d", ErrOrder, end)
	}
	if wait := s.tooMuchUnflushed(end, int64(len(b)), int64(len(records))); wait > 0 {
		return wait, nil
	}
	seg, err := s.log.ensure(pos)
	if err != nil {
		return 0, err
	}
	s.put.pieces = append(s.put.pieces[:0], b)
	if err := s.extend(seg, pos, pos+offset.Physical(len(b))); err != nil {
		return 0, err
	}
	if err := s.number(records); err != nil {
		return 0, err
	}
	end = pos + offset.Physical(len(b))
	if kind == damagedBytes {
		if err := s.noteDamage(s.gaps.get().Damaged, Span{From: pos, To: end}); err != nil {
			return 0, err
		}
	}
	if kind == recordsThenGap {
		if err := s.copyGap(Span{From: end, To: seg.end}); err != nil {
			return 0, err
		}
	}
	if (kind == recordsThenBlank || kind == recordsThenGap) && end < seg.end {
		if err := s.writeBlank(seg, end); err != nil {
			return 0, err
		}
		end = seg.end
	}
	s.appended(seg, end, int64(len(records)))
	return 0, nil
}

// number gives the queues of another broker's records the ends that these say. Places of theirs that are kept free here are
// so no more: the other broker has used them. Dispatch gets the records, whose topics are their queues' then. The put lock
// is held.
func (s *Store) number(records []message.Record) error {
	gaps := s.gaps.get()
	before := len(gaps.Queues)
	refilled := false
	s.put.requests = s.put.requests[:0]
	var q *queue // the last one, which is often the next one, too
	note := func(t target) {
		if q == nil || q.id != t.id || !bytes.Equal(q.name, t.topic) {
			q = s.queues.ensureNamed(t.topic, t.id)
		}
		q.given(t.index)
		if before > 0 {
			gaps.Queues = filled(gaps.Queues, t, &refilled)
		}
	}
	for i := range records {
		r := &records[i]
		s.put.lastTime = max(s.put.lastTime, r.StoreTimestamp)
		request := s.requestOf(r)
		eachTarget(&request, note)
		if q == nil || !bytes.Equal(q.name, r.Topic) {
			q = s.queues.find(r.Topic, r.QueueID)
		}
		if q != nil {
			request.Topic = q.name
		} else {
			request.Topic = bytes.Clone(r.Topic)
		}
		s.put.requests = append(s.put.requests, request)
	}
	s.fresh.add(s.put.requests)
	if refilled {
		return s.gaps.save(gaps)
	}
	return nil
}

// Stream takes another broker's log as the HA protocol brings it: in order, cut anywhere, with the unused rest of each
// segment as so many bytes. It takes whole records. It belongs to one goroutine.
type Stream struct {
	size offset.Physical // of a segment
	take func(pos offset.Physical, b []byte, records []message.Record, blank bool) error
	// damage takes what is no record there either; nil: such is refused.
	damage  func(pos offset.Physical, b []byte) error
	sound   bool            // what is no record is so in the other log, and not damaged on its way
	damaged offset.Physical // see DamagedAt
	next    offset.Physical // of the stream
	skip    int64           // bytes of a segment's unused rest that are still to come
	free    []Span          // see KeptFree
	held    []byte          // the beginning of a record, up to next

	records []message.Record // of a step; their bytes are in held
}

// Stream appends, from the log's end on. sound says that the bytes are known to be those of the other broker's log: what is
// no record is damaged there, and is taken over as it is, for the sake of what stands behind it.
func (s *Store) Stream(sound bool) *Stream {
	t := &Stream{size: offset.Physical(s.log.size), next: s.Written(), damage: s.appendDamaged, sound: sound, damaged: -1}
	t.take = func(pos offset.Physical, b []byte, records []message.Record, blank bool) error {
		return s.appendRecords(pos, b, records, blank, contains(t.free, pos+offset.Physical(len(b))))
	}
	return t
}

// DamagedAt says that the other log seems to be damaged at a position, for which it was asked twice: RocketMQ's protocol has no
// checksum that would tell that from damage on the way. The part is taken over when a record stands behind it.
func (t *Stream) DamagedAt(pos offset.Physical) { t.damaged = pos }

// passes says whether what stands at a position, and is no record, is to be taken over.
func (t *Stream) passes(pos offset.Physical) bool {
	return t.damage != nil && (t.sound || pos == t.damaged)
}

// KeptFree says which parts of its log the other broker keeps free. Their copies are gaps here, too, and not only unused.
func (t *Stream) KeptFree(spans []Span) { t.free = spans }

func contains(spans []Span, pos offset.Physical) bool {
	return slices.ContainsFunc(spans, func(s Span) bool { return s.Has(pos) })
}

// RefillStream refills the gap that begins at a position. Unless the other broker is known to have no gap there, unused
// segments, and a part of one, count only when a record comes behind them: else it may have copied the gap itself, and a
// third one have what belongs there. sound is Stream's.
func (s *Store) RefillStream(at offset.Physical, known, sound bool) *Stream {
	var unused []offset.Physical
	any := known
	use := func() error {
		for _, before := range unused {
			if err := s.Refill(before, nil, true); err != nil {
				return err
			}
		}
		unused = nil
		return nil
	}
	return &Stream{
		size: offset.Physical(s.log.size), next: at, sound: sound, damaged: -1,
		take: func(pos offset.Physical, b []byte, _ []message.Record, blank bool) error {
			if any = any || len(b) > 0; !any {
				unused = append(unused, pos)
				return nil
			}
			if err := use(); err != nil {
				return err
			}
			return s.Refill(pos, b, blank)
		},
		damage: func(pos offset.Physical, b []byte) error {
			any = true
			if err := use(); err != nil {
				return err
			}
			return s.refillDamage(pos, b)
		},
	}
}

// Next is the position of the bytes that are to come.
func (t *Stream) Next() offset.Physical { return t.next }

// Safe is up to where the stream has been taken: never more than has come.
func (t *Stream) Safe() offset.Physical { return t.next - offset.Physical(len(t.held)) }

// Room is where the next n bytes can be put, to be given to Write from there: that spares a copy. It lives until the next
// call of Write.
func (t *Stream) Room(n int) []byte {
	t.held = slices.Grow(t.held, n)
	return t.held[len(t.held) : len(t.held)+n]
}

// Write takes the next bytes, those at Next. An error that is message.ErrCorrupt says that they are no records of this
// place: nothing from there on was taken.
func (t *Stream) Write(b []byte) error {
	if n := min(int64(len(b)), t.skip); n > 0 {
		t.skip -= n
		t.next += offset.Physical(n)
		b = b[n:]
	}
	if n := len(t.held); len(b) > 0 && len(b) <= cap(t.held)-n && &b[0] == &t.held[:n+1][n] {
		t.held = t.held[:n+len(b)] // they are in their place, see Room
	} else {
		t.held = append(t.held, b...)
	}
	t.next += offset.Physical(len(b))
	for len(t.held) > 0 {
		more, err := t.step()
		if err != nil || !more {
			return err
		}
	}
	return nil
}

// step takes what is whole, up to a segment's end; more says that there may be more to take.
func (t *Stream) step() (more bool, err error) {
	start := t.Safe()
	seg := Span{From: start - start%t.size, To: start - start%t.size + t.size}
	n, blank := 0, false
	t.records = t.records[:0]
	var bad error
	for n < len(t.held) && !blank && bad == nil {
		pos := start + offset.Physical(n)
		f := examine(t.held[n:], pos, seg)
		if f.kind == isCut {
			break
		}
		switch f.kind {
		case isRecord:
			n += int(f.size)
			t.records = append(t.records, f.record)
		case isBlank:
			blank = true
		default:
			bad = fmt.Errorf("%w: what was sent for %d is no record: %w", message.ErrCorrupt, pos, cmp.Or(f.why, ErrNotFound))
		}
		if pos+offset.Physical(f.size) == seg.To {
			break
		}
	}
	if n == 0 && !blank {
		if bad != nil && t.passes(start) {
			return t.passDamage(start, seg)
		}
		return false, bad
	}
	if err := t.take(start, t.held[:n], t.records, blank); err != nil {
		return false, err
	}
	rest := t.held[n:]
	if blank {
		unused := int64(seg.To - start - offset.Physical(n))
		came := min(unused, int64(len(rest)))
		rest, t.skip = rest[came:], unused-came
	}
	t.held = append(t.held[:0], rest...)
	if cap(t.held) > keepBuffer && len(t.held) < keepBuffer/2 {
		t.held = bytes.Clone(t.held)
	}
	if bad != nil && t.passes(t.Safe()) {
		return true, nil
	}
	return bad == nil && len(t.held) > 0, bad
}

// passMost is how much is kept in memory until a record comes behind it.
const passMost = 8 << 20

// passDamage takes over what is no record, up to the next one or the segment's end; more says that there may be more to
// take behind it.
func (t *Stream) passDamage(start offset.Physical, seg Span) (more bool, err error) {
	n := min(len(t.held), int(seg.To-start))
	found := false
	for _, p := range candidates(t.held[:n], start) {
		f := examine(t.held[p-start:], p, seg)
		if p > start && f.kind == isCut {
			return false, nil // it may be one
		}
		if found = p > start && f.kind == isRecord; found {
			n = int(p - start)
			break
		}
	}
	if !found && start+offset.Physical(n) < seg.To {
		switch {
		case n < passMost:
			return false, nil // a log does not end in damage
		case !t.sound:
			return false, fmt.Errorf("%w: no record in %d bytes from %d on", message.ErrCorrupt, n, start)
		}
		n -= headSize - 1 // the head of one may have begun
	}
	if err := t.damage(start, t.held[:n]); err != nil {
		return false, err
	}
	t.held = append(t.held[:0], t.held[n:]...)
	t.damaged = t.Safe() // it may go on
	return found || start+offset.Physical(n) == seg.To && len(t.held) > 0, nil
}

// Comparison says how far another broker's bytes agree with this log. What stands in the unused rest of a segment, or where
// one of the logs is known to be damaged or has a gap, counts as equal whatever it is. So does what is no record in the other log
// though it begins where one must: another history would have one there. Where a gap was filled in, the other broker may have
// copied it before that: the rest of a segment may be unused there.
type Comparison struct {
	cursor cursor
	store  *Store
	pos    offset.Physical
	region Span            // a record, or what else pos is in
	any    bool            // the region's bytes don't matter
	unused offset.Physical // up to where the rest of a segment is not used, behind the head that says so
	pass   []Span          // parts that do not matter either
	filled []Span          // parts of this log that were gaps
	agreed offset.Physical // see Agreed
	sure   bool            // the other log, too, had a record that ends here, or behind it only what is none
	theirs []byte          // what the other log has from the region's beginning on, as soon as it differs
}

// Compare begins at pos, where a record must begin.
func (s *Store) Compare(pos offset.Physical) *Comparison {
	c := &Comparison{cursor: cursor{log: s.log}, store: s, pos: pos, region: Span{From: pos, To: pos}, any: true, filled: s.gaps.get().Filled}
	c.Pass(nil, nil)
	return c
}

// Pass says where it doesn't matter either what stands there: the other broker keeps these parts of its log free, or they are
// damaged. A gap in which this log ends is compared all the same.
func (c *Comparison) Pass(gaps, damaged []Span) {
	own, end := c.store.gaps.get(), c.store.log.written.load()
	c.pass = slices.Concat(own.Log, own.Damaged, damaged)
	for _, s := range gaps {
		if s.To <= end {
			c.pass = append(c.pass, s)
		}
	}
}

// Next is the position of the bytes that are to be compared next.
func (c *Comparison) Next() offset.Physical { return c.pos }

// Agreed is up to where the logs are known to be the same, by whole records. It is 0 as long as none was compared: what stands before
// the first may be another history's.
func (c *Comparison) Agreed() offset.Physical { return c.agreed }

// Write compares the bytes at Next, no more than the log has. differs is the position of the record with the first byte
// that is not the same, -1 when there is none.
func (c *Comparison) Write(b []byte) (differs offset.Physical, err error) {
	for len(b) > 0 {
		if c.pos == c.region.To {
			if err := c.nextRegion(); err != nil {
				return -1, err
			}
		}
		n := min(int64(len(b)), int64(c.region.To-c.pos))
		if !c.any && (c.Undecided() || !bytes.HasPrefix(c.cursor.held(c.pos), b[:n])) && c.another(b[:n]) {
			return c.region.From, nil
		}
		c.pos += offset.Physical(n)
		b = b[n:]
	}
	return -1, nil
}

// Undecided says that the last bytes differ, and that it takes more to know whether they are of another record or damaged.
func (c *Comparison) Undecided() bool { return !c.any && len(c.theirs) > 0 }

// another says whether the other log has another record here, or may have; these are the next bytes of it. Else the region matters
// no more: what is no record where the last one ended is damaged, and where a gap was filled in the rest of a segment may be unused.
func (c *Comparison) another(b []byte) bool {
	if len(c.theirs) == 0 {
		c.theirs = append(c.theirs, c.cursor.held(c.region.From)[:c.pos-c.region.From]...)
	}
	c.theirs = append(c.theirs, b...)
	size := offset.Physical(c.store.log.size)
	start := c.region.From - c.region.From%size
	switch f := examine(c.theirs, c.region.From, Span{From: start, To: start + size}); f.kind {
	case isCut:
		return c.region.From+offset.Physical(len(c.theirs)) >= c.region.To
	case isBlank:
		if !contains(c.filled, c.region.From) {
			return true
		}
		c.region.To = start + size
	case isRecord:
		return true
	default:
		if !c.sure {
			return true // it may be the midst of a record
		}
	}
	c.any = true
	return false
}

// nextRegion finds what stands at pos, and where it ends.
func (c *Comparison) nextRegion() error {
	limit := c.store.log.written.load()
	if c.pos >= limit {
		return fmt.Errorf("%w: nothing to compare with at %d", ErrNotFound, c.pos)
	}
	c.sure = c.sure || !c.any // the region before was the same
	if !c.any || c.agreed > 0 {
		c.agreed = c.pos
	}
	c.region.From, c.any, c.theirs = c.pos, true, c.theirs[:0]
	if c.pos < c.unused {
		c.region.To = c.unused
		return nil
	}
	for _, p := range c.pass {
		if p.Has(c.pos) {
			c.region.To, c.sure = p.To, false
			return nil
		}
	}
	f, err := c.cursor.look(c.pos, limit)
	if err != nil {
		return err
	}
	switch f.kind {
	case isRecord:
		c.region.To, c.any = c.pos+offset.Physical(f.size), false
	case isBlank:
		c.unused = c.pos + offset.Physical(f.size)
		c.region.To, c.any = min(c.pos+message.BlankSize, c.unused), false
	default:
		c.sure = false
		c.region.To, err = c.store.FirstRecord(c.pos + 1)
	}
	return err
}

// LastFile is the position of the first byte of the log's last file that has records.
func (s *Store) LastFile() offset.Physical {
	end := s.log.written.load()
	return max(s.Low(), end-end%offset.Physical(s.log.size))
}

// SegmentSize is the size of a commit log file.
func (s *Store) SegmentSize() int64 { return s.log.size }

// Begin makes a log that has nothing begin at a position, the first of a segment, as another broker's does.
func (s *Store) Begin(at offset.Physical) error {
	s.dispatcher.mu.Lock()
	defer s.dispatcher.mu.Unlock()
	s.put.mu.Lock()
	defer s.put.mu.Unlock()
	if err := s.appendable(); err != nil {
		return err
	}
	if s.Low() < s.log.written.load() || at < s.log.written.load() || int64(at)%s.log.size != 0 {
		return fmt.Errorf("%w: a log [%d, %d) can't begin at %d", ErrOrder, s.Low(), s.log.written.load(), at)
	}
	s.log.grow.Lock()
	s.log.begin = at
	s.log.grow.Unlock()
	s.log.written.raise(at)
	s.log.flushed.raise(at)
	s.dispatcher.done.raise(at)
	s.put.prepareAt = 0
	return s.log.dropHead(len(*s.log.segments.Load())) // made ahead of time, and empty
}
