package store

import (
	"github.com/ratchetmq/ratchet/internal/offset"
)

// Bounds are the ends of a queue; ok is false when there is no such queue.
func (s *Store) Bounds(topic string, queue int32) (b Bounds, ok bool) {
	q := s.queues.get(topic, queue)
	if q == nil {
		return b, false
	}
	b, err := s.bounds(q)
	if err != nil {
		s.logger.Error("low end of a queue not found", "topic", topic, "queue", queue, "err", err)
	}
	return b, true
}

// Given is the offset that the next message of a queue will get: everything below was given out, whether readers can
// see it yet or not. It takes the put lock.
func (s *Store) Given(topic string, queue int32) offset.Queue {
	q := s.queues.get(topic, queue)
	if q == nil {
		return s.gaps.now.Load().Unseen.From
	}
	s.put.mu.Lock()
	defer s.put.mu.Unlock()
	return s.next(q)
}

// bounds looks the low end up when the log's has moved. With an error it is the last one known.
func (s *Store) bounds(q *queue) (Bounds, error) {
	high := q.high.Load()
	low := q.low.Load()
	logLow := int64(s.log.low())
	if q.seen.Load() != logLow {
		found, err := s.findLow(q, high, logLow)
		if err != nil {
			return Bounds{offset.Queue(min(low, high)), offset.Queue(high)}, err
		}
		low = found
		q.low.Store(low)
		q.seen.Store(logLow)
	}
	return Bounds{offset.Queue(min(low, high)), offset.Queue(high)}, nil
}

// findLow is the number of the first entry that points to low or behind.
func (s *Store) findLow(q *queue, high, low int64) (int64, error) {
	return s.searchEntries(q, q.first(), high, func(e entry) answer { return answerOf(int64(e.phy) >= low) })
}

// answer is what an entry says to a search.
type answer uint8

const (
	before  answer = iota // what is searched for comes later
	reached               // it is this entry or an earlier one
	silent                // this entry can't say
)

func answerOf(yes bool) answer {
	if yes {
		return reached
	}
	return before
}

// searchEntries is the number of the first entry in [from, to) that says reached, to when there is none. All entries
// behind it must say the same, or be silent; blank ones are.
func (s *Store) searchEntries(q *queue, from, to int64, ask func(entry) answer) (int64, error) {
	w := entryWindow{files: s.files, queue: q, limit: to}
	found := to
	for from < to {
		mid := from + (to-from)/2
		// A silent entry leaves the answer to the next one that speaks.
		probe, said := mid, silent
		for probe = s.files.present(q, probe, to); probe < to; probe = s.files.present(q, probe+1, to) {
			e, err := w.entry(probe)
			if err != nil {
				return 0, err
			}
			if e.present() && !e.blank() {
				if said = ask(e); said != silent {
					break
				}
			}
		}
		switch said {
		case before:
			from = probe + 1
		case reached:
			found, to = probe, mid
		default:
			to = mid
		}
	}
	return found, nil
}

// entryWindow reads single entries, a block of them at a time.
type entryWindow struct {
	files *queueFiles
	queue *queue
	limit int64 // no entry from here on is read
	from  int64
	n     int64
	block [entryBlock * entrySize]byte
}

func (w *entryWindow) entry(index int64) (entry, error) {
	if index < w.from || index >= w.from+w.n {
		n := min(entryBlock, w.limit-index)
		if err := w.files.read(w.queue, index, w.block[:n*entrySize]); err != nil {
			w.n = 0
			return entry{}, err
		}
		w.from, w.n = index, n
	}
	return parseEntry(w.block[(index-w.from)*entrySize:]), nil
}
