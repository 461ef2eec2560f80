package remoting

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/ratchetmq/ratchet/protocol"
)

// Handler serves requests. Serve runs on a worker of the request's lane, or on the event loop for a lane without
// workers, where it must not block. ctx ends when the server gives up on unanswered requests.
//
// Serve may answer before it returns, or hand the request on to be answered later by any goroutine; see Request.
type Handler interface {
	Serve(ctx context.Context, r *Request)
}

// GroupHandler is a Handler that can do better with several requests than with one after the other.
type GroupHandler interface {
	Handler
	// Joins says whether a request may be served with others that wait in a lane with Group set. It is asked under the
	// lane's lock.
	Joins(r *Request) bool
	// ServeGroup is Serve for more than one of these. Those of one connection stand together, in their order.
	ServeGroup(ctx context.Context, group []*Request)
}

// HandlerFunc makes a function a Handler.
type HandlerFunc func(ctx context.Context, r *Request)

// Serve calls f.
func (f HandlerFunc) Serve(ctx context.Context, r *Request) { f(ctx, r) }

// Request is one request of a peer. Fields and Body are part of a pooled buffer that lives until Reply or Detach; the
// rest stays valid.
//
// Each request is to be ended by exactly one Reply, one-way ones too: that gives its part of the buffer back.
type Request struct {
	protocol.Command

	Conn     *Conn     // where it came from
	Received time.Time // when its last byte was there

	lane  *lane
	next  *Request // the one behind it in its line; guarded by lane.mu once it is in a strand
	bytes *bundle  // what Fields and Body borrow from; belongs to who sets detached
	state atomic.Uint32
}

// The bits of Request.state.
const (
	answered uint32 = 1 << iota // or going to be
	detached
)

// Reply answers the request, in the codec it came in. It may be called from any goroutine, once; later calls do nothing
// but count. rep.Body is copied or written before Reply returns, so it may borrow from the request. For one-way requests,
// and when the connection is gone, nothing is sent. Fields and Body of the request are dead afterwards.
//
// When nothing else waits to be sent the calling goroutine writes to the socket, as much as it takes at once: handing a
// reply to the event loop costs more than that.
func (r *Request) Reply(rep protocol.Reply) { r.reply(&rep, r.lane.cfg.Workers > 0) }

// ReplyLater is Reply for callers with many others to answer: the event loop writes.
func (r *Request) ReplyLater(rep protocol.Reply) { r.reply(&rep, false) }

func (r *Request) reply(rep *protocol.Reply, direct bool) {
	if !r.settle() {
		return
	}
	if r.answerable() {
		b := getBuffer(replyRoom + len(rep.Remark))
		body := r.appendReply(b, rep)
		r.Conn.e.replies.Add(1)
		_ = r.Conn.link.reply(b, body, direct) // fails only if the connection is gone, and the reply with it
	}
	r.settled()
}

// settle claims the right to answer, which there is once.
func (r *Request) settle() bool {
	if r.state.Or(answered)&answered != 0 {
		r.Conn.e.duplicates.Add(1)
		return false
	}
	return true
}

// answerable says whether somebody waits for the answer.
func (r *Request) answerable() bool { return !r.IsOneway() && !r.Conn.Closed() }

// settled ends what began with settle.
func (r *Request) settled() {
	if !r.IsOneway() {
		r.Conn.owed.Add(-1)
	}
	r.Detach()
}

// ReplyGroup answers requests together, each with its reply: those of one connection, which stand together, leave in one
// write. Those without an answer yet have a nil reply; they are left alone.
func ReplyGroup(group []*Request, replies []*protocol.Reply) {
	for len(group) > 0 {
		n := related(group)
		replyTogether(group[:n], replies[:n])
		group, replies = group[n:], replies[n:]
	}
}

// related is how many of the first requests are of one connection.
func related(group []*Request) int {
	n := 1
	for n < len(group) && group[n].Conn == group[0].Conn {
		n++
	}
	return n
}

// replyTogether is ReplyGroup for requests of one connection.
func replyTogether(group []*Request, replies []*protocol.Reply) {
	var b *buffer
	var read *bundle
	owed, sent, readers := int64(0), uint64(0), 0
	for i, r := range group {
		rep := replies[i]
		if rep == nil || !r.settle() {
			continue
		}
		if r.answerable() {
			if b == nil {
				b = getBuffer(replyRoom * len(group))
			}
			body := r.appendReply(b, rep)
			b.B = append(b.B, body...)
			sent++
		}
		if !r.IsOneway() {
			owed++
		}
		if u := r.letGo(); u == read {
			readers++
		} else {
			read.done(readers)
			read, readers = u, 1
		}
	}
	read.done(readers)
	c := group[0].Conn
	if b != nil {
		c.e.replies.Add(sent)
		_ = c.link.reply(b, nil, group[0].lane.cfg.Workers > 0) // as above
	}
	if owed > 0 {
		c.owed.Add(-owed)
	}
}

