package ha

import (
	"context"
	"log/slog"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ratchetmq/ratchet/internal/offset"
)

// Outcome is what became of a send's wait for the replicas.
type Outcome uint8

// The outcomes. The message is stored here whatever the outcome.
const (
	Replicated   Outcome = iota // enough slaves have it
	NotAvailable                // not enough slaves are there and near
	TimedOut                    // they did not say in time that they have it
)

// ReplicaOptions say what a SYNC_MASTER waits for.
type ReplicaOptions struct {
	Need      int           // slaves that must have a message, at least 1
	Timeout   time.Duration // of a wait
	BehindMax int64         // bytes; a slave that lacks more does not count
	Written   func() offset.Physical
	// Expose makes durable that from now on readers may see messages which no slave has, before they do.
	Expose func() error
	// Covered notes that the slaves have all that readers have seen.
	Covered func()
	// Wake is called when Confirmed has risen.
	Wake   func()
	Logger *slog.Logger
}

// Replicas are the slaves that are connected, and what each is known to have. All methods may be called from any
// goroutine.
type Replicas struct {
	opts ReplicaOptions
	log  *slog.Logger
	sync atomic.Bool // SYNC_MASTER: sends wait, and readers see what the slaves have

	mu      sync.Mutex
	links   []*link         // guarded by mu, with the fields of each
	waiting []*replicaWait  // guarded by mu; in order of end
	has     offset.Physical // guarded by mu; the log up to which Need slaves had at some time
	shown   offset.Physical // guarded by mu; the log up to which readers may have seen what has is short of
	told    offset.Physical // guarded by mu; the log up to which senders got an answer, though has was short of it
	opening bool            // guarded by mu; no reader is served yet, so that nothing needs to be shown
	alone   bool            // guarded by mu; readers see everything, for there are not enough slaves
	exposed bool            // guarded by mu; Expose was called, and Covered not since
	changed chan struct{}   // one token when Run should look
}

// link is a connected slave.
type link struct {
	addr  string
	since time.Time
	heard time.Time
	sent  offset.Physical
	acked offset.Physical // what it is known to share with this log; -1 as long as nothing is known
}

type replicaWait struct {
	end      offset.Physical
	deadline time.Time
	done     func(Outcome)
}

// NewReplicas has no slave yet.
func NewReplicas(o ReplicaOptions) *Replicas {
	o.Need = max(o.Need, 1)
	return &Replicas{opts: o, log: o.Logger, changed: make(chan struct{}, 1)}
}

// Confirmed is up to where readers may see the log.
func (r *Replicas) Confirmed() offset.Physical {
	if !r.sync.Load() {
		return math.MaxInt64
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.alone {
		return math.MaxInt64
	}
	return max(r.has, r.shown)
}

// Sync says whether sends are to wait for slaves.
func (r *Replicas) Sync() bool { return r.sync.Load() }

// Begin starts anew: this broker becomes the master, a SYNC_MASTER or not, and readers see the log up to end already.
// exposed says that slaves may not have all of it, and that Expose has noted so. Readers are served from Serve on.
func (r *Replicas) Begin(sync bool, end offset.Physical, exposed bool) {
	r.sync.Store(sync)
	r.mu.Lock()
	r.has, r.shown, r.told, r.alone, r.exposed, r.opening = 0, end, 0, false, exposed, true
	r.mu.Unlock()
	r.look()
}

// Serve says that readers are served from now on.
func (r *Replicas) Serve() {
	r.mu.Lock()
	r.opening = false
	r.mu.Unlock()
	r.look()
}

// End is the end of being a master: nobody waits for slaves, and readers see everything.
func (r *Replicas) End() {
	r.sync.Store(false)
	r.look()
	r.opts.Wake()
}

// InSync is how many slaves count.
func (r *Replicas) InSync() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.inSync()
}

func (r *Replicas) inSync() (n int) {
	for _, l := range r.links {
		if r.near(l) {
			n++
		}
	}
	return n
}

// Level says whether all slaves that count have everything.
func (r *Replicas) Level() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	written := r.opts.Written()
	return !slices.ContainsFunc(r.links, func(l *link) bool { return r.near(l) && l.acked < written })
}

func (r *Replicas) near(l *link) bool {
	return l.acked >= 0 && int64(r.opts.Written()-l.acked) <= r.opts.BehindMax
}

// When calls done once Need slaves have the log up to end, or it is known that they will not in time. It may be called in
// the caller's goroutine; it must not block.
func (r *Replicas) When(end offset.Physical, done func(Outcome)) {
	r.mu.Lock()
	enough := r.inSync() >= r.opts.Need
	switch {
	case enough && r.has >= end:
		r.mu.Unlock()
		done(Replicated)
		return
	case !enough && r.exposed:
		r.told = max(r.told, end)
		r.mu.Unlock()
		done(NotAvailable)
		return
	}
	w := &replicaWait{end: end, deadline: time.Now().Add(r.opts.Timeout), done: done}
	i := len(r.waiting)
	for i > 0 && r.waiting[i-1].end > end {
		i--
	}
	r.waiting = slices.Insert(r.waiting, i, w)
	first := len(r.waiting) == 1
	r.mu.Unlock()
	if first || !enough {
		r.look()
	}
}

