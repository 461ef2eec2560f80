package store

import "github.com/ratchetmq/ratchet/internal/offset"

// Unseen is where queues begin that a store has never seen: a topic may have been made, and messages of it given out, by a
// broker of whose disk nothing is left.
type Unseen struct {
	From offset.Queue `json:"from"`
	// Until is when a queue that is new here is one that nobody can have seen, ms: messages are not kept for so long.
	Until int64 `json:"until"`
}

// over is what holds where both do.
func (u Unseen) over(v Unseen) Unseen { return Unseen{max(u.From, v.From), max(u.Until, v.Until)} }

// next is the offset that the next message of a queue gets, should it come soon. The put lock is held.
func (s *Store) next(q *queue) offset.Queue {
	if q.next == 0 {
		return s.gaps.now.Load().Unseen.From
	}
	return q.next
}

// begin lets a queue without any message begin where it has to. The put lock is held.
func (s *Store) begin(q *queue) {
	if unseen := &s.gaps.now.Load().Unseen; unseen.From > 0 && s.opts.Now().UnixMilli() < unseen.Until {
		q.next = unseen.From
	}
}
