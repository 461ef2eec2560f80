//go:build conformance && linux

package crash

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratchetmq/ratchet/message"
	"github.com/ratchetmq/ratchet/protocol"
)

const (
	powerTopic     = "Power"
	powerLater     = "Later" // of delayed messages
	powerQueues    = 4
	powerProducers = 4
	powerInFlight  = 8
	powerBudget    = 6 << 20 // bytes acknowledged in a cycle at most, so that 25 cycles fit on the disk
)

// load is clients that send, consume and make topics, until the broker does not answer any more.
type load struct {
	t      *testing.T
	addr   string
	ledger *powerLedger
	cycle  string // begins all keys
	pause  time.Duration
	over   atomic.Bool // errors are expected from now on
	work   sync.WaitGroup
}

// startLoad starts clients. Each producer pauses that long between two messages.
func startLoad(t *testing.T, addr string, l *powerLedger, cycle string, pause time.Duration) *load {
	a := &load{t: t, addr: addr, ledger: l, cycle: cycle, pause: pause}
	for p := range powerProducers {
		a.client(func(w *wire) error { return a.produce(w, p) })
	}
	a.client(a.makeTopics)
	a.client(a.sendDelayed)
	for queue := range int32(powerQueues) {
		a.client(func(w *wire) error { return a.consume(w, queue) })
	}
	return a
}

// client runs fn with a connection, until it returns an error because of the end.
func (a *load) client(fn func(*wire) error) {
	a.work.Go(func() {
		w, err := dial(a.addr)
		if err == nil {
			defer w.Close()
			err = fn(w)
		}
		if err != nil && !a.over.Load() {
			a.t.Errorf("cycle %s: %v", a.cycle, err)
		}
	})
}

func (a *load) produce(w *wire, p int) error {
	if p%2 == 1 {
		w.codec = protocol.Binary
	}
	keys := map[int32]string{}
	tick := ticker(a.pause)
	for n := 0; ; n++ {
		<-tick
		key := fmt.Sprintf("%s.%d.%d", a.cycle, p, n)
		body := a.ledger.will(powerTopic, key)
		opaque, err := w.post(protocol.SendMessageV2, sendHeader(powerTopic, int32(n%powerQueues), key), body)
		if err != nil {
			return err
		}
		keys[opaque] = key
		if len(keys) < powerInFlight && (a.pause == 0 || len(keys) < 2) {
			continue
		}
		answer, err := w.next()
		if err != nil {
			return err
		}
		if err := a.acked(answer, powerTopic, keys[answer.Opaque]); err != nil {
			return err
		}
		delete(keys, answer.Opaque)
	}
}

// ticker is a channel to wait on before each message; one that is always ready for no pause.
func ticker(pause time.Duration) <-chan time.Time {
	if pause > 0 {
		return time.Tick(pause)
	}
	ready := make(chan time.Time)
	close(ready)
	return ready
}

// acked reads the answer to a send. An error ends the producer.
func (a *load) acked(answer protocol.Command, topic, key string) error {
	queue, qoff, err := sent(answer)
	if err != nil {
		return err
	}
	var h protocol.SendMessageResponse
	if err := answer.ReadHeader(&h); err != nil {
		return err
	}
	_, phy, err := message.ParseID(h.MsgID)
	if err != nil {
		return err
	}
	a.check(a.ledger.ack(spot{topic, queue, qoff}, acked{key, phy, time.Now()}, len(bodyOf(key))))
	return nil
}

// check fails the test for what the ledger finds wrong, whether or not errors are expected.
func (a *load) check(err error) {
	if err != nil {
		a.t.Errorf("cycle %s: %v", a.cycle, err)
	}
}

// makeTopics makes topics in turn by an admin's request and by a first message.
func (a *load) makeTopics(w *wire) error {
	for n := 0; ; n++ {
		topic := fmt.Sprintf("Topic-%s-%d", a.cycle, n)
		if n%2 == 0 {
			a.ledger.willTopic(topic)
			answer, err := w.call(protocol.UpdateAndCreateTopic, &protocol.CreateTopicRequest{
				Topic: topic, DefaultTopic: "TBW102", ReadQueueNums: 1, WriteQueueNums: 1, Perm: 6, TopicFilterType: "SINGLE_TAG",
			}, nil)
			if err != nil {
				return err
			}
			if answer.Code != int32(protocol.Success) {
				return fmt.Errorf("make topic: %s", answer.Remark)
			}
			a.check(a.ledger.ackTopic(topic))
		}
		key := fmt.Sprintf("%s.topic.%d", a.cycle, n)
		body := a.ledger.will(topic, key)
		answer, err := w.call(protocol.SendMessageV2, sendHeader(topic, 0, key), body)
		if err != nil {
			return err
		}
		if err := a.acked(answer, topic, key); err != nil {
			return err
		}
		<-time.After(time.Duration(rand.IntN(200)) * time.Millisecond)
	}
}

// sendDelayed sends messages that are delivered a second later: most of them after the cut.
func (a *load) sendDelayed(w *wire) error {
	for n := 0; ; n++ {
		key := fmt.Sprintf("%s.later.%d", a.cycle, n)
		h := sendHeader(powerLater, 0, key)
		h.Properties = message.AppendProperty(h.Properties, message.PropertyDelayLevel, "1")
		body := a.ledger.will(powerLater, key)
		answer, err := w.call(protocol.SendMessageV2, h, body)
		if err != nil {
			return err
		}
		if _, _, err := sent(answer); err != nil {
			return err
		}
		a.check(a.ledger.ackDelayed(key))
		<-time.After(time.Duration(rand.IntN(20)) * time.Millisecond)
	}
}

// consume pulls a queue from where the group is, and commits after each answer.
func (a *load) consume(w *wire, queue int32) error {
	a.ledger.mu.Lock()
	from := a.ledger.commits[queue].floor
	a.ledger.mu.Unlock()
	for {
		answer, err := w.call(protocol.PullMessage, pullHeader(powerTopic, queue, from, 20*time.Millisecond), nil)
		if err != nil {
			return err
		}
		var h protocol.PullMessageResponse
		switch protocol.ResponseCode(answer.Code) {
		case protocol.TopicNotExist:
			<-time.After(5 * time.Millisecond)
			continue
		case protocol.PullNotFound:
			continue
		case protocol.Success:
			err = answer.ReadHeader(&h)
		default:
			err = fmt.Errorf("pull of queue %d at %d answered %d: %s", queue, from, answer.Code, answer.Remark)
		}
		if err != nil {
			return err
		}
		from = h.NextBeginOffset
		a.ledger.willCommit(queue, from)
		answer, err = w.call(protocol.UpdateConsumerOffset, &protocol.UpdateConsumerOffsetRequest{
			ConsumerGroup: "crash", Topic: powerTopic, QueueID: queue, CommitOffset: from,
		}, nil)
		if err != nil {
			return err
		}
		if answer.Code != int32(protocol.Success) {
			return fmt.Errorf("commit of queue %d, %d: %s", queue, from, answer.Remark)
		}
		a.ledger.ackCommit(queue, from)
	}
}
