package remoting

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/protocol"
)

// A gnet that hides its poller otherwise makes us close connections instead of holding them back; this says so first.
func TestPollerOfIsFound(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Log("only Linux has it")
		return
	}
	ts := startServer(t, ServerConfig{Handler: echoes})
	p := dialRaw(t, ts.addr)
	p.write(frame(echo, 1, false, ""))
	p.read()
	for _, k := range ts.links() {
		require.Positive(t, k.poller)
	}
	fd, ok := pollerOf(gnet.EventLoop(nil))
	require.False(t, ok)
	require.Equal(t, -1, fd)
}

// deaf sends requests until the server does not take more, and never reads.
func deaf(p *rawPeer) (stopped chan struct{}) {
	stopped = make(chan struct{})
	var batch []byte
	for i := range 100 {
		batch = append(batch, frame(echo, int32(i), false, string(make([]byte, 100)))...)
	}
	go func() {
		defer close(stopped)
		for {
			if _, err := p.Write(batch); err != nil {
				return
			}
		}
	}()
	return stopped
}

func bigReplies(size int) HandlerFunc {
	body := make([]byte, size)
	return func(_ context.Context, r *Request) { r.Reply(protocol.Reply{Body: body}) }
}

func TestMemoryStaysFlatWithAClientThatNeverReads(t *testing.T) {
	const limit = 1 << 20
	ts := startServer(t, ServerConfig{
		Handler: bigReplies(64 << 10), MaxOutbound: limit, Lanes: []LaneConfig{{Name: "pull", Workers: 2, Queue: 2000}},
	})
	before := heap()
	p := dialRaw(t, ts.addr)
	_ = p.Conn.(interface{ SetReadBuffer(int) error }).SetReadBuffer(4096)
	stopped := deaf(p)
	eventually(t, func() bool { return ts.Stats().Choked == 1 }, "the client is choked")
	steady(t, func() int64 { // requests are neither read nor handled any more
		st := ts.Stats()
		return int64(st.Requests + st.Replies)
	})
	require.Less(t, int64(heap())-int64(before), int64(16*limit), "it would be gigabytes otherwise")
	st := ts.Stats()
	require.Equal(t, 1, st.Connections)
	require.Zero(t, st.Lanes[0].Waiting, "its requests do not take room from others")
	require.Positive(t, st.Lanes[0].Parked)

	other := dialRaw(t, ts.addr)
	for range 20 {
		other.write(frame(echo, 1, false, ""))
		require.Len(t, other.read().Body, 64<<10)
	}
	select {
	case <-stopped:
		t.Fatal("its writes should block, not fail")
	default:
	}
	_ = p.Close()
	<-stopped
	eventually(t, func() bool { return ts.Stats().Connections == 1 }, "the deaf client is gone")
	eventually(t, func() bool { return ts.Stats().InFlight == 0 }, "its requests are done with")
}

func TestChokedClientGoesOnWhenItReads(t *testing.T) {
	ts := startServer(t, ServerConfig{Handler: bigReplies(64 << 10), MaxOutbound: 256 << 10})
	p := dialRaw(t, ts.addr)
	const n = 300
	written := make(chan error, 1)
	go func() {
		var err error
		for i := 0; i < n && err == nil; i++ {
			_, err = p.Write(frame(echo, int32(i), false, string(make([]byte, 20_000))))
		}
		written <- err
	}()
	eventually(t, func() bool { return ts.Stats().Choked == 1 }, "choked")
	for i := range n {
		require.Equal(t, int32(i), p.read().Opaque)
	}
	require.NoError(t, <-written)
	eventually(t, func() bool { return ts.Stats().Choked == 0 }, "free again")
}

func TestHeldRepliesBeyondTheHardLimitCloseTheConnection(t *testing.T) {
	const limit = 64 << 10
	parked := make(chan *Request, 1000)
	ts := startServer(t, ServerConfig{MaxOutbound: limit, Handler: HandlerFunc(func(_ context.Context, r *Request) {
		r.Detach()
		parked <- r
	})})
	p := dialRaw(t, ts.addr)
	for i := range 1000 {
		p.write(frame(held, int32(i), false, ""))
	}
	eventually(t, func() bool { return len(parked) == 1000 }, "all are held")
	body := make([]byte, 64<<10)
	for range 1000 {
		(<-parked).Reply(protocol.Reply{Body: body})
	}
	eventually(t, func() bool { return ts.Stats().Connections == 0 }, "closed")
	require.Equal(t, uint64(1), ts.Stats().OverflowClosed)
	require.Contains(t, ts.log.String(), "peer does not read")
	settled(t, ts)
}

func TestOneReplyLargerThanTheHardLimitIsSent(t *testing.T) {
	ts := startServer(t, ServerConfig{Handler: bigReplies(8 << 20), MaxOutbound: 64 << 10})
	p := dialRaw(t, ts.addr)
	for i := range 3 {
		p.write(frame(echo, int32(i), false, ""))
		require.Len(t, p.read().Body, 8<<20)
	}
}

func TestDeafClientIsClosedWhenIdle(t *testing.T) {
	ts := startServer(t, ServerConfig{
		Handler: bigReplies(64 << 10), MaxOutbound: 256 << 10, IdleTimeout: 400 * time.Millisecond,
	})
	p := dialRaw(t, ts.addr)
	stopped := deaf(p)
	eventually(t, func() bool { return ts.Stats().Connections == 0 && ts.Stats().Accepted == 1 }, "closed")
	<-stopped
	require.Equal(t, uint64(1), ts.Stats().IdleClosed)
}

// blind makes a connection one that can't be paused.
func blind(t *testing.T, k *serverLink) {
	done := make(chan struct{})
	require.NoError(t, k.loop.Execute(context.Background(), gnet.RunnableFunc(func(context.Context) error {
		k.poller = -1
		close(done)
		return nil
	})))
	<-done
}

func TestWithoutAPollerInputIsBounded(t *testing.T) {
	ts := startServer(t, ServerConfig{Handler: bigReplies(64 << 10), MaxOutbound: 64 << 10})
	p := dialRaw(t, ts.addr)
	eventually(t, func() bool { return len(ts.links()) == 1 }, "open")
	blind(t, ts.links()[0])
	<-deaf(p)
	eventually(t, func() bool { return ts.Stats().Connections == 0 }, "closed")
	require.Equal(t, uint64(1), ts.Stats().OverflowClosed)
	require.Contains(t, ts.log.String(), "sends more than can be handled")
}
