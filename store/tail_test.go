package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/internal/vfs/vfstest"
	"github.com/ratchetmq/ratchet/message"
)

// waiting is how many entries are in no file yet.
func waiting(s *Store) (n int) {
	s.dispatcher.mu.Lock()
	defer s.dispatcher.mu.Unlock()
	for _, q := range s.queues.all() {
		if t := q.tail.Load(); t != nil {
			n += len(t.b) / entrySize
		}
	}
	return n
}

// filesHave is how many entries the files of a queue have, whatever memory has.
func filesHave(t *testing.T, disk *vfstest.Mem, topic string, queue int32, units int64) (n int) {
	t.Helper()
	for first := int64(0); ; first += units {
		if !slices.Contains(disk.Files(), queueFile(topic, queue, first)) {
			return n
		}
		data, err := disk.ReadFile(queueFile(topic, queue, first))
		require.NoError(t, err)
		for ; len(data) > 0 && parseEntry(data).present(); data = data[entrySize:] {
			n++
		}
	}
}

// ample are small options with queue files that have room for some pages.
func ample(disk *vfstest.Mem) Options {
	o := small(disk)
	o.ConsumeQueueUnits, o.SegmentSize = 1000, 1<<20
	return o
}

func queueWrites(n *int) func(vfstest.Op) *vfstest.Fault {
	return func(op vfstest.Op) *vfstest.Fault {
		if op.Kind == vfstest.OpWrite && strings.Contains(op.Name, "/consumequeue/") {
			*n++
		}
		return nil
	}
}

// TestEntriesWaitForAPage: the first entry makes the file, and then each page is one write.
func TestEntriesWaitForAPage(t *testing.T) {
	disk := vfstest.New()
	s := mustOpen(t, ample(disk))
	writes := 0
	disk.SetFault(queueWrites(&writes))
	for i := range 3*tailMost + 10 {
		put(t, s, text("T", 0, fmt.Sprint(i)))
	}
	require.Equal(t, 4, writes)
	require.Equal(t, 9, waiting(s))
	require.Equal(t, 3*tailMost+1, filesHave(t, disk, "T", 0, 1000))
	require.NoError(t, s.writeTails())
	require.Zero(t, waiting(s))
	require.Equal(t, 3*tailMost+10, filesHave(t, disk, "T", 0, 1000))
	require.NoError(t, s.writeTails())
	require.Equal(t, 5, writes, "nothing is written twice")
}

// TestTailsAreRead: what waits is read, searched and counted as what is in the files.
func TestTailsAreRead(t *testing.T) {
	disk := vfstest.New()
	o := ample(disk)
	now := time.UnixMilli(1_000_000_000)
	o.Now = func() time.Time { return now }
	s := mustOpen(t, o)
	const n = 50
	for i := range n {
		now = now.Add(time.Second)
		put(t, s, tagged("T", 0, []string{"A", "B"}[i%2], fmt.Sprint(i)))
		if i == n/2 {
			require.NoError(t, s.writeTails()) // from here on the rest waits
		}
	}
	require.Equal(t, n/2-1, waiting(s))
	check := func() {
		b, ok := s.Bounds("T", 0)
		require.True(t, ok)
		require.Equal(t, Bounds{0, n}, b)
		require.Len(t, readQueue(t, s, "T", 0), n)
		for i := range int64(n) {
			require.Equal(t, fmt.Sprint(i), string(readOne(t, s, "T", 0, offset.Queue(i)).Body))
			at := time.UnixMilli(1_000_000_000).Add(time.Duration(i+1) * time.Second).UnixMilli()
			require.EqualValues(t, i, s.SearchByTime("T", 0, at, false))
			require.EqualValues(t, i, s.SearchByTime("T", 0, at+1, true))
		}
		code := message.TagsCode([]byte("B"))
		raw, _, err := s.Read(Query{Topic: "T", From: 10, MaxMessages: n, Match: func(c int64) bool { return c == code }}, nil)
		require.NoError(t, err)
		require.Len(t, records(t, raw), (n-10)/2)
		_, batch, err := s.Read(Query{Topic: "T", From: n}, nil)
		require.NoError(t, err)
		require.Equal(t, AtEnd, batch.Status)
	}
	check()
	require.NoError(t, s.writeTails())
	require.Zero(t, waiting(s))
	check()
	_, ok := s.EarliestStoreTime("T", 0)
	require.True(t, ok)
}

