package store

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/internal/vfs/vfstest"
	"github.com/ratchetmq/ratchet/message"
)

// damagedCopy is a log and a copy of it that has lost a piece of its midst.
func damagedCopy(t *testing.T, at int64, size int) (whole, copied *Store, fsys *vfstest.Mem) {
	t.Helper()
	whole, fsys = mustOpen(t, small(vfstest.New())), vfstest.New()
	fillLog(t, whole, 40)
	copied, err := Open(small(fsys))
	require.NoError(t, err)
	require.NoError(t, copyLog(t, whole, copied, 1))
	level(t, copied)
	require.NoError(t, copied.Close())
	patch(t, fsys, logFile(4096), at, make([]byte, size))
	require.NoError(t, fsys.RemoveAll(testRoot+"/consumequeue"))
	fsys.WriteFile(testRoot+"/"+abortFile, nil)
	copied = mustOpen(t, small(fsys))
	require.Len(t, copied.Damaged(), 1)
	require.Equal(t, whole.Written(), copied.Written())
	return whole, copied, fsys
}

// repairs feeds a repair with what another log has.
func repairs(t *testing.T, s, from *Store) error {
	t.Helper()
	damage := s.Damaged()[0]
	stream := s.RepairStream(damage)
	for stream.Next() < damage.To {
		b := make([]byte, min(300, damage.To-stream.Next()))
		n, err := from.ReadLog(stream.Next(), b)
		require.NoError(t, err)
		if err := stream.Write(b[:n]); err != nil {
			return err
		}
	}
	return nil
}

// TestADamagedPartIsRepaired, in the midst of a segment and at its end, and readers get what was there, after a power cut, too.
func TestADamagedPartIsRepaired(t *testing.T) {
	for _, at := range []int64{700, 4096 - 512} {
		whole, copied, fsys := damagedCopy(t, at, 512)
		require.NoError(t, repairs(t, copied, whole))
		require.Empty(t, copied.Damaged())
		requireSameLogs(t, whole, copied)
		again := mustOpen(t, small(fsys.CrashClone(vfstest.KeepNothing, 1)))
		require.Empty(t, again.Damaged())
		requireSameLogs(t, whole, again)
	}
}

// TestALostFileIsRepaired: it comes back with what was in it.
func TestALostFileIsRepaired(t *testing.T) {
	whole, copied, fsys := damagedCopy(t, 700, 512)
	require.NoError(t, copied.Close())
	require.NoError(t, fsys.Remove(logFile(4096)))
	fsys.WriteFile(testRoot+"/"+abortFile, nil)
	copied = mustOpen(t, small(fsys))
	require.LessOrEqual(t, copied.Damaged()[0].From, offset.Physical(4096))
	require.NoError(t, repairs(t, copied, whole))
	require.Empty(t, copied.Damaged())
	requireSameLogs(t, whole, copied)
	requireSameLogs(t, whole, mustOpen(t, small(fsys.CrashClone(vfstest.KeepNothing, 1))))
}

// TestDamageThatNobodyKnowsOf is no other history, wherever it is; what stands behind it may be one.
func TestDamageThatNobodyKnowsOf(t *testing.T) {
	whole := mustOpen(t, small(vfstest.New()))
	fillLog(t, whole, 40)
	for at := int64(200); at < 2500; at += 100 {
		for _, size := range []int{512, 1500} { // a smaller one may be where no checksum is
			damaged := vfstest.New()
			for start := int64(0); start < int64(whole.Written()); start += 4096 {
				b := make([]byte, 4096)
				_, err := whole.ReadLog(offset.Physical(start), b)
				require.NoError(t, err)
				damaged.WriteFile(logFile(start), b)
			}
			b, err := damaged.ReadFile(logFile(4096))
			require.NoError(t, err)
			for i := range size {
				b[int(at)+i] ^= 0x55
			}
			damaged.WriteFile(logFile(4096), b)
			other := mustOpen(t, small(damaged))
			require.EqualValues(t, -1, differs(t, whole, other, nil), "%d bytes at %d", size, at)
			require.NoError(t, other.Close())
		}
	}
}

