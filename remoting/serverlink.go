package remoting

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/panjf2000/gnet/v2"
)

// serverLink is the server's side of a connection: frames in, replies out, and when to stop reading.
//
// What is sent lines up in out and one task on the event loop writes all that is there, so that what comes together leaves
// in one write. gnet keeps what the socket does not take. Both count as unsent. Where nothing waits a reply is written by
// who makes it, under mu: the descriptor is the socket's as long as g is not nil.
type serverLink struct {
	conn Conn
	srv  *Server

	mu        sync.Mutex
	g         gnet.Conn // guarded by mu; nil before the connection is opened and after it is closed
	out       []*buffer // guarded by mu; not yet written
	scheduled bool      // guarded by mu; the write task is on its way
	queued    atomic.Int64
	buffered  atomic.Int64 // in gnet, as of the last look
	overflown atomic.Bool
	roomy     atomic.Bool // resume was called

	// The rest is used on the event loop only.
	loop    gnet.EventLoop
	poller  int // -1: unknown
	fd      int
	spare   []*buffer
	split   splitter
	frames  uint64
	stalled line // a one-way request that its lane had no room for, and what was taken behind it
	paused  bool // the socket is not read
}

// loopRead is how many bytes an event loop reads from a connection at once: it has one buffer of so many for all of them. The
// fewer reads, the fewer frames end in the next one, are gathered apart and handed over by themselves.
const loopRead = 256 << 10

// joinLimit is up to where several replies are copied into one piece for one write; more goes out as a vector.
const (
	joinLimit   = 64 << 10
	vectorLimit = 512 // of 1024 that the system takes
)

func (k *serverLink) send(b *buffer) error { return k.reply(b, nil, false) }

func (k *serverLink) reply(b *buffer, body []byte, direct bool) error {
	if !direct {
		b.B, body = append(b.B, body...), nil
	}
	k.mu.Lock()
	if k.g == nil || k.conn.Closed() {
		k.mu.Unlock()
		b.release()
		return ErrClosed
	}
	if direct && !k.scheduled && len(k.out) == 0 && k.buffered.Load() == 0 {
		n := writeNow(k.fd, b.B, body)
		if n > 0 {
			k.conn.touch(time.Now())
		}
		if n == len(b.B)+len(body) {
			k.mu.Unlock()
			b.release()
			return nil
		}
		b, body = unwritten(b, body, n)
	}
	b.B = append(b.B, body...)
	size := int64(len(b.B))
	k.out = append(k.out, b)
	unsent := k.queued.Add(size) + k.buffered.Load()
	if !k.scheduled {
		k.scheduled = true
		k.execute()
	}
	k.mu.Unlock()
	if unsent > int64(k.srv.cfg.MaxOutbound) {
		return k.choke(unsent - size)
	}
	return nil
}

// unwritten is what is left of b and body when n bytes of them are written. It takes over b.
func unwritten(b *buffer, body []byte, n int) (*buffer, []byte) {
	if n < len(b.B) {
		b.B = b.B[:copy(b.B, b.B[n:])]
		return b, body
	}
	b.B, body = b.B[:0], body[n-len(b.B):]
	return b, body
}

// execute has Run called on the event loop. mu is held, and g is not nil: so the loop lives. gnet's queues must not be
// used after the engine has stopped, since it wakes the loop by a write to a descriptor that may be another file then.
func (k *serverLink) execute() {
	_ = k.loop.Execute(context.Background(), k)
}

// choke marks a connection whose peer does not read. It is closed if more than the hard limit waited before the last
// reply: requests taken before, held ones above all, can still produce replies.
func (k *serverLink) choke(unsent int64) error {
	if unsent > int64(k.srv.cfg.hardLimit()) {
		if k.overflown.CompareAndSwap(false, true) {
			k.srv.overflowed.Add(1)
			k.srv.warn("connection closed, peer does not read", &k.conn,
				fmt.Errorf("%w: %d bytes wait, the limit is %d", ErrBacklog, unsent, k.srv.cfg.hardLimit()))
			k.abort()
		}
		return ErrBacklog
	}
	if k.conn.choked.CompareAndSwap(false, true) {
		k.srv.sweeper.watch(k)
	}
	return nil
}

