package remoting

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ratchetmq/ratchet/protocol"
)

// LaneConfig describes a bounded class of work.
type LaneConfig struct {
	Name string
	// Workers is how many requests, or groups, run at the same time, those of one connection one after the other. 0:
	// requests run on the event loop that read them, one at a time for all connections of that loop, and must not block.
	Workers int
	// Queue is how many requests may wait for a worker. When so many wait, further ones are answered SYSTEM_BUSY at
	// once; a one-way request, which can't be told, stops the reading of its connection until there is room. 0 means
	// DefaultQueue.
	Queue int
	// Group hands requests that wait together to the handler at once, up to 64, if it is a GroupHandler.
	Group bool
	// MaxWait, if not 0: a request that waited longer is answered SYSTEM_BUSY instead of being handled. One-way
	// requests are handled however late.
	MaxWait time.Duration
}

// DefaultQueue is the number of requests that may wait in a lane whose configuration does not say.
const DefaultQueue = 10000

// turn is the size of the largest group, and how many requests a worker handles before it lets others run.
const turn = 64

// strand is the line of one connection's requests in one lane. They are handled in their order, one or one group at a
// time: a strand is in the lane's list of ready ones, or with one worker, or has nothing to do. All fields are guarded by
// lane.mu.
type strand struct {
	line
	conn   *Conn
	lane   *lane
	busy   bool    // in the ready list or with a worker
	parked bool    // the peer does not read: nothing is handled until unpark
	next   *strand // in the ready list
}

// line is requests of one connection, one behind the other.
type line struct {
	head, tail *Request
	n          int
}

// add puts the requests of another line behind those of q.
func (q *line) add(more line) {
	switch {
	case more.n == 0:
		return
	case q.n == 0:
		*q = more
		return
	}
	q.tail.next = more.head
	q.tail = more.tail
	q.n += more.n
}

// cut takes the first n off.
func (q *line) cut(n int) line {
	first := *q
	switch {
	case n >= q.n:
		*q = line{}
		return first
	case n <= 0:
		return line{}
	}
	first.n, first.tail = n, q.head
	for range n - 1 {
		first.tail = first.tail.next
	}
	q.head, first.tail.next = first.tail.next, nil
	q.n -= n
	return first
}

// alone is a line of one.
func alone(r *Request) line { return line{head: r, tail: r, n: 1} }

// lane runs the requests of one class.
type lane struct {
	cfg    LaneConfig
	index  int // in Conn.strands
	e      *endpoint
	group  GroupHandler // nil: requests are handled one by one
	others []*lane

	mu         sync.Mutex
	more       sync.Cond // for workers: a strand is ready, or the lane is closed
	head, tail *strand   // ready
	listed     int       // how many strands are ready
	idle       int       // workers that wait, and are not called
	coming     int       // workers that are called
	waiting    int       // requests in strands that are not parked
	parked     int       // requests in strands that are
	stalled    []*Conn   // connections that have a one-way request in hand and no room for it
	closed     bool

	running                           atomic.Int64
	handled, refused, expired, panics atomic.Uint64
}

func newLane(cfg LaneConfig, index int, e *endpoint) *lane {
	if cfg.Queue <= 0 {
		cfg.Queue = DefaultQueue
	}
	l := &lane{cfg: cfg, index: index, e: e}
	if cfg.Group {
		l.group, _ = e.handler.(GroupHandler)
	}
	l.more.L = &l.mu
	return l
}

// push lines up requests of one connection, or runs them if the lane has no workers. A request that finds the lane full is
// refused, except a one-way request: that is returned, with those behind it, and the connection's link.resume is called
// when there is room to push them again. force lines all of them up; it is for requests of connections that are gone.
func (l *lane) push(q line, force bool) (rest line) {
	if l.cfg.Workers == 0 {
		for q.n > 0 {
			l.run(q.cut(1).head)
		}
		return q
	}
	c := q.head.Conn
	s := c.strand(l)
	for {
		l.mu.Lock()
		n := q.n
		if room := l.cfg.Queue - l.waiting; room < n && !force && (room <= 0 || !s.parked) {
			n = room
		}
		l.lineUp(s, q.cut(n))
		waiting := l.waiting
		stalls := q.n > 0 && q.head.IsOneway()
		if stalls {
			l.stalled = append(l.stalled, c)
		}
		room := l.admit() // they may have been given room that they did not need: pass it on
		l.mu.Unlock()
		l.resume(room)
		if q.n == 0 || stalls {
			return q
		}
		l.refuse(q.cut(1).head, waiting)
	}
}

// lineUp puts q into s. mu is held.
func (l *lane) lineUp(s *strand, q line) {
	s.add(q)
	if s.parked {
		l.parked += q.n
		return
	}
	l.waiting += q.n
	l.ready(s)
}

