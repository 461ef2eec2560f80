//go:build conformance && linux

package crash

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/message"
	"github.com/ratchetmq/ratchet/protocol"
	"github.com/ratchetmq/ratchet/remoting"
)

// An asker is a client for one goroutine, that does not wait for long for a broker that is cut off.
type asker struct{ client *remoting.Client }

func newAsker() *asker { return &asker{} }

func (a *asker) close() {
	if a.client != nil {
		a.client.Close()
		a.client = nil
	}
}

const askLimit = 2 * time.Second

// ask asks over the connection that there is; a new one is made after each failure.
func (a *asker) ask(address string, code protocol.RequestCode, h protocol.Header, body []byte) (*remoting.Response, error) {
	if a.client == nil {
		var err error
		if a.client, err = remoting.NewClient(remoting.ClientConfig{}); err != nil {
			return nil, err
		}
	}
	limit := askLimit
	if code == protocol.SwitchMaster {
		limit = partitionWait
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	answer, err := a.client.Call(ctx, address, code, h, nil, body)
	if err != nil {
		a.close()
	}
	return answer, err
}

// A seat is a place in a queue of the partitions' topic.
type seat struct {
	queue  int32
	offset int64
}

// A partitionLoad is producers and readers at work, and the book of what they were told.
type partitionLoad struct {
	t        *testing.T
	machines [2]*machine
	ctx      context.Context
	cancel   context.CancelFunc
	workers  sync.WaitGroup
	gate     sync.RWMutex // producers hold it to send, pause to keep them from it
	paused   bool         // of the test's goroutine

	mu        sync.Mutex
	places    map[seat]string // whoever told of it: what stands there
	both      map[seat]string // SEND_OK
	onlyOne   int             // stored on the master alone
	read      map[seat]string
	next      [partitionQueues]int64 // of the readers
	committed [partitionQueues]int64 // acknowledged
	wrong     []string
}

func startPartitionLoad(t *testing.T, p *partition) *partitionLoad {
	t.Helper()
	l := &partitionLoad{
		t: t, machines: p.machines, places: map[seat]string{}, both: map[seat]string{}, read: map[seat]string{},
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	t.Cleanup(func() {
		if t.Failed() {
			l.report(p)
		}
		l.cancel()
		if l.paused { // the test has failed meanwhile
			l.resume()
		}
		l.workers.Wait()
	})
	for producer := range 3 {
		l.workers.Go(func() { l.produce(producer) })
	}
	for queue := range int32(partitionQueues) {
		l.workers.Go(func() { l.consume(queue) })
	}
	return l
}

func (l *partitionLoad) fault(format string, args ...any) {
	l.wrong = append(l.wrong, fmt.Sprintf(format, args...))
}

// stands notes what stands at a place, with l.mu held; a place never holds two messages.
func (l *partitionLoad) stands(at seat, key, who string) {
	if before, ok := l.places[at]; ok && before != key {
		l.fault("%s: %v holds %s, held %s", who, at, key, before)
	}
	l.places[at] = key
}

// produce sends one message after the other to whoever is the master.
func (l *partitionLoad) produce(producer int) {
	client := newAsker()
	defer client.close()
	random := rand.New(rand.NewPCG(uint64(producer), 2))
	turn := 0
	for n := 0; l.ctx.Err() == nil; n++ {
		l.gate.RLock()
		if l.ctx.Err() != nil { // the readers do not wait for what comes now
			l.gate.RUnlock()
			return
		}
		key := fmt.Sprintf("P%d-%d", producer, n)
		queue := int32(random.IntN(partitionQueues))
		answer, err := client.ask(l.machines[turn].address, protocol.SendMessage, sendHeader(partitionTopic, queue, key),
			numbered(100+random.IntN(4000), producer, n))
		l.gate.RUnlock()
		<-time.After(time.Millisecond) // enough is enough
		if err != nil || !l.told(queue, key, answer) {
			turn = 1 - turn
			<-time.After(20 * time.Millisecond)
		}
	}
}

// told notes the answer to a send; it is false when the broker does not take messages.
func (l *partitionLoad) told(queue int32, key string, answer *remoting.Response) bool {
	var h protocol.SendMessageResponse
	code := protocol.ResponseCode(answer.Code)
	switch code {
	case protocol.Success, protocol.SlaveNotAvailable, protocol.FlushSlaveTimeout:
	case protocol.ServiceNotAvailable, protocol.TopicNotExist, protocol.NoPermission:
		return false
	default:
		l.mu.Lock()
		l.fault("send: %v %s", code, answer.Remark)
		l.mu.Unlock()
		return false
	}
	if err := answer.ReadHeader(&h); err != nil {
		return code != protocol.Success // where it is, is told with SEND_OK only
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	at := seat{queue, h.QueueOffset}
	l.stands(at, key, "send")
	if code == protocol.Success {
		l.both[at] = key
	} else {
		l.onlyOne++
	}
	return true
}

// consume reads a queue, now from the one broker and now from the other, and commits what it has read.
func (l *partitionLoad) consume(queue int32) {
	client := newAsker()
	defer client.close()
	for from, turn := int64(0), 0; l.ctx.Err() == nil; turn = 1 - turn {
		h := pullHeader(partitionTopic, queue, from, 50*time.Millisecond)
		h.ConsumerGroup = partitionGroup
		address := l.machines[turn].address
		answer, err := client.ask(address, protocol.PullMessage, h, nil)
		if err != nil {
			<-time.After(20 * time.Millisecond)
			continue
		}
		next, ok := l.got(queue, from, address, answer)
		if !ok || next == from {
			continue
		}
		from = next
		commit := &protocol.UpdateConsumerOffsetRequest{
			ConsumerGroup: partitionGroup, Topic: partitionTopic, QueueID: queue, CommitOffset: from,
		}
		if answer, err = client.ask(address, protocol.UpdateConsumerOffset, commit, nil); err == nil &&
			protocol.ResponseCode(answer.Code) == protocol.Success {
			l.mu.Lock()
			l.committed[queue] = from
			l.mu.Unlock()
		}
	}
}

// got notes what a pull has brought and says where the reader goes on; ok is false for a refusal.
func (l *partitionLoad) got(queue int32, from int64, who string, answer *remoting.Response) (next int64, ok bool) {
	code := protocol.ResponseCode(answer.Code)
	var h protocol.PullMessageResponse
	found, err := records(answer.Body)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch code {
	case protocol.Success, protocol.PullNotFound, protocol.PullRetryImmediately, protocol.PullOffsetMoved:
		err = errors.Join(err, answer.ReadHeader(&h))
	case protocol.ServiceNotAvailable, protocol.TopicNotExist, protocol.SubscriptionGroupNotExist, protocol.SubscriptionNotExist:
		return from, false // not open, or it has not come so far
	default:
		err = fmt.Errorf("%v %s", code, answer.Remark)
	}
	switch {
	case err != nil:
		l.fault("pull of %d from %d at %s: %v", queue, from, who, err)
		return from, false
	case h.NextBeginOffset < from:
		l.fault("pull of %d from %d at %s: sent back to %d", queue, from, who, h.NextBeginOffset)
		return from, false
	}
	for _, r := range found {
		key, _ := message.Property(r.Properties, message.PropertyUniqueKey)
		at := seat{queue, int64(r.QueueOffset)}
		l.stands(at, string(key), "pull at "+who)
		l.read[at] = string(key)
	}
	l.next[queue] = h.NextBeginOffset
	return h.NextBeginOffset, true
}

// What flows looks at: messages on both brokers, on the master alone, and all of them.
func (l *partitionLoad) acked() int { return l.count(func() int { return len(l.both) }) }
func (l *partitionLoad) alone() int { return l.count(func() int { return l.onlyOne }) }
func (l *partitionLoad) all() int   { return l.count(func() int { return len(l.both) + l.onlyOne }) }

func (l *partitionLoad) count(of func() int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return of()
}

// flows waits until n more have come.
func (l *partitionLoad) flows(count func() int, n int) {
	l.t.Helper()
	want := count() + n
	require.Eventually(l.t, func() bool { return count() >= want }, partitionWait, 5*time.Millisecond, "the load goes on")
}

// goesOn waits until the readers have come to the ends of the queues of a broker, the only one that they have.
func (l *partitionLoad) goesOn(p *partition, m *machine) {
	l.t.Helper()
	p.await("the readers have all that "+m.address+" has", func() bool {
		ahead, ok := l.ahead(p.client, m)
		return ok && slices.Min(ahead[:]) >= 0
	})
}

// ahead is how far the readers of the queues are beyond the ends that a broker tells now.
func (l *partitionLoad) ahead(client *asker, m *machine) (ahead [partitionQueues]int64, ok bool) {
	for queue := range int32(partitionQueues) {
		answer, err := client.ask(m.address, protocol.GetMaxOffset, &protocol.GetMaxOffsetRequest{Topic: partitionTopic, QueueID: queue}, nil)
		var h protocol.GetMaxOffsetResponse
		if err != nil || answer.ReadHeader(&h) != nil {
			return ahead, false
		}
		l.mu.Lock()
		ahead[queue] = l.next[queue] - h.Offset
		l.mu.Unlock()
	}
	return ahead, true
}

// report logs where the readers stand, and what is wrong.
func (l *partitionLoad) report(p *partition) {
	for _, m := range p.machines {
		ahead, ok := l.ahead(p.client, m)
		l.t.Logf("readers by the ends of %s: %v (known: %v)", m.address, ahead, ok)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.t.Logf("readers: %v, committed: %v", l.next, l.committed)
	l.t.Log(l.faults())
}

// faults is the first of what is wrong, with l.mu held.
func (l *partitionLoad) faults() string { return strings.Join(l.wrong[:min(len(l.wrong), 20)], "\n") }

func (l *partitionLoad) pause() {
	l.gate.Lock()
	l.paused = true
}

func (l *partitionLoad) resume() {
	l.paused = false
	l.gate.Unlock()
}

// judge demands, while nothing is sent, that all readers have come to the end of their queues and that both brokers have
// what was acknowledged, each message in its place, and the readers' progress. A message that a producer has given up may
// still come: the system sends what was written to a connection while the broker could not be reached.
func (l *partitionLoad) judge(p *partition) {
	l.t.Helper()
	client := newAsker()
	defer client.close()
	for _, m := range p.machines {
		for queue := range int32(partitionQueues) {
			l.readAll(client, m, queue)
		}
	}
	for _, m := range p.machines {
		p.await("the readers come to the ends of the queues of "+m.address, func() bool {
			ahead, ok := l.ahead(client, m)
			return ok && ahead == [partitionQueues]int64{}
		})
	}
	l.mu.Lock()
	for at, key := range l.both {
		if l.read[at] != key {
			l.fault("%v, %s, was acknowledged and not read", at, key)
		}
	}
	committed, faults := l.committed, l.faults()
	l.mu.Unlock()
	require.Empty(l.t, faults)
	for _, m := range p.machines {
		for queue := range int32(partitionQueues) {
			p.await(fmt.Sprintf("%s knows the readers' progress in queue %d: %d", m.address, queue, committed[queue]), func() bool {
				answer, err := client.ask(m.address, protocol.QueryConsumerOffset, &protocol.QueryConsumerOffsetRequest{
					ConsumerGroup: partitionGroup, Topic: partitionTopic, QueueID: queue,
				}, nil)
				var h protocol.QueryConsumerOffsetResponse
				return err == nil && answer.ReadHeader(&h) == nil && h.Offset >= committed[queue]
			})
		}
	}
}

// readAll reads a queue of one broker from its beginning and compares it with the book.
func (l *partitionLoad) readAll(client *asker, m *machine, queue int32) {
	l.t.Helper()
	l.mu.Lock()
	told := maps.Clone(l.places)
	l.mu.Unlock()
	has, end := map[seat]string{}, int64(0)
	for {
		answer, err := client.ask(m.address, protocol.PullMessage, pullHeader(partitionTopic, queue, end, 0), nil)
		require.NoError(l.t, err)
		code := protocol.ResponseCode(answer.Code)
		if code == protocol.PullNotFound {
			break
		}
		require.Contains(l.t, []protocol.ResponseCode{protocol.Success, protocol.PullRetryImmediately}, code, answer.Remark)
		var h protocol.PullMessageResponse
		require.NoError(l.t, answer.ReadHeader(&h))
		found, err := records(answer.Body)
		require.NoError(l.t, err)
		for _, r := range found {
			key, _ := message.Property(r.Properties, message.PropertyUniqueKey)
			has[seat{queue, int64(r.QueueOffset)}] = string(key)
		}
		require.Greater(l.t, h.NextBeginOffset, end)
		end = h.NextBeginOffset
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for at, key := range has {
		l.stands(at, key, "reading "+m.address)
	}
	for at, key := range told {
		if at.queue == queue && has[at] != key {
			l.fault("%s: %v was told to hold %s, holds %q", m.address, at, key, has[at])
		}
	}
}

// stop ends the load when all is read.
func (l *partitionLoad) stop(p *partition) {
	l.t.Helper()
	l.pause()
	p.level()
	l.judge(p)
	l.cancel()
	l.resume()
	l.workers.Wait()
}
