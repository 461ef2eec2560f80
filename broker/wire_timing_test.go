package broker_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/message"
	"github.com/ratchetmq/ratchet/protocol"
	"github.com/ratchetmq/ratchet/ratchettest"
)

// The benchmarks here go over a real connection with frames that are encoded once, so that nearly all that is allocated
// is the broker's: in it, a request may leave nothing behind.

func timedSend(codec protocol.Codec, opaque int32) []byte {
	h := sendHeader("T", 0)
	h.Properties = message.AppendProperty(nil, message.PropertyUniqueKey, "7F00000100002A9F0000000000000000")
	h.Properties = message.AppendProperty(h.Properties, message.PropertyWaitStore, "true")
	h.Properties = message.AppendProperty(h.Properties, message.PropertyTags, "TagA")
	return protocol.AppendRequest(nil, codec, protocol.SendMessageV2, opaque, false, h.V2(), nil, make([]byte, 1024))
}

// exchanges writes stream and reads that many answers, again and again; the answers must succeed.
func exchanges(b *testing.B, addr string, stream []byte, answers int) {
	c, err := net.Dial("tcp", addr)
	require.NoError(b, err)
	defer c.Close()
	in := make([]byte, 1<<20)
	b.ReportAllocs()
	b.SetBytes(int64(len(stream)))
	n := 0
	for b.Loop() {
		if _, err := c.Write(stream); err != nil {
			b.Fatal(err)
		}
		for range answers {
			if _, err := io.ReadFull(c, in[:4]); err != nil {
				b.Fatal(err)
			}
			n = int(binary.BigEndian.Uint32(in))
			if _, err := io.ReadFull(c, in[4:4+n]); err != nil {
				b.Fatal(err)
			}
		}
	}
	last, err := protocol.Decode(bytes.Clone(in[:4+n]))
	require.NoError(b, err)
	require.Equal(b, int32(protocol.Success), last.Code, last.Remark)
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*answers), "ns/request")
}

func BenchmarkSend(b *testing.B) {
	for _, codec := range []protocol.Codec{protocol.JSON, protocol.Binary} {
		b.Run(codec.String(), func(b *testing.B) {
			exchanges(b, ratchettest.Start(b).Addr, timedSend(codec, 1), 1)
		})
	}
}

// BenchmarkSend32 is of 32 sends that come together: figures are per 32.
func BenchmarkSend32(b *testing.B) {
	for _, codec := range []protocol.Codec{protocol.JSON, protocol.Binary} {
		b.Run(codec.String(), func(b *testing.B) {
			var stream []byte
			for i := range int32(32) {
				stream = append(stream, timedSend(codec, i)...)
			}
			exchanges(b, ratchettest.Start(b).Addr, stream, 32)
		})
	}
}

// BenchmarkPull is of pulls that get 32 messages of 1 KiB.
func BenchmarkPull(b *testing.B) {
	addr := ratchettest.Start(b).Addr
	c, err := net.Dial("tcp", addr)
	require.NoError(b, err)
	defer c.Close()
	for i := range int32(64) {
		_, err := c.Write(timedSend(protocol.Binary, i))
		require.NoError(b, err)
		nextFrame(b, c)
	}
	for _, codec := range []protocol.Codec{protocol.JSON, protocol.Binary} {
		b.Run(codec.String(), func(b *testing.B) {
			h := pullHeader("G", "T", 0, 0)
			h.MaxMsgNums = 32
			exchanges(b, addr, protocol.AppendRequest(nil, codec, protocol.PullMessage, 1, false, h, nil, nil), 1)
		})
	}
}