// TestAPartOfATailIsRead asks for every range, in front of a tail, across its ends, in it and behind it.
func TestAPartOfATailIsRead(t *testing.T) {
	disk := vfstest.New()
	s := mustOpen(t, ample(disk))
	for i := range 12 {
		put(t, s, text("T", 0, fmt.Sprint(i)))
		if i == 4 {
			require.NoError(t, s.writeTails())
		}
	}
	q := s.queues.get("T", 0)
	require.Equal(t, 7, waiting(s))
	all := make([]byte, 20*entrySize)
	require.NoError(t, s.files.read(q, 0, all))
	require.True(t, isZero(all[12*entrySize:]))
	for from := range 20 {
		for to := from; to <= 20; to++ {
			part := bytes.Repeat([]byte{0xAA}, (to-from)*entrySize)
			require.NoError(t, s.files.read(q, int64(from), part))
			require.True(t, bytes.Equal(all[from*entrySize:to*entrySize], part), "%d to %d", from, to)
		}
	}
}

// TestTailsAreReadWhileTheyAreWritten: no reader misses an entry on its way from memory to the file.
func TestTailsAreReadWhileTheyAreWritten(t *testing.T) {
	o := ample(vfstest.New())
	o.CheckpointInterval = time.Millisecond
	s := mustRun(t, o)
	const n, queues = 3000, 4
	var readers sync.WaitGroup
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for q := range int32(queues) {
		readers.Go(func() {
			for at := offset.Queue(0); at < n/queues && ctx.Err() == nil; {
				raw, batch, err := s.Read(Query{Topic: "T", Queue: q, From: at, MaxMessages: 7}, nil)
				if err != nil || batch.Holes > 0 {
					t.Errorf("queue %d at %d: %d holes, %v", q, at, batch.Holes, err)
					return
				}
				for ; len(raw) > 0; at++ {
					r, err := message.Parse(raw)
					if err != nil || r.QueueOffset != at {
						t.Errorf("queue %d at %d: %d, %v", q, at, r.QueueOffset, err)
						return
					}
					raw = raw[r.Size:]
				}
			}
		})
	}
	for i := range n {
		_, err := s.Append(text("T", int32(i%queues), fmt.Sprint(i)))
		require.NoError(t, err)
	}
	readers.Wait()
	require.NoError(t, ctx.Err())
	require.NoError(t, s.Close())
}

// TestTailsHaveABound: with very many queues the oldest are written, and a checkpoint leaves none.
func TestTailsHaveABound(t *testing.T) {
	disk := vfstest.New()
	s := mustOpen(t, ample(disk))
	s.files.tails.most = 40 * 4 * entrySize // 40 of the smallest
	for round := range 4 {
		for i := range 100 {
			put(t, s, text("T", int32(i), "x"))
		}
		if round == 1 {
			require.Equal(t, 41, waiting(s))
			require.Equal(t, 2, filesHave(t, disk, "T", 58, 1000), "the oldest are written")
			require.Equal(t, 1, filesHave(t, disk, "T", 59, 1000))
		}
		require.LessOrEqual(t, s.files.tails.size, 41*4*entrySize)
	}
	require.NoError(t, s.saveCheckpoint())
	require.Zero(t, s.files.tails.size)
	require.Empty(t, s.files.tails.order)
	for i := range 100 {
		require.Nil(t, s.queues.get("T", int32(i)).tail.Load())
		require.Equal(t, 4, filesHave(t, disk, "T", int32(i), 1000))
	}
}

