package remoting

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/protocol"
)

func newClient(t testing.TB, cfg ClientConfig) *Client {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = (&logged{}).logger()
	}
	c, err := NewClient(cfg)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

const echoCode = protocol.RequestCode(echo)

func TestClientSharesOneConnectionPerAddress(t *testing.T) {
	for _, codec := range []protocol.Codec{protocol.JSON, protocol.Binary} {
		ts := startServer(t, ServerConfig{Handler: echoes})
		c := newClient(t, ClientConfig{Codec: codec})
		var calls sync.WaitGroup
		for i := range 200 {
			calls.Go(func() {
				want := fmt.Sprint(i)
				resp, err := c.Call(ctxFor(t, soon), ts.addr, echoCode, nil, nil, []byte(want))
				if err != nil || string(resp.Body) != want || resp.Codec != codec {
					t.Errorf("call %d: %v", i, err)
				}
			})
		}
		calls.Wait()
		require.Equal(t, uint64(1), ts.Stats().Accepted)
		require.Equal(t, 1, c.Stats().Connections)
	}
}

func TestClientReadsBothCodecs(t *testing.T) {
	ts := startServer(t, ServerConfig{Handler: echoes})
	c := newClient(t, ClientConfig{Codec: protocol.Binary})
	// Code beyond 16 bits: the request goes as JSON, and so does the answer.
	resp, err := c.Call(ctxFor(t, soon), ts.addr, 200050, nil, nil, nil)
	require.NoError(t, err)
	require.Equal(t, protocol.JSON, resp.Codec)
	resp, err = c.Call(ctxFor(t, soon), ts.addr, echoCode, nil, nil, nil)
	require.NoError(t, err)
	require.Equal(t, protocol.Binary, resp.Codec)
}

func TestClientConnectsAgainAtTheNextCall(t *testing.T) {
	var down atomic.Int32
	ts := startServer(t, ServerConfig{Handler: HandlerFunc(func(_ context.Context, r *Request) {
		if r.Code == held {
			r.Conn.Close()
			return
		}
		r.Reply(protocol.Reply{Body: r.Body})
	})})
	c := newClient(t, ClientConfig{OnClose: func(addr string, _ *Conn) {
		if addr == ts.addr {
			down.Add(1)
		}
	}})
	for i := range 5 {
		_, err := c.Call(ctxFor(t, soon), ts.addr, echoCode, nil, nil, nil)
		require.NoError(t, err)
		_, err = c.Call(ctxFor(t, soon), ts.addr, protocol.RequestCode(held), nil, nil, nil)
		require.ErrorIs(t, err, ErrClosed)
		eventually(t, func() bool { return down.Load() == int32(i+1) }, "OnClose")
	}
	require.Equal(t, uint64(5), ts.Stats().Accepted)
}

func TestClientSurvivesAServerThatComesBack(t *testing.T) {
	ts := startServer(t, ServerConfig{Handler: echoes})
	c := newClient(t, ClientConfig{})
	_, err := c.Call(ctxFor(t, soon), ts.addr, echoCode, nil, nil, nil)
	require.NoError(t, err)
	require.NoError(t, ts.stop())
	eventually(t, func() bool { return c.Stats().Connections == 0 }, "the end is noticed")
	_, err = c.Call(ctxFor(t, soon), ts.addr, echoCode, nil, nil, nil)
	require.ErrorIs(t, err, ErrConnect)
	require.NotErrorIs(t, err, ErrTimeout)
	startServer(t, ServerConfig{Handler: echoes, Addrs: []string{ts.addr}})
	_, err = c.Call(ctxFor(t, soon), ts.addr, echoCode, nil, nil, nil)
	require.NoError(t, err)
}

