//go:build conformance && linux

package crash

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/delay"
	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/protocol"
)

// found is everything that can be read of a store.
type found struct {
	now     map[spot]string          // key
	phy     map[spot]offset.Physical // where it is in the log
	high    map[string][]int64       // by topic, of each queue
	deliver map[string]bool          // keys of delayed messages that have been delivered
}

// readAll reads all topics that there may be from their beginnings.
func (c *powerStore) readAll(w *wire) found {
	f := found{
		now: map[spot]string{}, phy: map[spot]offset.Physical{}, high: map[string][]int64{}, deliver: map[string]bool{},
	}
	for topic := range c.ledger.tried {
		queues := 1
		if topic == powerTopic {
			queues = powerQueues
		}
		for queue := range int32(queues) {
			f.high[topic] = append(f.high[topic], c.readQueue(w, &f, topic, queue))
		}
	}
	return f
}

func (c *powerStore) readQueue(w *wire, f *found, topic string, queue int32) (high int64) {
	t := c.t
	answer, err := w.call(protocol.GetMaxOffset, &protocol.GetMaxOffsetRequest{Topic: topic, QueueID: queue}, nil)
	require.NoError(t, err)
	var end protocol.GetMaxOffsetResponse
	require.NoError(t, answer.ReadHeader(&end))
	for from := int64(0); from < end.Offset; {
		answer, err := w.call(protocol.PullMessage, pullHeader(topic, queue, from, 0), nil)
		require.NoError(t, err)
		require.Equal(t, int32(protocol.Success), answer.Code, "%s queue %d at %d of %d: %s", topic, queue, from, end.Offset, answer.Remark)
		batch, err := records(answer.Body)
		require.NoError(t, err)
		for _, r := range batch {
			if int64(r.QueueOffset) > from { // a group had committed more than the power cut has left
				require.False(t, c.sync, "%s queue %d has a hole", topic, queue)
				c.requireKeptFree(topic, queue, from, int64(r.QueueOffset))
				from = int64(r.QueueOffset)
			}
			require.Equal(t, from, int64(r.QueueOffset), "%s queue %d", topic, queue)
			key := keyOf(r.Body)
			require.True(t, c.ledger.sent[key], "nobody sent %q, which is %s queue %d offset %d", key, topic, queue, from)
			require.True(t, bytes.Equal(bodyOf(key), r.Body), "%s has another body", key)
			s := spot{topic, queue, from}
			f.now[s], f.phy[s] = key, r.PhysicalOffset
			if topic == powerLater {
				f.deliver[key] = true
			}
			from++
		}
	}
	return end.Offset
}

// requireKeptFree demands that the store keeps a part of a queue free, since it was given out once.
func (c *powerStore) requireKeptFree(topic string, queue int32, from, to int64) {
	text, err := os.ReadFile(filepath.Join(c.server.data, "store", "gaps.json"))
	require.NoError(c.t, err, "%s queue %d has a hole from %d to %d", topic, queue, from, to)
	var gaps struct {
		Queues []struct {
			Topic string `json:"topic"`
			Queue int32  `json:"queue"`
			From  int64  `json:"from"`
			To    int64  `json:"to"`
		} `json:"queues"`
	}
	require.NoError(c.t, json.Unmarshal(text, &gaps))
	for _, g := range gaps.Queues {
		if g.Topic == topic && g.Queue == queue && g.From <= from {
			from = max(from, g.To)
		}
	}
	require.Equal(c.t, to, from, "%s queue %d: kept free are %s", topic, queue, text)
}

// verify compares the store with all that is known, after a start. cut is when the power went or, if all that had been
// acknowledged has to be there whatever the flush mode, the zero time.
func (c *powerStore) verify(cut time.Time) {
	c.t.Helper()
	w, err := dial(c.server.broker)
	require.NoError(c.t, err)
	defer w.Close()
	l := c.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	f := c.readAll(w)
	for s, key := range l.kept {
		require.Equal(c.t, key, f.now[s], "%v was read before, and is not there any more", s)
	}
	if c.sync || cut.IsZero() {
		for s, a := range l.fresh {
			require.Equal(c.t, a.key, f.now[s], "%v was acknowledged, %v before the cut", s, cut.Sub(a.at))
		}
	} else {
		c.verifyTail(&f, cut)
	}
	c.verifyTopics(w)
	c.verifyCommits(w, &f, cut)
	c.verifyIndex(w, &f)
	for key := range f.deliver {
		delete(l.delayed, key)
	}
	c.messages += len(l.fresh)
	l.kept, l.fresh, l.bytes = f.now, map[spot]acked{}, 0
	if !c.sync { // of the delayed messages some may have been delivered after the start, and not be synced
		maps.DeleteFunc(l.kept, func(s spot, _ string) bool { return s.topic == powerLater })
	}
}

// flushLimit is how long a message may be unsafe with ASYNC_FLUSH: the log is synced every 500 ms.
const flushLimit = 2 * time.Second

