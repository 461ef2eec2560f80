package remoting

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/panjf2000/gnet/v2"
	"golang.org/x/sync/errgroup"
)

// ServerConfig describes a Server. Zero values stand for the defaults named here.
type ServerConfig struct {
	Addrs     []string       // where to listen, "127.0.0.1:10911"; port 0 lets the system choose
	Listeners []net.Listener // of who needs to know the ports before Run, which takes them over
	Handler   Handler        // required

	// Lanes are the classes of work, LaneOf says into which one (index) a request code goes. Requests of one connection
	// in one lane are handled in the order they came, one at a time; all else runs in parallel. Without Lanes there is
	// one, with 2 workers per processor.
	Lanes  []LaneConfig
	LaneOf func(code int32) int

	// IdleTimeout closes a connection on which nothing was read and nothing written for so long. Default 120 s.
	IdleTimeout time.Duration
	// MaxOutbound is how many bytes of unsent replies a connection may have. With more, its requests are neither read
	// nor handled until its peer has read half of them. With 8 times as many it is closed. Default 8 MiB.
	MaxOutbound int
	// OnClose is called once for each connection that has ended, when none of its requests is in a handler or will get
	// to one any more. Not on an event loop; calls come one at a time.
	OnClose func(*Conn)
	// StopTimeout bounds how long a stop waits for requests to be answered and replies to be sent; for handlers to return it
	// waits ten times as long. Default 3 s.
	StopTimeout time.Duration

	EventLoops int          // default: one for each processor
	Logger     *slog.Logger // default: slog.Default
}

const (
	defaultIdleTimeout = 120 * time.Second
	defaultMaxOutbound = 8 << 20
	defaultStopTimeout = 3 * time.Second
	hardFactor         = 8
	lingerTime         = 250 * time.Millisecond
)

func (c *ServerConfig) hardLimit() int { return hardFactor * c.MaxOutbound }

// What a server does with input.
const (
	running    int32 = iota // takes requests
	draining                // leaves them unread
	discarding              // reads and forgets, until the peer has seen the end
)

// Server accepts connections and passes their requests to a Handler. Make one with NewServer; it runs once.
type Server struct {
	endpoint
	cfg     ServerConfig
	lanes   []*lane
	engine  *gnet.Client
	sweeper *sweeper
	closer  *closer

	started atomic.Bool
	ready   chan struct{} // closed when all addresses are listened on
	done    chan struct{} // closed when Run returns
	addrs   []netip.AddrPort

	phase  atomic.Int32
	nextID atomic.Uint64

	mu    sync.Mutex
	conns map[uint64]*serverLink // guarded by mu; from the opening until the end of the last request
	open  atomic.Int64
}

// NewServer checks the configuration. It opens nothing: Run does.
func NewServer(cfg ServerConfig) (*Server, error) {
	if cfg.Handler == nil {
		return nil, errors.New("server has no handler")
	}
	if len(cfg.Addrs)+len(cfg.Listeners) == 0 {
		return nil, errors.New("server has no address to listen on")
	}
	if len(cfg.Lanes) == 0 {
		cfg.Lanes = []LaneConfig{{Name: "all", Workers: 2 * runtime.GOMAXPROCS(0)}}
	}
	if cfg.LaneOf == nil {
		cfg.LaneOf = func(int32) int { return 0 }
	}
	if cfg.IdleTimeout <= 0 {
		cfg.IdleTimeout = defaultIdleTimeout
	}
	if cfg.MaxOutbound <= 0 {
		cfg.MaxOutbound = defaultMaxOutbound
	}
	if cfg.StopTimeout <= 0 {
		cfg.StopTimeout = defaultStopTimeout
	}
	if cfg.EventLoops <= 0 {
		cfg.EventLoops = runtime.GOMAXPROCS(0)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	s := &Server{
		cfg:   cfg,
		ready: make(chan struct{}),
		done:  make(chan struct{}),
		conns: make(map[uint64]*serverLink),
	}
	s.handler, s.log = cfg.Handler, cfg.Logger
	for i, lc := range cfg.Lanes {
		if lc.Workers < 0 || lc.Queue < 0 || lc.MaxWait < 0 {
			return nil, fmt.Errorf("lane %q: negative value", lc.Name)
		}
		s.lanes = append(s.lanes, newLane(lc, i, &s.endpoint))
	}
	for i, l := range s.lanes {
		l.others = slices.Concat(s.lanes[:i], s.lanes[i+1:])
	}
	s.sweeper = newSweeper(s)
	s.closer = newCloser(cfg.OnClose)
	return s, nil
}

// Ready is closed when the server listens on all its addresses.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Addrs are the addresses listened on, those of Listeners first, with the ports that the system chose. It waits
// until they are known; nil if Run failed before.
func (s *Server) Addrs() []netip.AddrPort {
	select {
	case <-s.ready:
		return s.addrs
	case <-s.done:
		return s.addrs
	}
}

// Stats is a snapshot; it may be called at any time.
func (s *Server) Stats() Stats {
	st := s.snapshot()
	st.InFlight = int(s.inflight())
	st.Connections = int(s.open.Load())
	st.Choked = s.sweeper.choked()
	for _, l := range s.lanes {
		st.Lanes = append(st.Lanes, l.stats())
	}
	return st
}

// EachConn calls fn for every open connection, until it returns false. fn may call anything of the connection.
func (s *Server) EachConn(fn func(*Conn) bool) {
	for _, k := range s.links() {
		if !k.conn.Closed() && !fn(&k.conn) {
			return
		}
	}
}

func (s *Server) links() []*serverLink {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*serverLink, 0, len(s.conns))
	for _, k := range s.conns {
		all = append(all, k)
	}
	return all
}

