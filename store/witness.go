package store

import (
	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/message"
)

// No checksum covers the queue and the queue offset of a record. One that is wrong in them would take another message's
// place. The queue's files, if they have the record, are the witness for its number.

// witness is what the files of the queue that a record names say of it.
type witness struct {
	confirms bool // the entry at its number points to it
	denies   bool // the entry at another number does
	free     bool // nobody has its number: a gap, or a file that a power cut took
}

// misnumbered says whether a record can't have the number that it names: next is the number due in its queue. Numbers
// are passed over when messages are lost; when a topic was deleted they begin at 0 again, and nowhere else.
func misnumbered(number, next, again offset.Queue, w witness) bool {
	switch {
	case w.confirms || number == next:
		return false
	case w.denies:
		return true
	case w.free:
		return false
	}
	return number > 0 && number < next && number != again
}

// misplaced says whether a record is one whose queue or number is damaged.
func (r *recovery) misplaced(rec *message.Record) (bool, error) {
	if !inQueue(rec.SysFlag) || rec.SysFlag&message.FlagInnerBatch != 0 {
		return false, nil
	}
	seen := r.history.of(rec)
	if seen != nil && rec.QueueOffset == seen.next {
		return false, nil
	}
	q := r.s.queues.find(rec.Topic, rec.QueueID)
	if q == nil {
		return false, nil
	}
	next := offset.Queue(q.high.Load())
	if seen != nil {
		next = seen.next
	} else if int64(next) == q.first() {
		return false, nil // nothing is known of the queue
	}
	if rec.QueueOffset == next {
		return false, nil
	}
	w, err := r.witness(q, rec, int64(next))
	if err != nil {
		return false, err
	}
	w.free = w.free && seen == nil // else the files may lack what this scan has seen
	again := offset.Queue(0)
	if seen != nil {
		again = seen.refused
	}
	if !misnumbered(rec.QueueOffset, next, again, w) {
		return false, nil
	}
	if seen != nil && !w.denies {
		seen.refused = rec.QueueOffset + 1 // a second one that follows it means that it was right
	}
	return true, nil
}

// witness looks up what the queue's files have at the record's number, and around the number that is due.
func (r *recovery) witness(q *queue, rec *message.Record, next int64) (w witness, err error) {
	files := *q.files.Load()
	if len(files) == 0 {
		return w, nil
	}
	first, end := files[0], files[len(files)-1]+r.s.files.units
	window := entryWindow{files: r.s.files, queue: q, limit: end}
	is := func(number int64) bool {
		if number < first || number >= end || err != nil {
			return false
		}
		var e entry
		e, err = window.entry(number)
		return err == nil && e.phy == rec.PhysicalOffset && e.size == rec.Size
	}
	if w.confirms = is(int64(rec.QueueOffset)); w.confirms || err != nil {
		return w, err
	}
	if number := int64(rec.QueueOffset); number >= first && number < end {
		e, err := window.entry(number)
		if err != nil {
			return w, err
		}
		w.free = !e.present() || e.blank()
	}
	for number := max(first, next-entryBlock/2); number < next+entryBlock/2 && !w.denies; number++ {
		w.denies = is(number)
	}
	return w, err
}
