package store

import (
	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/message"
)

// history is what recovery has seen of the log so far, as far as it takes to tell a record that belongs there from one
// that an earlier life of the log has left behind its end.
//
// RocketMQ cuts a damaged end off in memory only. Later records go over the old ones, and where the last of them ends
// on the border of an old one, that looks like the log's next record. It is older than what stands before it, though,
// and its queue offset is not the one that is due.
type history struct {
	lastTime int64
	queues   map[queueKey]*seen
	near     [nearPlaces]*seen // of these, those that were looked up last
}

// seen is what of a queue was seen last.
type seen struct {
	queueKey
	next    offset.Queue // the number after the last one
	refused offset.Queue // the number after one that was not believed
}

func newHistory() *history { return &history{queues: map[queueKey]*seen{}} }

// of is what was seen of a record's queue, nil when nothing was.
func (h *history) of(r *message.Record) *seen {
	near := &h.near[nearPlace(r.Topic, r.QueueID)]
	if s := *near; s != nil && s.id == r.QueueID && s.topic == string(r.Topic) {
		return s
	}
	*near = h.queues[queueKey{string(r.Topic), r.QueueID}]
	return *near
}

// continues says whether a record may stand where the last one ended. A clock that was set back, or a topic that was
// deleted and made anew, is no reason against it; both at once are. A left-over record that passes was sent by
// somebody and lost once, and nobody else got its number.
func (h *history) continues(r *message.Record) bool {
	if r.StoreTimestamp >= h.lastTime {
		return true
	}
	queue := h.of(r)
	return queue == nil || r.QueueOffset == queue.next || !inQueue(r.SysFlag)
}

// resumes says whether a record may be the first one behind damaged bytes, where more care is due.
func (h *history) resumes(r *message.Record) bool { return r.StoreTimestamp >= h.lastTime }

// add takes the next record of the log.
func (h *history) add(r *message.Record) {
	h.lastTime = max(h.lastTime, r.StoreTimestamp)
	if !inQueue(r.SysFlag) || r.SysFlag&message.FlagInnerBatch != 0 {
		return
	}
	queue := h.of(r)
	if queue == nil {
		queue = &seen{queueKey: queueKey{string(r.Topic), r.QueueID}}
		h.queues[queue.queueKey] = queue
	}
	queue.next, queue.refused = r.QueueOffset+1, 0
}