// TestADamagedPartIsNotRepairedFromAnotherLog, whose records end elsewhere: nothing is changed.
func TestADamagedPartIsNotRepairedFromAnotherLog(t *testing.T) {
	_, copied, _ := damagedCopy(t, 700, 512)
	damage := copied.Damaged()
	other := mustOpen(t, small(vfstest.New()))
	for stream := other.Stream(false); stream.Next() < damage[0].From; {
		b := make([]byte, min(300, damage[0].From-stream.Next()))
		n, err := copied.ReadLog(stream.Next(), b)
		require.NoError(t, err)
		require.NoError(t, stream.Write(b[:n]))
	}
	require.Equal(t, damage[0].From, other.Written())
	before := make([]byte, 4096)
	_, err := copied.ReadLog(4096, before)
	require.NoError(t, err)
	for other.Written() < damage[0].To {
		put(t, other, text("T", 0, "of another life"))
	}
	_ = repairs(t, copied, other) // it may be cut in the midst of a record, which is no error yet
	after := make([]byte, 4096)
	_, err = copied.ReadLog(4096, after)
	require.NoError(t, err)
	require.Equal(t, before, after)
	require.Equal(t, damage, copied.Damaged())

	_, err = copied.Truncate(0)
	require.NoError(t, err)
	require.Empty(t, copied.Damaged())
	require.Equal(t, offset.Physical(0), copied.Written())
}

// TestDamageIsRemembered by a process whose recovery begins behind it, and by a copy of the log; a repair, a cut and the end of the
// segment's time end that.
func TestDamageIsRemembered(t *testing.T) {
	whole, damaged, disk := damagedCopy(t, 700, 512)
	known := damaged.Damaged()
	for range 40 {
		put(t, damaged, text("T", 0, "behind it"))
	}
	require.NoError(t, damaged.Close())
	again := mustOpen(t, small(disk))
	require.Equal(t, known, again.Damaged())

	fsys := vfstest.New()
	copied := mustOpen(t, small(fsys))
	follow(t, again, copied)
	require.Equal(t, known, copied.Damaged())
	level(t, copied)
	require.NoError(t, copied.Close())
	copied = mustOpen(t, small(fsys))
	require.Equal(t, known, copied.Damaged())
	requireSameLogs(t, again, copied)

	require.NoError(t, repairs(t, copied, whole))
	require.Empty(t, mustOpen(t, small(kill(fsys))).Damaged())
	require.EqualValues(t, -1, differs(t, again, copied, nil))
	_, err := again.Truncate(known[0].From)
	require.NoError(t, err)
	require.Empty(t, mustOpen(t, small(kill(disk))).Damaged())
}

// TestAPartOfTheDamageIsRepaired: the other log ends in it.
func TestAPartOfTheDamageIsRepaired(t *testing.T) {
	whole, damaged, _ := damagedCopy(t, 700, 1500)
	all := damaged.Damaged()[0]
	first, err := whole.FirstRecord(all.From + 1)
	require.NoError(t, err)
	require.Less(t, first, all.To)
	b := make([]byte, first-all.From)
	_, err = whole.ReadLog(all.From, b)
	require.NoError(t, err)
	require.NoError(t, damaged.RepairStream(Span{From: all.From, To: first}).Write(b))
	require.Equal(t, []Span{{From: first, To: all.To}}, damaged.Damaged())
	require.NoError(t, repairs(t, damaged, whole))
	requireSameLogs(t, whole, damaged)
}

// TestARepairTakesNoPlaceOfAnother: the other log is of another history, though its records fit.
func TestARepairTakesNoPlaceOfAnother(t *testing.T) {
	_, damaged, _ := damagedCopy(t, 700, 512)
	d := damaged.Damaged()
	_, b := recordOf("T", 0, d[0].From, 1)
	require.ErrorIs(t, damaged.RepairStream(Span{From: d[0].From, To: d[0].From + offset.Physical(len(b))}).Write(b), message.ErrCorrupt)
	require.Equal(t, d, damaged.Damaged())
}

