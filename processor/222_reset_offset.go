// INVOKE_BROKER_TO_RESET_OFFSET (222): the one way in which an offset moves back on purpose.
//
// Kept: the reset is stored on the broker, as in 5.x; the consumer hears of it with its next pull. Without isForce an
// offset only moves back.
// Changed: it works whether the group is online or not (apache/rocketmq#9038), and a pull that is held is answered at
// once, so that an online consumer starts at the new place without delay.

package processor

import (
	"context"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/protocol"
	"github.com/ratchetmq/ratchet/remoting"
)

func (p *Processor) resetOffset(_ context.Context, r *remoting.Request) (protocol.Reply, error) {
	var h protocol.ResetOffsetRequest
	if err := r.ReadHeader(&h); err != nil {
		return protocol.Reply{}, err
	}
	topic, err := p.topic(h.Topic)
	if err != nil {
		return protocol.Reply{}, err
	}
	if _, err := p.group(h.Group); err != nil {
		return protocol.Reply{}, err
	}
	first, last := int32(0), topic.ReadQueueNums-1
	if h.QueueID.Set && h.QueueID.Value >= 0 {
		if first, last = h.QueueID.Value, h.QueueID.Value; first >= topic.ReadQueueNums {
			return protocol.Reply{}, refuse(protocol.InvalidParameter, "queueId %d of topic %s is illegal: it has %d queues to read",
				first, h.Topic, topic.ReadQueueNums)
		}
	}
	table := map[protocol.MessageQueue]int64{}
	for queue := first; queue <= last; queue++ {
		target, err := p.resetTarget(&h, queue)
		if err != nil {
			return protocol.Reply{}, err
		}
		if err := p.offsets.Reset(h.Group, h.Topic, queue, target); err != nil {
			return protocol.Reply{}, err
		}
		p.holds.wakeGroup(h.Topic, queue, h.Group)
		table[protocol.MessageQueue{Topic: h.Topic, BrokerName: p.brokerName, QueueID: queue}] = int64(target)
	}
	return bodyReply(protocol.ResetOffsetBody{OffsetTable: table})
}

// resetTarget is where the group is to start in one queue.
func (p *Processor) resetTarget(h *protocol.ResetOffsetRequest, queue int32) (offset.Queue, error) {
	b, _ := p.store.Bounds(h.Topic, queue)
	target := b.High
	switch {
	case h.QueueID.Set && h.QueueID.Value >= 0 && h.Offset.Set && h.Offset.Value != -1:
		if target = offset.Queue(h.Offset.Value); target < b.Low || target > b.High {
			return 0, refuse(protocol.SystemError, "offset %d is not in queue %d of topic %s: it goes from %d to %d",
				target, queue, h.Topic, b.Low, b.High)
		}
	case h.Timestamp >= 0:
		target = p.store.SearchByTime(h.Topic, queue, h.Timestamp, false)
	}
	if !h.IsForce {
		if committed, ok := p.offsets.Query(h.Group, h.Topic, queue); ok {
			target = min(target, committed)
		}
	}
	return target, nil
}
