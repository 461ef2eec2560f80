package store

import (
	"bytes"
	"errors"
	"io/fs"

	"github.com/ratchetmq/ratchet/message"
)

// round is what one step of dispatch has to do: the entries of each queue are gathered, so that each queue's file is
// written once.
type round struct {
	runs []run
	used int // of runs; those behind keep their buffers for later
}

// run is consecutive entries of one queue.
type run struct {
	queue *queue
	after int64 // the end of the queue's run before in this round, 0: there is none
	from  int64
	units []byte
	waits bool // they go into the queue's tail
}

func (r *run) end() int64 { return r.from + int64(len(r.units)/entrySize) }

// add puts an entry at its place in a queue.
func (r *round) add(q *queue, index int64, e entry) {
	if q.run == 0 || r.runs[q.run-1].end() != index {
		if r.used == len(r.runs) {
			r.runs = append(r.runs, run{})
		}
		next := &r.runs[r.used]
		next.queue, next.after, next.from, next.units = q, 0, index, next.units[:0]
		if q.run > 0 {
			next.after = r.runs[q.run-1].end()
		}
		r.used++
		q.run = int32(r.used)
	}
	at := &r.runs[q.run-1]
	at.units = appendEntry(at.units, e)
}

// reset empties the round.
func (r *round) reset() {
	for i := range r.runs[:r.used] {
		r.runs[i].queue.run = 0
		r.runs[i].queue = nil
	}
	r.used = 0
}

// byQueue are the runs of each queue, in order.
func (r *round) byQueue() [][]*run {
	place := make(map[*queue]int, r.used)
	var list [][]*run
	for i := range r.runs[:r.used] {
		run := &r.runs[i]
		at, ok := place[run.queue]
		if !ok {
			at = len(list)
			place[run.queue] = at
			list = append(list, nil)
		}
		list[at] = append(list[at], run)
	}
	return list
}

// write puts the entries into the files, except those that can wait: publish puts them into tails. With all none waits.
// Places of a queue that no message has, because it is lost or the queue does not begin at 0, are filled with blank entries,
// within the file.
func (r *round) write(f *queueFiles, all bool) error {
	if err := f.shrinkTails(); err != nil {
		return err
	}
	for i := range r.runs[:r.used] {
		run := &r.runs[i]
		n := int64(len(run.units) / entrySize)
		only := run.after == 0 && int(run.queue.run) == i+1 // the queue's only one
		if run.waits = only && !all && f.fits(run.queue, run.from, n); run.waits {
			if err := f.makeRoom(run.queue, n); err != nil {
				return err
			}
			continue
		}
		if err := f.writeTail(run.queue); err != nil {
			return err
		}
		if err := f.fillUp(run.queue, max(run.queue.high.Load(), run.after), run.from); err != nil {
			return err
		}
		if err := f.write(run.queue, run.from, run.units); err != nil {
			return err
		}
	}
	return nil
}

// publish lets readers see what was written, and what waits.
func (r *round) publish(f *queueFiles) {
	for i := range r.runs[:r.used] {
		if run := &r.runs[i]; run.waits {
			f.keep(run.queue, run.from, run.units)
		}
		q, from, end := r.runs[i].queue, r.runs[i].from, r.runs[i].end()
		high := q.high.Load()
		if from > high && q.low.Load() == high {
			q.low.Store(from)
		}
		if from < q.low.Load() { // what a gap had kept free, or a log that a slave gets anew
			q.low.Store(from)
		}
		q.high.Store(max(high, end))
	}
}

// fillUp writes blank entries in [from, to). Whole files between these two are not made: what is missing reads as blank.
func (f *queueFiles) fillUp(q *queue, from, to int64) error {
	if from >= to {
		return nil
	}
	head := to - to%f.units // of the file of to
	if from < head {
		file, err := f.open(q, from)
		if err == nil {
			f.cache.release(file)
			end := from - from%f.units + f.units
			err = f.update(q, from, appendBlanks(nil, end-from))
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		from = head
	}
	return f.update(q, from, appendBlanks(nil, to-from))
}

// update is write, except that what stands there already is not written again.
func (f *queueFiles) update(q *queue, index int64, b []byte) error {
	if len(b) == 0 {
		return nil
	}
	old := make([]byte, len(b))
	last, err := f.open(q, index+int64(len(b)/entrySize)-1)
	if err == nil {
		f.cache.release(last)
		if err = f.read(q, index, old); err == nil && sameEntries(old, b) {
			return nil
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return f.write(q, index, b)
}

// sameEntries says whether old entries need not be replaced by new ones: they are equal, or differ in that RocketMQ
// has put the tags elsewhere.
func sameEntries(old, new []byte) bool {
	if bytes.Equal(old, new) {
		return true
	}
	for ; len(old) > 0; old, new = old[entrySize:], new[entrySize:] {
		a, b := parseEntry(old), parseEntry(new)
		if a.phy != b.phy || a.size != b.size || a.tags != b.tags && !a.extTags() {
			return false
		}
	}
	return true
}

// requestOf is what queues and index need of a record.
func (s *Store) requestOf(r *message.Record) message.DispatchRequest {
	return r.DispatchRequest(s.opts.TagsCode(r))
}

// entryOf is the entry of a message in any of its queues.
func entryOf(r *message.DispatchRequest) entry {
	return entry{phy: r.PhysicalOffset, size: r.Size, tags: r.TagsCode}
}
