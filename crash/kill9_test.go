//go:build conformance

package crash

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/protocol"
)

// rounds is how many times TestKill9 kills; CI's number, or KILL9_ROUNDS.
func rounds(t *testing.T, ci int) int {
	text, ok := os.LookupEnv("KILL9_ROUNDS")
	if !ok {
		return ci
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err)
	return n
}

// place is where a message is: for ever the same one.
type place struct {
	queue int32
	qoff  int64
}

// ledger is what a test knows about one topic: what was acknowledged, and what was seen where.
type ledger struct {
	mu    sync.Mutex
	acked map[place]string // the message's key, by the place that the broker named
	seen  map[place]string // by the place where it was read
	sent  map[string]bool
}

func (l *ledger) ack(p place, key string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if other, ok := l.acked[p]; ok {
		return fmt.Errorf("queue %d offset %d was given to %s and then to %s", p.queue, p.qoff, other, key)
	}
	l.acked[p] = key
	return nil
}

// TestKill9 kills the broker at random moments under load. After each start every acknowledged message must be where
// the broker said, no place may ever hold another message than before, and the queues have no holes.
func TestKill9(t *testing.T) {
	for _, flush := range []string{"ASYNC_FLUSH", "SYNC_FLUSH"} {
		t.Run(flush, func(t *testing.T) {
			s := newServer(t, "-set", "flushDiskType="+flush, "-set", "mappedFileSizeCommitLog=1048576")
			l := &ledger{acked: map[place]string{}, seen: map[place]string{}, sent: map[string]bool{}}
			const topic = "Kill9"
			for round := range rounds(t, 25) {
				produce(t, s, l, topic, round)
				s.start()
				verify(t, s, l, topic)
			}
			require.NotEmpty(t, l.acked)
			s.stop()
			s.check()
			t.Logf("%d messages acknowledged, %d stored", len(l.acked), len(l.seen))
		})
	}
}

// produce sends from 4 connections, 8 requests in flight each, until the broker is killed.
func produce(t *testing.T, s *server, l *ledger, topic string, round int) {
	var producers sync.WaitGroup
	for p := range 4 {
		producers.Go(func() {
			w, err := dial(s.broker)
			if err != nil {
				return
			}
			defer w.Close()
			if p%2 == 1 {
				w.codec = protocol.Binary
			}
			keys := map[int32]string{}
			for n := 0; ; n++ {
				key := fmt.Sprintf("%d.%d.%d", round, p, n)
				body := append([]byte(key+" "), bytes.Repeat([]byte{byte(n)}, rand.IntN(3000))...)
				l.mu.Lock()
				l.sent[key] = true
				l.mu.Unlock()
				opaque, err := w.post(protocol.SendMessageV2, sendHeader(topic, int32(n%4), key), body)
				if err != nil {
					return
				}
				keys[opaque] = key
				if len(keys) < 8 {
					continue
				}
				answer, err := w.next()
				if err != nil {
					return
				}
				queue, qoff, err := sent(answer)
				if err != nil {
					t.Errorf("send: %v", err)
					return
				}
				if err := l.ack(place{queue, qoff}, keys[answer.Opaque]); err != nil {
					t.Error(err)
					return
				}
				delete(keys, answer.Opaque)
			}
		})
	}
	time.Sleep(time.Duration(50+rand.IntN(400)) * time.Millisecond) // the random moment is the point of the test
	s.kill9()
	producers.Wait()
}

// verify reads the whole topic and compares it with all that is known.
func verify(t *testing.T, s *server, l *ledger, topic string) {
	w, err := dial(s.broker)
	require.NoError(t, err)
	defer w.Close()
	now := map[place]string{}
	for queue := range int32(4) {
		answer, err := w.call(protocol.GetMaxOffset, &protocol.GetMaxOffsetRequest{Topic: topic, QueueID: queue}, nil)
		require.NoError(t, err)
		var high protocol.GetMaxOffsetResponse
		require.NoError(t, answer.ReadHeader(&high))
		for from := int64(0); from < high.Offset; {
			answer, err := w.call(protocol.PullMessage, pullHeader(topic, queue, from, 0), nil)
			require.NoError(t, err)
			require.Equal(t, int32(protocol.Success), answer.Code, "queue %d at %d of %d: %s", queue, from, high.Offset, answer.Remark)
			batch, err := records(answer.Body)
			require.NoError(t, err)
			for _, r := range batch {
				require.Equal(t, from, int64(r.QueueOffset), "queue %d has a hole", queue)
				key, _, _ := bytes.Cut(r.Body, []byte(" "))
				require.True(t, l.sent[string(key)], "nobody sent %q", key)
				now[place{queue, from}] = string(key)
				from++
			}
		}
	}
	for p, key := range l.seen {
		require.Equal(t, key, now[p], "queue %d offset %d held another message before", p.queue, p.qoff)
	}
	for p, key := range l.acked {
		require.Equal(t, key, now[p], "queue %d offset %d was acknowledged", p.queue, p.qoff)
	}
	l.seen = now
}