// abort closes without writing what waits.
func (k *serverLink) abort() {
	k.mu.Lock()
	k.dropOut()
	k.mu.Unlock()
	k.conn.Close()
}

// dropOut forgets what waits. mu is held.
func (k *serverLink) dropOut() {
	for _, b := range k.out {
		k.queued.Add(-int64(len(b.B)))
		b.release()
	}
	k.out = nil
}

func (k *serverLink) close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.g != nil {
		_ = k.g.Close() // queued behind the write task
	}
}

func (k *serverLink) resume() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.g == nil {
		return false
	}
	k.roomy.Store(true)
	_ = k.g.Wake(nil)
	return true
}

// Run writes what waits, and looks whether the peer reads. It is a gnet.Runnable; only event loops call it.
func (k *serverLink) Run(context.Context) error {
	k.flush()
	k.settle()
	return nil
}

// flush hands all waiting replies to gnet.
func (k *serverLink) flush() {
	for {
		k.mu.Lock()
		g, batch := k.g, k.out
		if g == nil || len(batch) == 0 {
			k.scheduled = false
			k.mu.Unlock()
			return
		}
		k.out = k.spare[:0]
		k.mu.Unlock()

		size := 0
		for _, b := range batch {
			size += len(b.B)
		}
		err := write(g, batch, size)
		k.queued.Add(-int64(size))
		if err != nil {
			return // gnet has closed the socket and called OnClose: its number may belong to another file now
		}
		k.buffered.Store(int64(g.OutboundBuffered()))
		k.conn.touch(time.Now())
		clear(batch)
		if k.spare = batch[:0]; cap(k.spare) > 1024 {
			k.spare = nil
		}
	}
}

// write gives buffers to gnet, in their order, and releases them: gnet copies what the socket does not take.
func write(g gnet.Conn, batch []*buffer, size int) (err error) {
	switch {
	case len(batch) == 1:
		_, err = g.Write(batch[0].B)
	case size <= joinLimit:
		joined := getBuffer(size)
		for _, b := range batch {
			joined.B = append(joined.B, b.B...)
		}
		_, err = g.Write(joined.B)
		joined.release()
	default:
		vector := make([][]byte, 0, min(len(batch), vectorLimit))
		for i, b := range batch {
			vector = append(vector, b.B)
			if len(vector) < vectorLimit && i < len(batch)-1 {
				continue
			}
			if _, err = g.Writev(vector); err != nil {
				break
			}
			vector = vector[:0]
		}
	}
	for _, b := range batch {
		b.release()
	}
	return err
}

func (k *serverLink) unsent() int64 { return k.queued.Load() + k.buffered.Load() }

// settle lets a choked connection go on when its peer has read half of what waited, and keeps a paused one paused: a
// write may have made gnet wait for input again.
func (k *serverLink) settle() {
	k.mu.Lock()
	g := k.g
	k.mu.Unlock()
	if g == nil {
		return
	}
	if buffered := int64(g.OutboundBuffered()); buffered != k.buffered.Load() {
		k.buffered.Store(buffered)
		k.conn.touch(time.Now()) // the peer reads
	}
	if k.conn.choked.Load() {
		if k.unsent() > int64(k.srv.cfg.MaxOutbound)/2 {
			k.pause(g)
			return
		}
		k.conn.choked.Store(false)
		k.conn.unpark()
		_ = g.Wake(nil) // what was left unread
		return
	}
	if k.paused {
		k.pause(g)
	}
}

// pause takes the socket out of those that are read, so that TCP holds the peer back.
func (k *serverLink) pause(g gnet.Conn) {
	k.paused = true
	if k.poller >= 0 && setInterest(k.poller, k.fd, false, g.OutboundBuffered() > 0) == nil {
		return
	}
	// Not possible here: gnet goes on reading and keeps it all. Bound that.
	if n := g.InboundBuffered(); n > k.srv.cfg.hardLimit() && k.overflown.CompareAndSwap(false, true) {
		k.srv.overflowed.Add(1)
		k.srv.warn("connection closed, peer sends more than can be handled", &k.conn,
			fmt.Errorf("%w: %d bytes wait, the limit is %d", ErrBacklog, n, k.srv.cfg.hardLimit()))
		k.abort()
	}
}

