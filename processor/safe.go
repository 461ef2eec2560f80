package processor

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ratchetmq/ratchet/ha"
	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/protocol"
	"github.com/ratchetmq/ratchet/remoting"
	"github.com/ratchetmq/ratchet/store"
)

// safety holds the answers to sends that are stored but not yet as safe as the broker's settings demand: not flushed to
// disk, or not with the slaves. An answer leaves when that is done, with the code for "stored, but not yet safe" when it
// takes longer than the limit.
type safety struct {
	store  *store.Store
	slaves *ha.Replicas
	limit  time.Duration // of the flush

	mu      sync.Mutex
	waiting []*unsafeReply // guarded by mu; all wait equally long, so the oldest is first
	wakeup  chan struct{}  // has one token when waiting was empty and isn't
}

// unsafeReply is one answer that waits. answered makes sure that it is sent once: by the flush or by the limit.
type unsafeReply struct {
	request  *remoting.Request
	reply    protocol.Reply
	deadline time.Time
	answered atomic.Bool
}

func newSafety(s *store.Store, slaves *ha.Replicas, limit time.Duration) *safety {
	return &safety{store: s, slaves: slaves, limit: limit, wakeup: make(chan struct{}, 1)}
}

// replicate answers r with reply once slaves have the log up to end, or it is known that they will not in time.
func (s *safety) replicate(r *remoting.Request, reply protocol.Reply, end offset.Physical) {
	s.slaves.When(end, func(o ha.Outcome) {
		switch o {
		case ha.Replicated:
		case ha.NotAvailable:
			reply.Code, reply.Remark = protocol.SlaveNotAvailable, "stored, but not enough slaves are connected and in sync"
		case ha.TimedOut:
			reply.Code, reply.Remark = protocol.FlushSlaveTimeout, "stored, but no slave has it within slaveTimeout"
		}
		r.Reply(reply)
	})
}

// wait answers r with reply once the log is flushed up to end, and then, if replicate says so, once slaves have it: they
// get it meanwhile.
func (s *safety) wait(r *remoting.Request, reply protocol.Reply, end offset.Physical, replicate bool) {
	u := &unsafeReply{request: r, reply: reply, deadline: time.Now().Add(s.limit)}
	s.mu.Lock()
	s.dropAnswered()
	first := len(s.waiting) == 0
	s.waiting = append(s.waiting, u)
	s.mu.Unlock()
	if first {
		token(s.wakeup)
	}
	s.store.WhenFlushed(end, func(err error) {
		if !u.answered.CompareAndSwap(false, true) {
			return
		}
		if err != nil {
			// The log is broken or closing: the message may be lost, so the sender must not believe in it.
			failed := errorReply(err)
			failed.Extra = u.reply.Extra
			u.request.ReplyLater(failed)
			return
		}
		if replicate {
			s.replicate(u.request, u.reply, end)
			return
		}
		u.request.ReplyLater(u.reply)
	})
}

// run answers what has waited too long, until ctx is done.
func (s *safety) run(ctx context.Context) {
	timer := time.NewTimer(s.limit)
	defer timer.Stop()
	for {
		next, any := s.expire(time.Now())
		if any {
			timer.Reset(time.Until(next))
		} else {
			timer.Stop()
		}
		select {
		case <-timer.C:
		case <-s.wakeup:
		case <-ctx.Done():
			return
		}
	}
}

var errFlushTimeout = errors.New("stored, but not flushed to disk within syncFlushTimeout")

// dropAnswered takes what has been answered off the front. s.mu is held.
func (s *safety) dropAnswered() {
	for len(s.waiting) > 0 && s.waiting[0].answered.Load() {
		s.waiting[0] = nil
		s.waiting = s.waiting[1:]
	}
	if len(s.waiting) == 0 {
		s.waiting = nil
	}
}

// expire answers what is over its deadline and says when the next deadline is.
func (s *safety) expire(now time.Time) (next time.Time, any bool) {
	s.mu.Lock()
	var late []*unsafeReply
	for s.dropAnswered(); len(s.waiting) > 0; s.dropAnswered() {
		u := s.waiting[0]
		if u.deadline.After(now) {
			next, any = u.deadline, true
			break
		}
		late = append(late, u)
		s.waiting = s.waiting[1:]
	}
	s.mu.Unlock()
	for _, u := range late {
		if u.answered.CompareAndSwap(false, true) {
			u.reply.Code, u.reply.Remark = protocol.FlushDiskTimeout, errFlushTimeout.Error()
			u.request.ReplyLater(u.reply)
		}
	}
	return next, any
}