func (r *Replicas) look() {
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// add takes a slave that has connected; it counts when its first acked is known.
func (r *Replicas) add(addr string) *link {
	now := time.Now()
	l := &link{addr: addr, since: now, heard: now, acked: -1}
	r.mu.Lock()
	r.links = append(r.links, l)
	r.mu.Unlock()
	return l
}

func (r *Replicas) sentTo(l *link, at offset.Physical) {
	r.mu.Lock()
	l.sent = at
	r.mu.Unlock()
}

func (r *Replicas) remove(l *link) {
	r.mu.Lock()
	r.links = slices.DeleteFunc(r.links, func(x *link) bool { return x == l })
	r.mu.Unlock()
	r.look()
}

// ack notes that a slave has the log up to a position, and answers who waited for it.
func (r *Replicas) ack(l *link, at offset.Physical) {
	r.mu.Lock()
	l.heard = time.Now()
	if at > l.acked {
		l.acked = at
	}
	before := r.has
	if has := r.most(); has > r.has {
		r.has = has
	}
	rose := r.has > before
	n := 0
	for n < len(r.waiting) && r.waiting[n].end <= r.has {
		n++
	}
	ready := r.waiting[:n:n]
	if r.waiting = r.waiting[n:]; len(r.waiting) == 0 {
		r.waiting = nil
	}
	exposed := r.exposed
	r.mu.Unlock()
	for _, w := range ready {
		w.done(Replicated)
	}
	if rose && r.sync.Load() {
		r.opts.Wake()
	}
	if exposed {
		r.look()
	}
}

// most is the position up to which at least Need slaves have the log.
func (r *Replicas) most() offset.Physical {
	if len(r.links) < r.opts.Need {
		return 0
	}
	if r.opts.Need == 1 {
		var most offset.Physical
		for _, l := range r.links {
			most = max(most, l.acked)
		}
		return most
	}
	acks := make([]offset.Physical, 0, len(r.links))
	for _, l := range r.links {
		acks = append(acks, l.acked)
	}
	slices.Sort(acks)
	return acks[len(acks)-r.opts.Need]
}

// Run answers waits that take too long, and lets readers see everything while there are not enough slaves, until ctx is
// done; then it answers all that wait.
func (r *Replicas) Run(ctx context.Context) error {
	timer := time.NewTimer(time.Second)
	defer timer.Stop()
	for {
		timer.Reset(r.settle(time.Now()))
		select {
		case <-timer.C:
		case <-r.changed:
		case <-ctx.Done():
			r.mu.Lock()
			waiting := r.waiting
			r.waiting = nil
			r.mu.Unlock()
			for _, w := range waiting {
				w.done(NotAvailable)
			}
			return nil
		}
	}
}

const settlePause = time.Second

// settle does what is due, and says when to come again.
func (r *Replicas) settle(now time.Time) time.Duration {
	r.mu.Lock()
	enough := r.inSync() >= r.opts.Need
	var late []*replicaWait
	outcome := TimedOut
	if !enough {
		late, r.waiting, outcome = r.waiting, nil, NotAvailable
	}
	next := settlePause
	r.waiting = slices.DeleteFunc(r.waiting, func(w *replicaWait) bool {
		left := w.deadline.Sub(now)
		if left <= 0 {
			late = append(late, w)
			return true
		}
		next = min(next, left)
		return false
	})
	for _, w := range late {
		r.told = max(r.told, w.end)
	}
	expose := r.sync.Load() && !enough && !r.alone && !r.opening
	// The late answers tell which numbers messages got that no slave has.
	note := expose || r.sync.Load() && len(late) > 0 && !r.exposed
	if r.alone && enough {
		r.alone, r.shown = false, r.opts.Written() // what was shown meanwhile is below
	}
	covered := r.exposed && !r.alone && r.has >= max(r.shown, r.told)
	r.mu.Unlock()
	noted := note && r.note()
	for _, w := range late {
		w.done(outcome)
	}
	switch {
	case expose && noted:
		r.showAll()
	case covered && !expose:
		r.mu.Lock()
		r.exposed = false
		r.mu.Unlock()
		r.log.Info("slaves have everything that readers have seen", "need", r.opts.Need)
		r.opts.Covered()
	}
	return next
}

// note keeps on the disk that somebody may have seen what no slave has: a power cut may take it, and then its numbers must
// not be given out again.
func (r *Replicas) note() bool {
	if err := r.opts.Expose(); err != nil {
		r.log.Error("not enough slaves, and that could not be noted: new messages stay unseen", "err", err)
		return false
	}
	r.mu.Lock()
	r.exposed = true
	r.mu.Unlock()
	return true
}

// showAll lets readers see what only this broker has.
func (r *Replicas) showAll() {
	r.log.Warn("not enough slaves: messages are seen that only this broker has", "need", r.opts.Need)
	r.mu.Lock()
	r.alone = true
	r.mu.Unlock()
	r.opts.Wake()
}

// LinkStatus is a connected slave as an operator sees it.
type LinkStatus struct {
	Addr  string
	Since time.Time
	Heard time.Time
	Sent  offset.Physical
	Acked offset.Physical // -1: not known to share anything
	// InSync: it has, or nearly has, what this broker has.
	InSync bool
}

// Links are the connected slaves.
func (r *Replicas) Links() []LinkStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]LinkStatus, 0, len(r.links))
	for _, l := range r.links {
		list = append(list, LinkStatus{l.addr, l.since, l.heard, l.sent, l.acked, r.near(l)})
	}
	return list
}
