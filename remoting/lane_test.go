package remoting

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/protocol"
)

// gate is a handler that holds everything until it is opened, and notes what it saw.
type gate struct {
	open    chan struct{}
	mu      sync.Mutex
	seen    []int32
	now     atomic.Int32 // in the handler
	highest atomic.Int32
}

func newGate() *gate { return &gate{open: make(chan struct{})} }

func (g *gate) Serve(_ context.Context, r *Request) {
	n := g.now.Add(1)
	for {
		h := g.highest.Load()
		if n <= h || g.highest.CompareAndSwap(h, n) {
			break
		}
	}
	<-g.open
	g.now.Add(-1)
	g.mu.Lock()
	g.seen = append(g.seen, r.Opaque)
	g.mu.Unlock()
	r.Reply(protocol.Reply{Body: r.Body})
}

func (g *gate) order() []int32 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]int32(nil), g.seen...)
}

func TestLaneRunsConnectionsInParallelAndEachInOrder(t *testing.T) {
	g := newGate()
	ts := startServer(t, ServerConfig{Handler: g, Lanes: []LaneConfig{{Name: "l", Workers: 3}}})
	peers := []*rawPeer{dialRaw(t, ts.addr), dialRaw(t, ts.addr), dialRaw(t, ts.addr), dialRaw(t, ts.addr)}
	const each = 100
	for _, p := range peers {
		var stream []byte
		for i := range each {
			stream = append(stream, frame(echo, int32(i), false, "")...)
		}
		p.write(stream)
	}
	eventually(t, func() bool { return g.now.Load() == 3 }, "three workers, three connections at a time")
	eventually(t, func() bool { return ts.Stats().Requests == 4*each }, "all are read")
	st := ts.Stats().Lanes[0]
	require.Equal(t, 3, st.Running)
	require.Equal(t, 4*each-3, st.Waiting)
	close(g.open)
	for _, p := range peers {
		for i := range each {
			require.Equal(t, int32(i), p.read().Opaque)
		}
	}
	require.Equal(t, int32(3), g.highest.Load())
	require.Equal(t, uint64(4*each), ts.Stats().Lanes[0].Handled)
}

func TestOneConnectionNeverRunsTwoRequestsOfALane(t *testing.T) {
	var now, clashes atomic.Int32
	ts := startServer(t, ServerConfig{
		Lanes:  []LaneConfig{{Name: "a", Workers: 4}, {Name: "b", Workers: 4}},
		LaneOf: func(code int32) int { return int(code) & 1 },
		Handler: HandlerFunc(func(_ context.Context, r *Request) {
			if r.Code&1 == 1 {
				if now.Add(1) != 1 {
					clashes.Add(1)
				}
				now.Add(-1)
			}
			r.Reply(protocol.Reply{})
		}),
	})
	p := dialRaw(t, ts.addr)
	var stream []byte
	for i := range 1000 {
		stream = append(stream, frame(echo, int32(i), false, "")...)
		stream = append(stream, frame(held, int32(10000+i), false, "")...)
	}
	p.write(stream)
	next := [2]int32{0, 10000}
	for range 2000 {
		op := p.read().Opaque
		i := op / 10000
		require.Equal(t, next[i], op, "each lane in its order")
		next[i]++
	}
	require.Zero(t, clashes.Load())
}

func TestABlockedLaneLeavesOthersAlone(t *testing.T) {
	g := newGate()
	ts := startServer(t, ServerConfig{
		Lanes:  []LaneConfig{{Name: "blocked", Workers: 1}, {Name: "free", Workers: 1}, {Name: "loop"}},
		LaneOf: func(code int32) int { return int(code - echo) },
		Handler: HandlerFunc(func(ctx context.Context, r *Request) {
			if r.Code == echo {
				g.Serve(ctx, r)
				return
			}
			r.Reply(protocol.Reply{})
		}),
	})
	p := dialRaw(t, ts.addr)
	p.write(frame(echo, 1, false, ""))
	p.write(frame(echo+1, 2, false, ""))
	require.Equal(t, int32(2), p.read().Opaque)
	p.write(frame(echo+2, 3, false, ""))
	require.Equal(t, int32(3), p.read().Opaque)
	p.write(frame(77, 4, false, "")) // no such lane: the first one
	close(g.open)
	require.Equal(t, int32(1), p.read().Opaque)
	require.Equal(t, int32(4), p.read().Opaque)
}