// TestDamageIsFilledIntoAGap for the sake of what stands behind it, and can be repaired there.
func TestDamageIsFilledIntoAGap(t *testing.T) {
	whole, copied, _ := damagedCopy(t, 700, 512)
	damage := copied.Damaged()[0]
	disk := vfstest.New()
	master := mustOpen(t, small(disk))
	feed := func(stream *Stream, to offset.Physical) {
		t.Helper()
		for stream.Next() < to {
			b := make([]byte, min(300, to-stream.Next()))
			n, err := copied.ReadLog(stream.Next(), b)
			require.NoError(t, err)
			require.NoError(t, stream.Write(b[:n]))
		}
	}
	feed(master.Stream(true), damage.From)
	_, err := master.Leave(Lost{
		Log: whole.Written() + 5000, Queue: func(_ string, _ int32, next offset.Queue) offset.Queue { return next + 100 },
	})
	require.NoError(t, err)
	put(t, master, text("T", 0, "new"))
	feed(master.RefillStream(damage.From, false, true), copied.Written())
	require.Equal(t, []Span{damage}, master.Damaged())
	require.Equal(t, copied.Written(), master.Gaps().Log[0].From)
	require.EqualValues(t, -1, differs(t, master, whole, nil))
	for _, s := range []*Store{master, mustOpen(t, small(kill(disk)))} {
		require.Equal(t, []Span{damage}, s.Damaged())
		require.NoError(t, repairs(t, s, whole))
		for q := range int32(3) {
			list := readQueue(t, whole, "T", q)
			require.Equal(t, list, readQueue(t, s, "T", q)[:len(list)])
		}
	}
}

// TestWhatIsPutBackDoesNotOvertake what dispatch has not come to yet: readers would step over that, and the next process begin
// behind it.
func TestWhatIsPutBackDoesNotOvertake(t *testing.T) {
	disk := vfstest.New()
	var confirmed offset.Physical
	o := small(disk)
	o.Confirmed = func() offset.Physical { return confirmed }
	s := mustOpen(t, o)
	put(t, s, text("T", 0, "seen"))
	confirmed = s.Written()
	level(t, s)
	put(t, s, text("T", 0, "written"))
	gap := s.Written()
	_, err := s.Leave(Lost{Log: gap + 5000, Queue: func(_ string, _ int32, next offset.Queue) offset.Queue { return next + 2 }})
	require.NoError(t, err)
	put(t, s, text("T", 0, "last"))
	for i, pos := range []offset.Physical{gap, 4096} {
		_, b := recordOf("T", offset.Queue(2+i), pos, s.LastTime())
		require.NoError(t, s.Refill(pos, b, true))
	}
	require.Len(t, readQueue(t, s, "T", 0), 1)
	require.Empty(t, s.Gaps().Log)
	require.Empty(t, s.Gaps().Queues)

	killed := kill(disk)
	require.NoError(t, s.Close())
	confirmed, o.SameBoot = 1<<20, true
	for _, disk := range []*vfstest.Mem{disk, killed} {
		again := mustOpen(t, withDisk(o, disk))
		level(t, again)
		list := readQueue(t, again, "T", 0)
		require.Len(t, list, 5)
		for i := range list {
			require.EqualValues(t, i, list[i].QueueOffset)
		}
	}
}

// TestDispatchTakesWhatIsPutBack into the place that it comes to next.
func TestDispatchTakesWhatIsPutBack(t *testing.T) {
	_, full, master := lostTail(t)
	slave := mustOpen(t, small(vfstest.New()))
	follow(t, master, slave)
	gap := slave.Gaps().Log[0]
	b := make([]byte, full.Written()-gap.From)
	_, err := full.ReadLog(gap.From, b)
	require.NoError(t, err)
	require.NoError(t, slave.Refill(gap.From, b, false))
	require.NoError(t, master.Refill(gap.From, b, false))
	level(t, slave)
	require.Len(t, readQueue(t, slave, "T", 0), 3)
	requireSameLogs(t, master, slave)
}
