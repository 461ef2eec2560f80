package store

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/internal/vfs/vfstest"
	"github.com/ratchetmq/ratchet/message"
)

// TestExpiredMessagesAreInTheFiles: when the log loses them no other trace of their numbers is left.
func TestExpiredMessagesAreInTheFiles(t *testing.T) {
	disk := vfstest.New()
	policy := Retention{Reserved: -time.Second, MaxUsed: 1, Force: 1, Refuse: 1, Batch: 100}
	o := small(disk)
	o.ConsumeQueueUnits = 1000
	o.Retention = func() Retention { return policy }
	var confirmed offset.Physical
	o.Confirmed = func() offset.Physical { return confirmed }
	s := mustOpen(t, o)
	for i := range 5 {
		_, err := s.Append(text("Early", 0, fmt.Sprint(i)))
		require.NoError(t, err)
	}
	confirmed = s.Written()
	require.NoError(t, s.dispatcher.drain())
	put(t, s, text("Early", 0, "last"))
	confirmed = s.Written()
	level(t, s)
	require.Positive(t, waiting(s)) // dispatch goes no further
	for range 20 {
		_, err := s.Append(text("Other", 0, strings.Repeat("x", 600)))
		require.NoError(t, err)
	}
	require.NoError(t, s.log.flush())
	n, err := s.Clean()
	require.NoError(t, err)
	require.Positive(t, n)
	require.Positive(t, s.Low())
	o.Confirmed = nil
	again := mustOpen(t, withDisk(o, kill(disk)))
	b, _ := again.Bounds("Early", 0)
	require.Equal(t, Bounds{6, 6}, b)
	require.EqualValues(t, 6, put(t, again, text("Early", 0, "next")).Queue)
}

// TestSegmentsAreDispatchedWhole: no entry of a segment is in a file before all of the segments before it, or a queue that has
// the first record of a segment would vouch for queues that lack what stands before.
func TestSegmentsAreDispatchedWhole(t *testing.T) {
	disk := vfstest.New()
	s := mustOpen(t, small(disk))
	put(t, s, text("A", 0, "makes the file"))
	for s.Written() < 4096-600 {
		put(t, s, text("A", 0, strings.Repeat("x", 100)))
	}
	require.Positive(t, waiting(s))
	a := put(t, s, text("B", 0, strings.Repeat("x", 800)))
	require.EqualValues(t, 4096, a.Physical)
	require.Zero(t, waiting(s))
}

// roomy has small segments, and queue files that have room for all.
func roomy(disk *vfstest.Mem) Options {
	o := small(disk)
	o.ConsumeQueueUnits = 1000
	return o
}

// recordOf is a record as another broker has it.
func recordOf(topic string, index offset.Queue, at offset.Physical, stored int64) (message.Record, []byte) {
	r := message.Record{
		Topic: []byte(topic), QueueOffset: index, PhysicalOffset: at, StoreTimestamp: stored, BornTimestamp: stored,
		BornHost: testHost, StoreHost: testHost, Body: bytes.Repeat([]byte("x"), 100),
	}
	b := message.AppendRecord(nil, &r)
	r.Size = int32(len(b))
	return r, b
}

// TestClockOfAMasterWasSetBack: the second segment of a Java master's log begins with an older record than the first has. By
// its time recovery could begin there.
func TestClockOfAMasterWasSetBack(t *testing.T) {
	disk := vfstest.New()
	s := mustOpen(t, roomy(disk))
	pos, now := offset.Physical(0), int64(2_000_000_000)
	next := map[string]offset.Queue{}
	one := func(topic string) {
		r, b := recordOf(topic, next[topic], pos, now)
		next[topic]++
		pos += offset.Physical(len(b))
		blank := pos < 4096 && pos > 4096-400
		require.NoError(t, s.appendRecords(r.PhysicalOffset, b, []message.Record{r}, blank, false))
		if blank {
			pos = 4096
		}
	}
	for pos < 1000 {
		now += 1000
		one("A")
	}
	level(t, s)
	require.NoError(t, s.saveCheckpoint())
	for pos < 4096 {
		now++
		one("A")
	}
	level(t, s)
	now -= 60_000
	one("B") // its queue's first entry makes the file
	one("A")
	level(t, s)
	require.Equal(t, 1, waiting(s))
	for _, s := range []*Store{s, mustOpen(t, roomy(kill(disk)))} {
		require.Len(t, readQueue(t, s, "B", 0), 1)
		require.Len(t, readQueue(t, s, "A", 0), int(next["A"]))
	}
}

