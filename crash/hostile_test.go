//go:build conformance

package crash

import (
	"bytes"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/protocol"
)

// framed puts the length and header-length words before a header and a body.
func framed(codec byte, header, body string) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(4+len(header)+len(body)))
	b = binary.BigEndian.AppendUint32(b, uint32(codec)<<24|uint32(len(header)))
	return append(append(b, header...), body...)
}

func words(w ...uint32) []byte {
	var b []byte
	for _, n := range w {
		b = binary.BigEndian.AppendUint32(b, n)
	}
	return b
}

// hostileFrames are closed upon at once, or answered with an error.
var hostileFrames = map[string][]byte{
	"length 0":              words(0, 0),
	"length 3":              words(3, 0),
	"length -1":             words(0xFFFFFFFF, 0),
	"length over the limit": words(16777213, 0),
	"header over the frame": words(10, 100, 0, 0),
	"no header":             words(4, 0),
	"serialize type 7":      framed(7, `{"code":34}`, ""),
	"text as header":        framed(0, "hello", ""),
	"array as header":       framed(0, "[]", ""),
	"deep header":           framed(0, `{"extFields":`+strings.Repeat(`{"a":`, 5000), ""),
	"deep body":             framed(0, `{"code":34,"opaque":1}`, strings.Repeat("[", 100_000)),
	"binary header cut":     framed(1, "\x00\x22\x00", ""),
	"binary fields 2^31-1":  framed(1, "\x00\x0b\x09\x01\x3d\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x7f\xff\xff\xff", ""),
	"HTTP":                  []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
	"TLS":                   []byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
	"code as words":         framed(0, `{"code":"abc","opaque":1}`, ""),
	"send without topic":    framed(0, `{"code":310,"opaque":1,"extFields":{"a":"p"}}`, "x"),
	"pull of queue -5":      framed(0, `{"code":11,"opaque":1,"extFields":{"consumerGroup":"g","topic":"TBW102","queueId":"-5","queueOffset":"-9","maxMsgNums":"-1","sysFlag":"-1","commitOffset":"-4","suspendTimeoutMillis":"-1","subVersion":"-1"}}`, ""),
	"batch that lies":       framed(0, `{"code":320,"opaque":1,"extFields":{"a":"p","b":"Hostile","c":"TBW102","d":"4","e":"0","f":"0","g":"1","h":"0","m":"true"}}`, "\x7f\xff\xff\xff\x00\x00\x00\x00"),
}

// neighbour sends and reads back for as long as the test goes on, and must notice nothing.
func neighbour(t *testing.T, s *server) (stop func()) {
	var done atomic.Bool
	var work sync.WaitGroup
	work.Go(func() {
		w, err := dial(s.broker)
		if err != nil {
			t.Error(err)
			return
		}
		defer w.Close()
		for n := 0; !done.Load(); n++ {
			start := time.Now()
			answer, err := w.call(protocol.SendMessageV2, sendHeader("Neighbour", 0, "k"), []byte("x"))
			if err == nil {
				_, _, err = sent(answer)
			}
			if err != nil {
				t.Errorf("neighbour, message %d: %v", n, err)
				return
			}
			if took := time.Since(start); took > 10*time.Second { // by hostile peers it would be held for good
				t.Errorf("neighbour, message %d took %v", n, took)
			}
		}
	})
	return func() {
		done.Store(true)
		work.Wait()
	}
}

// TestHostile sends what no client sends. The sender gets an error or is closed; others notice nothing; memory stays.
func TestHostile(t *testing.T) {
	s := newServer(t)
	stop := neighbour(t, s)
	for _, addr := range []string{s.broker, s.namesrv} {
		for name, frame := range hostileFrames {
			t.Run(name, func(t *testing.T) {
				c, err := net.DialTimeout("tcp", addr, 10*time.Second)
				require.NoError(t, err)
				defer c.Close()
				_, err = c.Write(frame)
				require.NoError(t, err)
				requireRefused(t, c)
			})
		}
	}
	before := s.rss()
	fuzzFrames(t, s)
	closeHalf(t, s)
	trickle(t, s)
	idle(t, s)
	stop()
	require.Less(t, s.rss(), before+(200<<20), "memory has grown")
	s.stop()
}

