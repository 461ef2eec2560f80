// UPDATE_AND_CREATE_TOPIC (17), DELETE_TOPIC_IN_BROKER (215), GET_ALL_TOPIC_CONFIG (21), GET_TOPIC_CONFIG (351).
//
// Kept: shapes, INVALID_PARAMETER for a bad or reserved name, no change when the topic is already like that.
// Changed: a deleted topic takes its queues and its consumers' offsets along at once, and name servers hear of it at
// once.

package processor

import (
	"context"
	"strings"

	"github.com/ratchetmq/ratchet/protocol"
	"github.com/ratchetmq/ratchet/remoting"
)

func (p *Processor) updateTopic(_ context.Context, r *remoting.Request) (protocol.Reply, error) {
	var h protocol.CreateTopicRequest
	if err := r.ReadHeader(&h); err != nil {
		return protocol.Reply{}, err
	}
	changed, err := p.topics.Put(protocol.TopicConfig{
		TopicName:       h.Topic,
		ReadQueueNums:   h.ReadQueueNums,
		WriteQueueNums:  h.WriteQueueNums,
		Perm:            h.Perm,
		TopicFilterType: protocol.EnumText(h.TopicFilterType),
		TopicSysFlag:    h.TopicSysFlag,
		Order:           h.Order,
		Attributes:      readAttributes(h.Attributes),
	})
	if err != nil {
		return protocol.Reply{}, err
	}
	if changed {
		p.log.Info("topic set", "topic", h.Topic, "queues", h.WriteQueueNums, "perm", h.Perm, "client", r.Conn.RemoteAddr())
	}
	return protocol.Reply{}, nil
}

// readAttributes reads "+name=value,+name=value", the form of a request to set attributes.
func readAttributes(text string) map[string]string {
	attributes := map[string]string{}
	for part := range strings.SplitSeq(text, ",") {
		if name, value, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(part), "+"), "="); ok {
			attributes[name] = value
		}
	}
	return attributes
}

func (p *Processor) deleteTopic(_ context.Context, r *remoting.Request) (protocol.Reply, error) {
	var h protocol.DeleteTopicRequest
	if err := r.ReadHeader(&h); err != nil {
		return protocol.Reply{}, err
	}
	if err := protocol.ValidateTopic(h.Topic); err != nil {
		return protocol.Reply{}, err
	}
	if _, err := p.topics.Delete(h.Topic); err != nil {
		return protocol.Reply{}, err
	}
	if err := p.store.DeleteTopic(h.Topic); err != nil {
		return protocol.Reply{}, err
	}
	if err := p.offsets.RemoveTopic(h.Topic); err != nil {
		return protocol.Reply{}, err
	}
	p.log.Info("topic deleted", "topic", h.Topic, "client", r.Conn.RemoteAddr())
	return protocol.Reply{}, nil
}

func (p *Processor) allTopics(context.Context, *remoting.Request) (protocol.Reply, error) {
	topics, version := p.topics.Snapshot()
	body, err := protocol.Marshal(struct {
		DataVersion      protocol.DataVersion             `json:"dataVersion"`
		TopicConfigTable map[string]*protocol.TopicConfig `json:"topicConfigTable"`
	}{version, topics})
	return protocol.Reply{Body: body}, err
}

func (p *Processor) getTopic(_ context.Context, r *remoting.Request) (protocol.Reply, error) {
	var h protocol.GetTopicConfigRequest
	if err := r.ReadHeader(&h); err != nil {
		return protocol.Reply{}, err
	}
	topic, err := p.topic(h.Topic)
	if err != nil {
		return protocol.Reply{}, err
	}
	return bodyReply(topic)
}