func TestFullLaneSaysSoAtOnce(t *testing.T) {
	g := newGate()
	ts := startServer(t, ServerConfig{Handler: g, Lanes: []LaneConfig{{Name: "send", Workers: 1, Queue: 2}}})
	p := dialRaw(t, ts.addr)
	p.write(frame(echo, 0, false, ""))
	eventually(t, func() bool { return g.now.Load() == 1 }, "the worker is busy")
	for i := range 5 {
		p.write(frame(echo, int32(i+1), false, ""))
	}
	for i := range 3 { // 1 and 2 wait
		got := p.read()
		require.Equal(t, int32(protocol.SystemBusy), got.Code)
		require.Equal(t, int32(3+i), got.Opaque)
		for _, part := range []string{"lane send", "2 requests wait", "the limit is 2", "not handled"} {
			require.Contains(t, got.Remark, part)
		}
	}
	close(g.open)
	for i := range 3 {
		require.Equal(t, int32(i), p.read().Opaque)
	}
	require.Equal(t, []int32{0, 1, 2}, g.order(), "refused ones were not handled")
	require.Equal(t, uint64(3), ts.Stats().Lanes[0].Refused)
	settled(t, ts)
}

func TestRequestThatWaitedTooLongIsRefusedUnhandled(t *testing.T) {
	g := newGate()
	ts := startServer(t, ServerConfig{
		Handler: g, Lanes: []LaneConfig{{Name: "send", Workers: 1, MaxWait: 30 * time.Millisecond}},
	})
	p := dialRaw(t, ts.addr)
	p.write(frame(echo, 0, true, "")) // one-way: handled however late
	eventually(t, func() bool { return g.now.Load() == 1 }, "the worker is busy")
	p.write(frame(echo, 1, false, ""))
	p.write(frame(echo, 2, true, ""))
	eventually(t, func() bool { return ts.Stats().Requests == 3 }, "they wait")
	read := time.Now()
	eventually(t, func() bool { return time.Since(read) > 60*time.Millisecond }, "longer than they may")
	close(g.open)
	got := p.read()
	require.Equal(t, int32(1), got.Opaque)
	require.Equal(t, int32(protocol.SystemBusy), got.Code)
	require.Regexp(t, `waited \d\d+ ms in lane send, the limit is 30 ms; it was not handled`, got.Remark)
	eventually(t, func() bool { return len(g.order()) == 2 }, "the one-way request is handled")
	require.Equal(t, []int32{0, 2}, g.order())
	require.Equal(t, uint64(1), ts.Stats().Lanes[0].Expired)
}

func TestOnewayRequestsHoldTheirSenderBackAndAreNotLost(t *testing.T) {
	g := newGate()
	ts := startServer(t, ServerConfig{Handler: g, Lanes: []LaneConfig{{Name: "l", Workers: 1, Queue: 5}}})
	p, other := dialRaw(t, ts.addr), dialRaw(t, ts.addr)
	const n = 3000
	body := strings.Repeat("x", 10_000) // 30 MB, far more than sockets and buffers of ours should take
	var sent atomic.Int64
	written := make(chan struct{})
	go func() {
		defer close(written)
		for i := range n {
			if _, err := p.Write(frame(echo, int32(i), true, body)); err != nil {
				return
			}
			sent.Add(1)
		}
	}()
	eventually(t, func() bool { return ts.Stats().Lanes[0].Waiting == 5 && ts.Stats().Requests == 7 }, "the lane is full")
	steady(t, sent.Load)
	require.Less(t, sent.Load(), int64(n), "the sender is held back")
	// Neighbours are told, not held.
	other.write(frame(echo, 1, false, ""))
	require.Equal(t, int32(protocol.SystemBusy), other.read().Code)
	require.Equal(t, int64(7), int64(ts.Stats().Requests)-1, "one runs, five wait, one is in hand, none is read ahead")
	close(g.open)
	<-written
	eventually(t, func() bool { return len(g.order()) == n }, "all are handled")
	for i, op := range g.order() {
		require.Equal(t, int32(i), op)
	}
	settled(t, ts)
}

func TestOnewayRequestsOfAClosedConnectionAreHandled(t *testing.T) {
	g := newGate()
	ts := startServer(t, ServerConfig{Handler: g, Lanes: []LaneConfig{{Name: "l", Workers: 1, Queue: 1}}})
	const n = 500
	p := dialRaw(t, ts.addr)
	var stream []byte
	for i := range n {
		stream = append(stream, frame(echo, int32(i), true, "")...)
	}
	p.write(stream)
	_ = p.Close()
	eventually(t, func() bool { return ts.Stats().Lanes[0].Waiting == 1 }, "the lane is full")
	close(g.open)
	eventually(t, func() bool { return len(g.order()) == n }, "all are handled")
}

