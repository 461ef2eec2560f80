package store

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/message"
)

// Query says what to read of a queue.
type Query struct {
	Topic       string
	Queue       int32
	From        offset.Queue
	MaxMessages int // 0 means 32
	MaxBytes    int // of records; the first message is returned even if it is larger; 0 means 256 KiB
	// Match picks messages by their tags code; nil takes all. It is a pre-filter: different tags may have one code.
	Match func(tagsCode int64) bool
}

// Batch is what Read has found.
type Batch struct {
	Status       Status
	Count        int             // messages appended
	Next         offset.Queue    // where to go on
	Bounds                       // of the queue, when it was read
	Holes        int             // entries stepped over, because their messages can't be read
	LastPhysical offset.Physical // of the last message appended
}

const (
	entryBlock   = 128    // entries read at once
	maxScan      = 16_000 // entries looked at by one Read
	maxRunBytes  = 1 << 20
	defaultCount = 32
	defaultBytes = 256 << 10
)

// readScratch is what a Read needs besides the caller's slice.
type readScratch struct {
	block [entryBlock * entrySize]byte
	run   [defaultCount]entry
}

var readScratches = sync.Pool{New: func() any { return new(readScratch) }}

// Read appends messages of a queue to dst, as whole records in order, and returns the extended slice. A record that
// can't be read is stepped over and counted; it is never an error. An error means that the queue itself can't be read.
func (s *Store) Read(q Query, dst []byte) ([]byte, Batch, error) {
	queue := s.queues.get(q.Topic, q.Queue)
	if queue == nil {
		return dst, Batch{Status: NoQueue}, nil
	}
	if q.MaxMessages <= 0 {
		q.MaxMessages = defaultCount
	}
	if q.MaxBytes <= 0 {
		q.MaxBytes = defaultBytes
	}
	var b Batch
	var err error
	if b.Bounds, err = s.bounds(queue); err != nil {
		return dst, b, err
	}
	if b.Status, b.Next = locate(q.From, b.Bounds); b.Status != Found {
		return dst, b, nil
	}
	if free := s.gaps.after(queue, b.Next); free > b.Next {
		b.Holes, b.Next = int(free-b.Next), free
	}
	r := reading{s: s, query: &q, queue: queue, dst: dst, base: len(dst), batch: b}
	if err := r.scan(); err != nil {
		return dst, b, err
	}
	switch {
	case r.batch.Count > 0:
		r.batch.Status = Found
	case r.batch.Holes > 0:
		r.batch.Status = Hole
	default:
		r.batch.Status = NoMatch
	}
	return r.dst, r.batch, nil
}

// reading is one Read on its way.
type reading struct {
	s     *Store
	query *Query
	queue *queue
	dst   []byte
	base  int // length of dst at the start
	batch Batch
	full  bool // a limit is reached

	// Entries whose records lie side by side in the log are read together.
	run   []entry
	bytes int64 // of run
}

func (r *reading) scan() error {
	scratch := readScratches.Get().(*readScratch)
	defer readScratches.Put(scratch)
	block := scratch.block[:]
	r.run = scratch.run[:0]
	from, high := int64(r.batch.Next), int64(r.batch.High)
	if at := r.s.files.present(r.queue, from, high); at > from { // a file is missing
		r.batch.Holes, r.batch.Next = int(at-from), offset.Queue(at)
	}
	end := min(r.batch.High, r.batch.Next+maxScan)
	for at := r.batch.Next; at < end && !r.full; {
		n := min(int64(end-at), r.blockSize())
		if err := r.s.files.read(r.queue, int64(at), block[:n*entrySize]); err != nil {
			return err
		}
		for i := int64(0); i < n && !r.full; i++ {
			if r.entry(parseEntry(block[i*entrySize:])) {
				at++
			}
		}
		r.batch.Next = at
	}
	r.flush()
	return nil
}

// blockSize is how many entries are worth reading now.
func (r *reading) blockSize() int64 {
	if r.query.Match != nil {
		return entryBlock
	}
	return int64(min(entryBlock, max(1, r.query.MaxMessages-r.batch.Count-len(r.run))))
}