// verifyTail allows a loss, but only of the log's end: what was acknowledged and is in front of a message that is still
// there must be there too.
func (c *powerStore) verifyTail(f *found, cut time.Time) {
	l := c.ledger
	last, lastSpot := offset.Physical(-1), spot{}
	for s, phy := range f.phy {
		_, old := l.kept[s]
		if !old && phy > last && s.topic != powerLater { // delayed messages may have been delivered since the start
			last, lastSpot = phy, s
		}
	}
	lost, oldest := 0, time.Duration(0)
	for s, a := range l.fresh {
		if f.now[s] == a.key {
			continue
		}
		require.Greater(c.t, a.phy, last, "%v at %d was acknowledged and is lost, %v behind it is there", s, a.phy, lastSpot)
		lost++
		oldest = max(oldest, cut.Sub(a.at))
	}
	require.Less(c.t, oldest, flushLimit, "it was not synced for too long")
	c.lost += lost
	c.oldest = max(c.oldest, oldest)
}

func (c *powerStore) verifyTopics(w *wire) {
	for topic := range c.ledger.topics {
		answer, err := w.call(protocol.GetTopicConfig, &protocol.GetTopicConfigRequest{Topic: topic}, nil)
		require.NoError(c.t, err)
		require.Equal(c.t, int32(protocol.Success), answer.Code, "topic %s was made: %s", topic, answer.Remark)
	}
}

// commitLimit is how long a committed offset may be unsafe: it is synced every second.
const commitLimit = 2 * time.Second

func (c *powerStore) verifyCommits(w *wire, f *found, cut time.Time) {
	t := c.t
	for queue, p := range c.ledger.commits {
		answer, err := w.call(protocol.QueryConsumerOffset, &protocol.QueryConsumerOffsetRequest{
			ConsumerGroup: "crash", Topic: powerTopic, QueueID: queue,
		}, nil)
		require.NoError(t, err)
		var h protocol.QueryConsumerOffsetResponse
		if answer.Code != int32(protocol.QueryNotFound) {
			require.Equal(t, int32(protocol.Success), answer.Code, answer.Remark)
			require.NoError(t, answer.ReadHeader(&h))
		}
		before := time.Now()
		if !cut.IsZero() {
			before = cut.Add(-commitLimit)
		}
		require.GreaterOrEqual(t, h.Offset, p.least(before), "queue %d: progress is lost", queue)
		require.LessOrEqual(t, h.Offset, p.asked, "queue %d: nobody committed that", queue)
		if high := f.high[powerTopic]; len(high) > 0 && h.Offset > high[queue] {
			require.False(t, c.sync, "queue %d: committed %d, and the queue ends at %d", queue, h.Offset, high[queue])
			c.requireHeld(w, queue, h.Offset)
			c.ahead++
		}
		p.floor, p.latest = h.Offset, nil
	}
}

// requireHeld demands that a consumer that is ahead of its queue keeps its place.
func (c *powerStore) requireHeld(w *wire, queue int32, at int64) {
	answer, err := w.call(protocol.PullMessage, pullHeader(powerTopic, queue, at, 0), nil)
	require.NoError(c.t, err)
	var h protocol.PullMessageResponse
	require.NoError(c.t, answer.ReadHeader(&h))
	require.Equal(c.t, int32(protocol.PullNotFound), answer.Code, answer.Remark)
	require.Equal(c.t, at, h.NextBeginOffset)
}

// verifyIndex looks some messages up by their keys.
func (c *powerStore) verifyIndex(w *wire, f *found) {
	looked := 0
	for s, key := range f.now { // in random order
		if looked++; looked > 100 {
			return
		}
		answer, err := w.call(protocol.QueryMessage, &protocol.QueryMessageRequest{
			Topic: s.topic, Key: key, MaxNum: 32, BeginTimestamp: 0, EndTimestamp: time.Now().Add(time.Hour).UnixMilli(),
		}, nil)
		require.NoError(c.t, err)
		require.Equal(c.t, int32(protocol.Success), answer.Code, "%v is not found by its key %s: %s", s, key, answer.Remark)
		batch, err := records(answer.Body)
		require.NoError(c.t, err)
		there := false
		for _, r := range batch {
			there = there || keyOf(r.Body) == key && int64(r.QueueOffset) == s.qoff
		}
		require.True(c.t, there, "%v is not found by its key %s", s, key)
	}
}

// awaitDelayed waits until every delayed message is delivered that is in the store and, with SYNC_FLUSH, that was
// acknowledged.
func (c *powerStore) awaitDelayed() {
	w, err := dial(c.server.broker)
	require.NoError(c.t, err)
	defer w.Close()
	empty := func() found {
		return found{now: map[spot]string{}, phy: map[spot]offset.Physical{}, deliver: map[string]bool{}}
	}
	stored := empty()
	c.readQueue(w, &stored, delay.Topic, 0)
	owed := slices.Collect(maps.Values(stored.now))
	if c.sync {
		require.NotEmpty(c.t, owed)
		owed = slices.AppendSeq(owed, maps.Keys(c.ledger.delayed))
	}
	for end := time.Now().Add(15 * time.Second); ; {
		f := empty()
		c.readQueue(w, &f, powerLater, 0)
		owed = slices.DeleteFunc(owed, func(key string) bool { return f.deliver[key] })
		if len(owed) == 0 || time.Now().After(end) {
			break
		}
		<-time.After(100 * time.Millisecond)
	}
	require.Empty(c.t, owed, "delayed messages are lost")
}
