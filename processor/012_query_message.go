// QUERY_MESSAGE (12), VIEW_MESSAGE_BY_ID (33).
//
// Changed: the topic and key of each message that the index names are compared with those asked for, so that a hash
// collision returns nothing wrong (apache/rocketmq#3613).

package processor

import (
	"context"
	"slices"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/message"
	"github.com/ratchetmq/ratchet/protocol"
	"github.com/ratchetmq/ratchet/remoting"
	"github.com/ratchetmq/ratchet/store/index"
)

const (
	queryCountMax = 64
	queryBytesMax = 8 << 20 // far below the frame limit; older matches are left out
	// defaultUniqueCount is how many messages with one unique key are looked for: sends are retried by clients, so
	// there can be several.
	defaultUniqueCount = 32
)

func (p *Processor) queryMessage(_ context.Context, r *remoting.Request) (protocol.Reply, error) {
	var h protocol.QueryMessageRequest
	if err := r.ReadHeader(&h); err != nil {
		return protocol.Reply{}, err
	}
	limit := min(int(h.MaxNum), queryCountMax)
	if unique, _ := r.Fields.Get("_UNIQUE_KEY_QUERY"); unique == "true" {
		limit = defaultUniqueCount
	}
	var body []byte
	var last message.Record
	found, err := p.findByKey(&h, limit)
	if err != nil {
		return protocol.Reply{}, err
	}
	for i := len(found) - 1; i >= 0; i-- { // oldest first, as RocketMQ answers
		start := len(body)
		if body, err = p.store.Record(found[i], body); err != nil {
			body = body[:start]
			continue
		}
		last, _ = message.Parse(body[start:])
	}
	reply := protocol.Reply{
		Header: &protocol.QueryMessageResponse{
			IndexLastUpdateTimestamp: last.StoreTimestamp,
			IndexLastUpdatePhyOffset: int64(last.PhysicalOffset),
		},
		Body: body,
	}
	if len(body) == 0 {
		reply.Code, reply.Remark = protocol.QueryNotFound, "no message of topic "+h.Topic+" has this key in this range of time"
	}
	return reply, nil
}

// indexKinds are the values of a query's indexType.
var indexKinds = map[string]index.Kind{"": index.AnyKey, "K": index.UserKey, "U": index.UniqueKey, "T": index.TagKey}

// findByKey is where the newest messages with the key lie, newest first.
func (p *Processor) findByKey(h *protocol.QueryMessageRequest, limit int) (found []offset.Physical, err error) {
	if p.index == nil {
		return nil, refuse(protocol.SystemError, "broker %s has messageIndexEnable switched off", p.brokerName)
	}
	kind, ok := indexKinds[h.IndexType]
	if !ok {
		return nil, refuse(protocol.InvalidParameter, "indexType %q is none of K, U, T", h.IndexType)
	}
	var record []byte
	size := 0
	err = p.index.Each(h.Topic, h.Key, kind, h.BeginTimestamp, h.EndTimestamp, func(phy offset.Physical) bool {
		if slices.Contains(found, phy) {
			return true // a Java broker that was killed may have indexed a message twice
		}
		var err error
		if record, err = p.store.Record(phy, record[:0]); err != nil {
			return true // gone with its file, or damaged: then it can't be shown
		}
		m, err := message.Parse(record)
		if err != nil || !index.Matches(&m, h.Topic, h.Key, kind) ||
			m.StoreTimestamp < h.BeginTimestamp || m.StoreTimestamp > h.EndTimestamp {
			return true
		}
		if size += len(record); size > queryBytesMax && len(found) > 0 {
			return false
		}
		found = append(found, phy)
		return len(found) < limit
	})
	return found, err
}

func (p *Processor) viewMessage(_ context.Context, r *remoting.Request) (protocol.Reply, error) {
	var h protocol.ViewMessageRequest
	if err := r.ReadHeader(&h); err != nil {
		return protocol.Reply{}, err
	}
	body, err := p.store.Record(offset.Physical(h.Offset), nil)
	if err != nil {
		return protocol.Reply{}, refuse(protocol.SystemError, "no message begins at commit log offset %d", h.Offset)
	}
	return protocol.Reply{Body: body}, nil
}
