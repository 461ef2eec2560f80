package index

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/internal/vfs/vfstest"
	"github.com/ratchetmq/ratchet/message"
)

var errStopped = errors.New("stopped")

// history puts and flushes until the disk refuses, as a process that is killed there.
func history(x *Index) {
	for i := range 130 { // two full files and a part
		if x.Put(numbered(i)) != nil || i%9 == 8 && x.Flush() != nil || x.Skipped() > 0 {
			return
		}
	}
	_ = x.Flush()
}

// redispatch puts what End asks for, as the store does after Open, and more.
func redispatch(t *testing.T, x *Index, to int) {
	t.Helper()
	for i := int(x.End() / 100); i < to; i++ {
		require.NoError(t, x.Put(numbered(i)))
	}
	require.NoError(t, x.Flush())
}

// reference is the files of a history that nothing stopped.
func reference(t *testing.T, to int) *vfstest.Mem {
	t.Helper()
	disk := vfstest.New()
	x := open(t, disk, small())
	for i := range to {
		require.NoError(t, x.Put(numbered(i)))
	}
	require.NoError(t, x.Close())
	return disk
}

// requireJavaEnd checks where a Java broker that comes after a kill takes the index to end: it drops the files that have records
// behind syncedTime, goes on with the one whose name sorts last, and puts again what is not below the end in its header.
func requireJavaEnd(t *testing.T, disk *vfstest.Mem, syncedTime int64, msg ...any) {
	t.Helper()
	var indexed, end offset.Physical
	for _, name := range disk.Files() {
		b, err := disk.ReadFile(name)
		require.NoError(t, err)
		h := decodeHeader(append(b, make([]byte, headerSize)...)) // Java makes a shorter file longer
		if h.endTime > syncedTime {
			continue
		}
		end = h.endPhy
		if !h.empty() {
			indexed = end
		}
	}
	require.Equal(t, indexed, end, msg...)
}

// A Java broker puts no message into the index again that is there already, wherever ours was killed.
func TestKilledAnywhereAndJavaGoesOn(t *testing.T) {
	for n, stopped := 1, true; stopped; n++ {
		var x *Index
		var disk *vfstest.Mem
		x, disk, stopped = runTo(t, n)
		requireJavaEnd(t, disk.CrashClone(vfstest.KeepAll, 0), x.SyncedTime(), "stopped at %d", n)
	}
}

// TestMadeAndKilled: a Java broker that was killed between making a file and writing its header left one that says nothing of
// the files before.
func TestMadeAndKilled(t *testing.T) {
	disk := reference(t, 60)
	names := disk.Files()
	require.Len(t, names, 2)
	disk.WriteFile(names[1], make([]byte, layout{50, 200}.size()))
	b, err := disk.ReadFile(names[0])
	require.NoError(t, err)

	opts := small()
	opts.Unclean, opts.SameBoot, opts.SyncedTime = true, true, decodeHeader(b).endTime
	x := open(t, disk, opts)
	requireJavaEnd(t, disk.CrashClone(vfstest.KeepAll, 0), opts.SyncedTime)
	redispatch(t, x, 60)
	requireNumbered(t, x, 0, 60)
	require.NoError(t, x.Close())
	requireSameFiles(t, reference(t, 60), disk)
}

// stopAt is runTo, and returns what a crash leaves of the disk.
func stopAt(t *testing.T, n int, keep vfstest.Keep, seed uint64) (disk *vfstest.Mem, stopped bool) {
	t.Helper()
	_, disk, stopped = runTo(t, n)
	return disk.CrashClone(keep, seed), stopped
}

// runTo runs the history on a disk that stops before its nth change.
func runTo(t *testing.T, n int) (x *Index, disk *vfstest.Mem, stopped bool) {
	t.Helper()
	disk = vfstest.New()
	x = open(t, disk, small())
	hook := vfstest.FailNth(n, nil, errStopped)
	disk.SetFault(func(op vfstest.Op) *vfstest.Fault {
		fault := hook(op)
		if fault != nil {
			stopped = true
			if op.Kind == vfstest.OpWrite {
				fault.Short = op.Len / 3 // the write is torn
			}
		}
		return fault
	})
	history(x)
	return x, disk, stopped
}

