package remoting

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/ratchetmq/ratchet/protocol"
)

const (
	soon   = 30 * time.Second // a bound for what comes at once: a full socket makes TCP retry later and later
	tick   = 2 * time.Millisecond
	echo   = int32(9001)
	held   = int32(9002)
	panic1 = int32(9003)
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// gnet starts a worker pool with the process, for a kind of dialling that we don't use.
		goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*poolCommon).purgeStaleWorkers"),
		goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*poolCommon).ticktock"))
}

// logged is a logger that keeps its lines.
type logged struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func (l *logged) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelInfo}))
}

// testServer is a running server; stop ends it and returns Run's error.
type testServer struct {
	*Server
	log  *logged
	addr string
	stop func() error
}

func startServer(t testing.TB, cfg ServerConfig) *testServer {
	t.Helper()
	ts := &testServer{log: &logged{}}
	cfg.Logger = ts.log.logger()
	if len(cfg.Addrs) == 0 {
		cfg.Addrs = []string{"127.0.0.1:0"}
	}
	s, err := NewServer(cfg)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	go func() { result <- s.Run(ctx) }()
	ts.Server = s
	require.NotEmpty(t, s.Addrs(), "server did not start")
	ts.addr = s.Addrs()[0].String()
	ts.stop = sync.OnceValue(func() error {
		cancel()
		return <-result
	})
	t.Cleanup(func() {
		if err := ts.stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	return ts
}

// echoes answers with the request's body.
var echoes = HandlerFunc(func(_ context.Context, r *Request) {
	r.Reply(protocol.Reply{Code: protocol.Success, Body: r.Body})
})

// rawPeer speaks frames over a plain socket.
type rawPeer struct {
	net.Conn
	t testing.TB
}

func dialRaw(t testing.TB, addr string) *rawPeer {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = nc.Close() })
	return &rawPeer{Conn: nc, t: t}
}

func frame(code, opaque int32, oneway bool, body string) []byte {
	return protocol.AppendRequest(nil, protocol.JSON, protocol.RequestCode(code), opaque, oneway, nil, nil, []byte(body))
}

func (p *rawPeer) write(b []byte) {
	p.t.Helper()
	_, err := p.Write(b)
	require.NoError(p.t, err)
}

// read returns the next frame.
func (p *rawPeer) read() protocol.Command {
	p.t.Helper()
	cmd, err := p.tryRead()
	require.NoError(p.t, err)
	return cmd
}

func (p *rawPeer) tryRead() (protocol.Command, error) {
	_ = p.SetReadDeadline(time.Now().Add(soon))
	var head [4]byte
	if _, err := io.ReadFull(p.Conn, head[:]); err != nil {
		return protocol.Command{}, err
	}
	b := make([]byte, 4+binary.BigEndian.Uint32(head[:]))
	copy(b, head[:])
	if _, err := io.ReadFull(p.Conn, b[4:]); err != nil {
		return protocol.Command{}, err
	}
	return protocol.Decode(b)
}

// closed waits for the server to close the connection.
func (p *rawPeer) closedWithin(d time.Duration) bool {
	_ = p.SetReadDeadline(time.Now().Add(d))
	_, err := io.Copy(io.Discard, p.Conn)
	var ne net.Error
	return !errors.As(err, &ne) || !ne.Timeout()
}

func (p *rawPeer) local() netip.AddrPort { return addrOf(p.LocalAddr()) }

func eventually(t testing.TB, ok func() bool, msg string) {
	t.Helper()
	require.Eventually(t, ok, soon, tick, msg)
}

func ctxFor(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// steady waits until a number has not changed for a while.
func steady(t testing.TB, number func() int64) {
	t.Helper()
	last, since := number(), time.Now()
	eventually(t, func() bool {
		if n := number(); n != last {
			last, since = n, time.Now()
		}
		return time.Since(since) > 150*time.Millisecond
	}, "does not come to rest")
}

// settled waits until nothing is in flight: a reply counts as such for a moment after it was sent.
func settled(t testing.TB, ts *testServer) {
	t.Helper()
	eventually(t, func() bool { return ts.Stats().InFlight == 0 }, "requests are left in flight")
}
