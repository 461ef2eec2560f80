package remoting

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/protocol"
)

func TestServerAnswersInTheCodecAsked(t *testing.T) {
	ts := startServer(t, ServerConfig{Handler: echoes})
	p := dialRaw(t, ts.addr)
	for _, codec := range []protocol.Codec{protocol.JSON, protocol.Binary} {
		p.write(protocol.AppendRequest(nil, codec, protocol.RequestCode(echo), -7, false, nil, nil, []byte("body")))
		got := p.read()
		require.Equal(t, codec, got.Codec)
		require.Equal(t, int32(-7), got.Opaque)
		require.True(t, got.IsResponse())
		require.Equal(t, "body", string(got.Body))
	}
}

func TestServerReadsAFrameByteByByte(t *testing.T) {
	ts := startServer(t, ServerConfig{Handler: echoes})
	p := dialRaw(t, ts.addr)
	for _, b := range frame(echo, 5, false, "slowly") {
		p.write([]byte{b})
	}
	require.Equal(t, "slowly", string(p.read().Body))
}

func TestPipelinedRequestsOfOneLaneAreAnsweredInOrder(t *testing.T) {
	ts := startServer(t, ServerConfig{Handler: echoes, Lanes: []LaneConfig{{Name: "l", Workers: 4}}})
	p := dialRaw(t, ts.addr)
	var stream []byte
	for i := range 200 {
		stream = append(stream, frame(echo, int32(i), false, fmt.Sprint(i))...)
	}
	p.write(stream)
	for i := range 200 {
		require.Equal(t, int32(i), p.read().Opaque)
	}
	st := ts.Stats()
	require.Equal(t, uint64(200), st.Requests)
	require.Equal(t, uint64(200), st.Replies)
	settled(t, ts)
}

func TestServerListensOnSeveralAddresses(t *testing.T) {
	open, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ts := startServer(t, ServerConfig{
		Handler: echoes, Listeners: []net.Listener{open}, Addrs: []string{"127.0.0.1:0", "127.0.0.1:0"},
	})
	require.Len(t, ts.Addrs(), 3)
	require.Equal(t, open.Addr().String(), ts.Addrs()[0].String())
	for _, a := range ts.Addrs() {
		p := dialRaw(t, a.String())
		p.write(frame(echo, 1, false, "x"))
		p.read()
	}
}

func TestRunFailsOnAnAddressInUse(t *testing.T) {
	ts := startServer(t, ServerConfig{Handler: echoes})
	s, err := NewServer(ServerConfig{Handler: echoes, Addrs: []string{"127.0.0.1:0", ts.addr}})
	require.NoError(t, err)
	err = s.Run(context.Background())
	require.ErrorContains(t, err, ts.addr)
	require.Empty(t, s.Addrs())
	require.Error(t, s.Run(context.Background()), "a server runs once")
}

func TestNewServerChecksItsConfiguration(t *testing.T) {
	for _, cfg := range []ServerConfig{
		{Addrs: []string{":0"}},
		{Handler: echoes},
		{Handler: echoes, Addrs: []string{":0"}, Lanes: []LaneConfig{{Workers: -1}}},
	} {
		_, err := NewServer(cfg)
		require.Error(t, err)
	}
}

