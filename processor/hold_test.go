package processor

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/internal/offset"
)

// holding runs a hold table whose answers go to answered.
func holding(t *testing.T, answered func(*pull)) (h *holds, stop func()) {
	h = newHolds()
	ctx, cancel := context.WithCancel(context.Background())
	var loops sync.WaitGroup
	loops.Go(func() { h.run(ctx, answered) })
	loops.Go(func() { h.runDeadlines(ctx) })
	stop = func() {
		cancel()
		loops.Wait()
	}
	t.Cleanup(stop)
	return h, stop
}

func TestHeldPullIsWokenByItsMessageOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var woken atomic.Int32
		h, stop := holding(t, func(*pull) { woken.Add(1) })
		h.park(&pull{topic: "T", queue: 1, from: 5, match: func(code int64) bool { return code == 7 }}, time.Now().Add(time.Hour))
		for _, miss := range []func(){
			func() { h.arrived("T", 0, 6, 7) }, // another queue
			func() { h.arrived("U", 1, 6, 7) }, // another topic
			func() { h.arrived("T", 1, 6, 8) }, // another tag
			func() { h.arrived("T", 1, 5, 7) }, // below what it asks for
		} {
			miss()
			synctest.Wait()
			require.Zero(t, woken.Load())
		}
		h.arrived("T", 1, 6, 7)
		synctest.Wait()
		require.Equal(t, int32(1), woken.Load())
		require.Zero(t, h.len())
		h.arrived("T", 1, 7, 7)
		synctest.Wait()
		require.Equal(t, int32(1), woken.Load(), "a pull is answered once")
		stop()
	})
}

func TestHeldPullIsAnsweredWhenItsTimeIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		order := make(chan int32, 10)
		h, stop := holding(t, func(p *pull) { order <- p.queue })
		for _, seconds := range []int32{5, 1, 3} {
			h.park(&pull{topic: "T", queue: seconds}, start.Add(time.Duration(seconds)*time.Second))
		}
		for _, want := range []int32{1, 3, 5} {
			require.Equal(t, want, <-order)
			require.Equal(t, time.Duration(want)*time.Second, time.Since(start), "neither early nor late")
		}
		stop()
	})
}

func TestHeldPullsAreAnsweredWhenTheBrokerStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var answered atomic.Int32
		h, stop := holding(t, func(*pull) { answered.Add(1) })
		for i := range 100 {
			h.park(&pull{topic: "T", queue: int32(i)}, time.Now().Add(time.Hour))
		}
		stop()
		require.Equal(t, int32(100), answered.Load())
		require.Zero(t, h.len())
	})
}

// TestHoldsLoseNothing parks and wakes from many goroutines at once: each pull is answered exactly once.
func TestHoldsLoseNothing(t *testing.T) {
	const pulls, queues = 2000, 10
	var answered [pulls]atomic.Int32
	h, stop := holding(t, func(p *pull) { answered[p.from].Add(1) })
	var work sync.WaitGroup
	for g := range 4 {
		work.Go(func() {
			for i := g; i < pulls; i += 4 {
				p := &pull{topic: "T", queue: int32(i % queues), from: offset.Queue(i)}
				h.park(p, time.Now().Add(time.Duration(rand.IntN(20))*time.Millisecond))
			}
		})
		work.Go(func() {
			for range pulls {
				h.arrived("T", rand.Int32N(queues), offset.Queue(rand.IntN(pulls)), 0)
			}
		})
	}
	work.Wait()
	stop()
	for i := range answered {
		require.Equal(t, int32(1), answered[i].Load(), "pull %d", i)
	}
}

// TestNobodyWaits: a consumer between two pulls still counts as one that waits.
func TestNobodyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, stop := holding(t, func(*pull) {})
		require.True(t, h.none())
		h.park(&pull{topic: "T", from: 5}, time.Now().Add(time.Hour))
		require.False(t, h.none())
		time.Sleep(time.Minute)
		require.False(t, h.none())
		h.park(&pull{topic: "T", from: 5}, time.Now().Add(time.Hour))
		h.arrived("T", 0, 6, 0)
		synctest.Wait()
		require.False(t, h.none(), "it will come back")
		time.Sleep(comeBack + time.Millisecond)
		require.True(t, h.none())
		stop()
	})
}
