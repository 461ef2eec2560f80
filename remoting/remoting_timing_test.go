package remoting

import (
	"context"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/protocol"
)

func benchServer(b *testing.B, workers int) *testServer {
	return startServer(b, ServerConfig{Handler: echoes, Lanes: []LaneConfig{{Name: "l", Workers: workers}}})
}

// BenchmarkServerPipelined is the server alone: a plain socket writes 100 ready-made requests at a time, and reads the
// 100 answers. Allocations are the server's. One operation is one request.
func BenchmarkServerPipelined(b *testing.B) {
	for _, c := range []struct {
		name    string
		workers int
		body    int
	}{{"workers/128B", 4, 128}, {"loop/128B", 0, 128}, {"workers/4KiB", 4, 4096}} {
		b.Run(c.name, func(b *testing.B) {
			ts := benchServer(b, c.workers)
			p := dialRaw(b, ts.addr)
			one := protocol.AppendRequest(nil, protocol.Binary, echoCode, 1, false, nil, nil, make([]byte, c.body))
			p.write(one)
			answer := p.read()
			size := len(protocol.AppendReply(nil, protocol.Binary, 1, &protocol.Reply{Body: answer.Body}))
			const depth = 100
			var batch []byte
			for range depth {
				batch = append(batch, one...)
			}
			back := make([]byte, size*depth)
			b.SetBytes(int64(len(one) + size))
			b.ReportAllocs()
			b.ResetTimer()
			for n := 0; n < b.N; n += depth {
				p.write(batch)
				_, err := io.ReadFull(p.Conn, back)
				require.NoError(b, err)
			}
		})
	}
}

// BenchmarkCall is client and server together, one call in flight.
func BenchmarkCall(b *testing.B) {
	for name, codec := range map[string]protocol.Codec{"json": protocol.JSON, "binary": protocol.Binary} {
		b.Run(name, func(b *testing.B) {
			ts := benchServer(b, 4)
			c := newClient(b, ClientConfig{Codec: codec})
			body := make([]byte, 128)
			b.ReportAllocs()
			for b.Loop() {
				_, err := c.Call(context.Background(), ts.addr, echoCode, nil, nil, body)
				require.NoError(b, err)
			}
		})
	}
}

// BenchmarkCallParallel has many callers share the client's one connection.
func BenchmarkCallParallel(b *testing.B) {
	ts := benchServer(b, 4)
	c := newClient(b, ClientConfig{Codec: protocol.Binary})
	body := make([]byte, 128)
	b.ReportAllocs()
	b.SetParallelism(64)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := c.Call(context.Background(), ts.addr, echoCode, nil, nil, body); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

func BenchmarkSplitter(b *testing.B) {
	var stream []byte
	for i := range 100 {
		stream = append(stream, frame(echo, int32(i), false, "0123456789")...)
	}
	b.SetBytes(int64(len(stream)))
	b.ReportAllocs()
	var s splitter
	for b.Loop() {
		for data := stream; len(data) > 0; {
			f, n, err := s.next(data)
			if err != nil {
				b.Fatal(err)
			}
			data = data[n:]
			if f != nil {
				f.release()
			}
		}
	}
}
