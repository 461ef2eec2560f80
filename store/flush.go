package store

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ratchetmq/ratchet/internal/offset"
)

// flusher syncs the log and tells those who wait for it. One sync serves all who came before it began.
type flusher struct {
	store *Store
	wake  signal // rung by appends, and by who waits

	idle atomic.Bool // no timer is running: the next append has to ring

	mu      sync.Mutex
	waiting []flushWaiter // guarded by mu; in order of end
	closed  bool          // guarded by mu; nobody will be served any more
}

type flushWaiter struct {
	end  offset.Physical
	done func(error)
}

func (f *flusher) init(s *Store) { f.store, f.wake = s, newSignal() }

// WhenFlushed calls done once the log is flushed up to end: at once, in the caller's goroutine, if it is already,
// otherwise in the flusher's, in order of end. It is ErrBroken if that will not come, ErrClosed when the store stops
// first. done must not block, and no lock is held while it runs.
func (s *Store) WhenFlushed(end offset.Physical, done func(error)) { s.flusher.when(end, done) }

func (f *flusher) when(end offset.Physical, done func(error)) {
	if f.store.log.flushed.load() >= end {
		done(nil)
		return
	}
	f.mu.Lock()
	if err := f.refusal(); err != nil {
		f.mu.Unlock()
		done(err)
		return
	}
	i := len(f.waiting)
	for i > 0 && f.waiting[i-1].end > end {
		i--
	}
	f.waiting = slices.Insert(f.waiting, i, flushWaiter{end, done})
	f.mu.Unlock()
	f.wake.ring()
}

// refusal says why nobody can be served. The caller has mu.
func (f *flusher) refusal() error {
	if err := f.store.Err(); err != nil {
		return err
	}
	if f.closed {
		return ErrClosed
	}
	return nil
}

// run is the flusher's loop. Without appends it sleeps.
func (f *flusher) run(ctx context.Context) error {
	o := &f.store.opts
	last := time.Now()
	pause := time.NewTimer(0)
	<-pause.C
	defer pause.Stop()
	pausing := false
	for {
		if f.idle.Store(!pausing); !pausing && f.store.unflushed() > 0 {
			f.wake.ring() // came while the last sync was running
		}
		due := false
		select {
		case <-ctx.Done():
			return nil
		case <-f.store.failed:
			f.serve()
			<-ctx.Done()
			return nil
		case <-f.wake:
			due = o.Flush == SyncFlush || f.hurry() || f.pressed()
		case <-pause.C:
			pausing = false
			due = f.store.unflushed() >= o.FlushLeastBytes || time.Since(last) >= o.FlushThorough
		}
		switch {
		case due:
			f.flush()
			last = time.Now()
		case !pausing && f.store.unflushed() > 0:
			pause.Reset(o.FlushInterval)
			pausing = true
		}
	}
}

// written tells the flusher of an append. With AsyncFlush it needs to know only of the first one after a sync, and of those
// that press it.
func (f *flusher) written() {
	if f.store.opts.Flush == SyncFlush || f.idle.Load() || f.pressed() {
		f.wake.ring()
	}
}

// pressed says whether a part of what may be unflushed is. The disk is at work then while more comes, and no append has to
// wait for a sync unless the disk is the slower one.
func (f *flusher) pressed() bool {
	const part = 2
	s := f.store
	bytes, messages := s.opts.MaxUnflushedBytes, s.opts.MaxUnflushedMessages
	return bytes > 0 && s.unflushed() > bytes/part || messages > 0 && s.unflushedMessages() > messages/part
}

// hurry says whether somebody waits.
func (f *flusher) hurry() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.waiting) > 0
}

func (s *Store) unflushed() int64 { return int64(s.log.written.load() - s.log.flushed.load()) }

func (s *Store) unflushedMessages() int64 {
	return s.log.messages.Load() - s.log.flushedMessages.Load()
}

// flush syncs what is written and serves those who wait for it. A sync that fails is never tried again.
func (f *flusher) flush() {
	s := f.store
	if s.Err() == nil && s.unflushed() > 0 {
		if err := s.log.flush(); err != nil {
			s.fail(err)
		}
	}
	if s.opts.Flush == SyncFlush {
		s.dispatcher.wake.ring() // also for what a checkpoint has synced meanwhile
	}
	f.serve()
}

// serve calls back those whose end is flushed, and all when the store is broken or stopped.
func (f *flusher) serve() {
	flushed := f.store.log.flushed.load()
	f.mu.Lock()
	err := f.refusal()
	n := len(f.waiting)
	if err == nil {
		n = 0
		for n < len(f.waiting) && f.waiting[n].end <= flushed {
			n++
		}
	}
	ready := f.waiting[:n:n]
	f.waiting = slices.Clone(f.waiting[n:])
	f.mu.Unlock()
	for _, w := range ready {
		if w.end <= flushed {
			w.done(nil)
		} else {
			w.done(err)
		}
	}
}

// close turns away all who wait or will.
func (f *flusher) close() {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.serve()
}

// awaitFlushed is WhenFlushed for a caller that may block.
func (s *Store) awaitFlushed(end offset.Physical) error {
	result := make(chan error, 1)
	s.WhenFlushed(end, func(err error) { result <- err })
	return <-result
}
