package store

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/internal/vfs/vfstest"
	"github.com/ratchetmq/ratchet/message"
)

// fillLog appends n messages to three queues, over several segments.
func fillLog(tb testing.TB, s *Store, n int) {
	tb.Helper()
	random := rand.New(rand.NewPCG(uint64(n), 1))
	for i := range n {
		body := make([]byte, 1+random.IntN(700))
		_, err := s.Append(tagged("T", int32(i%3), "a", fmt.Sprintf("%d-%x", i, body)))
		require.NoError(tb, err)
	}
	level(tb, s)
}

// copyLog streams what from has to to, in pieces of random size, as HA frames cut it.
func copyLog(tb testing.TB, from, to *Store, seed uint64) error {
	tb.Helper()
	random := rand.New(rand.NewPCG(seed, 2))
	stream := to.Stream(false)
	for stream.Next() < from.Written() {
		b := make([]byte, 1+random.IntN(1500))
		if random.IntN(2) == 0 {
			b = stream.Room(len(b))
		}
		n, err := from.ReadLog(stream.Next(), b)
		require.NoError(tb, err)
		if err := stream.Write(b[:n]); err != nil {
			return err
		}
		require.LessOrEqual(tb, stream.Safe(), stream.Next())
		require.GreaterOrEqual(tb, to.Written(), stream.Safe())
	}
	return nil
}

func requireSameLogs(tb testing.TB, a, b *Store) {
	tb.Helper()
	require.Equal(tb, a.Written(), b.Written())
	for pos := a.Low(); pos < a.Written(); {
		x, y := make([]byte, 4096), make([]byte, 4096)
		n, err := a.ReadLog(pos, x)
		require.NoError(tb, err)
		m, err := b.ReadLog(pos, y)
		require.NoError(tb, err)
		require.Equal(tb, x[:n], y[:m], "at %d", pos)
		pos += offset.Physical(n)
	}
	for q := range int32(3) {
		require.Equal(tb, readQueue(tb, a, "T", q), readQueue(tb, b, "T", q))
		require.Equal(tb, a.Given("T", q), b.Given("T", q))
	}
}

func TestStreamCopiesALog(t *testing.T) {
	for seed := range uint64(20) {
		master := mustOpen(t, small(vfstest.New()))
		fillLog(t, master, 40+int(seed))
		fsys := vfstest.New()
		slave := mustOpen(t, small(fsys))
		require.NoError(t, copyLog(t, master, slave, seed))
		level(t, slave)
		requireSameLogs(t, master, slave)

		again := mustOpen(t, small(fsys.CrashClone(vfstest.KeepNothing, seed)))
		require.NoError(t, copyLog(t, master, again, seed+1))
		level(t, again)
		requireSameLogs(t, master, again)
	}
}

// TestStreamIsFlushedWhileMoreComes: nothing waits for the disk before the bound is met, and the disk does not wait either.
func TestStreamIsFlushedWhileMoreComes(t *testing.T) {
	master := mustOpen(t, small(vfstest.New()))
	fillLog(t, master, 60)
	for _, bound := range []func(*Options){
		func(o *Options) { o.MaxUnflushedBytes = int64(master.Written()) },
		func(o *Options) { o.MaxUnflushedMessages = 60 },
	} {
		o := small(vfstest.New())
		o.FlushInterval, o.FlushThorough, o.CheckpointInterval = time.Hour, time.Hour, time.Hour
		bound(&o)
		slave := running(t, mustOpen(t, o))
		require.NoError(t, copyLog(t, master, slave, 1))
		require.Eventually(t, func() bool { return slave.log.flushed.load() > 0 }, time.Minute, time.Millisecond)
	}
}