// TestCheckpointSpeaksForNoTail: its time is that of what is in the files.
func TestCheckpointSpeaksForNoTail(t *testing.T) {
	disk := vfstest.New()
	o := ample(disk)
	now := time.UnixMilli(1_000_000_000)
	o.Now = func() time.Time { return now }
	s := mustOpen(t, o)
	last := int64(0)
	for i := range 20 {
		now = now.Add(time.Second)
		last = put(t, s, text("T", int32(i%3), fmt.Sprint(i))).StoreTimestamp
	}
	require.Positive(t, waiting(s))
	broken := func(op vfstest.Op) *vfstest.Fault {
		if op.Kind == vfstest.OpWrite && strings.Contains(op.Name, "/consumequeue/T/1/") {
			return &vfstest.Fault{Err: errDisk, Short: op.Len / 2}
		}
		return nil
	}
	disk.SetFault(broken)
	require.ErrorIs(t, s.saveCheckpoint(), errDisk)
	require.Zero(t, s.checkpoint.logic)
	require.NotContains(t, disk.Files(), testRoot+"/checkpoint")
	require.Positive(t, waiting(s), "it is still there")
	for q := range int32(3) {
		b, _ := s.Bounds("T", q)
		require.Len(t, readQueue(t, s, "T", q), int(b.High))
	}
	disk.SetFault(nil)
	require.NoError(t, s.saveCheckpoint(), "another try may succeed")
	require.Equal(t, last, s.checkpoint.logic)
	require.Zero(t, waiting(s))
	after := mustOpen(t, withDisk(o, disk.CrashClone(vfstest.KeepNothing, 0)))
	require.Equal(t, entriesOf(t, s), entriesOf(t, after))
}

func withDisk(o Options, disk *vfstest.Mem) Options {
	o.FS = disk
	return o
}

// TestFailedTailWrite: dispatch stays where it is, nobody sees what comes behind, and a stop is not clean, as when each entry
// is written by itself.
func TestFailedTailWrite(t *testing.T) {
	disk := vfstest.New()
	s := mustOpen(t, ample(disk))
	put(t, s, text("U", 0, "u"))
	for i := range 1 + tailMost { // the first makes the file
		put(t, s, text("T", 0, fmt.Sprint(i)))
	}
	require.Equal(t, tailMost, waiting(s))
	full := errors.New("no room")
	disk.SetFault(func(op vfstest.Op) *vfstest.Fault {
		if op.Kind == vfstest.OpWrite && strings.Contains(op.Name, "/consumequeue/") {
			return &vfstest.Fault{Err: full, Short: op.Len / 3}
		}
		return nil
	})
	done := s.Dispatched()
	_, err := s.Append(text("U", 0, "v"), text("T", 0, "more"))
	require.NoError(t, err)
	for range 3 {
		_, err = s.dispatcher.step()
		require.ErrorIs(t, err, full)
		require.Equal(t, done, s.Dispatched())
		require.Equal(t, []string{"u"}, bodies(readQueue(t, s, "U", 0)), "of a step all is seen or nothing")
		require.Len(t, readQueue(t, s, "T", 0), 1+tailMost)
	}
	require.ErrorIs(t, s.Close(), full)
	require.Contains(t, disk.Files(), testRoot+"/abort")
	disk.SetFault(nil)
	for _, image := range []*vfstest.Mem{kill(disk), disk.CrashClone(vfstest.KeepNothing, 0)} {
		again := mustOpen(t, ample(image))
		require.Equal(t, []string{"u", "v"}, bodies(readQueue(t, again, "U", 0)))
		require.Len(t, readQueue(t, again, "T", 0), 2+tailMost)
		checkZeroBehind(t, again)
	}
}

