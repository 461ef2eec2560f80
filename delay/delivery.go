package delay

import (
	"context"
	"errors"
	"time"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/message"
	"github.com/ratchetmq/ratchet/store"
)

const (
	readMessages = 64        // read from a level's queue at once
	readBytes    = 256 << 10 // likewise; also about what is appended at once
)

// delivery is the loop of one Run. Only its goroutine touches it.
type delivery struct {
	s      *Scheduler
	mark   offset.Physical // of the progress that the Run began with
	levels []*level
	msgs   []store.Message // scratch

	pause  time.Duration // after an error; 0 = all is well
	logged time.Time     // when an error was last logged
}

// level is a delay queue as it is read: records are read ahead in blocks and wait here, each read once.
type level struct {
	number  int
	delay   time.Duration
	next    offset.Queue // the first that is not delivered
	read    offset.Queue // the first that is not in waiting
	buf     []byte       // holds the records of waiting
	waiting []waiting
	head    int   // the first of waiting that is not delivered
	lateAt  int64 // ms; when something is due in a place that was passed over; 0: nothing waits there
	// skip are messages that the log showed to be delivered although one before them is not.
	skip map[offset.Queue]struct{}
}

// waiting is a record that was read and is not delivered.
type waiting struct {
	record message.Record
	due    int64        // ms
	at     offset.Queue // its place in the level's queue
	after  offset.Queue // what the level's next is when it is delivered
	late   bool         // it stands in a place that the level had passed over
}

func newDelivery(s *Scheduler, start progress) *delivery {
	d := &delivery{s: s, mark: start.mark}
	for i := range s.arrived {
		s.arrived[i].Store(true) // nothing is known of the queues yet
		s.filled[i].Store(true)
		next := start.next[i+1]
		d.levels = append(d.levels, &level{
			number: i + 1, delay: s.delayOf(i + 1), next: next, read: next,
			skip: map[offset.Queue]struct{}{},
		})
	}
	return d
}

func (d *delivery) now() int64 { return d.s.opts.Now().UnixMilli() }

// run delivers until ctx is done or the store takes no more.
func (d *delivery) run(ctx context.Context) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	if err := d.reconcile(); err != nil {
		// Nothing is lost by it: what was delivered behind the mark is delivered once more.
		d.s.log.Error("deliveries before the restart not looked up", "topic", Topic, "err", err)
	}
	for ctx.Err() == nil {
		wait, err := d.round()
		switch {
		case err == nil:
			d.pause = 0
		case errors.Is(err, store.ErrClosed):
			return nil
		case errors.Is(err, store.ErrBroken):
			return err
		default:
			wait = d.failed(err)
		}
		// Without anything that waits for its time only an arrival can make work.
		var elapsed <-chan time.Time
		if wait >= 0 {
			timer.Reset(wait)
			elapsed = timer.C
		}
		wake := d.s.wake
		if d.pause > 0 {
			wake = nil // arrivals don't end the pause
		}
		select {
		case <-ctx.Done():
		case <-wake:
		case <-elapsed:
		}
	}
	return nil
}

// failed logs an error, once a minute, and says how long to pause.
func (d *delivery) failed(err error) time.Duration {
	d.pause = min(max(2*d.pause, firstPause), lastPause)
	if d.logged.IsZero() || time.Since(d.logged) >= logEvery {
		d.logged = time.Now()
		d.s.log.Error("delayed messages can't be delivered, will try again", "topic", Topic, "err", err)
	}
	return d.pause
}

// round delivers what is due, and returns how long until something is; -1 when nothing waits.
func (d *delivery) round() (wait time.Duration, err error) {
	for {
		wait = -1
		again := false
		for _, l := range d.levels {
			late, err := d.late(l)
			if err != nil {
				return 0, err
			}
			left, err := d.deliver(l)
			if err != nil {
				return 0, err
			}
			if left == 0 {
				again = true
			}
			wait = sooner(wait, sooner(late, left))
		}
		if !again {
			return min(wait, lookEvery), nil
		}
	}
}

// deliver appends what is due of a level, at most one block, so that the levels take turns. It returns how long until
// there is more; 0 when there may be now, -1 when nothing waits.
func (d *delivery) deliver(l *level) (left time.Duration, err error) {
	if err := d.fill(l); err != nil {
		return 0, err
	}
	now := d.now()
	due := l.waiting[l.head:]
	for i := range due {
		if left := l.left(&due[i], now); left > 0 {
			if i == 0 {
				return left, nil
			}
			due = due[:i]
			break
		}
	}
	if len(due) == 0 {
		return -1, nil
	}
	return 0, d.append(l, due)
}

// left is how long until a record is due, by the wall clock. A clock that was set back by more than the delay itself
// must not keep messages for years: what was stored in such a future is due now.
func (l *level) left(w *waiting, now int64) time.Duration {
	left := time.Duration(w.due-now) * time.Millisecond
	if left <= 0 || left > l.delay+max(l.delay, time.Second) {
		return 0
	}
	return left
}