// TestSoundStreamBringsWhatStandsBehindDamage: a master whose disk has lost a page in the midst of its log has a slave all
// the same.
func TestSoundStreamBringsWhatStandsBehindDamage(t *testing.T) {
	for seed := range uint64(30) {
		fsys := vfstest.New()
		master, err := Open(small(fsys))
		require.NoError(t, err)
		fillLog(t, master, 60)
		require.NoError(t, master.Close())
		page := 512 + int64(seed)*97
		f, err := fsys.Open(testRoot + "/commitlog/" + fileName(4096))
		require.NoError(t, err)
		_, err = f.WriteAt(make([]byte, 300), page)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		require.NoError(t, fsys.RemoveAll(testRoot+"/consumequeue"))
		fsys.WriteFile(testRoot+"/"+abortFile, nil)
		master = mustOpen(t, small(fsys))
		require.NotEmpty(t, master.Damaged())

		random := rand.New(rand.NewPCG(seed, 5))
		slave := mustOpen(t, small(vfstest.New()))
		stream := slave.Stream(true)
		for stream.Next() < master.Written() {
			b := make([]byte, 1+random.IntN(900))
			n, err := master.ReadLog(stream.Next(), b)
			require.NoError(t, err)
			require.NoError(t, stream.Write(b[:n]))
		}
		level(t, slave)
		requireSameLogs(t, master, slave)
		require.ErrorIs(t, copyLog(t, master, mustOpen(t, small(vfstest.New())), seed), message.ErrCorrupt)
	}
}

func TestStreamTakesNothingThatIsNoRecord(t *testing.T) {
	master := mustOpen(t, small(vfstest.New()))
	fillLog(t, master, 12)
	b := make([]byte, 4096)
	n, err := master.ReadLog(0, b)
	require.NoError(t, err)
	for _, bad := range []int{4, 30, 300, 900} {
		slave := mustOpen(t, small(vfstest.New()))
		broken := append([]byte(nil), b[:n]...)
		broken[bad] ^= 0x40
		err := slave.Stream(false).Write(broken)
		end := slave.Written()
		if err != nil {
			require.ErrorIs(t, err, message.ErrCorrupt)
		}
		require.Less(t, end, offset.Physical(n))
		at, err := slave.FirstRecord(0)
		require.NoError(t, err)
		require.True(t, end == 0 || at == 0)
	}
	slave := mustOpen(t, small(vfstest.New()))
	require.ErrorIs(t, slave.appendRecords(100, nil, nil, true, false), ErrOrder)
}

func TestComparisonFindsTheRecordThatDiffers(t *testing.T) {
	a, b := mustOpen(t, small(vfstest.New())), mustOpen(t, small(vfstest.New()))
	fillLog(t, a, 30)
	require.NoError(t, copyLog(t, a, b, 1))
	fork := a.Written()
	put(t, a, text("T", 0, "this is what the master has"))
	put(t, b, text("T", 0, "this is what the slave has!"))
	require.Equal(t, a.Written(), b.Written())

	from, err := b.FirstRecord(1000)
	require.NoError(t, err)
	c := b.Compare(from)
	differs := offset.Physical(-1)
	for c.Next() < a.Written() && differs < 0 {
		buf := make([]byte, 333)
		n, err := a.ReadLog(c.Next(), buf)
		require.NoError(t, err)
		differs, err = c.Write(buf[:n])
		require.NoError(t, err)
	}
	require.Equal(t, fork, differs)
}

func TestTruncateForgetsWhatStandsBehind(t *testing.T) {
	fsys := vfstest.New()
	s := mustOpen(t, small(fsys))
	fillLog(t, s, 30)
	kept := make([][]message.Record, 3)
	for q := range kept {
		kept[q] = readQueue(t, s, "T", int32(q))
	}
	end, given := s.Written(), s.Given("T", 1)
	fillLog(t, s, 25)
	tail := s.Written()

	aside, err := s.Truncate(end)
	require.NoError(t, err)
	require.Equal(t, end, s.Written())
	b, err := fsys.ReadFile(aside)
	require.NoError(t, err)
	require.Greater(t, int64(len(b)), int64(tail-end)-4096)
	check := func(s *Store) {
		require.Equal(t, end, s.Written())
		require.Equal(t, given, s.Given("T", 1))
		for q := range kept {
			require.Equal(t, kept[q], readQueue(t, s, "T", int32(q)))
		}
	}
	check(s)
	for seed := range uint64(10) {
		check(mustOpen(t, small(fsys.CrashClone(vfstest.KeepSome, seed))))
	}
	fillLog(t, s, 10)
	require.Greater(t, s.Written(), end)
}