func (k *serverLink) unpause(g gnet.Conn) {
	if k.paused {
		k.paused = false
		if k.poller >= 0 {
			_ = setInterest(k.poller, k.fd, true, g.OutboundBuffered() > 0)
		}
	}
}

// traffic takes the frames that have come. It runs on the event loop, when there is input and when woken.
func (k *serverLink) traffic(g gnet.Conn) gnet.Action {
	now := time.Now()
	k.conn.touch(now)
	if k.stalled.n > 0 && k.roomy.Swap(false) {
		k.push(k.stalled.cut(k.stalled.n), false)
	}
	if k.srv.phase.Load() == discarding {
		discard(g)
		k.unpause(g)
		return gnet.None
	}
	if k.mustWait() {
		k.pause(g)
		return gnet.None
	}
	err := k.take(g, now)
	if err != nil {
		return k.malformed(g, err)
	}
	if k.mustWait() {
		k.pause(g)
	} else {
		k.unpause(g)
	}
	return gnet.None
}

// mustWait says whether no request may be taken now.
func (k *serverLink) mustWait() bool {
	return k.stalled.n > 0 || k.conn.choked.Load() || k.srv.phase.Load() != running
}

// take cuts the input into frames and passes them on. What is left when it must stop stays with gnet.
func (k *serverLink) take(g gnet.Conn, now time.Time) error {
	data, _ := g.Peek(-1)
	used, err := k.cut(data, now, false)
	if used > 0 { // gnet takes Discard(0) for everything
		_, _ = g.Discard(used)
	}
	return err
}

// push lines requests up in their lanes, up to the first for which there is no room.
func (k *serverLink) push(q line, force bool) {
	for q.n > 0 && k.stalled.n == 0 {
		l := q.head.lane
		n := 1
		for r := q.head.next; r != nil && r.lane == l; r = r.next {
			n++
		}
		k.stalled = l.push(q.cut(n), force)
	}
	k.stalled.add(q)
}

func (k *serverLink) malformed(g gnet.Conn, err error) gnet.Action {
	k.srv.counters.malformed.Add(1)
	if k.frames == 0 {
		first := make([]byte, 4)
		if k.split.nhead > 0 {
			copy(first, k.split.head[:])
		} else if data, _ := g.Peek(-1); len(data) >= 4 {
			copy(first, data)
		}
		if stray := strayTraffic(first); stray != "" {
			err = fmt.Errorf("%s: %w", stray, err)
		}
	}
	k.srv.warn("connection closed, input is no frame", &k.conn, err)
	return gnet.Close
}

// gone is called on the event loop when the socket is about to be closed.
func (k *serverLink) gone(g gnet.Conn) {
	k.mu.Lock()
	k.g = nil
	out := k.out
	k.out = nil
	k.mu.Unlock()
	if k.conn.Closed() && len(out) > 0 {
		// Closed by us, and a busy loop had this before the write task. gnet still writes what the socket takes.
		_ = write(g, out, 0)
	}
	k.queued.Store(0)
	k.buffered.Store(0)
	k.conn.closed.Store(true)
	if k.stalled.n > 0 {
		// One-way requests that were here are handled, full lane or not: nobody else knows of them. They are no more
		// than one read's worth.
		k.push(k.stalled.cut(k.stalled.n), true)
		k.rescue(g)
	}
	k.split.drop()
	k.conn.end()
}

// rescue takes the one-way requests out of what a full lane has kept us from reading.
func (k *serverLink) rescue(g gnet.Conn) {
	data, _ := g.Peek(-1)
	_, _ = k.cut(data, time.Now(), true)
}

func discard(g gnet.Conn) {
	if g.InboundBuffered() > 0 {
		_, _ = g.Discard(-1)
	}
}
