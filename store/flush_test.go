package store

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/internal/vfs/vfstest"
)

// syncs counts the syncs of commit log files.
func syncs(n *atomic.Int64) func(vfstest.Op) *vfstest.Fault {
	return func(op vfstest.Op) *vfstest.Fault {
		if isLogSync(op) {
			n.Add(1)
		}
		return nil
	}
}

func isLogSync(op vfstest.Op) bool {
	return op.Kind == vfstest.OpSync && len(op.Name) > len(testRoot+"/commitlog") &&
		op.Name[:len(testRoot+"/commitlog")] == testRoot+"/commitlog"
}

func TestOneSyncServesAllWhoWait(t *testing.T) {
	disk := vfstest.New()
	o := small(disk)
	o.SegmentSize, o.Flush = 1<<16, SyncFlush
	s := mustOpen(t, o)
	put(t, s, text("T", 0, "makes the segment"))
	var count atomic.Int64
	disk.SetFault(syncs(&count))
	var wg sync.WaitGroup
	for i := range 50 {
		a, err := s.Append(text("T", 0, fmt.Sprint(i)))
		require.NoError(t, err)
		wg.Add(1)
		s.WhenFlushed(a.End, func(err error) {
			if err != nil || s.Flushed() < a.End {
				t.Errorf("told of %d too early: %v", a.End, err)
			}
			wg.Done()
		})
	}
	require.Zero(t, count.Load())
	running(t, s)
	wg.Wait()
	require.EqualValues(t, 1, count.Load())
}

func TestFlushCallbacksComeInOrder(t *testing.T) {
	s := mustOpen(t, small(vfstest.New()))
	var ends []offset.Physical
	for i := range 9 {
		a, err := s.Append(text("T", 0, fmt.Sprint(i)))
		require.NoError(t, err)
		ends = append(ends, a.End)
	}
	var got []offset.Physical
	for _, i := range []int{4, 1, 8, 0, 3, 2, 7, 5, 6} {
		s.WhenFlushed(ends[i], func(err error) {
			got = append(got, ends[i])
			s.WhenFlushed(ends[i], func(error) {}) // no lock is held
		})
	}
	require.Empty(t, got)
	s.flusher.flush()
	require.Equal(t, ends, got)
	called := false
	s.WhenFlushed(ends[8], func(err error) { called = err == nil })
	require.True(t, called, "at once")
}

func TestAsyncFlushFollowsItsThreeSettings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := small(vfstest.New())
		o.SegmentSize = 1 << 20
		o.FlushInterval, o.FlushLeastBytes, o.FlushThorough = 500*time.Millisecond, 1000, 10*time.Second
		s := mustRun(t, o)
		a, err := s.Append(text("T", 0, "little"))
		require.NoError(t, err)
		time.Sleep(9400 * time.Millisecond)
		synctest.Wait()
		require.Zero(t, s.Flushed(), "too little to flush")
		time.Sleep(1200 * time.Millisecond)
		synctest.Wait()
		require.Equal(t, a.End, s.Flushed(), "but not for ever")
		a, err = s.Append(text("T", 0, string(make([]byte, 1000))))
		require.NoError(t, err)
		synctest.Wait()
		require.Less(t, s.Flushed(), a.End, "not before the interval is over")
		time.Sleep(501 * time.Millisecond)
		synctest.Wait()
		require.Equal(t, a.End, s.Flushed())
		a, err = s.Append(text("T", 0, "somebody waits"))
		require.NoError(t, err)
		require.NoError(t, s.awaitFlushed(a.End))
	})
}

// A store without traffic does nothing at all: no timer is running in it but the checkpointer's.
func TestIdleStoreSleeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := vfstest.New()
		s := mustRun(t, small(disk))
		_, err := s.Append(text("T", 0, "x"))
		require.NoError(t, err)
		time.Sleep(time.Minute)
		synctest.Wait()
		ops := 0
		disk.SetFault(func(vfstest.Op) *vfstest.Fault { ops++; return nil })
		time.Sleep(time.Hour)
		synctest.Wait()
		disk.SetFault(nil)
		require.Zero(t, ops)
	})
}

var errDisk = errors.New("bad sector")

func TestFailedSyncIsForEver(t *testing.T) {
	disk := vfstest.New()
	o := small(disk)
	o.Flush = SyncFlush
	s := mustOpen(t, o)
	first := put(t, s, text("T", 0, "safe"))
	running(t, s)
	var count atomic.Int64
	disk.SetFault(func(op vfstest.Op) *vfstest.Fault {
		if isLogSync(op) {
			count.Add(1)
			return &vfstest.Fault{Err: errDisk}
		}
		return nil
	})
	a, err := s.Append(text("T", 0, "lost"))
	require.NoError(t, err)
	err = s.awaitFlushed(a.End)
	require.ErrorIs(t, err, ErrBroken)
	require.ErrorIs(t, err, errDisk)
	<-s.Failed()
	disk.SetFault(nil)
	require.ErrorIs(t, s.Err(), ErrBroken)
	_, err = s.Append(text("T", 0, "refused"))
	require.ErrorIs(t, err, ErrBroken)
	require.ErrorIs(t, s.awaitFlushed(a.End), ErrBroken)
	require.NoError(t, s.awaitFlushed(first.End))
	require.Equal(t, first.End, s.Flushed())
	require.Equal(t, []string{"safe"}, bodies(readQueue(t, s, "T", 0)), "what is safe can be read")
	require.NoError(t, s.Close(), "Run has told")
	require.EqualValues(t, 1, count.Load(), "no second try")
	require.Contains(t, disk.Files(), testRoot+"/abort")
	s = mustOpen(t, small(disk))
	require.NotEmpty(t, readQueue(t, s, "T", 0))
}

