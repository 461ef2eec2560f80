package store

import (
	"sync/atomic"

	"github.com/ratchetmq/ratchet/internal/offset"
)

// watermark is a position in the log that only grows, but for Store.Truncate. Many read it; at any time one goroutine
// raises it.
type watermark struct{ at atomic.Int64 }

func (w *watermark) load() offset.Physical { return offset.Physical(w.at.Load()) }

// raise moves the watermark up; a lower position leaves it where it is.
func (w *watermark) raise(to offset.Physical) {
	if int64(to) > w.at.Load() {
		w.at.Store(int64(to))
	}
}

// truncate moves the watermark back.
func (w *watermark) truncate(to offset.Physical) {
	if int64(to) < w.at.Load() {
		w.at.Store(int64(to))
	}
}

// signal wakes a loop. Any number of rings before the loop looks are one.
type signal chan struct{}

func newSignal() signal { return make(signal, 1) }

func (s signal) ring() {
	select {
	case s <- struct{}{}:
	default:
	}
}
