package store

import (
	"sync"
)

// An entry does not go into its queue's file by itself. Where messages spread over many queues that would be a write for
// each, and an open and a close as well where not all files can be kept open. It waits in memory instead, in the tail of
// its queue, until there is a page of them, until all tails together have become too large, or until a checkpoint is
// written, and readers take it from there.
//
// A tail that a crash takes is in the log. For recovery that is as if the queue had not been synced, and it relies on two
// things. The checkpoint speaks only for entries that are in the files and synced. And no entry of a segment of the log is
// in a file before all entries of the segments before it are: so a queue that has the first record of a segment vouches
// for all queues up to there, as it does where each entry is written at once.

const (
	// tailMost is how many entries of a queue wait at most: a page of its file.
	tailMost = 4096 / entrySize
	// tailsMost is how much memory all tails may have. With 10,000 queues that is room for a page each; with 200,000 it is for
	// some entries.
	tailsMost = 48 << 20
	// tailsAtOnce is how many tails are written before dispatch may go on.
	tailsAtOnce = 64
)

// tail is the end of a queue, the entries that are not in its file yet. All of them belong into one file, which is there.
// The dispatcher writes it, its lock held; readers only take b's lock.
type tail struct {
	mu   sync.Mutex
	from int64  // guarded by mu; number of the first entry
	b    []byte // guarded by mu
}

// tails are the queues that have one, the oldest first. dispatcher.mu guards them.
type tails struct {
	order []*queue // also those of topics that were deleted meanwhile
	size  int      // bytes of all buffers
	most  int
}

// read fills the part of b that the tail has, where b begins at entry index, and says which entries that were.
func (t *tail) read(index int64, b []byte) (from, to int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	from = max(index, t.from)
	to = min(index+int64(len(b)/entrySize), t.from+int64(len(t.b)/entrySize))
	if from >= to {
		return index, index
	}
	copy(b[(from-index)*entrySize:], t.b[(from-t.from)*entrySize:(to-t.from)*entrySize])
	return from, to
}

// add appends entries, and says by how much the buffer grew. Few queues get many entries at a time, so it begins small.
func (t *tail) add(units []byte) (grown int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	need, before := len(t.b)+len(units), cap(t.b)
	if need > before {
		room := 4 * entrySize
		for room < need {
			room *= 4
		}
		t.b = append(make([]byte, 0, min(room, tailMost*entrySize)), t.b...)
	}
	t.b = append(t.b, units...)
	return cap(t.b) - before
}

// fits says whether n entries that follow on the queue's end can wait in its tail.
func (f *queueFiles) fits(q *queue, from, n int64) bool {
	if n > tailMost || from != q.high.Load() {
		return false
	}
	files := *q.files.Load()
	return len(files) > 0 && files[len(files)-1] <= from && from+n <= files[len(files)-1]+f.units
}

// makeRoom writes a queue's tail when n more entries are too many for it.
func (f *queueFiles) makeRoom(q *queue, n int64) error {
	if t := q.tail.Load(); t == nil || int64(len(t.b)/entrySize)+n <= tailMost {
		return nil
	}
	return f.writeTail(q)
}

// keep puts entries, which fit and for which there is room, into their queue's tail.
func (f *queueFiles) keep(q *queue, index int64, units []byte) {
	t := q.tail.Load()
	if t == nil {
		t = new(tail)
		f.tails.order = append(f.tails.order, q)
	}
	if len(t.b) == 0 {
		t.mu.Lock()
		t.from = index
		t.mu.Unlock()
	}
	f.tails.size += t.add(units)
	q.tail.Store(t)
}

// writeTail empties a queue's tail into its file. After an error all of it is still there.
func (f *queueFiles) writeTail(q *queue) error {
	t := q.tail.Load()
	if t == nil || len(t.b) == 0 {
		return nil
	}
	if err := f.write(q, t.from, t.b); err != nil {
		return err
	}
	t.mu.Lock()
	t.from += int64(len(t.b) / entrySize)
	t.b = t.b[:0]
	t.mu.Unlock()
	return nil
}

// dropTail lets go of a queue's tail: it is written, or not wanted any more.
func (f *queueFiles) dropTail(q *queue) {
	if t := q.tail.Swap(nil); t != nil {
		f.tails.size -= cap(t.b)
	}
}

// writeOldest writes the n oldest tails and lets go of them.
func (f *queueFiles) writeOldest(n int) error {
	for ; n > 0 && len(f.tails.order) > 0; n-- {
		q := f.tails.order[0]
		if err := f.writeTail(q); err != nil {
			return err
		}
		f.dropTail(q)
		f.tails.order[0] = nil
		f.tails.order = f.tails.order[1:]
	}
	return nil
}

// writeTails writes all of them. dispatcher.mu is held.
func (f *queueFiles) writeTails() error { return f.writeOldest(len(f.tails.order)) }

// shrinkTails writes the oldest until the others have room.
func (f *queueFiles) shrinkTails() error {
	for f.tails.size > f.tails.most {
		if err := f.writeOldest(1); err != nil {
			return err
		}
	}
	return nil
}

// writeTails puts into the files all entries that readers could see before the call. Dispatch goes on in between.
func (s *Store) writeTails() error {
	d := &s.dispatcher
	d.mu.Lock()
	left := len(s.files.tails.order)
	d.mu.Unlock()
	for ; left > 0; left -= tailsAtOnce {
		d.mu.Lock()
		err := s.files.writeOldest(min(left, tailsAtOnce))
		d.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}