// TestDispatchGoesOnAfterAFailedTailWrite: what was half written is written again, nothing comes twice.
func TestDispatchGoesOnAfterAFailedTailWrite(t *testing.T) {
	disk := vfstest.New()
	s := mustOpen(t, ample(disk))
	writes := 0
	disk.SetFault(func(op vfstest.Op) *vfstest.Fault {
		if op.Kind == vfstest.OpWrite && strings.Contains(op.Name, "/consumequeue/") {
			if writes++; writes%3 != 0 {
				return &vfstest.Fault{Err: errDisk, Short: op.Len / 2 / entrySize * entrySize}
			}
		}
		return nil
	})
	var want [3][]string
	failed := 0
	for i := range 5 * tailMost {
		m := text("T", int32(i%3*(i/400)%3), fmt.Sprint(i))
		want[m.QueueID] = append(want[m.QueueID], string(m.Body))
		_, err := s.Append(m)
		require.NoError(t, err)
		for s.dispatcher.drain() != nil {
			failed++
		}
	}
	require.Greater(t, failed, 5)
	disk.SetFault(nil)
	for q := range int32(3) {
		require.Equal(t, want[q], bodies(readQueue(t, s, "T", q)))
	}
	require.NoError(t, s.log.flush())
	o := ample(disk.CrashClone(vfstest.KeepAll, 1))
	require.NoError(t, o.FS.RemoveAll(testRoot+"/consumequeue"))
	require.Equal(t, entriesOf(t, mustOpen(t, o)), entriesOf(t, s))
}

// TestDeletedTopicTakesItsTail: nothing of it comes back, by a checkpoint, a crash, or the topic's next life.
func TestDeletedTopicTakesItsTail(t *testing.T) {
	disk := vfstest.New()
	s := mustOpen(t, ample(disk))
	for i := range 30 {
		put(t, s, text("T", int32(i%2), "gone"))
		put(t, s, text("U", 0, "stays"))
	}
	require.Equal(t, 28+29, waiting(s))
	require.NoError(t, s.DeleteTopic("T"))
	require.Equal(t, 29, waiting(s))
	gone := func(disk *vfstest.Mem) {
		for _, name := range disk.Files() {
			require.NotContains(t, name, "/consumequeue/T/")
		}
	}
	require.NoError(t, s.saveCheckpoint())
	require.Zero(t, s.files.tails.size)
	gone(disk)
	for i := range 3 {
		require.EqualValues(t, i, put(t, s, text("T", 1, fmt.Sprint("new", i))).Queue)
	}
	require.Equal(t, 2, waiting(s))
	for _, s := range []*Store{s, mustOpen(t, ample(kill(disk)))} {
		require.Equal(t, []string{"new0", "new1", "new2"}, bodies(readQueue(t, s, "T", 1)))
		require.Empty(t, readQueue(t, s, "T", 0))
		require.Len(t, readQueue(t, s, "U", 0), 30)
	}
	require.NoError(t, s.DeleteTopic("T"))
	require.NoError(t, s.Close())
	gone(disk)
}

// TestTruncateCutsTails: entries of what is cut off are gone from memory and files, those of the rest are there.
func TestTruncateCutsTails(t *testing.T) {
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 5))
		disk := vfstest.New()
		s := mustOpen(t, ample(disk))
		var sent []Appended
		var names []string
		for i := range 40 {
			names = append(names, fmt.Sprint(i))
			sent = append(sent, put(t, s, text("T", random.Int32N(3), names[i])))
			if random.IntN(15) == 0 {
				require.NoError(t, s.writeTails())
			}
		}
		keep := random.IntN(len(sent))
		_, err := s.Truncate(sent[keep].Physical)
		require.NoError(t, err)
		names = append(names[:keep], "after", "that")
		put(t, s, text("T", 0, "after"))
		put(t, s, text("T", 1, "that"))
		for _, s := range []*Store{s, mustOpen(t, ample(kill(disk)))} {
			var got []string
			for q := range int32(3) {
				got = append(got, bodies(readQueue(t, s, "T", q))...)
			}
			require.ElementsMatch(t, names, got, "seed %d", seed)
			checkZeroBehind(t, s)
		}
	}
}
