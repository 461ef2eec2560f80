//go:build conformance

package crash

import (
	"bytes"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/protocol"
)

const (
	millionProducers = 8
	millionConsumers = 4
	millionEach      = 125_000
	millionQueues    = 8
	millionSize      = 1 << 10
	millionInFlight  = 32
)

// TestMillion sends a million messages of 1 KiB and receives them at the same time: every body is checked, none may be
// lost or come twice, and the broker's memory must not grow with them.
func TestMillion(t *testing.T) {
	s := newServer(t)
	const topic = "Million"
	w, err := dial(s.broker)
	require.NoError(t, err)
	answer, err := w.call(protocol.UpdateAndCreateTopic, &protocol.CreateTopicRequest{
		Topic: topic, DefaultTopic: "TBW102", ReadQueueNums: millionQueues, WriteQueueNums: millionQueues, Perm: 6,
		TopicFilterType: "SINGLE_TAG",
	}, nil)
	require.NoError(t, err)
	require.Equal(t, int32(protocol.Success), answer.Code, answer.Remark)
	w.Close()

	start := time.Now()
	var work sync.WaitGroup
	var received atomic.Int64
	seen := make([][]atomic.Bool, millionProducers)
	for p := range seen {
		seen[p] = make([]atomic.Bool, millionEach)
		work.Go(func() { sendMany(t, s.broker, topic, p) })
	}
	for c := range millionConsumers {
		work.Go(func() { receiveMany(t, s.broker, topic, c, seen, &received) })
	}
	half, peak := int64(0), int64(0)
	done := make(chan struct{})
	go func() { // owned: by this test, which waits for done
		work.Wait()
		close(done)
	}()
	for ticker := time.Tick(200 * time.Millisecond); ; {
		select {
		case <-ticker:
			rss := s.rss()
			if peak = max(peak, rss); received.Load() < millionProducers*millionEach/2 {
				half = max(half, rss)
			}
			continue
		case <-done:
		}
		break
	}
	took := time.Since(start)
	require.Equal(t, int64(millionProducers*millionEach), received.Load())
	t.Logf("1,000,000 messages sent and received in %v; memory %d MiB in the first half, %d MiB at most",
		took.Round(time.Millisecond), half>>20, peak>>20)
	require.Less(t, peak, half+half/4+(32<<20), "memory grows with the number of messages")
	require.Less(t, peak, int64(400<<20))
	s.stop()
}

func sendMany(t *testing.T, addr, topic string, producer int) {
	w, err := dial(addr)
	if err != nil {
		t.Error(err)
		return
	}
	defer w.Close()
	if producer%2 == 1 {
		w.codec = protocol.Binary
	}
	answered := 0
	for n := 0; answered < millionEach; {
		if n < millionEach && n-answered < millionInFlight {
			h := sendHeader(topic, int32(n%millionQueues), strconv.Itoa(producer)+"-"+strconv.Itoa(n))
			if _, err := w.post(protocol.SendMessageV2, h, numbered(millionSize, producer, n)); err != nil {
				t.Error(err)
				return
			}
			n++
			continue
		}
		answer, err := w.next()
		if err == nil {
			_, _, err = sent(answer)
		}
		if err != nil {
			t.Errorf("producer %d after %d: %v", producer, answered, err)
			return
		}
		answered++
	}
}

// receiveMany reads the queues of consumer c, one after the other in turn, until everything has arrived somewhere.
func receiveMany(t *testing.T, addr, topic string, c int, seen [][]atomic.Bool, received *atomic.Int64) {
	w, err := dial(addr)
	if err != nil {
		t.Error(err)
		return
	}
	defer w.Close()
	next := map[int32]int64{}
	deadline := time.Now().Add(5 * time.Minute)
	for received.Load() < millionProducers*millionEach && !t.Failed() {
		if time.Now().After(deadline) {
			t.Errorf("only %d messages arrived", received.Load())
			return
		}
		for queue := int32(c); queue < millionQueues; queue += millionConsumers {
			answer, err := w.call(protocol.PullMessage, pullHeader(topic, queue, next[queue], 50*time.Millisecond), nil)
			if err != nil {
				t.Error(err)
				return
			}
			if answer.Code == int32(protocol.PullNotFound) {
				continue
			}
			batch, err := records(answer.Body)
			if err != nil || answer.Code != int32(protocol.Success) {
				t.Errorf("pull answered %d %s: %v", answer.Code, answer.Remark, err)
				return
			}
			for _, r := range batch {
				parts := bytes.SplitN(r.Body, []byte("/"), 3)
				producer, _ := strconv.Atoi(string(parts[0]))
				n, _ := strconv.Atoi(string(parts[1]))
				if !bytes.Equal(r.Body, numbered(millionSize, producer, n)) {
					t.Errorf("queue %d offset %d: the body is not what producer %d sent as number %d", queue, r.QueueOffset, producer, n)
					return
				}
				if seen[producer][n].Swap(true) {
					t.Errorf("message %d of producer %d came twice", n, producer)
					return
				}
				received.Add(1)
				next[queue] = int64(r.QueueOffset) + 1
			}
		}
	}
}
