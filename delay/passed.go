package delay

import (
	"slices"
	"time"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/message"
	"github.com/ratchetmq/ratchet/store"
)

// A level steps over places of its queue that are kept free for what was lost, or can't be read. What is filled in there later is as
// sure to be delivered as all else, so that these places are remembered as long as the log has gaps or damage.

// span is a part of a level's queue: [from, to).
type span = offset.Span[offset.Queue]

// pass notes that a level steps over [from, to), where something may be filled in later.
func (s *Scheduler) pass(level int, from, to offset.Queue) {
	if gaps := s.opts.Store.Gaps(); from >= to || len(gaps.Log)+len(gaps.Damaged) == 0 {
		return
	}
	s.setPassed(level, func(list []span) []span { return offset.With(slices.Clone(list), span{From: from, To: to}) })
}

func (s *Scheduler) setPassed(level int, change func([]span) []span) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.progress.passed[level]
	list := change(before)
	s.passedTo[level-1].Store(0)
	if len(list) > 0 {
		s.passedTo[level-1].Store(int64(list[len(list)-1].To))
	}
	if !slices.Equal(list, before) {
		s.progress = s.progress.clone()
		s.progress.setPassed(level, list)
		s.changed = true
	}
}

func (s *Scheduler) passed(level int) []span {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.progress.passed[level]
}

// late delivers what has been filled into places that the level had passed over. It returns how long until there is more; -1
// when nothing waits.
func (d *delivery) late(l *level) (left time.Duration, err error) {
	if now := d.now(); !d.s.filled[l.number-1].Swap(false) && (l.lateAt == 0 || now < l.lateAt) {
		return max(-1, time.Duration(l.lateAt-now)*time.Millisecond), nil
	}
	left, err = d.eachLate(l, func(w *waiting) error { return d.append(l, []waiting{*w}) })
	if l.lateAt = 0; left > 0 {
		l.lateAt = d.now() + left.Milliseconds()
	}
	if err != nil {
		d.s.filled[l.number-1].Store(true)
	}
	return left, err
}

// eachLate calls fn with those that are due.
func (d *delivery) eachLate(l *level, fn func(*waiting) error) (left time.Duration, err error) {
	left = -1
	for _, s := range d.s.passed(l.number) {
		for at := s.From; at < s.To; {
			buf, batch, err := d.s.opts.Store.Read(store.Query{
				Topic: Topic, Queue: int32(l.number - 1), From: at, MaxMessages: 1, MaxBytes: readBytes,
			}, nil)
			if err != nil {
				return left, err
			}
			if batch.Status != store.Found {
				if batch.Next <= at {
					break
				}
				at = batch.Next
				continue
			}
			r, err := message.Parse(buf)
			if err != nil || r.QueueOffset >= s.To {
				break
			}
			w := waiting{record: r, due: r.StoreTimestamp + l.delay.Milliseconds(), at: r.QueueOffset, late: true}
			at = r.QueueOffset + 1
			if wait := l.left(&w, d.now()); wait > 0 {
				left = sooner(left, wait)
			} else if err := fn(&w); err != nil {
				return left, err
			}
		}
	}
	return left, nil
}

// sooner is the shorter of two times to wait; -1: for ever.
func sooner(a, b time.Duration) time.Duration {
	if a < 0 || b >= 0 && b < a {
		return b
	}
	return a
}
