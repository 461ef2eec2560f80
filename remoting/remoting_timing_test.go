package remoting

import (
	"context"
	"io"
	"os"
	"sync"
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

// BenchmarkReads is the way of sends of 1 KiB from what was read to their answers, without sockets: four connections, 32
// requests in a read, one worker. Figures are per request.
func BenchmarkReads(b *testing.B) {
	for _, codec := range []protocol.Codec{protocol.JSON, protocol.Binary} {
		b.Run(codec.String(), func(b *testing.B) {
			const depth = 32
			h := (&protocol.SendMessageRequest{
				ProducerGroup: "producers", Topic: "TopicTest", DefaultTopic: "TBW102", DefaultTopicQueueNums: 8, BornTimestamp: 1753862400000,
				Properties: []byte("UNIQ_KEY\x017F00000100002A9F0000000000000000\x02WAIT\x01true\x02TAGS\x01TagA\x02"),
			}).V2()
			var data []byte
			for i := range int32(depth) {
				data = protocol.AppendRequest(data, codec, 0, i, false, h, nil, make([]byte, 1024))
			}
			null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
			require.NoError(b, err)
			defer func() { _ = null.Close() }()
			done := make(chan int, 8*depth)
			handler := answers(done)
			var peers [4]*reads
			for i := range peers {
				peers[i] = newReads(b, handler, grouping)
				peers[i].srv, peers[i].lanes = peers[0].srv, peers[0].lanes
				peers[i].conn.e = &peers[0].srv.endpoint
				peers[i].g, peers[i].fd = peers[i].in, int(null.Fd())
			}
			var worker sync.WaitGroup
			worker.Go(peers[0].lanes[0].work)
			b.SetBytes(int64(len(data) / depth))
			b.ReportAllocs()
			b.ResetTimer()
			flying := 0
			for n := 0; n < b.N; n += depth {
				for flying > 3*depth {
					flying -= <-done
				}
				p := peers[n/depth%len(peers)]
				p.in.left = data
				p.traffic(p.in)
				flying += depth
			}
			for flying > 0 {
				flying -= <-done
			}
			peers[0].lanes[0].close()
			worker.Wait()
		})
	}
}

// answers is a handler of groups that says how many requests it has answered.
type answers chan int

func (a answers) Joins(*Request) bool { return true }

func (a answers) Serve(ctx context.Context, r *Request) { a.ServeGroup(ctx, []*Request{r}) }

func (a answers) ServeGroup(_ context.Context, group []*Request) {
	var replies [turn]*protocol.Reply
	for i := range group {
		replies[i] = &protocol.Reply{}
	}
	ReplyGroup(group, replies[:len(group)])
	a <- len(group)
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
			_, own, n, err := s.next(data)
			if err != nil {
				b.Fatal(err)
			}
			data = data[n:]
			own.release()
		}
	}
}
