// UPDATE_AND_CREATE_TOPIC (17), DELETE_TOPIC_IN_BROKER (215), GET_ALL_TOPIC_CONFIG (21), GET_TOPIC_CONFIG (351).
//
// Kept: shapes, INVALID_PARAMETER for a bad or reserved name, no change when the topic is already like that.
// Changed: a deleted topic takes its queues and its consumers' offsets along at once, and name servers hear of it at
// once. The table of topics is given in pages to whoever asks for pages; 5.x does so only with enableSplitMetadata.

package processor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ratchetmq/ratchet/internal/state"
	"github.com/ratchetmq/ratchet/protocol"
	"github.com/ratchetmq/ratchet/remoting"
)

func (p *Processor) updateTopic(_ context.Context, r *remoting.Request) (protocol.Reply, error) {
	var h protocol.CreateTopicRequest
	if err := r.ReadHeader(&h); err != nil {
		return protocol.Reply{}, err
	}
	var attributes map[string]string
	if before, ok := p.topics.Get(h.Topic); ok {
		attributes = before.Attributes
	}
	changed, err := p.topics.Put(protocol.TopicConfig{
		TopicName:       h.Topic,
		ReadQueueNums:   h.ReadQueueNums,
		WriteQueueNums:  h.WriteQueueNums,
		Perm:            h.Perm,
		TopicFilterType: protocol.EnumText(h.TopicFilterType),
		TopicSysFlag:    h.TopicSysFlag,
		Order:           h.Order,
		Attributes:      alter(attributes, readAttributes(h.Attributes)),
	})
	if err != nil {
		return protocol.Reply{}, err
	}
	if changed {
		p.log.Info("topic set", "topic", h.Topic, "queues", h.WriteQueueNums, "perm", h.Perm, "client", r.Conn.RemoteAddr())
	}
	return protocol.Reply{}, nil
}

// readAttributes reads "+name=value,-name", the form of a request to change attributes.
func readAttributes(text string) map[string]string {
	changes := map[string]string{}
	for part := range strings.SplitSeq(text, ",") {
		if name, value, _ := strings.Cut(strings.TrimSpace(part), "="); strings.Trim(name, "+-") != "" {
			changes[name] = value
		}
	}
	return changes
}

// alter is what becomes of attributes by changes, which are named +name when they set and -name when they remove one.
func alter(attributes, changes map[string]string) map[string]string {
	after := map[string]string{}
	maps.Copy(after, attributes)
	for name, value := range changes {
		if removed, ok := strings.CutPrefix(name, "-"); ok {
			delete(after, removed)
		} else {
			after[strings.TrimPrefix(name, "+")] = value
		}
	}
	return after
}

func (p *Processor) deleteTopic(_ context.Context, r *remoting.Request) (protocol.Reply, error) {
	var h protocol.DeleteTopicRequest
	if err := r.ReadHeader(&h); err != nil {
		return protocol.Reply{}, err
	}
	if err := protocol.ValidateTopic(h.Topic); err != nil {
		return protocol.Reply{}, err
	}
	if p.topics.IsSystem(h.Topic) {
		return protocol.Reply{}, fmt.Errorf("topic %s: %w", h.Topic, state.ErrSystemTopic)
	}
	// First what it has: a process that ends in between must not leave that to a later topic of the name. And once more what has
	// come meanwhile.
	if err := p.DropTopic(h.Topic); err != nil {
		return protocol.Reply{}, err
	}
	if _, err := p.topics.Delete(h.Topic); err != nil {
		return protocol.Reply{}, err
	}
	if err := p.DropTopic(h.Topic); err != nil {
		return protocol.Reply{}, err
	}
	p.log.Info("topic deleted", "topic", h.Topic, "client", r.Conn.RemoteAddr())
	return protocol.Reply{}, nil
}

// DropTopic removes what a deleted topic leaves behind: its queues, and how far groups have come in them.
func (p *Processor) DropTopic(topic string) error {
	if err := p.store.DeleteTopic(topic); err != nil {
		return err
	}
	return p.offsets.RemoveTopic(topic)
}

func (p *Processor) allTopics(_ context.Context, r *remoting.Request) (protocol.Reply, error) {
	var h protocol.GetAllTopicConfigRequest
	if err := r.ReadHeader(&h); err != nil {
		return protocol.Reply{}, err
	}
	topics, version := p.topics.Snapshot()
	if has(r, version.Mark()) {
		return unchanged(version.Mark()), nil
	}
	var own *protocol.TopicTableOwn
	if deleted := p.store.Deleted(); len(deleted) > 0 {
		own = &protocol.TopicTableOwn{Deleted: map[string]int64{}}
		for topic, below := range deleted {
			own.Deleted[topic] = int64(below)
		}
	}
	body, err := protocol.Marshal(struct {
		DataVersion      protocol.DataVersion             `json:"dataVersion"`
		Ratchet          *protocol.TopicTableOwn          `json:"ratchet,omitempty"`
		TopicConfigTable map[string]*protocol.TopicConfig `json:"topicConfigTable"`
	}{version, own, page(topics, version, h.DataVersion, h.TopicSeq, h.MaxTopicNum)})
	return protocol.Reply{
		Header: &protocol.GetAllTopicConfigResponse{TotalTopicNum: protocol.Some(int32(len(topics)))},
		Extra:  marked(version.Mark()), Body: body,
	}, err
}

// page is the part of a table that was asked for: at most limit entries from seq on, in the order of their names, or all
// without a seq. Whoever has read pages of another version begins anew.
func page[V any](table map[string]*V, version protocol.DataVersion, has string, seq protocol.Opt[int32], limit int32) map[string]*V {
	if !seq.Set {
		return table
	}
	from := 0
	var read protocol.DataVersion
	if has != "" && protocol.Unmarshal([]byte(has), &read) == nil && read == version {
		from = min(max(int(seq.Value), 0), len(table))
	}
	names := slices.Sorted(maps.Keys(table))[from:]
	if limit > 0 {
		names = names[:min(int(limit), len(names))]
	}
	part := make(map[string]*V, len(names))
	for _, name := range names {
		part[name] = table[name]
	}
	return part
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