// malformed is the table of scenario 6-05: each input closes its connection within a second.
func malformed() map[string][]byte {
	length := func(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }
	withHeader := func(codec byte, header string) []byte {
		b := length(uint32(4 + len(header)))
		b = append(b, codec, 0, byte(len(header)>>8), byte(len(header)))
		return append(b, header...)
	}
	binHeader := func(remarkLen, extLen uint32) string {
		b := make([]byte, 13)
		b = binary.BigEndian.AppendUint32(b, remarkLen)
		return string(binary.BigEndian.AppendUint32(b, extLen))
	}
	return map[string][]byte{
		"length 0":                     length(0),
		"length 3":                     length(3),
		"length -1":                    length(0xFFFFFFFF),
		"length 16777217":              length(16777217),
		"length one too large":         length(protocol.MaxFrame - 3),
		"header larger than the frame": append(length(100), 0, 0, 1, 0),
		"header length 0":              append(length(4), 0, 0, 0, 0),
		"serialize type 7":             withHeader(7, `{"code":1}`),
		"header hello":                 withHeader(0, "hello"),
		"header array":                 withHeader(0, "[]"),
		"binary header truncated":      withHeader(1, "\x00\x0a\x00"),
		"binary ext length 2^31-1":     withHeader(1, binHeader(0, 0x7FFFFFFF)),
		"binary remark length -1":      withHeader(1, binHeader(0xFFFFFFFF, 0)),
		"json 5000 deep":               withHeader(0, `{"code":1,"x":`+strings.Repeat("[", 5000)+strings.Repeat("]", 5000)+"}"),
		"http":                         []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
		"tls":                          []byte("\x16\x03\x01\x00\xc8\x01\x00\x00"),
		"proxy protocol":               []byte("PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\n"),
		"proxy protocol v2":            []byte("\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c"),
	}
}

func TestMalformedInputClosesItsConnectionOnly(t *testing.T) {
	ts := startServer(t, ServerConfig{Handler: echoes})
	neighbour := dialRaw(t, ts.addr)
	n := uint64(0)
	for name, in := range malformed() {
		n++
		p := dialRaw(t, ts.addr)
		_, _ = p.Write(in)
		start := time.Now()
		require.True(t, p.closedWithin(soon), "%s: still open after %s", name, time.Since(start))
		neighbour.write(frame(echo, 1, false, name))
		require.Equal(t, name, string(neighbour.read().Body))
	}
	require.Equal(t, n, ts.Stats().Malformed)
	require.Equal(t, 1, strings.Count(ts.log.String(), "input is no frame"), "one line a second at most")
}

func TestStrayProtocolsAreNamedInTheLog(t *testing.T) {
	for in, want := range map[string]string{
		"\x16\x03\x01\x00\xc8": "tls", "PROXY TCP4 \r\n": "PROXY protocol", "GET / HTTP/1.1\r\n": "http",
	} {
		ts := startServer(t, ServerConfig{Handler: echoes})
		p := dialRaw(t, ts.addr)
		p.write([]byte(in))
		require.True(t, p.closedWithin(soon))
		require.Contains(t, ts.log.String(), want)
		require.Contains(t, ts.log.String(), p.local().String())
		require.NoError(t, ts.stop())
	}
}

func TestOddButLegalHeadersAreServed(t *testing.T) {
	ts := startServer(t, ServerConfig{Handler: echoes})
	p := dialRaw(t, ts.addr)
	for _, header := range []string{
		`{"code":9001,"opaque":1,"unknown":{"a":[1,2]}}`,
		`{"code":9001,"opaque":1,"extFields":{"a":1,"b":true}}`,
		`{"code":9001,"opaque":1,"extFields":null}`,
		`{"code":9001}`,
		`{"code":"9001","opaque":1}`,
	} {
		b := binary.BigEndian.AppendUint32(nil, uint32(4+len(header)))
		b = binary.BigEndian.AppendUint32(b, uint32(len(header)))
		p.write(append(b, header...))
		got := p.read()
		require.True(t, got.IsResponse(), header)
	}
}

