//go:build conformance

package crash

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	"github.com/ratchetmq/ratchet/message"
	"github.com/ratchetmq/ratchet/protocol"
)

// wire is one connection to a broker that speaks the protocol and nothing more: no retries, no cache, no rebalancing,
// so that a test knows exactly what was sent and what was answered.
type wire struct {
	net.Conn
	in     *bufio.Reader
	opaque int32
	codec  protocol.Codec
}

func dial(addr string) (*wire, error) {
	c, err := net.DialTimeout("tcp", addr, 3*time.Second)
	if err != nil {
		return nil, err
	}
	return &wire{Conn: c, in: bufio.NewReaderSize(c, 256<<10)}, nil
}

// post writes one request and returns its opaque.
func (w *wire) post(code protocol.RequestCode, h protocol.Header, body []byte) (int32, error) {
	w.opaque++
	_, err := w.Write(protocol.AppendRequest(nil, w.codec, code, w.opaque, false, h, nil, body))
	return w.opaque, err
}

// next reads one frame. Its bytes are its own.
func (w *wire) next() (protocol.Command, error) {
	w.SetReadDeadline(time.Now().Add(60 * time.Second))
	head, err := w.in.Peek(4)
	if err != nil {
		return protocol.Command{}, err
	}
	size, err := protocol.FrameSize(head)
	if err != nil {
		return protocol.Command{}, err
	}
	frame := make([]byte, size)
	if _, err := io.ReadFull(w.in, frame); err != nil {
		return protocol.Command{}, err
	}
	return protocol.Decode(frame)
}

// call posts a request and reads its answer; requests that the broker sends in between are dropped.
func (w *wire) call(code protocol.RequestCode, h protocol.Header, body []byte) (protocol.Command, error) {
	opaque, err := w.post(code, h, body)
	if err != nil {
		return protocol.Command{}, err
	}
	for {
		answer, err := w.next()
		if err != nil || answer.IsResponse() && answer.Opaque == opaque {
			return answer, err
		}
	}
}

func sendHeader(topic string, queue int32, key string) *protocol.SendMessageRequest {
	props := message.AppendProperty(nil, message.PropertyUniqueKey, key)
	return &protocol.SendMessageRequest{
		ProducerGroup: "crash", Topic: topic, DefaultTopic: "TBW102", DefaultTopicQueueNums: 4, QueueID: queue,
		BornTimestamp: time.Now().UnixMilli(), Properties: props,
	}
}

// sent reads the answer to a send.
func sent(answer protocol.Command) (queue int32, qoff int64, err error) {
	if answer.Code != int32(protocol.Success) {
		return 0, 0, fmt.Errorf("send answered %d: %s", answer.Code, answer.Remark)
	}
	var h protocol.SendMessageResponse
	err = answer.ReadHeader(&h)
	return h.QueueID, h.QueueOffset, err
}

func pullHeader(topic string, queue int32, from int64, suspend time.Duration) *protocol.PullMessageRequest {
	h := &protocol.PullMessageRequest{
		ConsumerGroup: "crash", Topic: topic, QueueID: queue, QueueOffset: from, MaxMsgNums: 256,
		SysFlag: 4, SuspendTimeoutMillis: suspend.Milliseconds(), Subscription: "*", ExpressionType: "TAG",
	}
	if suspend > 0 {
		h.SysFlag |= 2
	}
	return h
}

// records splits the body of a pull answer and checks each body's CRC.
func records(body []byte) ([]message.Record, error) {
	var all []message.Record
	for len(body) > 0 {
		r, err := message.Parse(body)
		if err != nil {
			return nil, err
		}
		if err := r.CheckBody(); err != nil {
			return nil, err
		}
		all = append(all, r)
		body = body[r.Size:]
	}
	return all, nil
}

// numbered is a body of the given size that says what it is: its producer, its number, and filler that depends on both.
func numbered(size int, producer, n int) []byte {
	b := make([]byte, size)
	head := copy(b, strconv.Itoa(producer)+"/"+strconv.Itoa(n)+"/")
	seed := uint64(producer)<<32 | uint64(n)
	for i := head; i+8 <= size; i += 8 {
		seed = seed*6364136223846793005 + 1442695040888963407
		binary.LittleEndian.PutUint64(b[i:], seed)
	}
	return b
}