// refuse answers a request that found so many others waiting.
func (l *lane) refuse(r *Request, waiting int) {
	l.refused.Add(1)
	l.busy(r, fmt.Sprintf("lane %s is full: %d requests wait, the limit is %d; the request was not handled",
		l.cfg.Name, waiting, l.cfg.Queue))
	l.e.finish(r)
}

// gathers says whether requests should be pushed many at a time: there is room now for a whole turn of them.
func (l *lane) gathers() bool {
	if l.cfg.Workers == 0 {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waiting+turn <= l.cfg.Queue
}

// strand is the connection's line in l. It is made where frames are read, so by one goroutine.
func (c *Conn) strand(l *lane) *strand {
	if c.strands[l.index] == nil {
		c.strands[l.index] = &strand{conn: c, lane: l}
	}
	return c.strands[l.index]
}

// ready gives s to a worker, if it has work and none has it. mu is held.
func (l *lane) ready(s *strand) {
	if !s.busy {
		l.enqueue(s)
		l.call()
	}
}

// enqueue puts s, which no worker has, behind those that are ready, if it has work. mu is held.
func (l *lane) enqueue(s *strand) {
	if s.busy = s.n > 0; !s.busy {
		return
	}
	if l.tail == nil {
		l.head = s
	} else {
		l.tail.next = s
	}
	l.tail = s
	l.listed++
}

// call has idle workers come, one for each strand that is ready. mu is held.
func (l *lane) call() {
	for l.coming < l.listed && l.idle > 0 {
		l.idle--
		l.coming++
		l.more.Signal()
	}
}

// hand is what a worker has: requests, and the strands that they are from.
type hand struct {
	requests []*Request
	strands  []*strand
}

// courtesy is how often a worker lets others go first when other lanes have work. An event loop that wakes is the last of
// those that can run: with one time it would wait until each worker has served a group.
const courtesy = 2

// work is one worker. It returns when the lane is closed. After a turn's worth it lets others have the processor: with
// senders that never leave it without work it would keep that for milliseconds, in which no pull is answered.
func (l *lane) work() {
	var h hand
	elsewhere := uint64(0)
	for done := 0; l.deal(&h); {
		l.runQueued(h.requests)
		if done += len(h.requests); done < turn {
			continue
		}
		done = 0
		times := 1
		if n := l.elsewhere(); n != elsewhere {
			elsewhere, times = n, courtesy
		}
		for range times {
			runtime.Gosched()
		}
	}
}

// elsewhere is how many requests other lanes have handled.
func (l *lane) elsewhere() (n uint64) {
	for _, other := range l.others {
		n += other.handled.Load()
	}
	return n
}

// deal takes back the strands of a worker, whose requests are done, and gives it what is next: one request, or as many of
// those that wait as may be served together. It waits until there is something, and says no when the lane is closed.
func (l *lane) deal(h *hand) bool {
	clear(h.requests) // a worker that waits keeps nothing alive
	h.requests = h.requests[:0]
	l.mu.Lock()
	for _, s := range h.strands {
		l.enqueue(s)
	}
	clear(h.strands)
	h.strands = h.strands[:0]
	for len(h.requests) == 0 {
		for l.head == nil && !l.closed {
			l.idle++
			l.more.Wait()
			l.coming--
		}
		if l.closed {
			l.mu.Unlock()
			return false
		}
		// While workers are idle each takes one strand: together they are sooner done.
		for more := true; more && l.head != nil && (len(h.requests) == 0 || l.idle == 0); {
			more = l.pop(h)
		}
		l.call()
		if room := l.admit(); len(room) > 0 {
			l.mu.Unlock()
			l.resume(room)
			l.mu.Lock()
		}
	}
	l.mu.Unlock()
	return true
}

// pop gives a worker requests of the first strand that is ready, and says whether it may have more. A strand whose peer
// does not read is parked instead. mu is held.
func (l *lane) pop(h *hand) (more bool) {
	s := l.head
	choked := s.conn.choked.Load() && !s.conn.Closed()
	if !choked && len(h.requests) > 0 && !l.joins(s.head) {
		return false
	}
	l.head, s.next = s.next, nil
	l.listed--
	if l.head == nil {
		l.tail = nil
	}
	if choked {
		// Its requests leave the lane's count: a peer that does not read must not use up the room of those that do.
		s.busy, s.parked = false, true
		l.waiting -= s.n
		l.parked += s.n
		return true
	}
	h.strands = append(h.strands, s)
	for more = true; more && s.n > 0; {
		joins := l.joins(s.head)
		if more = joins && len(h.requests) < turn-1; joins || len(h.requests) == 0 {
			h.requests = append(h.requests, s.cut(1).head)
			l.waiting--
		}
	}
	return more
}

// joins says whether r may be served with others.
func (l *lane) joins(r *Request) bool { return l.group != nil && l.group.Joins(r) }

// admit takes as many stalled connections as there is room for now. mu is held.
func (l *lane) admit() []*Conn {
	n := min(len(l.stalled), l.cfg.Queue-l.waiting)
	if n <= 0 {
		return nil
	}
	room := append([]*Conn(nil), l.stalled[:n]...)
	l.stalled = append(l.stalled[:0], l.stalled[n:]...)
	return room
}

// resume tells connections that there is room. Room offered to one that is gone is offered to the next.
func (l *lane) resume(room []*Conn) {
	for len(room) > 0 {
		gone := false
		for _, c := range room {
			if !c.link.resume() {
				gone = true
			}
		}
		if !gone {
			return
		}
		l.mu.Lock()
		room = l.admit()
		l.mu.Unlock()
	}
}

// unpark lets the strand's requests be handled again.
func (l *lane) unpark(s *strand) {
	l.mu.Lock()
	if s.parked {
		s.parked = false
		l.parked -= s.n
		l.waiting += s.n
		l.ready(s)
	}
	l.mu.Unlock()
}

// close ends the workers; requests that still wait are not handled.
func (l *lane) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.more.Broadcast()
}