// TestRefillDoesNotOvertakeTails: what is filled in may be old enough for recovery to begin there.
func TestRefillDoesNotOvertakeTails(t *testing.T) {
	disk := vfstest.New()
	o := roomy(disk)
	now := time.UnixMilli(2_000_000_000)
	o.Now = func() time.Time { return now }
	s := mustOpen(t, o)
	put(t, s, text("A", 0, "0"))
	require.NoError(t, s.saveCheckpoint())
	for i := range 5 {
		put(t, s, text("A", 0, fmt.Sprint(i+1)))
	}
	require.Equal(t, 5, waiting(s))
	gap := s.Written()
	_, err := s.Leave(Lost{
		Log: 5000, Queue: func(_ string, _ int32, next offset.Queue) offset.Queue { return next },
		Others: []QueueSpan{{Topic: "B", Queue: 0, To: 1}},
	})
	require.NoError(t, err)
	require.NoError(t, s.Refill(gap, nil, true))
	_, b := recordOf("B", 0, 4096, now.UnixMilli()-60_000)
	require.NoError(t, s.Refill(4096, b, true))
	for _, s := range []*Store{s, mustOpen(t, withDisk(o, kill(disk)))} {
		level(t, s)
		require.Len(t, readQueue(t, s, "A", 0), 6)
		require.Len(t, readQueue(t, s, "B", 0), 1)
	}
}

// TestKilledWithTails: whatever waited in memory is in its queue again, once and in its place, however the files of the queues
// stand to each other.
func TestKilledWithTails(t *testing.T) {
	seeds := uint64(300)
	if testing.Short() {
		seeds = 60
	}
	lost := 0
	for seed := range seeds {
		lost += killedWithTails(t, seed)
	}
	require.Greater(t, lost, int(seeds)*10, "else there was nothing to lose")
}

func killedWithTails(t *testing.T, seed uint64) (lost int) {
	random := rand.New(rand.NewPCG(seed, 6))
	disk := vfstest.New()
	now := time.UnixMilli(1_000_000_000)
	options := func(disk *vfstest.Mem) Options {
		o := small(disk)
		o.ConsumeQueueUnits = []int{16, 1000}[seed%2]
		o.Now = func() time.Time { return now }
		return o
	}
	s := mustOpen(t, options(disk))
	want := map[queueKey][]string{}
	n := 0
	for range 3 { // lives
		s.files.tails.most = random.IntN(3) * 1000
		for range 150 {
			key := queueKey{fmt.Sprint("T", random.IntN(4)), int32(random.IntN(1 + random.IntN(4)))}
			body := fmt.Sprint(n, strings.Repeat("b", random.IntN(120)))
			n++
			now = now.Add(time.Duration(random.IntN(2000)) * time.Millisecond)
			a, err := s.Append(text(key.topic, key.id, body))
			require.NoError(t, err)
			require.EqualValues(t, len(want[key]), a.Queue)
			want[key] = append(want[key], body)
			switch random.IntN(40) {
			case 0:
				require.NoError(t, s.saveCheckpoint())
			case 1:
				require.NoError(t, s.writeTails())
			case 2:
				require.NoError(t, s.DeleteTopic(key.topic))
				for k := range want {
					if k.topic == key.topic {
						delete(want, k)
					}
				}
			default:
				if random.IntN(3) == 0 {
					_, err := s.dispatcher.step()
					require.NoError(t, err)
				}
			}
		}
		lost += waiting(s)
		disk = kill(disk)
		o := options(disk)
		o.SameBoot = seed%3 == 0
		s = mustOpen(t, o)
		require.Zero(t, waiting(s))
		for key, list := range want {
			got := readQueue(t, s, key.topic, key.id)
			require.Equal(t, list, bodies(got), "seed %d, %s/%d", seed, key.topic, key.id)
			for i, r := range got {
				require.EqualValues(t, i, r.QueueOffset)
			}
		}
		for _, q := range s.queues.all() {
			require.Len(t, want[queueKey{q.topic, q.id}], int(q.high.Load()), "seed %d, %s/%d", seed, q.topic, q.id)
		}
		checkZeroBehind(t, s)
	}
	require.NoError(t, s.Close())
	checkInspect(t, disk)
	return lost
}

// TestCleanStopLeavesRocketMQsFiles: byte for byte what the log says, in files of full length, and no others.
func TestCleanStopLeavesRocketMQsFiles(t *testing.T) {
	for seed := range uint64(10) {
		random := rand.New(rand.NewPCG(seed, 7))
		disk := vfstest.New()
		o := small(disk)
		o.ConsumeQueueUnits = []int{16, 250}[seed%2]
		s := mustRun(t, o)
		want := map[string][]byte{}
		next := map[queueKey]int64{}
		for i := range 1500 {
			key := queueKey{fmt.Sprint("T", random.IntN(3)), int32(random.IntN(1 + random.IntN(4)))}
			a, err := s.Append(tagged(key.topic, key.id, fmt.Sprint("tag", i%7), strings.Repeat("b", random.IntN(50))))
			require.NoError(t, err)
			units := int64(o.ConsumeQueueUnits)
			name := queueFile(key.topic, key.id, next[key]/units*units)
			if want[name] == nil {
				want[name] = make([]byte, units*entrySize)
			}
			e := entry{a.Physical, int32(a.End - a.Physical), message.TagsCode(fmt.Appendf(nil, "tag%d", i%7))}
			copy(want[name][next[key]%units*entrySize:], appendEntry(nil, e))
			next[key]++
		}
		require.NoError(t, s.Close())
		got := map[string][]byte{}
		for _, name := range disk.Files() {
			if strings.Contains(name, "/consumequeue/") {
				data, err := disk.ReadFile(name)
				require.NoError(t, err)
				got[name] = data
			}
		}
		require.Equal(t, want, got)
		checkInspect(t, disk)
	}
}