// TestTruncateInterrupted cuts the power at each of its operations on the disk.
func TestTruncateInterrupted(t *testing.T) {
	for op := 1; ; op++ {
		fsys := vfstest.New()
		s := mustOpen(t, small(fsys))
		fillLog(t, s, 20)
		require.NoError(t, s.saveCheckpoint())
		end := s.Written()
		fillLog(t, s, 25)
		require.NoError(t, s.saveCheckpoint())
		whole := s.Written()
		fsys.SetFault(vfstest.FailNth(op, func(o vfstest.Op) bool { return o.Kind.Changes() }, errPanic))
		_, err := s.Truncate(end)
		fsys.SetFault(nil)
		for seed := range uint64(5) {
			after := mustOpen(t, small(fsys.CrashClone(vfstest.KeepSome, seed)))
			require.Contains(t, []offset.Physical{end, whole}, after.Written(), "operation %d", op)
			require.Len(t, readQueue(t, after, "T", 0), int(after.Given("T", 0)))
			require.NoError(t, after.Close())
		}
		if err == nil {
			require.Greater(t, op, 10)
			return
		}
	}
}

func TestLeaveKeepsOffsetsAndPositionsFree(t *testing.T) {
	fsys := vfstest.New()
	s := mustOpen(t, small(fsys))
	fillLog(t, s, 9)
	end := s.Written()
	_, err := s.Leave(Lost{Log: end + 5000, Queue: func(_ string, _ int32, next offset.Queue) offset.Queue { return next + 100 }})
	require.NoError(t, err)
	for _, s := range []*Store{s, mustOpen(t, small(fsys.CrashClone(vfstest.KeepNothing, 1)))} {
		require.EqualValues(t, 103, s.Given("T", 0))
		b, _ := s.Bounds("T", 0)
		require.EqualValues(t, 3, b.High, "readers do not see a gap that nothing follows on")
		a := put(t, s, text("T", 0, "behind the gap"))
		require.EqualValues(t, 103, a.Queue)
		require.GreaterOrEqual(t, a.Physical, end+5000)
		require.Zero(t, a.Physical%4096)
		require.EqualValues(t, 100, s.Missing("T", 0, 0, 104))
		_, batch, err := s.Read(Query{Topic: "T", Queue: 0, From: 3}, nil)
		require.NoError(t, err)
		require.Equal(t, Found, batch.Status)
		require.EqualValues(t, 104, batch.Next)
		require.Equal(t, 1, batch.Count)
	}
}