func TestClientCallsEndInTime(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts, never answers
	require.NoError(t, err)
	defer func() { _ = silent.Close() }()
	c := newClient(t, ClientConfig{})
	start := time.Now()
	_, err = c.Call(ctxFor(t, 50*time.Millisecond), silent.Addr().String(), echoCode, nil, nil, nil)
	require.ErrorIs(t, err, ErrTimeout)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Less(t, time.Since(start), soon)
	require.ErrorContains(t, err, silent.Addr().String())

	expired, cancel := context.WithTimeout(context.Background(), 0)
	defer cancel()
	_, err = c.Call(expired, silent.Addr().String(), echoCode, nil, nil, nil)
	require.ErrorIs(t, err, ErrTimeout)
}

func TestClientCallersCanGiveUpOnDialling(t *testing.T) {
	c := newClient(t, ClientConfig{ConnectTimeout: soon})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := c.Call(ctx, "127.0.0.1:1", echoCode, nil, nil, nil)
	require.Error(t, err)
	_, err = c.Call(context.Background(), "no port", echoCode, nil, nil, nil)
	require.ErrorIs(t, err, ErrConnect)
	require.ErrorIs(t, c.Notify(ctxFor(t, soon), "127.0.0.1:1", echoCode, nil, nil, nil), ErrConnect)
}

func TestClientNotify(t *testing.T) {
	got := make(chan string, 1)
	ts := startServer(t, ServerConfig{Handler: HandlerFunc(func(_ context.Context, r *Request) {
		got <- fmt.Sprint(r.IsOneway(), " ", string(r.Body))
		r.Reply(protocol.Reply{})
	})})
	c := newClient(t, ClientConfig{})
	require.NoError(t, c.Notify(ctxFor(t, soon), ts.addr, echoCode, nil, nil, []byte("x")))
	require.Equal(t, "true x", <-got)
	err := c.Notify(ctxFor(t, soon), ts.addr, echoCode, nil, nil, make([]byte, protocol.MaxFrame))
	require.ErrorIs(t, err, ErrTooLarge)
	_, err = c.Call(ctxFor(t, soon), ts.addr, echoCode, nil, nil, make([]byte, protocol.MaxFrame))
	require.ErrorIs(t, err, ErrTooLarge)
}

// back is a server handler that calls the client before it answers.
var back = HandlerFunc(func(ctx context.Context, r *Request) {
	resp, err := r.Conn.Call(ctx, protocol.GetConsumerRunningInfo, nil, r.Body)
	if err != nil {
		r.Reply(protocol.Reply{Code: protocol.SystemError, Remark: err.Error()})
		return
	}
	r.Reply(protocol.Reply{Code: protocol.ResponseCode(resp.Code), Body: resp.Body, Remark: resp.Remark})
})

func TestClientServesRequestsOfItsPeer(t *testing.T) {
	ts := startServer(t, ServerConfig{Handler: back})
	c := newClient(t, ClientConfig{Handler: HandlerFunc(func(_ context.Context, r *Request) {
		r.Reply(protocol.Reply{Body: []byte(strings.ToUpper(string(r.Body)))})
	})})
	for range 20 {
		resp, err := c.Call(ctxFor(t, soon), ts.addr, echoCode, nil, nil, []byte("both ways"))
		require.NoError(t, err)
		require.Equal(t, "BOTH WAYS", string(resp.Body))
	}
}

func TestClientHandlerMayCallItsPeer(t *testing.T) {
	ts := startServer(t, ServerConfig{
		Lanes: []LaneConfig{{Name: "a", Workers: 1}, {Name: "b", Workers: 1}},
		LaneOf: func(code int32) int {
			if code == held {
				return 1
			}
			return 0
		},
		Handler: HandlerFunc(func(ctx context.Context, r *Request) {
			if r.Code == held {
				r.Reply(protocol.Reply{Body: []byte("deep")})
				return
			}
			back.Serve(ctx, r)
		}),
	})
	var c *Client
	c = newClient(t, ClientConfig{Handler: HandlerFunc(func(ctx context.Context, r *Request) {
		resp, err := c.Call(ctx, ts.addr, protocol.RequestCode(held), nil, nil, nil)
		if err != nil {
			r.Reply(protocol.Reply{Code: protocol.SystemError, Remark: err.Error()})
			return
		}
		r.Reply(protocol.Reply{Body: resp.Body})
	})})
	resp, err := c.Call(ctxFor(t, soon), ts.addr, echoCode, nil, nil, nil)
	require.NoError(t, err)
	require.Equal(t, "deep", string(resp.Body))
}

