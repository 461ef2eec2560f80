package remoting

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/protocol"
)

// connOf has the server tell which of its connections p is.
func connOf(t *testing.T, ts *testServer, p *rawPeer) *Conn {
	t.Helper()
	var found *Conn
	eventually(t, func() bool {
		ts.EachConn(func(c *Conn) bool {
			if c.RemoteAddr() == p.local() {
				found = c
			}
			return found == nil
		})
		return found != nil
	}, "connection is known")
	return found
}

func answer(cmd protocol.Command, opaque int32, body string) []byte {
	return protocol.AppendReply(nil, cmd.Codec, opaque, &protocol.Reply{Body: []byte(body)})
}

func TestServerCallsItsClients(t *testing.T) {
	ts := startServer(t, ServerConfig{Handler: echoes})
	p := dialRaw(t, ts.addr)
	c := connOf(t, ts, p)
	const n = 50
	go func() { // answers in reverse order, with an echo of its own in between
		var got []protocol.Command
		for len(got) < n {
			cmd, err := p.tryRead()
			if err != nil {
				return
			}
			got = append(got, cmd)
		}
		for i := n - 1; i >= 0; i-- {
			_, _ = p.Write(answer(got[i], got[i].Opaque, string(got[i].Body)))
		}
	}()
	var calls sync.WaitGroup
	for i := range n {
		calls.Go(func() {
			want := fmt.Sprint("call ", i)
			resp, err := c.Call(ctxFor(t, soon), protocol.GetConsumerRunningInfo, nil, []byte(want))
			if err != nil || string(resp.Body) != want {
				t.Errorf("call %d: %v", i, err)
			}
		})
	}
	calls.Wait()
	require.Zero(t, ts.Stats().LateResponses)
}

func TestCallTimesOutAndTheLateAnswerIsCounted(t *testing.T) {
	ts := startServer(t, ServerConfig{Handler: echoes})
	p := dialRaw(t, ts.addr)
	c := connOf(t, ts, p)
	_, err := c.Call(ctxFor(t, 20*time.Millisecond), protocol.GetConsumerRunningInfo, nil, nil)
	require.ErrorIs(t, err, ErrTimeout)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	cmd := p.read()
	require.False(t, cmd.IsResponse())
	p.write(answer(cmd, cmd.Opaque, "late"))
	p.write(answer(cmd, 424242, "nobody asked"))
	eventually(t, func() bool { return ts.Stats().LateResponses == 2 }, "counted")
	p.write(frame(echo, 1, false, "x"))
	require.Equal(t, "x", string(p.read().Body), "the connection goes on")

	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = c.Call(canceled, protocol.GetConsumerRunningInfo, nil, nil)
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, ErrTimeout)
}

func TestCallsEndWithTheirConnection(t *testing.T) {
	ts := startServer(t, ServerConfig{Handler: echoes})
	p := dialRaw(t, ts.addr)
	c := connOf(t, ts, p)
	failed := make(chan error, 1)
	go func() {
		_, err := c.Call(context.Background(), protocol.GetConsumerRunningInfo, nil, nil)
		failed <- err
	}()
	p.read()
	_ = p.Close()
	require.ErrorIs(t, <-failed, ErrClosed)
	_, err := c.Call(context.Background(), protocol.GetConsumerRunningInfo, nil, nil)
	require.ErrorIs(t, err, ErrClosed)
	require.ErrorIs(t, c.Notify(protocol.NotifyConsumerIDsChanged, nil, nil), ErrClosed)
}

func TestNotifyIsOneway(t *testing.T) {
	ts := startServer(t, ServerConfig{Handler: echoes})
	p := dialRaw(t, ts.addr)
	c := connOf(t, ts, p)
	require.NoError(t, c.Notify(protocol.NotifyConsumerIDsChanged, nil, []byte("b")))
	got := p.read()
	require.True(t, got.IsOneway())
	require.Equal(t, int32(protocol.NotifyConsumerIDsChanged), got.Code)
	require.Equal(t, "b", string(got.Body))
	err := c.Notify(protocol.NotifyConsumerIDsChanged, nil, make([]byte, protocol.MaxFrame))
	require.ErrorIs(t, err, ErrTooLarge)
}

func TestConnCloseSendsWhatWasThere(t *testing.T) {
	ts := startServer(t, ServerConfig{Handler: HandlerFunc(func(_ context.Context, r *Request) {
		r.Reply(protocol.Reply{Body: r.Body})
		r.Conn.Close()
		r.Conn.Close()
	})})
	p := dialRaw(t, ts.addr)
	p.write(frame(echo, 1, false, "last words"))
	require.Equal(t, "last words", string(p.read().Body))
	require.True(t, p.closedWithin(soon))
}