// replyRoom is about what a reply takes besides its body and remark.
const replyRoom = 480

// appendReply adds the reply's head to b and returns the body that has to follow.
func (r *Request) appendReply(b *buffer, rep *protocol.Reply) (body []byte) {
	start := len(b.B)
	b.B = protocol.AppendReplyHead(b.B, r.Codec, r.Opaque, rep, len(rep.Body))
	size := len(b.B) - start + len(rep.Body)
	if size <= protocol.MaxFrame {
		return rep.Body
	}
	// The peer would close the connection on seeing the length, and all its other requests would go with it.
	r.Conn.e.oversized.Add(1)
	b.B = protocol.AppendReplyHead(b.B[:start], r.Codec, r.Opaque, &protocol.Reply{
		Code:   protocol.SystemError,
		Remark: fmt.Sprintf("reply of %d bytes is larger than a frame may be, %d bytes", size, protocol.MaxFrame),
	}, 0)
	return nil
}

// Detach gives the request's part of the buffer back before the reply: for requests that are held for long. Fields and
// Body are empty afterwards; what the caller needs of them must have been copied. It must not run at the same time as
// code that reads them.
func (r *Request) Detach() { r.letGo().done(1) }

// letGo is Detach but for telling the bundle; nil if it has been told.
func (r *Request) letGo() *bundle {
	if r.state.Or(detached)&detached != 0 {
		return nil
	}
	u := r.bytes
	r.Fields, r.Body, r.bytes = protocol.Fields{}, nil, nil
	return u
}

// abandon is Detach for a request whose bytes may be read for ever.
func (r *Request) abandon() { r.state.Or(detached) }

// Replied says whether the request was answered.
func (r *Request) Replied() bool { return r.state.Load()&answered != 0 }

// endpoint is what a server and a client have in common.
type endpoint struct {
	counters
	handler Handler
	log     *slog.Logger
	ctx     context.Context // for handlers
	opaque  atomic.Int32
	quiet   limiter // for log lines that a peer can cause
	loud    limiter // for panics
}

// request makes a Request of a decoded frame. It takes over f.
func (e *endpoint) request(c *Conn, l *lane, f *buffer, cmd protocol.Command) *Request {
	c.take(1)
	return &Request{Command: cmd, Conn: c, Received: time.Now(), lane: l, bytes: newBundle(f, 1, nil)}
}

// take counts requests that are to be handled. The connection owes an answer to each from here until Reply; to a one-way
// one, until its handler returns.
func (c *Conn) take(n int) {
	c.e.requests.Add(uint64(n))
	c.owed.Add(int64(n))
	c.work.Add(int64(n))
}

// finish is called when the handler of requests has returned.
func (e *endpoint) finish(done ...*Request) {
	for len(done) > 0 {
		n := related(done)
		done[0].Conn.finish(done[:n])
		done = done[n:]
	}
}

func (c *Conn) finish(done []*Request) {
	oneway := int64(0) // no reply will tell of them
	for _, r := range done {
		if r.IsOneway() {
			oneway++
		}
	}
	if oneway > 0 {
		c.owed.Add(-oneway)
	}
	c.worked(int64(len(done)))
}

// decode reads a whole frame. A panic in there would be ours, but must not end the process.
func decode(m *protocol.Models, cmd *protocol.Command, x *protocol.FieldIndex, frame []byte) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: decoder: %v", protocol.ErrFrame, p)
		}
	}()
	return m.Decode(cmd, frame, x)
}

// limiter lets one log line through a second, and counts the others.
type limiter struct {
	last    atomic.Int64
	skipped atomic.Int64
}

// allow says whether to log now, and how many lines were left out since the last one.
func (l *limiter) allow(now time.Time) (skipped int64, ok bool) {
	last := l.last.Load()
	if now.UnixNano()-last < int64(time.Second) || !l.last.CompareAndSwap(last, now.UnixNano()) {
		l.skipped.Add(1)
		return 0, false
	}
	return l.skipped.Swap(0), true
}

// warn logs msg about c, at most once a second.
func (e *endpoint) warn(msg string, c *Conn, err error) {
	skipped, ok := e.quiet.allow(time.Now())
	if !ok {
		return
	}
	if skipped > 0 {
		err = fmt.Errorf("%w (%d other lines left out)", err, skipped)
	}
	e.log.Warn(msg, "client", c.RemoteAddr().String(), "err", err) //nolint:sloglint // all callers give a constant
}