// fill reads ahead when nothing waits and there is something to read.
func (d *delivery) fill(l *level) error {
	for l.head == len(l.waiting) {
		l.waiting, l.head = l.waiting[:0], 0
		// The mark is taken before the read, so that what comes in behind it is seen the next time.
		if !d.s.arrived[l.number-1].Swap(false) {
			return nil
		}
		buf, batch, err := d.s.opts.Store.Read(store.Query{
			Topic: Topic, Queue: int32(l.number - 1), From: l.read, MaxMessages: readMessages, MaxBytes: readBytes,
		}, l.buf[:0])
		if err != nil {
			d.s.arrived[l.number-1].Store(true)
			return err
		}
		l.keep(buf)
		switch batch.Status {
		case store.AtEnd, store.NoQueue:
			return nil
		case store.BeyondEnd:
			if d.s.opts.Store.Given(Topic, int32(l.number-1)) >= l.read {
				return nil // the place of what was lost is kept free: nothing that comes has a smaller number
			}
			d.move(l, batch)
		case store.Found:
			d.take(l, buf, batch)
		default:
			if batch.Next == l.read {
				return nil // nothing moved; the next arrival has us look again
			}
			d.move(l, batch)
		}
		d.s.arrived[l.number-1].Store(true) // there may be more
	}
	return nil
}

// keep holds on to the buffer for the next read, unless one very large message has blown it up.
func (l *level) keep(buf []byte) {
	if cap(buf) <= 2*readBytes {
		l.buf = buf
	} else {
		l.buf = nil
	}
}

// take puts the records of a read into waiting.
func (d *delivery) take(l *level, buf []byte, batch store.Batch) {
	first := l.read
	whole := batch.Holes == 0 && offset.Queue(batch.Count) == batch.Next-first
	at := first
	for rest := buf; len(rest) > 0; {
		r, err := message.Parse(rest)
		if err != nil { // impossible: Read returns whole records
			d.s.log.Error("delayed messages not readable", "topic", Topic, "queue", l.number-1, "qoff", at, "err", err)
			break
		}
		rest = rest[r.Size:]
		if !whole && r.QueueOffset > at && r.QueueOffset < batch.Next {
			d.s.pass(l.number, at, r.QueueOffset)
			at = r.QueueOffset
		}
		l.waiting = append(l.waiting, waiting{
			record: r, due: r.StoreTimestamp + l.delay.Milliseconds(), at: at, after: at + 1,
		})
		at++
	}
	if !whole {
		d.s.pass(l.number, at, batch.Next)
		d.s.log.Error("delayed messages skipped that can't be read", "topic", Topic, "queue", l.number-1, "qoff", first,
			"holes", batch.Holes)
	}
	if n := len(l.waiting); n > 0 {
		l.waiting[n-1].after = batch.Next
	}
	l.read = batch.Next
}

// move sets a level to where the queue can be read again, with one line in the log: its messages are gone, or can't be
// read. BeyondEnd goes back: the log has lost the queue's end, and what comes now is numbered from there.
func (d *delivery) move(l *level, batch store.Batch) {
	d.s.log.Error("delay queue read on elsewhere", "topic", Topic, "queue", l.number-1, "status", batch.Status.String(),
		"before", l.read, "after", batch.Next, "holes", batch.Holes)
	d.s.pass(l.number, l.read, batch.Next)
	l.read, l.next = batch.Next, batch.Next
	d.s.advance(l.number, l.next, 0)
}

// append appends the records to the log under their real topics and counts them as delivered.
func (d *delivery) append(l *level, due []waiting) error {
	d.msgs = d.msgs[:0]
	var end offset.Physical
	var refusal error
	dropped := false
	for i := range due {
		if _, ok := l.skip[due[i].at]; ok {
			continue
		}
		m, err := restore(&due[i].record)
		if err != nil {
			dropped = true
			continue
		}
		d.msgs = append(d.msgs, m)
	}
	if len(d.msgs) > 0 {
		a, err := d.s.opts.Store.Append(d.msgs...)
		switch {
		case err == nil:
			end = a.End
		case refused(err) && len(due) > 1:
			return d.appendEach(l, due)
		case refused(err):
			dropped, refusal = true, err
		default:
			return err
		}
	}
	if dropped {
		d.logDropped(l, due, refusal)
	}
	if due[0].late {
		d.s.cover(l.number, due[0].at, end)
		return nil
	}
	for i := range due {
		delete(l.skip, due[i].at)
	}
	l.head += len(due)
	l.next = due[len(due)-1].after
	d.s.advance(l.number, l.next, end)
	return nil
}

// logDropped has a line for every message that nobody will get.
func (d *delivery) logDropped(l *level, due []waiting, refusal error) {
	for i := range due {
		_, err := restore(&due[i].record)
		if err = errors.Join(err, refusal); err != nil {
			d.s.log.Error("delayed message dropped", "topic", Topic, "queue", l.number-1, "phy",
				due[i].record.PhysicalOffset, "err", err)
		}
	}
}

// appendEach delivers one by one, so that only the message that the log refuses is dropped.
func (d *delivery) appendEach(l *level, due []waiting) error {
	for i := range due {
		if err := d.append(l, due[i:i+1]); err != nil {
			return err
		}
	}
	return nil
}

// refused says whether an append failed for the message's own sake, and always will.
func refused(err error) bool {
	return errors.Is(err, store.ErrTopic) || errors.Is(err, store.ErrProperties) || errors.Is(err, store.ErrTooLarge)
}
