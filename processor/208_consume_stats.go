// GET_CONSUME_STATS (208): how far a group is in its queues, and so how far behind.
//
// Kept: a group without progress in a queue counts as at 0. Not implemented: consumeTps is 0, nothing is measured yet.

package processor

import (
	"context"
	"strings"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/message"
	"github.com/ratchetmq/ratchet/protocol"
	"github.com/ratchetmq/ratchet/remoting"
	"github.com/ratchetmq/ratchet/store"
)

func (p *Processor) consumeStats(_ context.Context, r *remoting.Request) (protocol.Reply, error) {
	var h protocol.GetConsumeStatsRequest
	if err := r.ReadHeader(&h); err != nil {
		return protocol.Reply{}, err
	}
	topics := p.offsets.GroupTopics(h.ConsumerGroup)
	switch {
	case h.Topic != "":
		topics = []string{h.Topic}
	case h.TopicList != "":
		topics = strings.Split(h.TopicList, ";")
	}
	stats := protocol.ConsumeStats{OffsetTable: protocol.QueueTable[protocol.OffsetWrapper]{}}
	for _, name := range topics {
		topic, ok := p.topics.Get(name)
		if !ok {
			continue
		}
		for queue := range topic.ReadQueueNums {
			mq := protocol.MessageQueue{Topic: name, BrokerName: p.brokerName, QueueID: queue}
			stats.OffsetTable[mq] = p.progress(h.ConsumerGroup, name, queue)
		}
	}
	return bodyReply(stats)
}

// progress is how far a group is in one queue, and when the last message that it consumed was stored.
func (p *Processor) progress(group, topic string, queue int32) protocol.OffsetWrapper {
	b, _ := p.store.Bounds(topic, queue)
	at, _ := p.offsets.Query(group, topic, queue)
	// Tools take the difference for what is still to be consumed: places that are kept free are none of it.
	high := int64(b.High) - p.store.Missing(topic, queue, at, b.High)
	w := protocol.OffsetWrapper{BrokerOffset: high, ConsumerOffset: int64(at), PullOffset: int64(at)}
	if at > 0 {
		w.LastTimestamp = p.storedAt(topic, queue, at-1)
	}
	return w
}

// storedAt is when the message at an offset was stored, in ms; 0 when it is not there.
func (p *Processor) storedAt(topic string, queue int32, at offset.Queue) int64 {
	raw, found, err := p.store.Read(store.Query{Topic: topic, Queue: queue, From: at, MaxMessages: 1}, nil)
	if err != nil || found.Status != store.Found {
		return 0
	}
	m, err := message.Parse(raw)
	if err != nil || m.QueueOffset != at {
		return 0
	}
	return m.StoreTimestamp
}
