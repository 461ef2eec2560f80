// SEARCH_OFFSET_BY_TIMESTAMP (29), GET_MAX_OFFSET (30), GET_MIN_OFFSET (31), GET_EARLIEST_MSG_STORETIME (32).
//
// Kept: a queue that does not exist answers 0 (and -1 for the time): clients ask before the first message is there.

package processor

import (
	"context"

	"github.com/ratchetmq/ratchet/protocol"
	"github.com/ratchetmq/ratchet/remoting"
)

func (p *Processor) searchOffset(_ context.Context, r *remoting.Request) (protocol.Reply, error) {
	var h protocol.SearchOffsetRequest
	if err := r.ReadHeader(&h); err != nil {
		return protocol.Reply{}, err
	}
	upper := h.BoundaryType == "UPPER" || h.BoundaryType == "upper"
	return offsetReply(p.store.SearchByTime(h.Topic, h.QueueID, h.Timestamp, upper)), nil
}

func (p *Processor) maxOffset(_ context.Context, r *remoting.Request) (protocol.Reply, error) {
	var h protocol.GetMaxOffsetRequest
	if err := r.ReadHeader(&h); err != nil {
		return protocol.Reply{}, err
	}
	b, _ := p.store.Bounds(h.Topic, h.QueueID)
	return offsetReply(b.High), nil
}

func (p *Processor) minOffset(_ context.Context, r *remoting.Request) (protocol.Reply, error) {
	var h protocol.GetMinOffsetRequest
	if err := r.ReadHeader(&h); err != nil {
		return protocol.Reply{}, err
	}
	b, _ := p.store.Bounds(h.Topic, h.QueueID)
	return offsetReply(b.Low), nil
}

func (p *Processor) earliestStoreTime(_ context.Context, r *remoting.Request) (protocol.Reply, error) {
	var h protocol.GetEarliestMsgStoreTimeRequest
	if err := r.ReadHeader(&h); err != nil {
		return protocol.Reply{}, err
	}
	ms, ok := p.store.EarliestStoreTime(h.Topic, h.QueueID)
	if !ok {
		ms = -1
	}
	return protocol.Reply{Header: &protocol.GetEarliestMsgStoreTimeResponse{Timestamp: ms}}, nil
}
