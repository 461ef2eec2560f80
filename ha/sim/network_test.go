package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Hosts: the brokers are 1, 2, 3.
const (
	clients = 8 // producers and consumers
	names   = 9 // the name server
)

func hostIP(host int) string { return fmt.Sprintf("10.0.0.%d", host) }

// network is what the hosts talk over. Bytes of a connection come late, in order; between hosts that are parted they do not
// come until these are joined again.
type network struct {
	seed uint64

	mu     sync.Mutex
	cut    map[[2]int]bool       // guarded by mu; by hosts from and to: nothing comes
	when   map[[2]int]time.Time  // guarded by mu; of the last change of that, the lower host first
	slow   map[int]time.Duration // guarded by mu; by receiving host
	conns  []*end                // guarded by mu; one end of each connection
	ports  map[string]*listener  // guarded by mu; HA ports
	ways   map[[2]int]uint64     // guarded by mu; by hosts from and to: messages and connections so far
	change chan struct{}         // guarded by mu; closed when cut has changed
}

func newNetwork(seed uint64) *network {
	return &network{
		seed: seed, cut: map[[2]int]bool{}, when: map[[2]int]time.Time{}, slow: map[int]time.Duration{}, ways: map[[2]int]uint64{},
		ports: map[string]*listener{}, change: make(chan struct{}),
	}
}

func pairOf(a, b int) [2]int { return [2]int{min(a, b), max(a, b)} }

func (n *network) part(a, b int, parted bool) {
	n.partOneWay(a, b, parted)
	n.partOneWay(b, a, parted)
}

// partOneWay lets nothing come from one host to another, whatever comes the other way.
func (n *network) partOneWay(from, to int, parted bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if way := [2]int{from, to}; n.cut[way] != parted {
		n.cut[way], n.when[pairOf(from, to)] = parted, time.Now()
	}
	close(n.change)
	n.change = make(chan struct{})
}

// reaches says whether anything comes from one host to another.
func (n *network) reaches(from, to int) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.cut[[2]int{from, to}]
}

// joined says whether a and b can talk.
func (n *network) joined(a, b int) bool { return n.reaches(a, b) && n.reaches(b, a) }

// joinedFor says whether they could talk all the time for so long.
func (n *network) joinedFor(a, b int, d time.Duration) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.cut[[2]int{a, b}] && !n.cut[[2]int{b, a}] && time.Since(n.when[pairOf(a, b)]) >= d
}

// changes is what is closed when it changes who reaches whom.
func (n *network) changes() chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.change
}

func (n *network) slowness(host int) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.slow[host]
}

func (n *network) setSlow(host int, by time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.slow[host] = by
}

// drop cuts all connections of a host; frozen: the other ends do not notice.
func (n *network) drop(host int, frozen bool) {
	n.mu.Lock()
	var list []*end
	for _, e := range n.conns {
		if e.host == host {
			list = append(list, e)
		}
		if e.peer.host == host {
			list = append(list, e.peer)
		}
	}
	n.mu.Unlock()
	for _, e := range list {
		if frozen {
			e.out.set(func(p *pipe) { p.frozen = true })
			e.in.set(func(p *pipe) { p.broken = true })
		} else {
			_ = e.Close()
		}
	}
}

// reset cuts the connections between two hosts.
func (n *network) reset(a, b int) {
	n.mu.Lock()
	var list []*end
	for _, e := range n.conns {
		if pairOf(e.host, e.peer.host) == pairOf(a, b) {
			list = append(list, e)
		}
	}
	n.mu.Unlock()
	for _, e := range list {
		_ = e.Close()
	}
}

// pipe is one direction of a connection.
type pipe struct {
	net      *network
	from, to int

	mu     sync.Mutex
	queue  []chunk       // guarded by mu
	size   int           // guarded by mu; bytes in queue
	shut   bool          // guarded by mu; nothing is written any more
	broken bool          // guarded by mu; nothing is read any more
	frozen bool          // guarded by mu; the writer is gone, and nobody knows
	last   time.Time     // guarded by mu; when the last chunk comes
	rnd    *rand.Rand    // guarded by mu
	change chan struct{} // guarded by mu; closed when any of these has changed
}

type chunk struct {
	at time.Time
	b  []byte
}

// pipeRoom is how much is under way at most.
const pipeRoom = 64 << 10

func (p *pipe) set(fn func(*pipe)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fn(p)
	p.changed()
}

func (p *pipe) changed() { // mu is held
	close(p.change)
	p.change = make(chan struct{})
}

// wait sleeps until one of the channels is closed or a time has come; false when that is the deadline.
func wait(a, b chan struct{}, until, deadline time.Time) bool {
	due := deadline
	if !until.IsZero() && (due.IsZero() || until.Before(due)) {
		due = until
	}
	var timer <-chan time.Time
	if !due.IsZero() {
		t := time.NewTimer(time.Until(due))
		defer t.Stop()
		timer = t.C
	}
	select {
	case <-a:
	case <-b:
	case <-timer:
		return deadline.IsZero() || time.Now().Before(deadline)
	}
	return true
}

