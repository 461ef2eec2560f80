package remoting

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/protocol"
)

// groups is a GroupHandler that notes what comes together. Single requests wait until it is opened.
type groups struct {
	open  chan struct{}
	mu    sync.Mutex
	sizes []int
	seen  []int32
}

func (g *groups) Serve(_ context.Context, r *Request) {
	<-g.open
	g.note(r)
	r.Reply(protocol.Reply{Body: r.Body})
}

func (g *groups) Joins(r *Request) bool { return string(r.Body) != "single" }

func (g *groups) note(group ...*Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sizes = append(g.sizes, len(group))
	for _, r := range group {
		g.seen = append(g.seen, r.Opaque)
	}
}

func (g *groups) ServeGroup(_ context.Context, group []*Request) {
	g.note(group...)
	replies := make([]*protocol.Reply, len(group))
	for i, r := range group {
		switch string(r.Body) {
		case "alone":
			r.Reply(protocol.Reply{Body: []byte("alone")})
		case "panic":
			panic("as asked")
		default:
			replies[i] = &protocol.Reply{Remark: string(r.Body)}
		}
	}
	ReplyGroup(group, replies)
}

func startGroups(t *testing.T) (*groups, *testServer) {
	g := &groups{open: make(chan struct{})}
	return g, startServer(t, ServerConfig{Handler: g, Lanes: []LaneConfig{{Name: "l", Workers: 2, Group: true}}})
}