func (s *Server) inflight() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := int64(0)
	for _, k := range s.conns {
		n += k.conn.inflight()
	}
	return n
}

func (s *Server) laneOf(code int32) *lane {
	i := s.cfg.LaneOf(code)
	if i < 0 || i >= len(s.lanes) {
		i = 0
	}
	return s.lanes[i]
}

// Run listens and serves until ctx is done, then stops: no connection is accepted and no request read any more, those
// taken are answered and the answers sent, for at most StopTimeout; then all connections are closed. It returns nil
// after a stop, ErrStillRunning if a handler did not return, and the error of a start that failed.
func (s *Server) Run(ctx context.Context) error {
	if s.started.Swap(true) {
		return errors.New("server ran before")
	}
	defer close(s.done)
	listeners, err := listen(ctx, s.cfg.Listeners, s.cfg.Addrs)
	if err != nil {
		return err
	}
	for _, ln := range listeners {
		s.addrs = append(s.addrs, addrOf(ln.Addr()))
	}
	serveCtx, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	s.ctx = serveCtx
	s.engine, err = gnet.NewClient(&events{srv: s}, gnet.WithNumEventLoop(s.cfg.EventLoops), gnet.WithLogger(gnetLog{s.log}),
		gnet.WithReadBufferCap(loopRead), gnet.WithTCPNoDelay(gnet.TCPDelay)) // package net has set TCP_NODELAY already
	if err == nil {
		err = s.engine.Start()
	}
	if err != nil {
		closeAll(listeners)
		return fmt.Errorf("event loops: %w", err)
	}
	return s.serve(ctx, listeners, giveUp)
}

// serve owns all goroutines of a server besides those of gnet, which engine.Stop ends.
func (s *Server) serve(ctx context.Context, listeners []net.Listener, giveUp context.CancelFunc) error {
	var acceptors, workers, loops errgroup.Group
	backCtx, stopBack := context.WithCancel(context.WithoutCancel(ctx))
	defer stopBack()
	loops.Go(func() error { return s.sweeper.run(backCtx) })
	loops.Go(s.closer.run)
	for _, l := range s.lanes {
		for range l.cfg.Workers {
			workers.Go(func() error { l.work(); return nil })
		}
	}
	for _, ln := range listeners {
		acceptors.Go(func() error { return s.accept(ctx, ln) })
	}
	close(s.ready)
	<-ctx.Done()

	closeAll(listeners)
	_ = acceptors.Wait() // none enrolls a connection from here on
	s.drain()
	giveUp()
	for _, l := range s.lanes {
		l.close()
	}
	idle := make(chan struct{})
	loops.Go(func() error { _ = workers.Wait(); close(idle); return nil })
	var err error
	select {
	case <-idle:
	case <-time.After(max(10*s.cfg.StopTimeout, time.Second)): // since giveUp; a slow disk may hold them, and it is closed next
		err = ErrStillRunning // their goroutines end when they do
	}
	_ = s.engine.Stop()
	stopBack()
	if err != nil {
		s.closer.stop()
		return err
	}
	for _, k := range s.links() { // of a stop that ran into its bound
		for _, st := range k.conn.strands {
			if st != nil {
				st.lane.discard(st)
			}
		}
	}
	s.closer.stop()
	return loops.Wait()
}