func TestClientWithoutHandlerSaysSo(t *testing.T) {
	ts := startServer(t, ServerConfig{Handler: back})
	c := newClient(t, ClientConfig{})
	resp, err := c.Call(ctxFor(t, soon), ts.addr, echoCode, nil, nil, nil)
	require.NoError(t, err)
	require.Equal(t, int32(protocol.RequestCodeNotSupported), resp.Code)
	require.Contains(t, resp.Remark, fmt.Sprint(int32(protocol.GetConsumerRunningInfo)))
}

func TestClientKeepsOnewayRequestsOfItsPeer(t *testing.T) {
	const n = 3 * clientQueue
	g := newGate()
	ts := startServer(t, ServerConfig{Handler: HandlerFunc(func(_ context.Context, r *Request) {
		for range n {
			_ = r.Conn.Notify(protocol.NotifyConsumerIDsChanged, nil, nil)
		}
		r.Reply(protocol.Reply{})
	})})
	c := newClient(t, ClientConfig{Handler: g, Workers: 1})
	done := make(chan error, 1)
	go func() {
		_, err := c.Call(context.Background(), ts.addr, echoCode, nil, nil, nil)
		done <- err
	}()
	eventually(t, func() bool { return c.Stats().Lanes[0].Waiting == clientQueue }, "the client's lane is full")
	close(g.open)
	require.NoError(t, <-done)
	eventually(t, func() bool { return len(g.order()) == n }, "all were handled")
}

func TestClientCloseEndsCalls(t *testing.T) {
	ts := startServer(t, ServerConfig{StopTimeout: 10 * time.Millisecond, Handler: HandlerFunc(
		func(context.Context, *Request) {})})
	c := newClient(t, ClientConfig{})
	failed := make(chan error, 1)
	go func() {
		_, err := c.Call(context.Background(), ts.addr, echoCode, nil, nil, nil)
		failed <- err
	}()
	eventually(t, func() bool { return ts.Stats().Requests == 1 }, "sent")
	c.Close()
	require.ErrorIs(t, <-failed, ErrClosed)
	_, err := c.Call(context.Background(), ts.addr, echoCode, nil, nil, nil)
	require.ErrorIs(t, err, ErrClosed)
	require.ErrorIs(t, c.Notify(context.Background(), ts.addr, echoCode, nil, nil, nil), ErrClosed)
	c.Close()
}

func TestClientCloseWhileConnecting(t *testing.T) {
	ts := startServer(t, ServerConfig{Handler: echoes})
	for range 50 {
		c, err := NewClient(ClientConfig{Logger: (&logged{}).logger()})
		require.NoError(t, err)
		var calls sync.WaitGroup
		calls.Go(func() { _, _ = c.Call(context.Background(), ts.addr, echoCode, nil, nil, nil) })
		c.Close()
		calls.Wait()
	}
}

func TestClientClosesOnAFrameItCantRead(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = ln.Close() }()
	go func() {
		nc, err := ln.Accept()
		if err != nil {
			return
		}
		_, _ = nc.Read(make([]byte, 1000)) // the request; a connection that fails before is tried a second time
		_, _ = nc.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
		_, _ = nc.Read(make([]byte, 1000))
		_ = nc.Close()
	}()
	log := &logged{}
	c := newClient(t, ClientConfig{Logger: log.logger()})
	_, err = c.Call(ctxFor(t, soon), ln.Addr().String(), echoCode, nil, nil, nil)
	require.ErrorIs(t, err, ErrClosed)
	require.Equal(t, uint64(1), c.Stats().Malformed)
	require.Contains(t, log.String(), "input is no frame")
}