// After a kill every write that was done is there, in their order: the same files come out as if nothing had been.
func TestKilledAnywhere(t *testing.T) { killedAnywhere(t, false) }

func TestKilledAnywhereInTheSameBoot(t *testing.T) { killedAnywhere(t, true) }

func killedAnywhere(t *testing.T, sameBoot bool) {
	want := reference(t, 150)
	for n := 1; ; n++ {
		disk, stopped := stopAt(t, n, vfstest.KeepAll, 0)
		opts := small()
		opts.Unclean, opts.SameBoot = true, sameBoot
		x := open(t, disk, opts)
		for i := range int(x.End() / 100) {
			require.Contains(t, find(t, x, "T", fmt.Sprintf("U%05d", i), UniqueKey), offset.Physical(i*100))
		}
		redispatch(t, x, 150)
		requireNumbered(t, x, 0, 150)
		require.NoError(t, x.Close())
		requireSameFiles(t, want, disk)
		if !stopped {
			require.Greater(t, n, 40)
			return
		}
	}
}

// What comes after a kill may be other than what was half-written then: that must not be taken for it.
func TestKilledInTheSameBootAndOthersCome(t *testing.T) {
	for n := 1; ; n++ {
		disk, stopped := stopAt(t, n, vfstest.KeepAll, 0)
		opts := small()
		opts.Unclean, opts.SameBoot = true, true
		x := open(t, disk, opts)
		end := int(x.End() / 100)
		for i := range 40 {
			require.NoError(t, x.Put(numbered(1000+i)))
		}
		require.NoError(t, x.Flush())
		for i := range end {
			require.Contains(t, find(t, x, "T", fmt.Sprintf("U%05d", i), UniqueKey), offset.Physical(i*100), "stopped at %d", n)
		}
		require.NoError(t, x.Close())
		if !stopped {
			return
		}
	}
}

// The power cut leaves any of the pages: the files are cut to what is whole, and the rest is put again.
func TestPowerCutAnywhere(t *testing.T) {
	want := reference(t, 150)
	seeds := uint64(6)
	if testing.Short() {
		seeds = 1
	}
	for seed := range seeds {
		for n := 1; ; n++ {
			disk, stopped := stopAt(t, n, vfstest.KeepSome, seed)
			opts := small()
			opts.Unclean = true
			x := open(t, disk, opts)
			redispatch(t, x, 150)
			requireNumbered(t, x, 0, 150)
			require.NoError(t, x.Close())
			requireSameFiles(t, want, disk)
			if !stopped {
				break
			}
		}
	}
}

// Any one sector of a file is lost, as a power cut can do it: what is torn is found, and put again.
func TestLostSectors(t *testing.T) {
	opts := Options{Slots: 50, Entries: 4000, Now: small().Now}
	const n = 900 // 3600 entries in 72,000 bytes
	whole := vfstest.New()
	x := open(t, whole, opts)
	for i := range n {
		require.NoError(t, x.Put(numbered(i)))
	}
	require.NoError(t, x.Close())
	name := whole.Files()[0]
	want, err := whole.ReadFile(name)
	require.NoError(t, err)
	opts.Unclean = true
	for at := 0; at < 72_240; at += 512 {
		torn := append([]byte(nil), want...)
		clear(torn[at : at+512])
		disk := vfstest.New()
		require.NoError(t, disk.MkdirAll(dir))
		disk.WriteFile(name, torn)
		x := open(t, disk, opts)
		redispatch(t, x, n)
		require.NoError(t, x.Close())
		got, err := disk.ReadFile(disk.Files()[0])
		require.NoError(t, err)
		require.True(t, bytes.Equal(want, got), "sector at %d", at)
	}
}