func TestStopAnswersWhatWasTaken(t *testing.T) {
	g := newGate()
	later := make(chan *Request, 1)
	ts := startServer(t, ServerConfig{
		Lanes: []LaneConfig{{Name: "l", Workers: 1}}, StopTimeout: soon,
		Handler: HandlerFunc(func(ctx context.Context, r *Request) {
			if r.Code == held {
				r.Detach()
				later <- r
				return
			}
			g.Serve(ctx, r)
		}),
	})
	p, silent := dialRaw(t, ts.addr), dialRaw(t, ts.addr)
	p.write(frame(held, 100, false, ""))
	for i := range 10 {
		p.write(frame(echo, int32(i), false, ""))
	}
	eventually(t, func() bool { return ts.Stats().Requests == 11 }, "requests are taken")
	stopped := make(chan error, 1)
	go func() { stopped <- ts.stop() }()
	eventually(t, func() bool { return ts.phase.Load() == draining }, "stopping")
	_, err := net.Dial("tcp", ts.addr)
	require.Error(t, err, "nobody is accepted")
	p.write(frame(echo, 999, false, "")) // comes too late
	select {
	case <-stopped:
		t.Fatal("did not wait for the requests")
	default:
	}
	close(g.open)
	(<-later).Reply(protocol.Reply{Body: []byte("held")})
	seen := map[int32]bool{}
	for range 11 {
		seen[p.read().Opaque] = true
	}
	require.Len(t, seen, 11)
	require.False(t, seen[999])
	_, err = p.tryRead()
	require.ErrorContains(t, err, "EOF", "an end, not a reset")
	require.True(t, silent.closedWithin(soon))
	require.NoError(t, <-stopped)
	require.NotContains(t, g.order(), int32(999))
}

func TestStopIsBoundedAndClosesAll(t *testing.T) {
	var ended sync.WaitGroup
	ended.Add(3)
	ts := startServer(t, ServerConfig{
		Lanes: []LaneConfig{{Name: "l", Workers: 1}}, StopTimeout: 100 * time.Millisecond, MaxOutbound: 64 << 10,
		OnClose: func(*Conn) { ended.Done() },
		Handler: HandlerFunc(func(ctx context.Context, r *Request) {
			if r.Code == held {
				<-ctx.Done() // until the server gives up
				return
			}
			r.Reply(protocol.Reply{Body: make([]byte, 64<<10)})
		}),
	})
	idle, stuck, unread := dialRaw(t, ts.addr), dialRaw(t, ts.addr), dialRaw(t, ts.addr)
	stopped := deaf(unread)
	eventually(t, func() bool { return ts.Stats().Choked == 1 }, "a deaf client")
	steady(t, func() int64 { return int64(ts.Stats().Requests + ts.Stats().Replies) })
	require.Zero(t, ts.Stats().Lanes[0].Waiting, "it has given its room in the lane back")
	stuck.write(frame(held, 1, false, ""))
	stuck.write(frame(held, 2, false, "")) // never reaches the handler
	eventually(t, func() bool { return ts.Stats().Lanes[0].Running == 1 }, "an endless request")
	start := time.Now()
	require.NoError(t, ts.stop())
	require.Less(t, time.Since(start), soon)
	ended.Wait()
	require.True(t, idle.closedWithin(soon))
	<-stopped
	require.Zero(t, ts.Stats().Connections)
}

func TestStopReportsHandlersThatDoNotReturn(t *testing.T) {
	g := newGate()
	s, err := NewServer(ServerConfig{
		Addrs: []string{"127.0.0.1:0"}, Handler: g, Lanes: []LaneConfig{{Name: "l", Workers: 1}},
		StopTimeout: 50 * time.Millisecond, Logger: (&logged{}).logger(),
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	go func() { result <- s.Run(ctx) }()
	p := dialRaw(t, s.Addrs()[0].String())
	p.write(frame(echo, 1, false, ""))
	eventually(t, func() bool { return g.now.Load() == 1 }, "in the handler")
	cancel()
	require.ErrorIs(t, <-result, ErrStillRunning)
	close(g.open) // its reply meets a connection that is gone
}

// TestStopWaitsForASlowHandler: its disk may be slow, and is taken away when the server has stopped.
func TestStopWaitsForASlowHandler(t *testing.T) {
	g := newGate()
	ts := startServer(t, ServerConfig{Handler: g, Lanes: []LaneConfig{{Name: "l", Workers: 1}}, StopTimeout: 500 * time.Millisecond})
	p := dialRaw(t, ts.addr)
	p.write(frame(echo, 1, false, ""))
	eventually(t, func() bool { return g.now.Load() == 1 }, "in the handler")
	time.AfterFunc(2500*time.Millisecond, func() { close(g.open) })
	require.NoError(t, ts.stop())
}

func TestRepliesAfterTheStopDoNothing(t *testing.T) {
	later := make(chan *Request, 1)
	ts := startServer(t, ServerConfig{StopTimeout: 20 * time.Millisecond, Handler: HandlerFunc(
		func(_ context.Context, r *Request) {
			r.Detach()
			later <- r
		})})
	p := dialRaw(t, ts.addr)
	p.write(frame(held, 1, false, ""))
	r := <-later
	require.NoError(t, ts.stop())
	r.Reply(protocol.Reply{})
	r.Conn.Close()
	require.ErrorIs(t, r.Conn.Notify(protocol.NotifyConsumerIDsChanged, nil, nil), ErrClosed)
}