// listen listens on more addresses; with an error it leaves none open.
func listen(ctx context.Context, listeners []net.Listener, addrs []string) ([]net.Listener, error) {
	var lc net.ListenConfig
	for _, addr := range addrs {
		ln, err := lc.Listen(ctx, "tcp", addr)
		if err != nil {
			closeAll(listeners)
			return nil, fmt.Errorf("listen on %s: %w", addr, err)
		}
		listeners = append(listeners, ln)
	}
	return listeners, nil
}

func closeAll(listeners []net.Listener) {
	for _, ln := range listeners {
		_ = ln.Close()
	}
}

func addrOf(a net.Addr) netip.AddrPort {
	if t, ok := a.(*net.TCPAddr); ok {
		ap := t.AddrPort()
		return netip.AddrPortFrom(ap.Addr().Unmap().WithZone(""), ap.Port())
	}
	return netip.AddrPort{}
}

// accept takes connections of one listener until it is closed. It does not end for want of descriptors or memory, and loses
// no connection by it: it waits until there are some.
func (s *Server) accept(ctx context.Context, ln net.Listener) error {
	const shortest, longest = 5 * time.Millisecond, time.Second
	wait := shortest
	for {
		nc, err := acceptFrom(ln)
		if err == nil {
			wait = shortest
			s.adopt(nc)
			continue
		}
		if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
			return nil //nolint:nilerr // the listener is closed to stop
		}
		if skipped, ok := s.loud.allow(time.Now()); ok {
			s.log.Error("connection not accepted", "addr", ln.Addr().String(),
				"err", fmt.Errorf("%w (%d other lines left out)", err, skipped))
		}
		select {
		case <-time.After(wait):
			wait = min(2*wait, longest)
		case <-ctx.Done():
		}
	}
}

// acceptFrom takes a connection, once there is a second descriptor: adopt needs one for a moment.
func acceptFrom(ln net.Listener) (net.Conn, error) {
	spare, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	defer func() { _ = spare.Close() }()
	return ln.Accept()
}

// adopt gives an accepted connection to an event loop.
func (s *Server) adopt(nc net.Conn) {
	k := &serverLink{srv: s}
	k.conn.init(&s.endpoint, k, s.nextID.Add(1), addrOf(nc.LocalAddr()), addrOf(nc.RemoteAddr()), len(s.lanes))
	k.conn.ended = s.ended
	// gnet puts the memory of zone names into a pool of its own when the connection ends, but those of package net are
	// shared.
	for _, a := range []net.Addr{nc.LocalAddr(), nc.RemoteAddr()} {
		if t, ok := a.(*net.TCPAddr); ok {
			t.Zone = ""
		}
	}
	if _, err := s.engine.EnrollContext(nc, k); err != nil {
		s.warn("connection not accepted", &k.conn, err)
	}
}

// events receives what gnet has to tell. Each method runs on the event loop of its connection.
type events struct {
	gnet.BuiltinEventEngine
	srv *Server
}

// OnOpen registers a connection.
func (e *events) OnOpen(g gnet.Conn) ([]byte, gnet.Action) {
	s, k := e.srv, g.Context().(*serverLink)
	k.loop, k.fd = g.EventLoop(), g.Fd()
	k.poller = -1
	if fd, ok := pollerOf(k.loop); ok {
		k.poller = fd
	}
	s.mu.Lock()
	s.conns[k.conn.id] = k
	s.mu.Unlock()
	k.mu.Lock()
	k.g = g
	k.mu.Unlock()
	s.accepted.Add(1)
	s.open.Add(1)
	return nil, gnet.None
}

// OnTraffic takes input.
func (e *events) OnTraffic(g gnet.Conn) gnet.Action {
	return g.Context().(*serverLink).traffic(g)
}

// OnClose is the end of a connection; gnet closes the socket behind it.
func (e *events) OnClose(g gnet.Conn, _ error) gnet.Action {
	k := g.Context().(*serverLink)
	e.srv.open.Add(-1)
	k.gone(g)
	return gnet.None
}

// ended is called when a connection is closed and its last request has left its handler.
func (s *Server) ended(c *Conn) {
	s.mu.Lock()
	delete(s.conns, c.id)
	s.mu.Unlock()
	s.closer.add(c)
}
