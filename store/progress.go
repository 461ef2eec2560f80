package store

import (
	"log/slog"
	"sync"
	"time"
)

// progress tells from time to time how far the opening of a store has come. A short one says nothing.
type progress struct {
	logger *slog.Logger
	now    func() time.Time

	mu    sync.Mutex
	told  time.Time // guarded by mu; the last time, at first the beginning
	began time.Time // guarded by mu; of the phase
	phase string    // guarded by mu
	done  int64     // guarded by mu
	total int64     // guarded by mu
}

// progressEvery is the pause between two lines.
const progressEvery = 2 * time.Second

func newProgress(logger *slog.Logger, now func() time.Time) *progress {
	began := now()
	return &progress{logger: logger, now: now, told: began, began: began, phase: "files"}
}

// begin ends a phase and starts another of that many steps.
func (p *progress) begin(phase string, total int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	p.logger.Debug("phase of opening done", "phase", p.phase, "total", p.total, "dur", now.Sub(p.began))
	p.phase, p.done, p.total, p.began = phase, 0, total, now
}

// add counts steps done. It may be called from several goroutines.
func (p *progress) add(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done += n
	now := p.now()
	if now.Sub(p.told) < progressEvery {
		return
	}
	p.told = now
	p.logger.Info("store opens", "phase", p.phase, "done", p.done, "total", p.total)
}
