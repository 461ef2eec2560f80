package remoting

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ratchetmq/ratchet/protocol"
)

// Conn is one connection, of a server or a client. All its methods may be called from any goroutine.
type Conn struct {
	id            uint64
	remote, local netip.AddrPort
	e             *endpoint
	link          link
	attachment    atomic.Pointer[any]
	closed        atomic.Bool
	active        atomic.Int64 // unix nanoseconds of the last read or written byte, about

	// choked says that the peer does not read: its requests are neither read nor handled until it does.
	choked atomic.Bool

	// work counts the requests that are queued or in a handler, plus one while the connection is open. When it falls
	// to zero nothing of this connection will reach a handler any more, and ended is called.
	work  atomic.Int64
	ended func(*Conn)

	owed atomic.Int64 // requests taken and not answered; one-way ones: not handled

	strands []*strand // by lane; nil until used. Made where frames are read, that is on one goroutine

	callMu sync.Mutex
	calls  map[int32]chan *Response // by opaque; guarded by callMu; nil map after the end
	dead   bool                     // guarded by callMu
}

// link is the part of a connection that differs between server and client.
type link interface {
	// send takes over b. It does not block.
	send(b *buffer) error
	// reply is send for b and a body behind it, which is borrowed. With direct the calling goroutine writes to the socket
	// what can be written at once.
	reply(b *buffer, body []byte, direct bool) error
	// close ends the connection, after what was sent so far was tried to be written.
	close()
	// resume is called when a lane has room again for the one-way request that the link could not push. It does not
	// block, and returns false if the connection is gone.
	resume() bool
}

// Response is the answer to a Call. It owns its bytes.
type Response struct {
	protocol.Command
}

func (c *Conn) init(e *endpoint, l link, id uint64, local, remote netip.AddrPort, lanes int) {
	c.e, c.link, c.id, c.local, c.remote = e, l, id, local, remote
	c.strands = make([]*strand, lanes)
	c.work.Store(1)
	c.touch(time.Now())
}

// ID is unique in the process's server or client.
func (c *Conn) ID() uint64 { return c.id }

// RemoteAddr is the peer's address. IPv4 in IPv6 is unmapped and the zone left out.
func (c *Conn) RemoteAddr() netip.AddrPort { return c.remote }

// LocalAddr is our end's address.
func (c *Conn) LocalAddr() netip.AddrPort { return c.local }

// Close ends the connection. What was sent before is tried to be written first, without waiting for the peer.
func (c *Conn) Close() {
	if c.closed.CompareAndSwap(false, true) {
		c.link.close()
	}
}

// Closed says whether the connection has ended or was told to.
func (c *Conn) Closed() bool { return c.closed.Load() }

// SetAttachment keeps v with the connection: what its user knows about the peer.
func (c *Conn) SetAttachment(v any) { c.attachment.Store(&v) }

// Attachment is what SetAttachment kept last, or nil.
func (c *Conn) Attachment() any {
	if p := c.attachment.Load(); p != nil {
		return *p
	}
	return nil
}

// Notify sends a one-way request to the peer. A nil error says that it was queued, not that it arrived. It does not
// block; body is copied.
func (c *Conn) Notify(code protocol.RequestCode, h protocol.Header, body []byte) error {
	return c.notify(protocol.JSON, code, h, nil, body)
}

// Call sends a request to the peer over this connection and waits for the answer until ctx is done. Errors wrap
// ErrTimeout, ErrClosed, ErrTooLarge or ErrBacklog; an answer with an error code is no error.
func (c *Conn) Call(ctx context.Context, code protocol.RequestCode, h protocol.Header, body []byte) (*Response, error) {
	return c.call(ctx, protocol.JSON, code, h, nil, body)
}

func (c *Conn) notify(
	codec protocol.Codec, code protocol.RequestCode, h protocol.Header, extra []protocol.KV, body []byte,
) error {
	if c.Closed() {
		return ErrClosed
	}
	b, err := encodeRequest(codec, code, c.e.opaque.Add(1), true, h, extra, body)
	if err != nil {
		return err
	}
	return c.link.send(b)
}