// Input that gnet has read ahead, as it does where reading can't be stopped, is not lost with the connection either.
func TestOnewayRequestsReadAheadOfAClosedConnectionAreHandled(t *testing.T) {
	g := newGate()
	ts := startServer(t, ServerConfig{Handler: g, Lanes: []LaneConfig{{Name: "l", Workers: 1, Queue: 1}}})
	const n = 500
	p := dialRaw(t, ts.addr)
	connOf(t, ts, p)
	blind(t, ts.links()[0])
	for i := range n {
		p.write(frame(echo, int32(i), true, ""))
	}
	p.write(frame(echo, n, false, "")) // nobody is left to answer to
	_ = p.Close()
	eventually(t, func() bool { return ts.Stats().Requests == n }, "all are taken")
	close(g.open)
	eventually(t, func() bool { return len(g.order()) == n }, "all are handled")
	for i, op := range g.order() {
		require.Equal(t, int32(i), op)
	}
}

// fakeLink notes that it was told to go on.
type fakeLink struct {
	resumed int
	gone    bool
}

func (f *fakeLink) send(b *buffer) error                    { b.release(); return nil }
func (f *fakeLink) reply(b *buffer, _ []byte, _ bool) error { return f.send(b) }
func (f *fakeLink) close()                                  {}
func (f *fakeLink) resume() bool                            { f.resumed++; return !f.gone }

// stalledLane is a lane with room for one, taken by a first connection, and two connections that wait for it.
func stalledLane(t *testing.T) (l *lane, a *Conn, links [2]*fakeLink) {
	e := &endpoint{handler: echoes, log: (&logged{}).logger()}
	l = newLane(LaneConfig{Name: "l", Workers: 1, Queue: 1}, 0, e) // its worker is this test
	oneway := func(link *fakeLink) (*Conn, bool) {
		c := &Conn{}
		c.init(e, link, 1, netip.AddrPort{}, netip.AddrPort{}, 1)
		return c, l.push(alone(e.request(c, l, nil, protocol.Command{Flag: protocol.FlagOneway})), false).n == 0
	}
	links = [2]*fakeLink{{}, {}}
	_, ok := oneway(&fakeLink{})
	require.True(t, ok)
	a, ok = oneway(links[0])
	require.False(t, ok)
	_, ok = oneway(links[1])
	require.False(t, ok)
	return l, a, links
}

// Requests that come together find a lane with room for some of them: what can be refused is, up to the first one-way
// request, which waits with all behind it. Forced, all go in, whatever the room.
func TestRequestsThatComeTogetherFindRoomForSome(t *testing.T) {
	e := &endpoint{handler: echoes, log: (&logged{}).logger()}
	l := newLane(LaneConfig{Name: "l", Workers: 1, Queue: 2}, 0, e) // its worker is this test
	link := &fakeLink{}
	c := &Conn{}
	c.init(e, link, 1, netip.AddrPort{}, netip.AddrPort{}, 1)
	var q line
	for i, flag := range []int32{0, 0, 0, 0, protocol.FlagOneway, 0, protocol.FlagOneway} {
		q.add(alone(e.request(c, l, nil, protocol.Command{Opaque: int32(i), Flag: flag})))
	}
	opaques := func(q line) (all []int32) {
		for r := q.head; r != nil; r = r.next {
			all = append(all, r.Opaque)
		}
		require.Len(t, all, q.n)
		return all
	}
	rest := l.push(q, false)
	require.Equal(t, []int32{4, 5, 6}, opaques(rest))
	require.Equal(t, uint64(2), l.refused.Load())
	require.Equal(t, int64(5), c.owed.Load())
	require.Zero(t, link.resumed)
	var h hand
	for i := range int32(2) {
		require.True(t, l.deal(&h))
		require.Len(t, h.requests, 1)
		require.Equal(t, i, h.requests[0].Opaque)
		require.Equal(t, 1, link.resumed)
	}
	rest = l.push(rest, false)
	require.Equal(t, []int32{6}, opaques(rest), "there was room for two")
	rest = l.push(rest, true)
	require.Zero(t, rest.n)
	s := c.strand(l)
	require.Equal(t, []int32{4, 5, 6}, opaques(s.line))
	require.Equal(t, 3, l.waiting)
}