// entry deals with the next entry; false when a limit leaves it for another Read.
func (r *reading) entry(e entry) bool {
	if !e.present() || e.blank() || e.phy < r.s.log.low() {
		r.batch.Holes++
		return true
	}
	if r.query.Match != nil && !e.extTags() && !r.query.Match(e.tags) {
		return true
	}
	taken := int64(len(r.dst)-r.base) + r.bytes
	if r.count() > 0 && taken+int64(e.size) > int64(r.query.MaxBytes) {
		r.full = true
		return false
	}
	if n := len(r.run); n > 0 {
		last := r.run[n-1]
		if last.phy+offset.Physical(last.size) != e.phy || r.bytes+int64(e.size) > maxRunBytes || e.extTags() {
			r.flush()
		}
	}
	r.run = append(r.run, e)
	r.bytes += int64(e.size)
	if e.extTags() {
		r.flush()
	}
	r.full = r.count() >= r.query.MaxMessages
	if r.full && len(r.run) > 0 {
		r.flush()
		r.full = r.count() >= r.query.MaxMessages
	}
	return true
}

func (r *reading) count() int { return r.batch.Count + len(r.run) }

// flush reads the records of the run. If they can't be read together each is tried alone.
func (r *reading) flush() {
	run, size := r.run, r.bytes
	r.run, r.bytes = r.run[:0], 0
	if len(run) == 0 {
		return
	}
	if !r.readable(run[0].phy, size) {
		for i := range run {
			if len(run) > 1 && r.readable(run[i].phy, int64(run[i].size)) {
				r.read(run[i : i+1])
			} else {
				r.batch.Holes++
			}
		}
		return
	}
	r.read(run)
}

// readable says whether the log can have such a record.
func (r *reading) readable(phy offset.Physical, size int64) bool {
	return phy <= math.MaxInt64-offset.Physical(size) && phy+offset.Physical(size) <= r.s.log.written.load()
}

// read appends the records of the run to dst, less those that are not what their entries say.
func (r *reading) read(run []entry) {
	last := run[len(run)-1]
	size := int(last.phy-run[0].phy) + int(last.size)
	from := len(r.dst)
	r.dst = slices.Grow(r.dst, size)
	bytes := r.dst[from : from+size]
	seg, err := r.s.log.read(bytes, run[0].phy)
	if err != nil {
		if len(run) == 1 {
			r.hole(run[0], err)
			return
		}
		for i := range run {
			r.read(run[i : i+1])
		}
		return
	}
	to := from
	for _, e := range run {
		at := int(e.phy - run[0].phy)
		record := bytes[at : at+int(e.size)]
		f := examine(record, e.phy, seg.span())
		if err := r.check(&f, e); err != nil {
			r.hole(e, err)
			continue
		}
		if e.extTags() && r.query.Match != nil && !r.query.Match(tagsCode(&f.record)) {
			continue
		}
		to += copy(r.dst[to:from+size], record)
		r.batch.Count++
		r.batch.LastPhysical = e.phy
	}
	r.dst = r.dst[:to]
}

// check says whether what was found is the record that the entry means, one of this queue.
func (r *reading) check(f *finding, e entry) error {
	switch {
	case f.kind != isRecord:
		return fmt.Errorf("no record: %w", cmp.Or(f.why, ErrNotFound))
	case f.size != int64(e.size):
		return fmt.Errorf("%w: record of %d bytes, entry says %d", message.ErrCorrupt, f.size, e.size)
	case !belongs(&f.record, r.queue):
		return fmt.Errorf("%w: record of %s/%d", message.ErrCorrupt, f.record.Topic, f.record.QueueID)
	}
	return nil
}

func (r *reading) hole(e entry, err error) {
	r.batch.Holes++
	r.s.logger.Debug("unreadable message stepped over", "topic", r.queue.topic, "queue", r.queue.id, "phy", e.phy,
		"err", err)
}

// Record appends the record at a position to dst. ErrNotFound when no whole record begins there.
func (s *Store) Record(phy offset.Physical, dst []byte) ([]byte, error) {
	c := cursor{log: s.log, small: true}
	f, err := c.look(phy, s.log.written.load())
	if err != nil {
		return dst, err
	}
	if phy < 0 || f.kind != isRecord {
		return dst, fmt.Errorf("%w: nothing at %d", ErrNotFound, phy)
	}
	return append(dst, c.held(phy)[:f.size]...), nil
}