func encodeRequest(
	codec protocol.Codec, code protocol.RequestCode, opaque int32, oneway bool, h protocol.Header, extra []protocol.KV,
	body []byte,
) (*buffer, error) {
	b := getBuffer(replyRoom + len(body))
	b.B = protocol.AppendRequest(b.B, codec, code, opaque, oneway, h, extra, body)
	if n := len(b.B); n > protocol.MaxFrame {
		b.release()
		return nil, fmt.Errorf("request %s: %w: %d bytes, at most %d", code, ErrTooLarge, n, protocol.MaxFrame)
	}
	return b, nil
}

func (c *Conn) call(
	ctx context.Context, codec protocol.Codec, code protocol.RequestCode, h protocol.Header, extra []protocol.KV,
	body []byte,
) (*Response, error) {
	if err := ctx.Err(); err != nil {
		return nil, c.callError(code, err)
	}
	opaque, answer, err := c.expect()
	if err != nil {
		return nil, c.callError(code, &unsentError{err})
	}
	b, err := encodeRequest(codec, code, opaque, false, h, extra, body)
	if err == nil {
		err = c.link.send(b)
	}
	if err != nil {
		c.forget(opaque)
		return nil, c.callError(code, &unsentError{err})
	}
	select {
	case resp := <-answer:
		if resp == nil {
			return nil, c.callError(code, ErrClosed)
		}
		return resp, nil
	case <-ctx.Done():
		c.forget(opaque)
		return nil, c.callError(code, ctx.Err())
	}
}

// unsentError marks what went wrong before any byte of the request could have left.
type unsentError struct{ error }

func (e *unsentError) Unwrap() error { return e.error }

func (c *Conn) callError(code protocol.RequestCode, err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w: %w", ErrTimeout, err)
	}
	return fmt.Errorf("call %s of %s: %w", code, c.remote, err)
}

// expect registers a new opaque. Its channel gets one response, or is closed if the connection ends first.
func (c *Conn) expect() (int32, chan *Response, error) {
	answer := make(chan *Response, 1)
	c.callMu.Lock()
	defer c.callMu.Unlock()
	if c.dead || c.Closed() {
		return 0, nil, ErrClosed
	}
	if c.calls == nil {
		c.calls = make(map[int32]chan *Response)
	}
	for {
		opaque := c.e.opaque.Add(1)
		if _, taken := c.calls[opaque]; !taken { // taken: the counter went round while a call waited
			c.calls[opaque] = answer
			return opaque, answer, nil
		}
	}
}

func (c *Conn) forget(opaque int32) {
	c.callMu.Lock()
	delete(c.calls, opaque)
	c.callMu.Unlock()
}

// answered gives a response to whom it is for. The response keeps the frame.
func (c *Conn) answered(cmd protocol.Command) {
	c.callMu.Lock()
	answer, ok := c.calls[cmd.Opaque]
	delete(c.calls, cmd.Opaque)
	c.callMu.Unlock()
	if !ok {
		c.e.late.Add(1)
		return
	}
	answer <- &Response{Command: cmd} // has room for one, and only this one is ever sent
}

// expects says whether anybody waits for the response with this opaque.
func (c *Conn) expects(opaque int32) bool {
	c.callMu.Lock()
	defer c.callMu.Unlock()
	_, ok := c.calls[opaque]
	return ok
}

// end is called once, when the socket is closed: calls fail, and the requests that wait for the peer to read go on.
func (c *Conn) end() {
	c.closed.Store(true)
	c.callMu.Lock()
	c.dead = true
	calls := c.calls
	c.calls = nil
	c.callMu.Unlock()
	for _, answer := range calls {
		close(answer)
	}
	c.unpark()
	c.worked(1)
}

// unpark lets the lanes go on with the connection's requests. It is called where strands are made.
func (c *Conn) unpark() {
	for _, s := range c.strands {
		if s != nil {
			s.lane.unpark(s)
		}
	}
}

// worked takes n from the work that is left.
func (c *Conn) worked(n int64) {
	if c.work.Add(-n) == 0 && c.ended != nil {
		c.ended(c)
	}
}

// inflight is how many of the connection's requests somebody still has to deal with. When it is closed these are only
// those that will still reach a handler: nobody waits for an answer to the others.
func (c *Conn) inflight() int64 {
	if !c.Closed() {
		return c.owed.Load()
	}
	return min(c.owed.Load(), c.work.Load())
}

func (c *Conn) touch(now time.Time) { c.active.Store(now.UnixNano()) }