func TestLargestFrameIsServed(t *testing.T) {
	var size atomic.Int64
	ts := startServer(t, ServerConfig{Handler: HandlerFunc(func(_ context.Context, r *Request) {
		size.Store(int64(len(r.Body)))
		r.Reply(protocol.Reply{Body: r.Body})
	})})
	p := dialRaw(t, ts.addr)
	head := len(frame(echo, 1, false, ""))
	p.write(frame(echo, 1, false, strings.Repeat("x", protocol.MaxFrame-head)))
	got := p.read()
	require.Equal(t, int64(protocol.MaxFrame-head), size.Load())
	require.Equal(t, int32(protocol.SystemError), got.Code, "the echo does not fit, since a reply has fields")
	require.Contains(t, got.Remark, "larger than a frame")
	require.Equal(t, uint64(1), ts.Stats().OversizedReplies)
	p.write(frame(echo, 2, false, strings.Repeat("x", protocol.MaxFrame-head-100)))
	require.Len(t, p.read().Body, protocol.MaxFrame-head-100)
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func TestSlowWriterHoldsLittleMemory(t *testing.T) {
	ts := startServer(t, ServerConfig{Handler: echoes})
	before := heap()
	const peers = 200
	var head [8]byte
	binary.BigEndian.PutUint32(head[:], protocol.MaxFrame-4)
	binary.BigEndian.PutUint32(head[4:], 100)
	for range peers {
		p := dialRaw(t, ts.addr)
		p.write(head[:])
		p.write(make([]byte, 2000))
	}
	eventually(t, func() bool {
		held := 0
		for _, k := range ts.links() {
			if k.conn.active.Load() > 0 {
				held++
			}
		}
		return held == peers
	}, "all peers are connected")
	require.Less(t, int64(heap())-int64(before), int64(8<<20), "200 announced frames of 16 MiB")
}

func TestHalfClosedSocketIsNoticed(t *testing.T) {
	ended := make(chan *Conn, 1)
	ts := startServer(t, ServerConfig{Handler: echoes, OnClose: func(c *Conn) { ended <- c }})
	p := dialRaw(t, ts.addr)
	p.write(frame(echo, 1, false, "x"))
	p.read()
	require.NoError(t, p.Conn.(*net.TCPConn).CloseWrite())
	select {
	case c := <-ended:
		require.True(t, c.Closed())
		require.Equal(t, p.local(), c.RemoteAddr())
	case <-time.After(soon):
		t.Fatal("not noticed")
	}
	require.True(t, p.closedWithin(soon))
	require.Zero(t, ts.Stats().Connections)
}

func TestIdleConnectionsAreClosed(t *testing.T) {
	ts := startServer(t, ServerConfig{Handler: echoes, IdleTimeout: 3 * time.Second}) // no pause of the machine's is as long
	silent, sends, receives := dialRaw(t, ts.addr), dialRaw(t, ts.addr), dialRaw(t, ts.addr)
	c := connOf(t, ts, receives)
	done := make(chan bool)
	go func() { done <- silent.closedWithin(soon) }()
	beat := time.NewTicker(20 * time.Millisecond)
	defer beat.Stop()
	for closed := false; !closed; {
		select {
		case closed = <-done:
			require.True(t, closed)
		case <-beat.C:
			sends.write(frame(echo, 1, true, "x"))
			require.NoError(t, c.Notify(protocol.NotifyConsumerIDsChanged, nil, nil))
			receives.read()
		}
	}
	for _, p := range []*rawPeer{sends, receives} {
		p.write(frame(echo, 1, false, "x"))
		p.read()
	}
	require.Equal(t, uint64(1), ts.Stats().IdleClosed)
}

func TestFiveThousandIdleConnectionsCostLittle(t *testing.T) {
	ts := startServer(t, ServerConfig{Handler: echoes})
	const n = 5000
	goroutines, before := runtime.NumGoroutine(), heap()
	conns := make([]net.Conn, 0, n)
	defer func() {
		for _, c := range conns {
			_ = c.Close()
		}
	}()
	for range n {
		c, err := net.Dial("tcp", ts.addr)
		require.NoError(t, err)
		conns = append(conns, c)
	}
	eventually(t, func() bool { return ts.Stats().Connections == n }, "all are accepted")
	require.Less(t, runtime.NumGoroutine()-goroutines, 20, "no goroutine per connection")
	per := (int64(heap()) - int64(before)) / n
	t.Logf("%d bytes of heap per connection, both ends", per)
	require.Less(t, per, int64(4096))
	p := dialRaw(t, ts.addr)
	p.write(frame(echo, 1, false, "x"))
	p.read()
}

func TestOnCloseComesOnceAndAfterTheLastRequest(t *testing.T) {
	release := make(chan struct{})
	var handled, ended atomic.Int64
	ts := startServer(t, ServerConfig{
		Lanes: []LaneConfig{{Name: "l", Workers: 1}},
		Handler: HandlerFunc(func(_ context.Context, r *Request) {
			<-release
			handled.Add(1)
			r.Reply(protocol.Reply{})
		}),
		OnClose: func(*Conn) { ended.Add(100 + handled.Load()) },
	})
	p := dialRaw(t, ts.addr)
	for i := range 3 {
		p.write(frame(echo, int32(i), false, ""))
	}
	eventually(t, func() bool { return ts.Stats().Requests == 3 }, "requests are in")
	_ = p.Close()
	eventually(t, func() bool { return ts.Stats().Connections == 0 }, "socket is closed")
	require.Zero(t, ended.Load())
	close(release)
	eventually(t, func() bool { return ended.Load() != 0 }, "OnClose")
	require.Equal(t, int64(103), ended.Load())
}

func TestHeldRequestIsAnsweredLater(t *testing.T) {
	later := make(chan *Request, 1)
	ts := startServer(t, ServerConfig{Handler: HandlerFunc(func(_ context.Context, r *Request) {
		if r.Code == held {
			r.Detach()
			later <- r
			return
		}
		r.Reply(protocol.Reply{Body: r.Body})
	})})
	p := dialRaw(t, ts.addr)
	p.write(frame(held, 77, false, "pull"))
	r := <-later
	require.Empty(t, r.Body)
	require.False(t, r.Fields.Present())
	for i := range 50 { // others use the buffer meanwhile
		p.write(frame(echo, int32(i), false, "x"))
		p.read()
	}
	eventually(t, func() bool { return ts.Stats().InFlight == 1 }, "the held one alone is in flight") // see settled
	r.Reply(protocol.Reply{Code: protocol.PullNotFound, Remark: "nothing"})
	r.Reply(protocol.Reply{Code: protocol.Success})
	got := p.read()
	require.Equal(t, int32(77), got.Opaque)
	require.Equal(t, int32(protocol.PullNotFound), got.Code)
	p.write(frame(echo, 1, false, "x"))
	require.Equal(t, int32(1), p.read().Opaque, "the second reply was not sent")
	require.Equal(t, uint64(1), ts.Stats().DuplicateReplies)
	settled(t, ts)
}

func TestOnewayIsNeverAnswered(t *testing.T) {
	ts := startServer(t, ServerConfig{Handler: echoes})
	p := dialRaw(t, ts.addr)
	p.write(frame(echo, 1, true, "x"))
	p.write(frame(echo, 2, false, "y"))
	require.Equal(t, int32(2), p.read().Opaque)
	settled(t, ts)
}

func TestAttachment(t *testing.T) {
	c := &Conn{}
	require.Nil(t, c.Attachment())
	c.SetAttachment("a")
	c.SetAttachment(7)
	require.Equal(t, 7, c.Attachment())
}

func TestManyLargeRepliesArriveWhole(t *testing.T) {
	body := bytes.Repeat([]byte("0123456789abcdef"), 40<<10) // 640 KiB
	ts := startServer(t, ServerConfig{Handler: HandlerFunc(func(_ context.Context, r *Request) {
		r.Reply(protocol.Reply{Body: body})
	})})
	p := dialRaw(t, ts.addr)
	const n = 60 // far beyond MaxOutbound
	for i := range n {
		p.write(frame(echo, int32(i), false, ""))
	}
	for i := range n {
		got := p.read()
		require.Equal(t, int32(i), got.Opaque)
		require.True(t, bytes.Equal(body, got.Body))
	}
}
