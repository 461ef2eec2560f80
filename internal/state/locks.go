package state

import (
	"sync"
	"time"

	"github.com/ratchetmq/ratchet/protocol"
)

// lockLife is how long a client holds a queue without renewing it. Clients renew every 20 s, and give up after 30 s.
const lockLife = 60 * time.Second

// Locks says which client of a group may consume a queue in order. It lives in memory: after a restart clients lock
// again.
type Locks struct {
	now func() time.Time

	mu     sync.Mutex
	groups map[string]map[protocol.MessageQueue]queueLock // guarded by mu
}

type queueLock struct {
	client string
	until  time.Time
}

// LockOptions is what Locks needs.
type LockOptions struct {
	Now func() time.Time // nil: time.Now
}

// NewLocks starts without locks.
func NewLocks(o LockOptions) *Locks {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Locks{now: o.Now, groups: map[string]map[protocol.MessageQueue]queueLock{}}
}

// Lock takes or renews queues for a client, and returns those that it holds now, as they were given. A queue that
// another client of the group holds is left out.
func (l *Locks) Lock(group, client string, queues []protocol.MessageQueue) []protocol.MessageQueue {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	held := l.groups[group]
	if held == nil {
		held = map[protocol.MessageQueue]queueLock{}
		l.groups[group] = held
	}
	out := make([]protocol.MessageQueue, 0, len(queues))
	for _, q := range queues {
		if lock, ok := held[q]; ok && lock.client != client && now.Before(lock.until) {
			continue
		}
		held[q] = queueLock{client: client, until: now.Add(lockLife)}
		out = append(out, q)
	}
	return out
}

// Unlock gives back those of the queues that the client holds.
func (l *Locks) Unlock(group, client string, queues []protocol.MessageQueue) {
	l.mu.Lock()
	defer l.mu.Unlock()
	held := l.groups[group]
	for _, q := range queues {
		if lock, ok := held[q]; ok && lock.client == client {
			delete(held, q)
		}
	}
	if len(held) == 0 {
		delete(l.groups, group)
	}
}

// Holder returns the client that holds the queue.
func (l *Locks) Holder(group string, queue protocol.MessageQueue) (client string, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lock, ok := l.groups[group][queue]
	if !ok || !l.now().Before(lock.until) {
		return "", false
	}
	return lock.client, true
}

// Held tells whether any client of the group holds any queue: the group consumes in order.
func (l *Locks) Held(group string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	for _, lock := range l.groups[group] {
		if now.Before(lock.until) {
			return true
		}
	}
	return false
}

// Expire drops the locks that ran out. They don't count any more anyway; this frees their memory.
func (l *Locks) Expire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	for group, held := range l.groups {
		for q, lock := range held {
			if !now.Before(lock.until) {
				delete(held, q)
			}
		}
		if len(held) == 0 {
			delete(l.groups, group)
		}
	}
}