// The checkpointer may be waiting for its turn to sync while the flusher's sync fails, and the kernel tells of lost pages
// only once: then the checkpointer raised the flushed mark over them.
func TestFailedSyncIsForEverForWhoWaitedMeanwhile(t *testing.T) {
	disk := vfstest.New()
	s := mustOpen(t, small(disk))
	safe := put(t, s, text("T", 0, "safe"))
	_, err := s.Append(text("T", 0, "lost"))
	require.NoError(t, err)
	disk.SetFault(func(op vfstest.Op) *vfstest.Fault {
		if isLogSync(op) {
			return &vfstest.Fault{Err: errDisk}
		}
		return nil
	})
	require.ErrorIs(t, s.log.flush(), errDisk)
	disk.SetFault(nil)
	require.ErrorIs(t, s.saveCheckpoint(), errDisk)
	require.Equal(t, safe.End, s.Flushed())
	s = mustOpen(t, small(disk.CrashClone(vfstest.KeepNothing, 0)))
	require.Equal(t, []string{"safe"}, bodies(readQueue(t, s, "T", 0)))
}

func TestFailedWriteIsForEver(t *testing.T) {
	for _, short := range []int{0, 50} {
		disk := vfstest.New()
		s := mustOpen(t, small(disk))
		put(t, s, text("T", 0, "a"))
		disk.SetFault(func(op vfstest.Op) *vfstest.Fault {
			if op.Kind == vfstest.OpWrite {
				return &vfstest.Fault{Err: errDisk, Short: short}
			}
			return nil
		})
		_, err := s.Append(text("T", 0, "b"))
		require.ErrorIs(t, err, ErrBroken)
		disk.SetFault(nil)
		_, err = s.Append(text("T", 0, "c"))
		require.ErrorIs(t, err, ErrBroken)
		require.ErrorIs(t, s.Close(), ErrBroken)
		s = mustOpen(t, small(disk))
		require.Equal(t, []string{"a"}, bodies(readQueue(t, s, "T", 0)))
		require.EqualValues(t, 1, put(t, s, text("T", 0, "b")).Queue)
	}
}

func TestAppendsWaitWhileTooMuchIsUnflushed(t *testing.T) {
	disk := vfstest.New()
	o := small(disk)
	o.SegmentSize, o.MaxUnflushedBytes = 1<<16, 1000
	o.FlushInterval, o.FlushThorough, o.FlushLeastBytes = time.Hour, time.Hour, 1<<30
	s := mustRun(t, o)
	for range 100 {
		a, err := s.Append(text("T", 0, string(make([]byte, 100))))
		require.NoError(t, err)
		require.LessOrEqual(t, int64(a.End-s.Flushed()), int64(1000))
	}
	require.NoError(t, s.Close())
}

// TestMuchUnflushedIsNotLeftToTheInterval: so that an append has to wait only for a disk that is slower than what comes.
func TestMuchUnflushedIsNotLeftToTheInterval(t *testing.T) {
	for what, bound := range map[string]func(*Options){
		"bytes":    func(o *Options) { o.MaxUnflushedBytes = 8000 },
		"messages": func(o *Options) { o.MaxUnflushedMessages = 40 },
	} {
		synctest.Test(t, func(t *testing.T) {
			o := small(vfstest.New())
			o.SegmentSize = 1 << 16
			o.FlushInterval, o.FlushThorough, o.CheckpointInterval = time.Hour, time.Hour, time.Hour
			bound(&o)
			s := mustRun(t, o)
			appends := func(n int) {
				for range n {
					_, err := s.Append(text("T", 0, string(make([]byte, 100))))
					require.NoError(t, err)
				}
				synctest.Wait()
			}
			appends(2)
			require.Zero(t, s.Flushed(), what)
			appends(20)
			require.Positive(t, s.Flushed(), what)
			require.NoError(t, s.Close())
		})
	}
}

// TestTheBoundOfUnflushedMessagesHoldsForBatches: what a power cut takes is reckoned with it.
func TestTheBoundOfUnflushedMessagesHoldsForBatches(t *testing.T) {
	o := small(vfstest.New())
	o.SegmentSize, o.MaxUnflushedMessages = 1<<16, 10
	o.FlushInterval, o.FlushThorough, o.FlushLeastBytes = time.Hour, time.Hour, 1<<30
	s := mustRun(t, o)
	for range 20 {
		_, err := s.Append(text("T", 0, "a"), text("T", 0, "b"), text("T", 0, "c"))
		require.NoError(t, err)
		require.LessOrEqual(t, s.unflushedMessages(), int64(10))
	}
	require.NoError(t, s.Close())
}

func TestWhoeverWaitsAtTheStopIsTold(t *testing.T) {
	s := mustOpen(t, small(vfstest.New()))
	a, err := s.Append(text("T", 0, "a"))
	require.NoError(t, err)
	var got []error
	s.WhenFlushed(a.End, func(err error) { got = append(got, err) })
	s.WhenFlushed(a.End+1, func(err error) { got = append(got, err) })
	require.NoError(t, s.Close())
	require.Len(t, got, 2)
	require.NoError(t, got[0])
	require.ErrorIs(t, got[1], ErrClosed)
}