// requireRefused demands that the peer closes, or answers with an error code.
func requireRefused(t *testing.T, c net.Conn) {
	require.NoError(t, c.SetReadDeadline(time.Now().Add(20*time.Second)))
	head := make([]byte, 4)
	if _, err := io.ReadFull(c, head); err != nil {
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "neither closed nor answered")
		return
	}
	size, err := protocol.FrameSize(head)
	require.NoError(t, err)
	frame := make([]byte, size)
	copy(frame, head)
	_, err = io.ReadFull(c, frame[4:])
	require.NoError(t, err)
	answer, err := protocol.Decode(frame)
	require.NoError(t, err)
	require.NotEqual(t, int32(protocol.Success), answer.Code)
	require.NotEmpty(t, answer.Remark)
}

// fuzzFrames sends thousands of good frames with some bytes changed.
func fuzzFrames(t *testing.T, s *server) {
	good := [][]byte{
		protocol.AppendRequest(nil, protocol.JSON, protocol.SendMessageV2, 1, false, sendHeader("Fuzzed", 0, "k"), nil, []byte("body")),
		protocol.AppendRequest(nil, protocol.Binary, protocol.SendMessage, 1, false, sendHeader("Fuzzed", 0, "k"), nil, []byte("body")),
		protocol.AppendRequest(nil, protocol.Binary, protocol.PullMessage, 1, false, pullHeader("Fuzzed", 0, 0, 0), nil, nil),
		framed(0, `{"code":34,"opaque":7}`, `{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[{"topic":"T","codeSet":[1]}]}]}`),
	}
	for i := range 3000 {
		frame := bytes.Clone(good[i%len(good)])
		for range 1 + rand.IntN(6) {
			frame[4+rand.IntN(len(frame)-4)] = byte(rand.Uint32())
		}
		c, err := net.DialTimeout("tcp", s.broker, 10*time.Second)
		require.NoError(t, err)
		_, err = c.Write(frame)
		require.NoError(t, err)
		c.Close()
	}
}

// closeHalf shuts the writing side down in the middle of a frame.
func closeHalf(t *testing.T, s *server) {
	c, err := net.DialTimeout("tcp", s.broker, 10*time.Second)
	require.NoError(t, err)
	defer c.Close()
	_, err = c.Write(words(100, 50))
	require.NoError(t, err)
	require.NoError(t, c.(*net.TCPConn).CloseWrite())
	require.NoError(t, c.SetReadDeadline(time.Now().Add(20*time.Second)))
	_, err = c.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
}

// trickle announces frames of 16 MiB on many connections and sends next to nothing of them.
func trickle(t *testing.T, s *server) {
	before := s.rss()
	for range 200 {
		c, err := net.DialTimeout("tcp", s.broker, 10*time.Second)
		require.NoError(t, err)
		defer c.Close()
		_, err = c.Write(append(words(16<<20-8, 1000), make([]byte, 100)...))
		require.NoError(t, err)
	}
	w, err := dial(s.broker) // when this is answered, the others have been read
	require.NoError(t, err)
	defer w.Close()
	_, err = w.call(protocol.GetMaxOffset, &protocol.GetMaxOffsetRequest{Topic: "T"}, nil)
	require.NoError(t, err)
	require.Less(t, s.rss(), before+(100<<20), "memory is taken for what was only announced")
}

// idle holds 5,000 connections open at once.
func idle(t *testing.T, s *server) {
	before := s.rss()
	const n = 5000
	for range n {
		c, err := net.DialTimeout("tcp", s.broker, 10*time.Second)
		require.NoError(t, err)
		defer c.Close()
	}
	grown := s.rss() - before
	t.Logf("%d idle connections cost %d KiB each", n, grown/n>>10)
	require.Less(t, grown/n, int64(20<<10))
}