// TestRefillBringsBackWhatWasLost: a master lost its tail, left its place free, and went on; then a replica returns that
// has it.
func TestRefillBringsBackWhatWasLost(t *testing.T) {
	full, fsys := mustOpen(t, small(vfstest.New())), vfstest.New()
	master := mustOpen(t, small(fsys))
	fillLog(t, full, 12)
	require.NoError(t, copyLog(t, full, master, 3))
	level(t, master)
	from := master.Written()
	fillLog(t, full, 30) // what the master loses
	lost := full.Written()
	_, err := master.Leave(Lost{Log: lost + 100, Queue: func(_ string, _ int32, next offset.Queue) offset.Queue { return next + 50 }})
	require.NoError(t, err)
	after := put(t, master, text("T", 0, "new"))

	for pos := from; pos < lost; {
		b := make([]byte, 4096)
		n, err := full.ReadLog(pos, b)
		require.NoError(t, err)
		// To the last whole record of this segment, and whether the segment ends with a blank one.
		size, blank := 0, false
		for seg := (Span{From: pos - pos%4096, To: pos - pos%4096 + 4096}); size < n; {
			f := examine(b[size:n], pos+offset.Physical(size), seg)
			if blank = f.kind == isBlank; blank {
				break
			}
			require.Equal(t, isRecord, f.kind)
			size += int(f.size)
		}
		require.NoError(t, master.Refill(pos, b[:size], blank))
		if pos += offset.Physical(size); blank {
			pos = pos - pos%4096 + 4096
		}
	}
	for _, s := range []*Store{master, mustOpen(t, small(fsys.CrashClone(vfstest.KeepNothing, 1)))} {
		for q := range int32(3) {
			want := readQueue(t, full, "T", q)
			got := readQueue(t, s, "T", q)
			if q == 0 {
				require.EqualValues(t, "new", got[len(got)-1].Body)
				got = got[:len(got)-1]
			}
			require.Equal(t, want, got)
		}
		require.Equal(t, after.Queue+1, s.Given("T", 0))
		gaps := s.Gaps()
		require.Len(t, gaps.Log, 1)
		require.Equal(t, lost, gaps.Log[0].From)
	}
}

// TestRefillOfAllThatAQueueHad: readers had been told that it begins behind the gap.
func TestRefillOfAllThatAQueueHad(t *testing.T) {
	full, master := mustOpen(t, small(vfstest.New())), mustOpen(t, small(vfstest.New()))
	put(t, full, text("T", 0, "lost"))
	lost := full.Written()
	_, err := master.Leave(Lost{
		Log: lost, Queue: func(_ string, _ int32, next offset.Queue) offset.Queue { return next + 10 },
		Others: []QueueSpan{{Topic: "T", Queue: 0, To: 10}},
	})
	require.NoError(t, err)
	put(t, master, text("T", 0, "new"))
	level(t, master)
	before, ok := master.Bounds("T", 0)
	require.True(t, ok)
	require.Positive(t, before.Low)

	b := make([]byte, lost)
	_, err = full.ReadLog(0, b)
	require.NoError(t, err)
	require.NoError(t, master.Refill(0, b, false))
	after, _ := master.Bounds("T", 0)
	require.Zero(t, after.Low)
	require.Equal(t, before.High, after.High)
	require.Equal(t, []string{"lost", "new"}, bodies(readQueue(t, master, "T", 0)))
}

// TestRefillBesideDispatch: hooks of a step are still reading what has arrived when something is filled in. The race
// detector judges.
func TestRefillBesideDispatch(t *testing.T) {
	full, master := mustOpen(t, small(vfstest.New())), mustOpen(t, small(vfstest.New()))
	for range 8 {
		put(t, full, text("T", 0, "lost"))
	}
	lost := full.Written()
	_, err := master.Leave(Lost{
		Log: lost, Queue: func(_ string, _ int32, next offset.Queue) offset.Queue { return next + 10 },
		Others: []QueueSpan{{Topic: "T", Queue: 0, To: 10}},
	})
	require.NoError(t, err)
	var told atomic.Int64
	telling, refilled := make(chan struct{}), make(chan struct{})
	master.OnArrival(func(a Arrival) {
		if told.Add(1) == 1 {
			close(telling)
			<-refilled
		}
	})
	master.OnArrival(func(a Arrival) {
		if a.Topic == "new" {
			told.Add(100)
		}
	})
	running(t, master)
	_, err = master.Append(text("new", 0, "new"))
	require.NoError(t, err)
	<-telling
	b := make([]byte, lost)
	_, err = full.ReadLog(0, b)
	require.NoError(t, err)
	require.NoError(t, master.Refill(0, b, false))
	close(refilled)
	require.Eventually(t, func() bool { return told.Load() == 1+100+8 }, time.Minute, time.Millisecond)
}
