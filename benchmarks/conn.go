package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/ratchetmq/ratchet/protocol"
)

// ioTimeout ends a round whose broker has stopped to answer.
const ioTimeout = 30 * time.Second

// A wire is a connection that knows frames and nothing else.
type wire struct {
	net.Conn
	in         []byte
	start, end int // of what is unread in in
	opaque     int32
}

func dial(addr string) (*wire, error) {
	c, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err != nil {
		return nil, err
	}
	return &wire{Conn: c, in: make([]byte, 256<<10), opaque: firstOpaque}, nil
}

func dialAll(addr string, n int) ([]*wire, error) {
	all := make([]*wire, n)
	for i := range all {
		var err error
		if all[i], err = dial(addr); err != nil {
			closeAll(all)
			return nil, err
		}
	}
	return all, nil
}

func closeAll(all []*wire) {
	for _, w := range all {
		if w != nil {
			w.Close()
		}
	}
}

// buffered cuts the next frame off what has been read already; nil when there is no whole one.
func (w *wire) buffered() ([]byte, error) {
	have := w.in[w.start:w.end]
	if len(have) < 8 {
		return nil, nil
	}
	size := 4 + int(binary.BigEndian.Uint32(have))
	if size > protocol.MaxFrame || size < 9 {
		return nil, fmt.Errorf("frame of %d bytes", size)
	}
	if len(have) < size {
		w.room(size)
		return nil, nil
	}
	w.start += size
	return have[:size], nil
}

// within sets when the connection's reads and writes fail; 0 is never. On a connection that is closed they fail anyway.
func (w *wire) within(limit time.Duration) {
	at := time.Time{}
	if limit > 0 {
		at = time.Now().Add(limit)
	}
	_ = w.SetDeadline(at)
}

// room makes sure that a frame of that size fits in behind start.
func (w *wire) room(size int) {
	if w.start+size <= len(w.in) {
		return
	}
	to := w.in
	if size > len(to) {
		to = make([]byte, 2*size)
	}
	w.end = copy(to, w.in[w.start:w.end])
	w.start, w.in = 0, to
}

// more reads once.
func (w *wire) more() error {
	if w.start == w.end {
		w.start, w.end = 0, 0
	}
	if w.end == len(w.in) {
		w.room(w.end - w.start + 1)
	}
	n, err := w.Read(w.in[w.end:])
	w.end += n
	return err
}

// next waits for a frame that answers something; it is valid until the next call. Requests of the broker's own are passed over.
func (w *wire) next() (answer, error) {
	for {
		frame, err := w.buffered()
		if err != nil {
			return answer{}, err
		}
		if frame != nil {
			a, err := parseAnswer(frame)
			if err != nil || a.opaque >= firstOpaque {
				return a, err
			}
			continue
		}
		if err := w.more(); err != nil {
			return answer{}, err
		}
	}
}

// call sends a request and waits for its answer; there must be no other in flight.
func (w *wire) call(code protocol.RequestCode, h protocol.Header, body []byte) (answer, error) {
	w.within(ioTimeout)
	defer w.within(0)
	w.opaque++
	if _, err := w.Write(protocol.AppendRequest(nil, protocol.JSON, code, w.opaque, false, h, nil, body)); err != nil {
		return answer{}, err
	}
	a, err := w.next()
	if err == nil && a.opaque != w.opaque {
		err = errors.New("answer to another request")
	}
	return a, err
}

// makeTopic creates a topic with so many queues.
func makeTopic(addr, topic string, queues int32) error {
	w, err := dial(addr)
	if err != nil {
		return err
	}
	defer w.Close()
	a, err := w.call(protocol.UpdateAndCreateTopic, &protocol.CreateTopicRequest{
		Topic: topic, DefaultTopic: "TBW102", ReadQueueNums: queues, WriteQueueNums: queues, Perm: 6, TopicFilterType: "SINGLE_TAG",
	}, nil)
	if err == nil && a.code != 0 {
		err = fmt.Errorf("topic %s: code %d: %s", topic, a.code, a.header)
	}
	return err
}

// queueEnd is the offset that the next message of a queue will get.
func queueEnd(w *wire, topic string, queue int32) (int64, error) {
	a, err := w.call(protocol.GetMaxOffset, &protocol.GetMaxOffsetRequest{Topic: topic, QueueID: queue}, nil)
	if err != nil {
		return 0, err
	}
	n, ok := a.number("offset")
	if !ok {
		return 0, fmt.Errorf("end of %s/%d: code %d: %s", topic, queue, a.code, a.header)
	}
	return n, nil
}

// pullCount is how many messages a pull asks for: as many as a stock client does.
const pullCount = 32

// pullRequest is a pull of a consumer that brings its own subscription.
func pullRequest(dst []byte, codec protocol.Codec, opaque int32, group, topic string, queue int32, from int64, suspend time.Duration,
) []byte {
	h := &protocol.PullMessageRequest{
		ConsumerGroup: group, Topic: topic, QueueID: queue, QueueOffset: from, MaxMsgNums: pullCount, SysFlag: 4,
		SuspendTimeoutMillis: suspend.Milliseconds(), Subscription: "*", ExpressionType: "TAG",
	}
	if suspend > 0 {
		h.SysFlag |= 2
	}
	return protocol.AppendRequest(dst, codec, protocol.PullMessage, opaque, false, h, nil, nil)
}

// An outbox gathers requests that go to a connection together.
type outbox struct {
	wire *wire
	out  []byte
}

func (o *outbox) write() error {
	if len(o.out) == 0 {
		return nil
	}
	_, err := o.wire.Write(o.out)
	o.out = o.out[:0]
	return err
}

// writeAll writes what all of them have gathered.
func writeAll[O interface{ write() error }](all []O) error {
	for _, o := range all {
		if err := o.write(); err != nil {
			return err
		}
	}
	return nil
}