// discard drops what waits in s, when all workers have ended.
func (l *lane) discard(s *strand) {
	l.mu.Lock()
	r := s.head
	if s.parked {
		l.parked -= s.n
	} else {
		l.waiting -= s.n
	}
	s.line = line{}
	l.mu.Unlock()
	for ; r != nil; r = r.next {
		if !r.IsOneway() {
			r.Conn.owed.Add(-1)
		}
		l.e.finish(r)
	}
}

// runQueued runs requests that have waited, less those that waited too long.
func (l *lane) runQueued(taken []*Request) {
	if l.cfg.MaxWait > 0 {
		taken = slices.DeleteFunc(taken, l.overdue)
	}
	switch {
	case len(taken) > 1:
		l.runGroup(taken)
	case len(taken) == 1:
		l.run(taken[0])
	}
}

// overdue says whether r has waited too long, and answers it then.
func (l *lane) overdue(r *Request) bool {
	waited := time.Since(r.Received)
	if r.IsOneway() || waited <= l.cfg.MaxWait {
		return false
	}
	l.expired.Add(1)
	l.busy(r, fmt.Sprintf("request waited %d ms in lane %s, the limit is %d ms; it was not handled",
		waited.Milliseconds(), l.cfg.Name, l.cfg.MaxWait.Milliseconds()))
	l.e.finish(r)
	return true
}

func (l *lane) busy(r *Request, text string) {
	r.Reply(protocol.Reply{Code: protocol.SystemBusy, Remark: text})
}

// run gives r to the handler and survives its panics.
func (l *lane) run(r *Request) {
	l.running.Add(1)
	l.handled.Add(1)
	defer func() {
		if p := recover(); p != nil {
			l.panicked(r, p)
		}
		l.running.Add(-1)
		l.e.finish(r)
	}()
	l.e.handler.Serve(l.e.ctx, r)
}

// runGroup gives requests to the handler together, and survives its panics: who has no answer then gets one that says
// so. That may be one that was handed on, which can't be told from here.
func (l *lane) runGroup(group []*Request) {
	l.running.Add(1)
	l.handled.Add(uint64(len(group)))
	defer func() {
		p := recover()
		l.running.Add(-1)
		if p != nil {
			for _, r := range group {
				l.panicked(r, p)
			}
		}
		l.e.finish(group...)
	}()
	l.group.ServeGroup(l.e.ctx, group)
}

// panicked answers for a handler that can't. Its bytes do not go back into the pool: the handler may have given them to
// a goroutine that still reads them.
func (l *lane) panicked(r *Request, p any) {
	l.panics.Add(1)
	if skipped, ok := l.e.loud.allow(time.Now()); ok { // a peer may have found a way to cause them
		l.e.log.Error("handler panicked", "code", r.Code, "opaque", r.Opaque, "client", r.Conn.RemoteAddr().String(),
			"err", fmt.Sprintf("%v (%d other panics left out)\n%s", p, skipped, debug.Stack()))
	}
	r.abandon()
	if !r.Replied() {
		r.Reply(protocol.Reply{
			Code:   protocol.SystemError,
			Remark: fmt.Sprintf("handler of request code %d panicked", r.Code),
		})
	}
}

func (l *lane) stats() LaneStats {
	l.mu.Lock()
	waiting, parked := l.waiting, l.parked
	l.mu.Unlock()
	return LaneStats{
		Name: l.cfg.Name, Waiting: waiting, Parked: parked, Running: int(l.running.Load()), Handled: l.handled.Load(),
		Refused: l.refused.Load(), Expired: l.expired.Load(), Panics: l.panics.Load(),
	}
}
