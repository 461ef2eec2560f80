// QUERY_CONSUMER_OFFSET (14), UPDATE_CONSUMER_OFFSET (15).
//
// Kept: QUERY_NOT_FOUND is the only way to say that a group has no offset; a smaller offset is accepted from the
// group's own clients, who may go back on purpose.
// Changed: an offset that is negative, or above everything that the queue has given out, is refused: RocketMQ stores
// any number (apache/rocketmq#1732). Where a new group starts:
//   - at an empty queue whose first message is still to come: 0, so that a message sent in that moment is not skipped
//     (5.4.0 answers "not found", and the client then starts behind the message);
//   - at a young queue, whose first message is likely in memory: 0, as 4.9.7 does, unless the broker has
//     strictFromLast on or the client says setZeroIfNotFound=false: then "from last" means last.
//
// A slave takes commits, for its master may be away, and tells the master of them.

package processor

import (
	"context"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/internal/state"
	"github.com/ratchetmq/ratchet/protocol"
	"github.com/ratchetmq/ratchet/remoting"
	"github.com/ratchetmq/ratchet/store"
)

func (p *Processor) queryConsumerOffset(_ context.Context, r *remoting.Request) (protocol.Reply, error) {
	var h protocol.QueryConsumerOffsetRequest
	if err := r.ReadHeader(&h); err != nil {
		return protocol.Reply{}, err
	}
	if committed, ok := p.offsets.Query(h.ConsumerGroup, h.Topic, h.QueueID); ok {
		return offsetReply(committed), nil
	}
	notFound := protocol.Reply{
		Code:   protocol.QueryNotFound,
		Remark: "no offset is stored for consumer group " + h.ConsumerGroup + " on this queue: it is new here",
	}
	refusesZero := h.SetZeroIfNotFound.Set && !h.SetZeroIfNotFound.Value
	if refusesZero {
		return notFound, nil
	}
	b, ok := p.store.Bounds(h.Topic, h.QueueID)
	switch {
	case !ok || b.High == 0:
		return offsetReply(0), nil
	case b.Low == 0 && !p.settings().StrictFromLast && p.isYoung(h.Topic, h.QueueID):
		return offsetReply(0), nil
	}
	return notFound, nil
}

// isYoung says whether the queue's first message lies near enough to the log's end to be in memory still.
func (p *Processor) isYoung(topic string, queue int32) bool {
	_, first, err := p.store.Read(store.Query{Topic: topic, Queue: queue, MaxMessages: 1}, nil)
	window := p.memory / 100 * int64(p.settings().MemoryRatio)
	return err == nil && first.Status == store.Found && int64(p.store.Written()-first.LastPhysical) <= window
}

func offsetReply(o offset.Queue) protocol.Reply {
	return protocol.Reply{Header: &protocol.QueryConsumerOffsetResponse{Offset: int64(o)}}
}

func (p *Processor) updateConsumerOffset(_ context.Context, r *remoting.Request) (protocol.Reply, error) {
	var h protocol.UpdateConsumerOffsetRequest
	if err := r.ReadHeader(&h); err != nil {
		return protocol.Reply{}, err
	}
	if _, err := p.group(h.ConsumerGroup); err != nil {
		return protocol.Reply{}, err
	}
	if _, err := p.topic(h.Topic); err != nil {
		return protocol.Reply{}, err
	}
	if h.CommitOffset == -1 {
		return protocol.Reply{}, nil // the Go client's "nothing yet"
	}
	return protocol.Reply{}, p.commit(r, h.ConsumerGroup, h.Topic, h.QueueID, offset.Queue(h.CommitOffset))
}

// commit stores a consumer's progress, or refuses an offset that the queue can't have had.
func (p *Processor) commit(r *remoting.Request, group, topic string, queue int32, o offset.Queue) error {
	b, _ := p.store.Bounds(topic, queue)
	known := p.given(topic, queue, o, b.High)
	s := p.peers.Standing()
	slave := s.Follows()
	if slave { // the master may have given out what this broker does not have yet, yet not just anything
		known += offset.Queue(p.settings().MaxUnflushedMessages)
	}
	_, err := p.offsets.Commit(state.Commit{Group: group, Topic: topic, Queue: queue, Offset: o, Known: known, Slave: slave})
	if err != nil {
		p.log.Warn("offset commit failed", "group", group, "topic", topic, "queue", queue, "qoff", int64(o),
			"client", r.Conn.RemoteAddr(), "err", err)
	}
	return err
}