func TestRequestsThatWaitTogetherAreServedTogether(t *testing.T) {
	g, ts := startGroups(t)
	p := dialRaw(t, ts.addr)
	p.write(frame(echo, 0, false, "first"))
	eventually(t, func() bool { return ts.Stats().Lanes[0].Running == 1 }, "the first one is served alone")
	var stream []byte
	const n = turn + 8
	for i := 1; i <= n; i++ {
		body := "together"
		if i%7 == 0 {
			body = "alone"
		}
		stream = append(stream, frame(echo, int32(i), i%5 == 0, body)...)
	}
	p.write(stream)
	eventually(t, func() bool { return ts.Stats().Requests == n+1 }, "all are read")
	close(g.open)

	answered := map[int32]string{}
	for range 1 + n - n/5 {
		a := p.read()
		answered[a.Opaque] = a.Remark + string(a.Body)
	}
	for i := int32(1); i <= n; i++ {
		want := "together"
		if i%7 == 0 {
			want = "alone"
		}
		if i%5 == 0 {
			want = "" // one-way
		}
		require.Equal(t, want, answered[i], i)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	require.Equal(t, []int{1, turn, 8}, g.sizes)
	for i, opaque := range g.seen {
		require.Equal(t, int32(i), opaque, "in their order")
	}
	eventually(t, func() bool { st := ts.Stats(); return st.InFlight == 0 && st.Lanes[0].Handled == n+1 }, "all are done with")
	require.Zero(t, ts.Stats().DuplicateReplies)
}

// TestRequestsOfSeveralConnectionsAreServedTogether: those that wait are, in the order of each connection; one that joins
// no others is served by itself, and those behind it after it.
func TestRequestsOfSeveralConnectionsAreServedTogether(t *testing.T) {
	g := &groups{open: make(chan struct{})}
	ts := startServer(t, ServerConfig{Handler: g, Lanes: []LaneConfig{{Name: "l", Workers: 1, Group: true}}})
	first := dialRaw(t, ts.addr)
	first.write(frame(echo, 0, false, "first"))
	eventually(t, func() bool { return ts.Stats().Lanes[0].Running == 1 }, "the only worker has it")
	const peers, each = 5, 9
	var all []*rawPeer
	taken := uint64(1)
	for i := range int32(peers) {
		p := dialRaw(t, ts.addr)
		var stream []byte
		for n := range int32(each) {
			body := "together"
			if i == 2 && n == 4 {
				body = "single"
			}
			stream = append(stream, frame(echo, 100*i+n, n%4 == 3, body)...)
		}
		p.write(stream)
		taken += each
		eventually(t, func() bool { return ts.Stats().Requests == taken }, "they wait behind those of the others")
		all = append(all, p)
	}
	close(g.open)
	require.Equal(t, int32(0), first.read().Opaque)
	for i, p := range all {
		for n := range int32(each) {
			if n%4 == 3 {
				continue // one-way
			}
			a := p.read()
			require.Equal(t, 100*int32(i)+n, a.Opaque)
			require.Contains(t, []string{"together", "single"}, a.Remark+string(a.Body))
		}
	}
	settled(t, ts)
	g.mu.Lock()
	defer g.mu.Unlock()
	// The first group ends before the one that is served by itself; when its connection has its next turn the others are
	// done.
	require.Equal(t, []int{1, 9 + 9 + 4, 9 + 9, 1, 4}, g.sizes)
	next := map[int32]int32{}
	for _, opaque := range g.seen[1:] {
		require.Equal(t, next[opaque/100], opaque%100, "connection %d", opaque/100)
		next[opaque/100]++
	}
	require.Equal(t, uint64(1+peers*each), ts.Stats().Lanes[0].Handled)
}

// TestNoWorkerSleepsWhileARequestWaits: those that are called one by one all come.
func TestNoWorkerSleepsWhileARequestWaits(t *testing.T) {
	g := newGate()
	ts := startServer(t, ServerConfig{Handler: g, Lanes: []LaneConfig{{Name: "l", Workers: 8}}})
	for range 3 {
		for range 8 {
			dialRaw(t, ts.addr).write(frame(echo, 1, false, ""))
		}
		eventually(t, func() bool { return g.now.Load() == 8 }, "all workers have one")
		for range 8 {
			g.open <- struct{}{}
		}
		eventually(t, func() bool { return g.now.Load() == 0 }, "all are done")
	}
	close(g.open)
}

func TestAPanicInAGroupIsAnsweredToAllWithoutAnswer(t *testing.T) {
	g, ts := startGroups(t)
	p := dialRaw(t, ts.addr)
	p.write(frame(echo, 0, false, "first"))
	eventually(t, func() bool { return ts.Stats().Lanes[0].Running == 1 }, "the first one is served alone")
	p.write(bytes.Join([][]byte{
		frame(echo, 1, false, "alone"), frame(echo, 2, false, "together"), frame(echo, 3, false, "panic"),
	}, nil))
	eventually(t, func() bool { return ts.Stats().Requests == 4 }, "all are read")
	close(g.open)
	for opaque, want := range []string{"", "", "panicked", "panicked"} {
		a := p.read()
		require.Equal(t, int32(opaque), a.Opaque)
		require.Contains(t, a.Remark, want)
	}
	eventually(t, func() bool { return ts.Stats().InFlight == 0 }, "all are done with")
}

// TestRepliesOfAllKindsStayWhole: replies that their makers write, that the event loop writes, that a full socket takes in
// pieces, come out whole, whoever makes them at the same time.
func TestRepliesOfAllKindsStayWhole(t *testing.T) {
	content := func(opaque int32) []byte {
		size := []int{0, 10, 3000, 70_000, 700_000}[opaque%5]
		b := make([]byte, size)
		for i := range b {
			b[i] = byte(int(opaque) + i>>8)
		}
		return b
	}
	var makers sync.WaitGroup
	ts := startServer(t, ServerConfig{
		Handler: HandlerFunc(func(_ context.Context, r *Request) {
			makers.Go(func() {
				reply := protocol.Reply{Body: content(r.Opaque), Remark: strings.Repeat("r", int(r.Opaque%300))}
				if r.Opaque%3 == 0 {
					r.ReplyLater(reply)
				} else {
					r.Reply(reply)
				}
			})
		}),
		MaxOutbound: 1 << 30,
	})
	p := dialRaw(t, ts.addr)
	const n = 400
	var stream []byte
	for i := range int32(n) {
		stream = append(stream, frame(echo, i, false, "")...)
	}
	p.write(stream)
	seen := map[int32]bool{}
	for range n {
		a := p.read()
		require.False(t, seen[a.Opaque])
		seen[a.Opaque] = true
		require.True(t, bytes.Equal(content(a.Opaque), a.Body), a.Opaque)
		require.Len(t, a.Remark, int(a.Opaque%300))
	}
	makers.Wait()
	require.Equal(t, uint64(n), ts.Stats().Replies)
}

func TestWhatIsLeftOfAReply(t *testing.T) {
	for n := range 8 {
		b := getBuffer(8)
		b.B = append(b.B, "head"...)
		rest, body := unwritten(b, []byte("body"), n)
		require.Equal(t, "headbody"[n:], string(rest.B)+string(body), n)
		rest.release()
	}
}