func (p *pipe) read(b []byte, deadline func() time.Time) (int, error) {
	for {
		parting := p.net.changes()
		comes := p.net.reaches(p.from, p.to)
		p.mu.Lock()
		var until time.Time
		switch {
		case p.broken:
			p.mu.Unlock()
			return 0, net.ErrClosed
		case len(p.queue) > 0 && comes && !p.frozen:
			if until = p.queue[0].at; !until.After(time.Now()) {
				n := copy(b, p.queue[0].b)
				if p.queue[0].b = p.queue[0].b[n:]; len(p.queue[0].b) == 0 {
					p.queue = p.queue[1:]
				}
				p.size -= n
				p.changed()
				p.mu.Unlock()
				return n, nil
			}
		case len(p.queue) == 0 && p.shut && comes && !p.frozen:
			p.mu.Unlock()
			return 0, io.EOF
		}
		change := p.change
		p.mu.Unlock()
		if !wait(change, parting, until, deadline()) {
			return 0, os.ErrDeadlineExceeded
		}
	}
}

func (p *pipe) write(b []byte, deadline func() time.Time) (int, error) {
	for {
		slow := p.net.slowness(p.to)
		p.mu.Lock()
		switch {
		case p.shut:
			p.mu.Unlock()
			return 0, net.ErrClosed
		case p.broken && !p.frozen:
			p.mu.Unlock()
			return 0, syscall.EPIPE
		case p.size < pipeRoom:
			at := time.Now().Add(time.Duration(p.rnd.IntN(3000))*time.Microsecond + slow)
			if at.Before(p.last) {
				at = p.last
			}
			p.last = at
			p.queue = append(p.queue, chunk{at, append([]byte(nil), b...)})
			p.size += len(b)
			p.changed()
			p.mu.Unlock()
			return len(b), nil
		}
		change := p.change
		p.mu.Unlock()
		if !wait(change, nil, time.Time{}, deadline()) {
			return 0, os.ErrDeadlineExceeded
		}
	}
}

// end is one end of a connection: a net.Conn.
type end struct {
	host    int
	peer    *end
	in, out *pipe
	net     *network
	local   net.Addr

	mu                      sync.Mutex
	readUntil, writtenUntil time.Time // guarded by mu
}

func (e *end) Read(b []byte) (int, error) {
	return e.in.read(b, func() time.Time {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.readUntil
	})
}

func (e *end) Write(b []byte) (int, error) {
	return e.out.write(b, func() time.Time {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.writtenUntil
	})
}

func (e *end) Close() error {
	e.in.set(func(p *pipe) { p.broken = true })
	e.out.set(func(p *pipe) { p.shut = true })
	e.net.mu.Lock()
	defer e.net.mu.Unlock()
	e.net.conns = slices.DeleteFunc(e.net.conns, func(c *end) bool { return c == e || c == e.peer })
	return nil
}

func (e *end) LocalAddr() net.Addr  { return e.local }
func (e *end) RemoteAddr() net.Addr { return e.peer.local }

func (e *end) SetDeadline(t time.Time) error {
	return errors.Join(e.SetReadDeadline(t), e.SetWriteDeadline(t))
}

func (e *end) SetReadDeadline(t time.Time) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.readUntil = t
	return nil
}

func (e *end) SetWriteDeadline(t time.Time) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.writtenUntil = t
	return nil
}

// listener is an HA port.
type listener struct {
	net    *network
	host   int
	addr   string
	accept chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (n *network) listen(host int, addr string) *listener {
	l := &listener{net: n, host: host, addr: addr, accept: make(chan net.Conn, 16), closed: make(chan struct{})}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ports[addr] = l
	return l
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.accept:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() {
		close(l.closed)
		l.net.mu.Lock()
		defer l.net.mu.Unlock()
		if l.net.ports[l.addr] == l {
			delete(l.net.ports, l.addr)
		}
	})
	return nil
}

func (l *listener) Addr() net.Addr { return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(l.addr)) }

// dial opens a connection from a host.
func (n *network) dial(ctx context.Context, host int, addr string) (net.Conn, error) {
	at, err := netip.ParseAddrPort(addr)
	if err != nil {
		return nil, err
	}
	to := int(at.Addr().As4()[3])
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	for {
		parting := n.changes()
		if n.joined(host, to) {
			break
		}
		select {
		case <-parting:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.ports[addr]
	if l == nil {
		return nil, syscall.ECONNREFUSED
	}
	way := n.way(host, to)
	port := uint16(10000*host + int(way%10000))
	one := func(from, to int, k uint64) *pipe {
		return &pipe{net: n, from: from, to: to, rnd: rand.New(rand.NewPCG(n.seed, way<<1|k)), change: make(chan struct{})}
	}
	there, back := one(host, to, 0), one(to, host, 1)
	a := &end{host: host, net: n, in: back, out: there, local: net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(hostIP(host)), port))}
	b := &end{host: to, net: n, in: there, out: back, local: l.Addr(), peer: a}
	a.peer = b
	select {
	case l.accept <- b:
	default:
		return nil, syscall.ECONNREFUSED
	}
	n.conns = append(n.conns, a)
	return a, nil
}

// way is a number that no other message or connection has. It depends on those alone that went the same way before: what
// others do at the same time, in whatever order, does not change it. n.mu is held.
func (n *network) way(from, to int) uint64 {
	at := [2]int{from, to}
	n.ways[at]++
	return uint64(from)<<40 | uint64(to)<<32 | n.ways[at]
}