// Opened as if it had been closed, a file of a killed process may have lost old entries, but what is new is found and
// nothing hangs.
func TestKilledAndOpenedAsClean(t *testing.T) {
	for n := 1; ; n++ {
		disk, stopped := stopAt(t, n, vfstest.KeepAll, 0)
		x := open(t, disk, small())
		from := int(x.End()/100) + 1
		redispatch(t, x, from+40)
		for i := from; i < from+40; i++ {
			require.Contains(t, find(t, x, "T", fmt.Sprintf("U%05d", i), UniqueKey), offset.Physical(i*100))
		}
		require.NoError(t, x.Close())
		if !stopped {
			return
		}
	}
}

// What was synced is not looked at again; what a killed process has left with the kernel was not, until a Flush after
// the next start. Without any Flush the files are all suspicious.
func TestPowerCutAfterAKill(t *testing.T) {
	want := reference(t, 350)
	for flushed := range 5 { // how many times fifty messages, each a file and a bit
		for seed := range uint64(8) {
			disk := vfstest.New()
			x := open(t, disk, small())
			synced := int64(0)
			for i := range 250 {
				require.NoError(t, x.Put(numbered(i)))
				if i == 50*flushed-1 {
					require.NoError(t, x.Flush())
					synced = numbered(i).StoreTimestamp
				}
			}
			opts := small()
			opts.Unclean, opts.SyncedTime = true, synced
			x = open(t, disk, opts) // on the same disk: it still has unsynced pages
			if seed%2 == 0 {        // else the power goes before that
				redispatch(t, x, 250)
				opts.SyncedTime = numbered(249).StoreTimestamp
			}
			disk = disk.CrashClone([]vfstest.Keep{vfstest.KeepNothing, vfstest.KeepSome}[seed/2%2], seed)
			x = open(t, disk, opts)
			redispatch(t, x, 350)
			requireNumbered(t, x, 0, 350)
			require.NoError(t, x.Close())
			requireSameFiles(t, want, disk)
		}
	}
}

func TestSyncedFilesAreNotReadAgain(t *testing.T) {
	disk := vfstest.New()
	x := open(t, disk, small())
	for i := range 300 {
		require.NoError(t, x.Put(numbered(i)))
	}
	require.NoError(t, x.Flush())
	synced := x.SyncedTime()
	require.NotZero(t, synced)
	opts := small()
	opts.Unclean, opts.SyncedTime = true, synced
	before := disk.Count(vfstest.OpRead)
	x = open(t, disk, opts)
	require.Less(t, disk.Count(vfstest.OpRead)-before, 7+3, "seven headers, and the last file")
	requireNumbered(t, x, 0, 300)
}

// FuzzOpen damages Java's file anywhere: opening, asking and going on must neither panic nor hang, and what is Put
// afterwards must be found.
func FuzzOpen(f *testing.F) {
	fx := fixtures(f)[1]
	f.Add(uint16(36), []byte{0, 0, 1, 0}, false)
	f.Add(uint16(0), make([]byte, 240), true)
	f.Add(uint16(240), []byte{0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 200}, false)
	f.Add(uint16(36), []byte{0xff, 0xff, 0xff, 0xff}, true)
	f.Add(uint16(4239), []byte{1, 2, 3}, true)
	f.Fuzz(func(t *testing.T, at uint16, patch []byte, unclean bool) {
		disk := vfstest.New()
		require.NoError(t, disk.MkdirAll(dir))
		b := append([]byte(nil), fx.index...)
		copy(b[int(at)%len(b):], patch)
		disk.WriteFile(dir+"/"+fx.name, b)
		opts := small()
		opts.Unclean = unclean
		x := open(t, disk, opts)
		if unclean && len(x.files) > 0 {
			require.NoError(t, x.files[0].disk.check(200))
		}
		for i := range fx.records {
			r := &fx.records[i]
			find(t, x, string(r.Topic), uniqueOf(r), UniqueKey)
		}
		next := max(x.End(), 0)
		if next > math.MaxInt64/2 {
			return
		}
		for i := range 30 {
			r := numbered(i)
			r.PhysicalOffset = next + offset.Physical(1+i*100)
			require.NoError(t, x.Put(r))
			require.Contains(t, find(t, x, "T", fmt.Sprintf("U%05d", i), UniqueKey), r.PhysicalOffset)
			if i%10 == 9 {
				require.NoError(t, x.Flush())
				require.Contains(t, find(t, x, "T", fmt.Sprintf("U%05d", i), UniqueKey), r.PhysicalOffset)
			}
		}
		require.NoError(t, x.Close())
	})
}