// A connection's requests for several lanes keep their order within each, and one lane that is full holds back only what
// came behind.
func TestRequestsForSeveralLanesThatComeTogether(t *testing.T) {
	g := newGate()
	ts := startServer(t, ServerConfig{
		Handler: g, Lanes: []LaneConfig{{Name: "a", Workers: 1}, {Name: "b", Workers: 1, Queue: 1}, {Name: "c"}},
		LaneOf: func(code int32) int { return int(code) - 1 },
	})
	close(g.open)
	p := dialRaw(t, ts.addr)
	var stream []byte
	const n = 600
	for i := range n {
		stream = append(stream, frame(int32(1+i%3), int32(i), true, "")...)
	}
	p.write(stream)
	eventually(t, func() bool { return len(g.order()) == n }, "all are handled")
	last := map[int32]int32{}
	for _, opaque := range g.order() {
		lane := opaque % 3
		require.GreaterOrEqual(t, opaque, last[lane])
		last[lane] = opaque
	}
	settled(t, ts)
}

func TestRoomOfferedToAConnectionThatIsGoneIsOfferedToTheNext(t *testing.T) {
	l, _, links := stalledLane(t)
	links[0].gone = true
	require.True(t, l.deal(new(hand)))
	require.Equal(t, 1, links[1].resumed)
}

func TestRoomThatIsNotUsedIsPassedOn(t *testing.T) {
	l, a, links := stalledLane(t)
	require.True(t, l.deal(new(hand)))
	require.Equal(t, 1, links[0].resumed)
	require.Zero(t, links[1].resumed)
	a.strand(l).parked = true // its request will wait elsewhere
	require.Zero(t, l.push(alone(l.e.request(a, l, nil, protocol.Command{Flag: protocol.FlagOneway})), false).n)
	require.Equal(t, 1, links[1].resumed)
}

func TestManyStalledConnectionsAllGoOn(t *testing.T) {
	g := newGate()
	ts := startServer(t, ServerConfig{Handler: g, Lanes: []LaneConfig{{Name: "l", Workers: 2, Queue: 1}}})
	const peers, each = 40, 50
	for i := range peers {
		p := dialRaw(t, ts.addr)
		for range each {
			p.write(frame(echo, int32(i), true, ""))
		}
		if i%3 == 0 {
			_ = p.Close()
		}
	}
	eventually(t, func() bool { return ts.Stats().Lanes[0].Waiting >= 1 }, "full")
	close(g.open)
	eventually(t, func() bool { return len(g.order()) == peers*each }, "nobody is forgotten")
}

func TestHandlerPanicIsAnsweredAndSurvived(t *testing.T) {
	for _, workers := range []int{0, 1} {
		t.Run(fmt.Sprint(workers, " workers"), func(t *testing.T) {
			ts := startServer(t, ServerConfig{
				Lanes: []LaneConfig{{Name: "l", Workers: workers}},
				Handler: HandlerFunc(func(_ context.Context, r *Request) {
					if r.Code == panic1 {
						panic("boom")
					}
					r.Reply(protocol.Reply{})
				}),
			})
			p := dialRaw(t, ts.addr)
			p.write(frame(panic1, 1, false, ""))
			got := p.read()
			require.Equal(t, int32(protocol.SystemError), got.Code)
			require.NotContains(t, got.Remark, "boom", "what went wrong inside is for the log")
			p.write(frame(panic1, 2, true, ""))
			p.write(frame(echo, 3, false, ""))
			require.Equal(t, int32(3), p.read().Opaque)
			require.Equal(t, uint64(2), ts.Stats().Lanes[0].Panics)
			settled(t, ts)
			log := ts.log.String()
			require.Contains(t, log, "boom")
			require.Contains(t, log, "lane_test.go", "the stack")
		})
	}
}

func TestPanicAfterTheReplyIsOnlyCounted(t *testing.T) {
	ts := startServer(t, ServerConfig{Handler: HandlerFunc(func(_ context.Context, r *Request) {
		r.Reply(protocol.Reply{})
		panic("late")
	})})
	p := dialRaw(t, ts.addr)
	p.write(frame(echo, 1, false, ""))
	require.Equal(t, int32(protocol.Success), p.read().Code)
	eventually(t, func() bool { return ts.Stats().Lanes[0].Panics == 1 }, "counted")
	require.Zero(t, ts.Stats().DuplicateReplies)
}
