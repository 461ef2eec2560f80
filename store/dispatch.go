package store

import (
	"context"
	"sync"
	"time"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/message"
)

// Arrival is a message that has come into a queue and can be read.
type Arrival struct {
	Topic    string
	Queue    int32
	Offset   offset.Queue // of the message; the queue's High is above it
	TagsCode int64
}

// OnArrival adds a hook that dispatch calls for every message in every queue, in order, from one goroutine; Refill calls it
// from its caller's, perhaps at the same time. It must not block. Call it before Run; what Open dispatches is not told.
func (s *Store) OnArrival(fn func(Arrival)) { s.dispatcher.hooks = append(s.dispatcher.hooks, fn) }

// RestWhile lets dispatch rest for a moment behind each step while nobody says that nobody waits for a message: what comes
// in the meantime is dispatched together, at a fraction of the price. When messages come thick it rests whoever waits. Call it
// before Run.
func (s *Store) RestWhile(nobody func() bool) { s.dispatcher.idle = nobody }

// dispatcher brings queues and index level with the log. Nobody else writes these after Open.
type dispatcher struct {
	store *Store
	wake  signal
	hooks []func(Arrival) // set before run
	idle  func() bool     // set before run; nobody waits for messages. nil: somebody does
	done  watermark       // all below is dispatched

	mu       sync.Mutex // held for a step, which does I/O
	fresh    freshList  // fetched from the store's
	next     int        // the first of fresh that may not be dispatched yet
	cursor   cursor     // for what is not in fresh
	round    round
	segment  int64                     // of the log; what the tails have is of none before it
	read     []message.DispatchRequest // those of a step that were read from the log; their bytes are in cursor
	arrivals []Arrival                 // of the step. Hooks read it when the lock is free again
	lastTime int64                     // store timestamp of the last record dispatched
	deleted  *deletions
	deletes  func(topic string) error // set before run, see OnDeleted
}

func (d *dispatcher) init(s *Store) {
	d.store, d.wake = s, newSignal()
}

// dispatchPause is how long dispatch waits after an error before it tries again.
const dispatchPause = 500 * time.Millisecond

// dispatchRest is how long dispatch rests behind a step, and so how late it may be: while nobody waits, for who comes then,
// and when messages come thick.
const dispatchRest = time.Millisecond

// Messages come thick when they are apart by less than thick, and by more than throng. Who waits is told of some together
// then, as a network card interrupts for some packets together: an answer and the next pull cost far more than a message in
// it. In a throng many come together anyway, and a rest would only make who waits lag behind.
const (
	thick  = 200 * time.Microsecond
	throng = 20 * time.Microsecond
)

// pace is how fast messages come.
type pace struct {
	apart    time.Duration // about
	messages int64         // that had come at the last look
	at       time.Time     // of that
}

// look takes in what has come since the last one. Messages are believed to come thick after a score of them, and no more as
// soon as a rest has gathered few: where each is sent because one was received, resting is what keeps them apart.
func (p *pace) look(messages int64, now time.Time) {
	n := messages - p.messages
	if n == 0 {
		return
	}
	if apart := min(now.Sub(p.at), dispatchRest) / time.Duration(n); apart < thick {
		p.apart += (apart - p.apart) / 8
	} else {
		p.apart = dispatchRest
	}
	p.messages, p.at = messages, now
}

func (p *pace) thick() bool { return throng < p.apart && p.apart < thick }

// run is the dispatcher's loop. Without appends it sleeps.
func (d *dispatcher) run(ctx context.Context) error {
	retry := time.NewTimer(0)
	<-retry.C
	defer retry.Stop()
	rest := time.NewTimer(dispatchRest)
	defer rest.Stop()
	failing := false
	pace := pace{apart: dispatchRest}
	d.wake.ring()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-d.wake:
			if failing {
				continue // the timer will
			}
		case <-retry.C:
		}
		more, err := true, error(nil)
		for more && err == nil && ctx.Err() == nil {
			more, err = d.step()
		}
		switch {
		case err != nil:
			if !failing {
				d.store.logger.Error("dispatch stuck, will try again", "phy", d.done.load(), "err", err)
			}
			retry.Reset(dispatchPause)
		case failing:
			d.store.logger.Info("dispatch goes on", "phy", d.done.load())
		}
		failing = err != nil
		pace.look(d.store.log.messages.Load(), time.Now())
		if !failing && d.idle != nil && (pace.thick() || d.idle()) {
			rest.Reset(dispatchRest)
			select {
			case <-ctx.Done():
				return nil
			case <-rest.C:
			}
		}
	}
}

// drain dispatches all there is, for the stop.
func (d *dispatcher) drain() error {
	for {
		if more, err := d.step(); err != nil || !more {
			return err
		}
	}
}

// time is the store timestamp up to which all is dispatched.
func (d *dispatcher) time() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lastTime
}

// limit is how far dispatch may go: with SyncFlush nobody sees a message that a power cut could take away.
func (d *dispatcher) limit() offset.Physical {
	limit := d.store.log.written.load()
	if d.store.opts.Flush == SyncFlush {
		limit = d.store.log.flushed.load()
	}
	if confirmed := d.store.opts.Confirmed; confirmed != nil {
		limit = min(limit, confirmed())
	}
	return limit
}

// WakeDispatch makes dispatch look again at how far it may go.
func (s *Store) WakeDispatch() { s.dispatcher.wake.ring() }

