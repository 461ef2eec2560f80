package processor

import (
	"container/heap"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ratchetmq/ratchet/internal/offset"
)

// queueKey names one queue of this broker.
type queueKey struct {
	topic string
	queue int32
}

// held is a pull that waits for its queue's next message.
type held struct {
	pull     *pull
	deadline time.Time
	index    int // in the heap of deadlines; -1 once it has left the table. guarded by holds.mu
}

// holds parks pulls that found nothing (long polling) and hands them back when a message that may interest them is
// there, or when their time is over. A parked pull costs one small object and no goroutine.
//
// The dispatch loop of the store calls arrived; it must never wait, so what is woken goes into a list that the
// goroutines in run take from.
type holds struct {
	mu        sync.Mutex
	byQueue   map[queueKey][]*held // guarded by mu
	deadlines deadlineHeap         // guarded by mu
	ready     []*held              // guarded by mu; woken or expired, waiting for a worker of run
	parked    time.Time            // guarded by mu; when the last one came
	closed    bool                 // guarded by mu; run has ended, nobody would answer
	waiting   atomic.Int64         // written under mu; how many are parked
	signal    chan struct{}        // has one token when ready may hold something
	alarm     chan struct{}        // has one token when the nearest deadline changed
}

func newHolds() *holds {
	return &holds{
		byQueue: map[queueKey][]*held{},
		signal:  make(chan struct{}, 1),
		alarm:   make(chan struct{}, 1),
	}
}

// park keeps p until deadline; it says no when the broker stops. The caller must look at the queue's end once more
// afterwards and call wakeBelow if it has passed the pull's offset in the meantime.
func (h *holds) park(p *pull, deadline time.Time) bool {
	w := &held{pull: p, deadline: deadline}
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return false
	}
	h.parked = time.Now()
	key := queueKey{p.topic, p.queue}
	h.byQueue[key] = append(h.byQueue[key], w)
	heap.Push(&h.deadlines, w)
	h.waiting.Add(1)
	first := w.index == 0
	h.mu.Unlock()
	if first {
		token(h.alarm)
	}
	return true
}

// arrived wakes the pulls of a queue that a new message may interest: high is the queue's end after it, tagsCode what
// its consume queue entry holds. It may be called from any goroutine and doesn't wait for anything but the table.
func (h *holds) arrived(topic string, queue int32, high offset.Queue, tagsCode int64) {
	h.wake(queueKey{topic, queue}, func(p *pull) bool {
		return p.from < high && (p.match == nil || p.match(tagsCode))
	})
}

// wakeBelow wakes the pulls of a queue that ask for less than high, whatever they filter by.
func (h *holds) wakeBelow(topic string, queue int32, high offset.Queue) {
	h.wake(queueKey{topic, queue}, func(p *pull) bool { return p.from < high })
}

// wakeGroup wakes the pulls of one consumer group in a queue, whatever they wait for.
func (h *holds) wakeGroup(topic string, queue int32, group string) {
	h.wake(queueKey{topic, queue}, func(p *pull) bool { return p.group == group })
}

func (h *holds) wake(key queueKey, concerns func(*pull) bool) {
	if h.waiting.Load() == 0 { // who parks now looks at the queue's end after that
		return
	}
	h.mu.Lock()
	waiting := h.byQueue[key]
	kept := waiting[:0]
	for _, w := range waiting {
		if concerns(w.pull) {
			heap.Remove(&h.deadlines, w.index)
			h.waiting.Add(-1)
			h.ready = append(h.ready, w)
		} else {
			kept = append(kept, w)
		}
	}
	woken := len(kept) < len(waiting)
	h.keep(key, waiting, kept)
	h.mu.Unlock()
	if woken {
		token(h.signal)
	}
}

// keep stores what is left of a queue's waiting list. h.mu is held.
func (h *holds) keep(key queueKey, before, kept []*held) {
	clear(before[len(kept):])
	if len(kept) == 0 {
		delete(h.byQueue, key)
		return
	}
	h.byQueue[key] = kept
}

// len is the number of parked pulls.
func (h *holds) len() int {
	return int(h.waiting.Load())
}

// comeBack is how long a consumer whose pull was answered is given to ask again before it counts as gone.
const comeBack = time.Second

// none says whether nobody waits for a message, or will in a moment.
func (h *holds) none() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.deadlines) == 0 && time.Since(h.parked) > comeBack
}

// run answers woken and expired pulls through answer until ctx is done; then it answers all that are still parked, so
// that no client is left waiting for a broker that stops. Several goroutines may be in run at once.
func (h *holds) run(ctx context.Context, answer func(*pull)) {
	for {
		select {
		case <-h.signal:
			h.drain(answer)
		case <-ctx.Done():
			h.mu.Lock()
			h.closed = true
			h.mu.Unlock()
			h.expire(time.Time{})
			h.drain(answer)
			return
		}
	}
}

// runDeadlines moves pulls whose time is over to the ready list until ctx is done.
func (h *holds) runDeadlines(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		next, ok := h.expire(time.Now())
		if !ok {
			next = time.Now().Add(time.Hour)
		}
		timer.Reset(time.Until(next))
		select {
		case <-timer.C:
		case <-h.alarm:
		case <-ctx.Done():
			return
		}
	}
}

// expire makes ready what was to be answered by now, or everything when now is zero, and says when the next is due.
func (h *holds) expire(now time.Time) (next time.Time, ok bool) {
	h.mu.Lock()
	due := map[queueKey]bool{}
	for len(h.deadlines) > 0 && (now.IsZero() || !h.deadlines[0].deadline.After(now)) {
		w := heap.Pop(&h.deadlines).(*held)
		h.waiting.Add(-1)
		h.ready = append(h.ready, w)
		due[queueKey{w.pull.topic, w.pull.queue}] = true
	}
	for key := range due {
		waiting := h.byQueue[key]
		kept := waiting[:0]
		for _, w := range waiting {
			if w.index >= 0 {
				kept = append(kept, w)
			}
		}
		h.keep(key, waiting, kept)
	}
	if len(h.deadlines) > 0 {
		next, ok = h.deadlines[0].deadline, true
	}
	h.mu.Unlock()
	if len(due) > 0 {
		token(h.signal)
	}
	return next, ok
}

// handful is how many woken pulls are not worth the waking of another worker.
const handful = 8

func (h *holds) drain(answer func(*pull)) {
	for {
		h.mu.Lock()
		n := len(h.ready)
		if n == 0 {
			h.ready = nil
			h.mu.Unlock()
			return
		}
		w := h.ready[0]
		h.ready[0] = nil
		h.ready = h.ready[1:]
		h.mu.Unlock()
		if n > handful {
			token(h.signal) // let another worker help
		}
		answer(w.pull)
	}
}

// token puts one token into a channel of capacity 1, unless it has one.
func token(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// deadlineHeap orders held pulls by deadline, nearest first.
type deadlineHeap []*held

func (d deadlineHeap) Len() int           { return len(d) }
func (d deadlineHeap) Less(i, j int) bool { return d[i].deadline.Before(d[j].deadline) }
func (d deadlineHeap) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].index, d[j].index = i, j
}

func (d *deadlineHeap) Push(x any) {
	w := x.(*held)
	w.index = len(*d)
	*d = append(*d, w)
}

func (d *deadlineHeap) Pop() any {
	old := *d
	w := old[len(old)-1]
	old[len(old)-1] = nil
	*d = old[:len(old)-1]
	w.index = -1
	return w
}
