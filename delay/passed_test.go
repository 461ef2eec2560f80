package delay

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/internal/vfs/vfstest"
	"github.com/ratchetmq/ratchet/store"
)

// TestWhatIsFilledInIsDelivered: the scheduler has stepped over the place of a message that was lost, and comes back.
func TestWhatIsFilledInIsDelivered(t *testing.T) {
	for name, c := range map[string]struct {
		restart bool          // between the loss and the return
		after   time.Duration // of the return
		before  int           // messages that were not lost
	}{
		"at once":                {before: 1},
		"nothing stands before":  {},
		"when it is long due":    {before: 1, after: time.Minute},
		"in the next process":    {before: 1, restart: true},
		"nothing before, either": {restart: true, after: time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				whole, disk := begin(t, vfstest.New(), nil), vfstest.New()
				r := begin(t, disk, nil)
				for i := range c.before {
					whole.send(2, key(i))
				}
				kept := make([]byte, whole.store.Written())
				_, err := whole.store.ReadLog(0, kept)
				require.NoError(t, err)
				require.NoError(t, r.store.Stream(true).Write(kept))
				whole.send(2, "lost")
				lost := make([]byte, int(whole.store.Written())-len(kept))
				_, err = whole.store.ReadLog(offset.Physical(len(kept)), lost)
				require.NoError(t, err)
				_, err = r.store.Leave(store.Lost{
					Log:    whole.store.Written(),
					Queue:  func(_ string, _ int32, next offset.Queue) offset.Queue { return next + 10 },
					Others: []store.QueueSpan{{Topic: Topic, Queue: 1}},
				})
				require.NoError(t, err)
				time.Sleep(time.Second)
				r.send(2, "new")
				time.Sleep(2 * time.Second)
				if c.restart {
					r.stop()
					r = begin(t, disk, nil)
				}
				time.Sleep(c.after)
				require.NoError(t, r.store.Refill(offset.Physical(len(kept)), lost, false))
				for range 2 { // the second time after a restart, which delivers nothing again
					time.Sleep(10 * time.Second)
					synctest.Wait()
					require.ElementsMatch(t, append(numbers(0, c.before), "lost", "new"), r.delivered())
					r.stop()
					r = begin(t, disk, nil)
				}
				r.stop()
				whole.stop()
			})
		})
	}
}

// TestWhatIsRepairedIsDelivered, too: its place in the log was damaged.
func TestWhatIsRepairedIsDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		whole, r := begin(t, vfstest.New(), nil), begin(t, vfstest.New(), nil)
		var ends []offset.Physical
		for i := range 3 {
			whole.send(2, key(i))
			ends = append(ends, whole.store.Written())
		}
		all := make([]byte, ends[2])
		_, err := whole.store.ReadLog(0, all)
		require.NoError(t, err)
		lost := bytes.Clone(all[ends[0]:ends[1]])
		clear(all[ends[0]:ends[1]])
		require.NoError(t, r.store.Stream(true).Write(all))
		require.Equal(t, []store.Span{{From: ends[0], To: ends[1]}}, r.store.Damaged())
		time.Sleep(time.Minute)
		require.ElementsMatch(t, []string{key(0), key(2)}, r.delivered())
		require.NoError(t, r.store.RepairStream(r.store.Damaged()[0]).Write(lost))
		time.Sleep(time.Minute)
		synctest.Wait()
		require.ElementsMatch(t, numbers(0, 3), r.delivered())
		r.stop()
		whole.stop()
	})
}

func TestPlacesThatArePassedOver(t *testing.T) {
	var list []span
	for _, s := range []span{{From: 10, To: 20}, {From: 30, To: 40}, {From: 18, To: 25}, {From: 25, To: 26}} {
		list = offset.With(list, s)
	}
	require.Equal(t, []span{{From: 10, To: 26}, {From: 30, To: 40}}, list)
	require.Equal(t, []span{{From: 10, To: 12}, {From: 13, To: 26}, {From: 30, To: 40}}, offset.Without(list, span{From: 12, To: 13}))
	require.Equal(t, []span{{From: 10, To: 11}}, offset.Without(list, span{From: 11, To: 50}))
	require.Empty(t, offset.Without(list, span{From: 0, To: 50}))

	p := progress{next: map[int]offset.Queue{2: 50, 3: 1}, passed: map[int][]span{2: list, 12: {{From: 1, To: 2}}}}
	again, err := parseProgress(p.format(1))
	require.NoError(t, err)
	require.Equal(t, p, again)
	for _, bad := range []string{`{"offsetTable":{},"passedOver":{"x":[[1,2]]}}`, `{"offsetTable":{},"passedOver":{"0":[]}}`} {
		_, err := parseProgress([]byte(bad))
		require.ErrorIs(t, err, errTable)
	}
}

// TestPlacesThatArePassedOverGoAlong with the progress of the broker that has passed them.
func TestPlacesThatArePassedOverGoAlong(t *testing.T) {
	own := progress{next: map[int]offset.Queue{1: 30}, mark: 100}.clone()
	require.True(t, own.raise(progress{next: map[int]offset.Queue{1: 40}, passed: map[int][]span{1: {{From: 5, To: 9}}}, mark: 200}))
	require.Equal(t, []span{{From: 5, To: 9}}, own.passed[1])
	require.False(t, own.raise(progress{next: map[int]offset.Queue{1: 40}, mark: 150}), "an older table")
	require.True(t, own.raise(progress{next: map[int]offset.Queue{1: 40}, mark: 300}), "it was delivered meanwhile")
	require.Empty(t, own.passed)
}

// TestALevelStaysWhereItIsWhileTheQueuesEndIsLost, when the place of that is kept free.
func TestALevelStaysWhereItIsWhileTheQueuesEndIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := vfstest.New()
		s, err := store.Open(store.Options{FS: disk, Root: root, SegmentSize: 4 << 20, ConsumeQueueUnits: 20_000})
		require.NoError(t, err)
		_, err = s.Leave(store.Lost{
			Queue:  func(_ string, _ int32, next offset.Queue) offset.Queue { return next },
			Others: []store.QueueSpan{{Topic: Topic, Queue: 1, To: 48}},
		})
		require.NoError(t, err)
		require.NoError(t, s.Close())
		disk.WriteFile(path, progress{next: map[int]offset.Queue{2: 24}}.format(1))
		r := begin(t, disk, nil)
		synctest.Wait()
		require.EqualValues(t, 24, r.scheduler.Progress()[1].Next)
		r.send(2, "new")
		time.Sleep(6 * time.Second)
		synctest.Wait()
		require.Equal(t, []string{"new"}, r.delivered())
		require.EqualValues(t, 49, r.scheduler.Progress()[1].Next)
		r.stop()
	})
}
