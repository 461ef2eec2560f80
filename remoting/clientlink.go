package remoting

import (
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/ratchetmq/ratchet/protocol"
)

// clientLink is the client's side of a connection. It has two goroutines, both owned by the client: run dials, then reads;
// write writes what send has queued, so that callers never block on the socket.
type clientLink struct {
	conn   Conn
	client *Client
	addr   string
	ready  chan struct{} // closed when dialled or failed
	err    error         // why it failed; set before ready is closed
	nc     net.Conn      // set before ready is closed

	mu      sync.Mutex
	out     []*buffer // guarded by mu
	queued  int       // bytes in out and in the write that is under way; guarded by mu
	ended   bool      // guarded by mu: nothing is taken any more
	wake    chan struct{}
	roomy   chan struct{}
	stopped chan struct{} // closed when ended
}

const (
	readSize         = 64 << 10
	maxClientBacklog = 64 << 20
	writeTimeout     = 30 * time.Second
	closeTimeout     = time.Second
)

func newClientLink(c *Client, addr string) *clientLink {
	return &clientLink{
		client: c, addr: addr, ready: make(chan struct{}), wake: make(chan struct{}, 1), roomy: make(chan struct{}, 1),
		stopped: make(chan struct{}),
	}
}

func (k *clientLink) finished() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.ended
}

// run is the link's life.
func (k *clientLink) run() {
	nc, err := k.client.dial(k.addr)
	if err != nil {
		k.err = err
		k.finish()
		k.client.drop(k)
		close(k.ready)
		return
	}
	k.nc = nc
	k.conn.init(&k.client.endpoint, k, k.client.nextID.Add(1), addrOf(nc.LocalAddr()), addrOf(nc.RemoteAddr()), 1)
	k.client.accepted.Add(1)
	k.client.tasks.Go(k.write)
	close(k.ready)
	if k.client.ctx.Err() != nil { // the client was closed meanwhile; it may not have seen that this link is ready
		k.conn.Close()
	}
	k.read()
	k.finish()
	_ = nc.Close()
	k.client.drop(k)
	k.conn.end()
	if k.client.cfg.OnClose != nil {
		k.client.cfg.OnClose(k.addr, &k.conn)
	}
}

// finish makes the link take nothing more, and the writer end when it has written what is there.
func (k *clientLink) finish() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.ended {
		k.ended = true
		close(k.stopped)
	}
}

// read takes frames until the connection ends.
func (k *clientLink) read() {
	var split splitter
	defer split.drop()
	buf := make([]byte, readSize)
	for {
		n, err := k.nc.Read(buf)
		k.conn.touch(time.Now())
		for data := buf[:n]; len(data) > 0; {
			frame, own, used, err := split.next(data)
			if err == nil && frame != nil {
				err = k.dispatch(owned(frame, own))
			}
			if err != nil {
				k.client.counters.malformed.Add(1)
				k.client.warn("connection closed, input is no frame", &k.conn, err)
				return
			}
			data = data[used:]
		}
		if err != nil {
			return
		}
	}
}

// dispatch takes over f.
func (k *clientLink) dispatch(f *buffer) error {
	var cmd protocol.Command
	if err := decode(nil, &cmd, nil, f.B); err != nil {
		f.release()
		return err
	}
	if cmd.IsResponse() {
		k.conn.response(f, cmd)
		return nil
	}
	r := k.client.request(&k.conn, k.client.lane, f, cmd)
	for r.lane.push(alone(r), false).n > 0 { // one-way, and no room: not reading on holds the peer back
		select {
		case <-k.roomy:
		case <-k.stopped:
			r.lane.push(alone(r), true)
			return nil
		}
	}
	return nil
}

func (k *clientLink) resume() bool {
	select {
	case k.roomy <- struct{}{}:
	default:
	}
	return !k.finished()
}

// reply queues like send: the writing goroutine is never far.
func (k *clientLink) reply(b *buffer, body []byte, _ bool) error {
	b.B = append(b.B, body...)
	return k.send(b)
}

func (k *clientLink) send(b *buffer) error {
	n := len(b.B)
	k.mu.Lock()
	if k.ended {
		k.mu.Unlock()
		b.release()
		return ErrClosed
	}
	if k.queued > maxClientBacklog {
		k.mu.Unlock()
		b.release()
		k.client.overflowed.Add(1)
		k.shut()
		return fmt.Errorf("%w: the limit is %d", ErrBacklog, maxClientBacklog)
	}
	k.out = append(k.out, b)
	k.queued += n
	k.mu.Unlock()
	select {
	case k.wake <- struct{}{}:
	default:
	}
	return nil
}

// write sends what is queued, several frames in one go. It ends the connection when it can't, or when there is nothing
// left after the end.
func (k *clientLink) write() {
	defer func() { _ = k.nc.Close() }() // ends the reader
	for {
		select {
		case <-k.wake:
		case <-k.stopped:
		}
		for {
			k.mu.Lock()
			batch, ended := k.out, k.ended
			k.out = nil
			k.mu.Unlock()
			if len(batch) == 0 {
				if ended {
					return
				}
				break
			}
			if !k.writeBatch(batch, ended) {
				k.finish()
				return
			}
		}
	}
}

func (k *clientLink) writeBatch(batch []*buffer, ended bool) bool {
	timeout := writeTimeout
	if ended {
		timeout = closeTimeout
	}
	_ = k.nc.SetWriteDeadline(time.Now().Add(timeout))
	size := 0
	for _, b := range batch {
		size += len(b.B)
	}
	var err error
	if size <= joinLimit && len(batch) > 1 {
		joined := getBuffer(size)
		for _, b := range batch {
			joined.B = append(joined.B, b.B...)
		}
		_, err = k.nc.Write(joined.B)
		joined.release()
	} else {
		vector := make(net.Buffers, len(batch))
		for i, b := range batch {
			vector[i] = b.B
		}
		_, err = vector.WriteTo(k.nc)
	}
	for _, b := range batch {
		b.release()
	}
	k.mu.Lock()
	k.queued -= size
	k.mu.Unlock()
	k.conn.touch(time.Now())
	return err == nil
}

// close lets the writer write what is queued, for a bounded time, and end the connection.
func (k *clientLink) close() {
	k.finish()
	_ = k.nc.SetWriteDeadline(time.Now().Add(closeTimeout))
}

// opened says whether conn and nc are set.
func (k *clientLink) opened() bool {
	select {
	case <-k.ready:
		return k.err == nil
	default:
		return false
	}
}

// shut is close for a link that may still be dialling.
func (k *clientLink) shut() {
	if k.opened() { // else run will see the end of the client's ctx
		k.conn.Close()
	}
}