// step dispatches a chunk of the log, and says whether there may be more.
func (d *dispatcher) step() (more bool, err error) {
	d.mu.Lock()
	more, err = d.stepLocked()
	arrivals := d.arrivals
	d.mu.Unlock()
	if err != nil {
		return false, err
	}
	d.tell(arrivals)
	return more, nil
}

// tell calls the hooks. No lock is held.
func (d *dispatcher) tell(arrivals []Arrival) {
	for _, hook := range d.hooks {
		for i := range arrivals {
			hook(arrivals[i])
		}
	}
}

func (d *dispatcher) stepLocked() (more bool, err error) {
	d.arrivals = d.arrivals[:0]
	pos, limit := d.done.load(), d.limit()
	if pos >= limit {
		return false, nil
	}
	if segment := int64(pos) / d.store.log.size; segment != d.segment { // a step does not go on into another one
		if err := d.store.files.writeTails(); err != nil {
			return false, err
		}
		d.segment = segment
	}
	defer d.round.reset()
	requests, end, err := d.collect(pos, limit)
	if err != nil || end == pos {
		return false, err
	}
	for i := range requests {
		d.add(&requests[i])
	}
	if err := d.round.write(d.store.files, false); err != nil {
		return false, err
	}
	d.round.publish(d.store.files)
	if n := len(requests); n > 0 {
		d.index(requests)
		d.lastTime = requests[n-1].StoreTimestamp
	}
	d.done.raise(end)
	return true, nil
}

// collect gathers requests from pos on, fresh ones or those that one reading of the log brings, and returns the position
// behind them. They are borrowed until the next step.
func (d *dispatcher) collect(pos, limit offset.Physical) ([]message.DispatchRequest, offset.Physical, error) {
	if requests, end := d.collectFresh(pos, limit); len(requests) > 0 {
		return requests, end, nil
	}
	end, err := d.collectLog(pos, limit)
	return d.read, end, err
}

func (d *dispatcher) collectFresh(pos, limit offset.Physical) ([]message.DispatchRequest, offset.Physical) {
	list := &d.fresh
	for range 2 {
		for d.next < len(list.requests) && list.requests[d.next].PhysicalOffset < pos {
			d.next++
		}
		if d.next < len(list.requests) {
			break
		}
		list.reset()
		d.store.fresh.fetch(list)
		d.next = 0
	}
	first := d.next
	for d.next < len(list.requests) {
		q := &list.requests[d.next]
		end := pos + offset.Physical(q.Size)
		if q.PhysicalOffset != pos || end > limit {
			break
		}
		pos, d.next = end, d.next+1
	}
	return list.requests[first:d.next], pos
}

// collectLog gathers what stands in the log. The limit may be in the midst of a record, for a Java slave acknowledges
// whatever part of one it has: that record waits, and is not taken for one that the log's end cuts.
func (d *dispatcher) collectLog(pos, limit offset.Physical) (offset.Physical, error) {
	d.read = d.read[:0]
	end := d.store.log.written.load()
	f, err := d.cursor.look(pos, end)
	if err != nil {
		return pos, err
	}
	for ; pos < limit; f = d.cursor.peek(pos) {
		switch f.kind {
		case isRecord:
			if pos+offset.Physical(f.size) > limit {
				return pos, nil
			}
			d.read = append(d.read, d.store.requestOf(&f.record))
			pos += offset.Physical(f.size)
		case isBlank:
			return pos + offset.Physical(f.size), nil
		case isCut:
			return pos, nil
		case isNoFile:
			if next := d.store.log.from(pos); next != nil {
				return min(next.start, limit), nil
			}
			return limit, nil
		default:
			if len(d.read) > 0 {
				return pos, nil // first what comes before it
			}
			return d.skip(pos, end, f.why)
		}
	}
	return pos, nil
}

// skip passes over what is no record, up to the next one.
func (d *dispatcher) skip(pos, limit offset.Physical, why error) (offset.Physical, error) {
	next, found, err := d.store.log.search(pos+1, limit, func(*message.Record) bool { return true })
	if err != nil {
		return pos, err
	}
	if !found {
		next = limit
	}
	d.store.logger.Error("unreadable part of the log skipped", "phy", pos, "end", next, "err", why)
	return next, nil
}

// add gives a message to its queues and the hooks.
func (d *dispatcher) add(r *message.DispatchRequest) {
	d.deleted.eachTarget(r, func(t target) {
		q := d.store.queues.ensureNamed(t.topic, t.id)
		d.round.add(q, t.index, entryOf(r))
		if len(d.hooks) > 0 {
			d.arrivals = append(d.arrivals, Arrival{Topic: q.topic, Queue: q.id, Offset: offset.Queue(t.index), TagsCode: r.TagsCode})
		}
	})
}

// forget drops what is known of the log without reading it. The put lock is held.
func (d *dispatcher) forget() {
	d.cursor.buf = d.cursor.buf[:0]
	d.fresh.reset()
	d.store.fresh.fetch(&d.fresh)
	d.fresh.reset()
}

// index gives a step's requests to the index. An index that fails holds up nobody.
func (d *dispatcher) index(requests []message.DispatchRequest) {
	index := d.store.opts.Index
	if index == nil {
		return
	}
	if err := index.PutAll(requests); err != nil {
		d.store.logger.Error("messages not indexed", "phy", requests[0].PhysicalOffset, "err", err)
	}
}