// Everybody at once: one who puts, one who flushes, one who deletes, and queries.
func TestConcurrentUse(t *testing.T) {
	x := open(t, vfstest.New(), small())
	const n = 2000
	var users sync.WaitGroup
	done := make(chan struct{})
	var put sync.Mutex
	last, deleted := -1, -1 // the last message put; messages below are being deleted
	users.Go(func() {
		defer close(done)
		for i := range n {
			if err := x.Put(numbered(i)); err != nil {
				t.Error(err)
				return
			}
			put.Lock()
			last = i
			put.Unlock()
		}
	})
	until := func(step func()) {
		users.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					step()
				}
			}
		})
	}
	until(func() {
		if err := x.Flush(); err != nil {
			t.Error(err)
		}
	})
	ctx, stop := context.WithCancel(t.Context())
	users.Go(func() {
		if err := x.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	until(func() {
		select {
		case x.long <- struct{}{}: // as if there were enough
		default:
		}
	})
	until(func() {
		put.Lock()
		deleted = last - 400
		to := deleted
		put.Unlock()
		if err := x.DeleteBefore(offset.Physical(to) * 100); err != nil {
			t.Error(err)
		}
	})
	for q := range 2 {
		rnd := rand.New(rand.NewPCG(uint64(q), 1))
		until(func() {
			put.Lock()
			i := last
			put.Unlock()
			if i < 0 {
				return
			}
			i = max(0, i-rnd.IntN(200))
			found := find(t, x, "T", fmt.Sprintf("U%05d", i), UniqueKey)
			put.Lock()
			gone := i < deleted // while we asked
			put.Unlock()
			if !gone && (len(found) == 0 || found[0] != offset.Physical(i*100)) {
				t.Errorf("message %d: %v", i, found)
			}
		})
	}
	<-done
	stop()
	users.Wait()
	require.NoError(t, x.Close())
}

func TestPutDoesNotAllocate(t *testing.T) {
	x := open(t, vfstest.New(), Options{})
	records := make([]*message.Record, 5000)
	for i := range records {
		records[i] = numbered(i)
	}
	for _, r := range records[:3000] { // the list and the scratch space grow
		require.NoError(t, x.Put(r))
	}
	x.fresh = append(make([]entry, 0, maxList), x.fresh...)
	next := 3000
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		if x.Put(records[next]) != nil {
			panic("put")
		}
		next++
	}))
}

// TestCrashBeforeTheFirstWrite: keys that were in memory alone are to be Put again, from the log's beginning, and not taken for
// those of a store that never had an index.
func TestCrashBeforeTheFirstWrite(t *testing.T) {
	for _, sameBoot := range []bool{true, false} {
		disk := vfstest.New()
		x := open(t, disk, small())
		require.False(t, x.Lost(), "there is no file")
		require.NoError(t, x.Put(numbered(0)))

		opts := small()
		opts.Unclean, opts.SameBoot = true, sameBoot
		again := open(t, disk.CrashClone(vfstest.KeepAll, 1), opts)
		require.Zero(t, again.End())
		require.True(t, again.Lost())
		require.NoError(t, again.Put(numbered(0)))
		require.NoError(t, again.Close())
		require.NoError(t, x.Close())
		closed := open(t, disk, small())
		require.False(t, closed.Lost(), "closed in order")
		require.NoError(t, closed.Close())
	}
}
