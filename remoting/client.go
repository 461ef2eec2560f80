package remoting

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ratchetmq/ratchet/protocol"
)

// ClientConfig describes a Client. Zero values stand for the defaults named here.
type ClientConfig struct {
	Codec          protocol.Codec // of the headers that it writes; it reads both
	ConnectTimeout time.Duration  // default 3 s
	Logger         *slog.Logger   // default slog.Default

	// Handler serves requests that peers send over the client's connections: those of one connection in their order,
	// those of different ones in parallel, by Workers goroutines (default 4). Without a Handler they are answered
	// REQUEST_CODE_NOT_SUPPORTED.
	Handler Handler
	Workers int

	// OnClose is called for each connection that has ended, on a goroutine of its own.
	OnClose func(addr string, c *Conn)
}

// Client calls peers. It connects to an address when it is first called, shares one connection per address among all
// callers, and connects again at the next call after that one broke. Its methods may be called from any goroutine.
type Client struct {
	endpoint
	cfg    ClientConfig
	lane   *lane
	cancel context.CancelFunc
	tasks  sync.WaitGroup // all goroutines of the client; ended and waited for by Close
	nextID atomic.Uint64

	mu     sync.Mutex
	links  map[string]*clientLink // by address, from the dialling until the end; guarded by mu
	closed bool                   // guarded by mu
}

const (
	defaultConnectTimeout = 3 * time.Second
	defaultClientWorkers  = 4
	clientQueue           = 1024
)

// NewClient makes a client. Close it.
func NewClient(cfg ClientConfig) (*Client, error) {
	if cfg.ConnectTimeout <= 0 {
		cfg.ConnectTimeout = defaultConnectTimeout
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Workers <= 0 {
		cfg.Workers = defaultClientWorkers
	}
	if cfg.Handler == nil {
		cfg.Handler, cfg.Workers = HandlerFunc(unsupported), 0
	}
	if cfg.Codec != protocol.JSON && cfg.Codec != protocol.Binary {
		return nil, fmt.Errorf("codec %d is unknown", cfg.Codec)
	}
	c := &Client{cfg: cfg, links: make(map[string]*clientLink)}
	c.handler, c.log = cfg.Handler, cfg.Logger
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.lane = newLane(LaneConfig{Name: "peer requests", Workers: cfg.Workers, Queue: clientQueue}, 0, &c.endpoint)
	for range cfg.Workers {
		c.tasks.Go(c.lane.work)
	}
	return c, nil
}

func unsupported(_ context.Context, r *Request) {
	r.Reply(protocol.Reply{
		Code:   protocol.RequestCodeNotSupported,
		Remark: fmt.Sprintf(" request type %d not supported", r.Code),
	})
}

// Call sends a request to addr and waits for the answer until ctx is done. Errors wrap ErrConnect if nothing was sent
// for want of a connection, ErrTimeout, ErrClosed, ErrTooLarge or ErrBacklog; an answer with an error code is no error.
// h may be nil; body is copied.
func (c *Client) Call(
	ctx context.Context, addr string, code protocol.RequestCode, h protocol.Header, extra []protocol.KV, body []byte,
) (*Response, error) {
	for again := false; ; again = true {
		k, err := c.connect(ctx, addr)
		if err != nil {
			return nil, fmt.Errorf("call %s: %w", code, err)
		}
		resp, err := k.conn.call(ctx, c.cfg.Codec, code, h, extra, body)
		if again || !broken(err) {
			return resp, err
		}
	}
}

// broken says whether the connection turned out to have ended before it took the request, so that it is safe to try
// another one.
func broken(err error) bool {
	var unsent *unsentError
	return errors.As(err, &unsent) && errors.Is(err, ErrClosed)
}

// Notify sends a one-way request to addr, connecting first if need be. A nil error says that it was queued, not that it
// arrived. Errors are those of Call.
func (c *Client) Notify(
	ctx context.Context, addr string, code protocol.RequestCode, h protocol.Header, extra []protocol.KV, body []byte,
) error {
	for again := false; ; again = true {
		k, err := c.connect(ctx, addr)
		if err == nil {
			err = k.conn.notify(c.cfg.Codec, code, h, extra, body)
			if !again && errors.Is(err, ErrClosed) {
				continue
			}
		}
		if err != nil {
			return fmt.Errorf("notify %s of %s: %w", code, addr, err)
		}
		return nil
	}
}

// connect returns the connection to addr, which it waits for until ctx is done. Whoever comes first starts it, but its
// dialling does not end with that caller's ctx.
func (c *Client) connect(ctx context.Context, addr string) (*clientLink, error) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil, fmt.Errorf("client: %w", ErrClosed)
	}
	k := c.links[addr]
	if k == nil || k.finished() {
		k = newClientLink(c, addr)
		c.links[addr] = k
		c.tasks.Go(k.run)
	}
	c.mu.Unlock()
	select {
	case <-k.ready:
	case <-ctx.Done():
		err := ctx.Err()
		if errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("%w: %w", ErrTimeout, err)
		}
		return nil, fmt.Errorf("connect %s: %w: %w", addr, ErrConnect, err)
	}
	if k.err != nil {
		return nil, k.err
	}
	return k, nil
}

// dial opens a socket to addr.
func (c *Client) dial(addr string) (net.Conn, error) {
	d := net.Dialer{
		Timeout:         c.cfg.ConnectTimeout,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3},
	}
	nc, err := d.DialContext(c.ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("connect %s: %w: %w", addr, ErrConnect, err)
	}
	return nc, nil
}

// drop forgets a link that has ended.
func (c *Client) drop(k *clientLink) {
	c.mu.Lock()
	if c.links[k.addr] == k {
		delete(c.links, k.addr)
	}
	c.mu.Unlock()
}

// Stats is a snapshot; it may be called at any time.
func (c *Client) Stats() Stats {
	st := c.snapshot()
	c.mu.Lock()
	st.Connections = len(c.links)
	for _, k := range c.links {
		if k.opened() {
			st.InFlight += int(k.conn.inflight())
		}
	}
	c.mu.Unlock()
	st.Lanes = []LaneStats{c.lane.stats()}
	return st
}

// Close ends all connections and waits for the client's goroutines, handlers of peers' requests included. Calls that
// wait end with ErrClosed. It must not be called from a Handler of the client.
func (c *Client) Close() {
	c.mu.Lock()
	c.closed = true
	links := make([]*clientLink, 0, len(c.links))
	for _, k := range c.links {
		links = append(links, k)
	}
	c.mu.Unlock()
	c.cancel() // ends dialling too
	for _, k := range links {
		k.shut()
	}
	c.lane.close()
	c.tasks.Wait()
}
