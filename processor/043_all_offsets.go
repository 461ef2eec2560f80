// GET_ALL_CONSUMER_OFFSET (43): what a slave, or a returning master, asks for. And of Ratchet's own: MergeOffsets, by which
// a slave tells its master what clients have committed at it (apache/rocketmq#3603: it is lost).
//
// Kept: the table by topic@group and queue.
// Changed: it says which offsets an operator has reset, in a field that Java brokers pass over. A replica that has the
// present state is told so, instead of being given it again.

package processor

import (
	"context"
	"slices"

	"github.com/ratchetmq/ratchet/internal/state"
	"github.com/ratchetmq/ratchet/protocol"
	"github.com/ratchetmq/ratchet/remoting"
)

func (p *Processor) allConsumerOffsets(_ context.Context, r *remoting.Request) (protocol.Reply, error) {
	mark := p.offsets.Mark() // before the table is read, which may be newer but not older
	if has(r, mark) {
		return unchanged(mark), nil
	}
	reply, err := bodyReply(p.offsets.Table())
	reply.Extra = marked(mark)
	return reply, err
}

// mergeOffsets never takes a group back, and takes no offset that this master has not given out. A group that began at the
// slave is made here as if it had come here.
func (p *Processor) mergeOffsets(_ context.Context, r *remoting.Request) (protocol.Reply, error) {
	var table protocol.ConsumerOffsetTable
	if err := protocol.Unmarshal(r.Body, &table); err != nil {
		return protocol.Reply{}, err
	}
	list := slices.DeleteFunc(state.Positions(&table), func(c state.Position) bool {
		_, known := p.topics.Get(c.Topic)
		if _, err := p.groups.GetOrCreate(c.Group); err != nil || !known {
			return true
		}
		b, _ := p.store.Bounds(c.Topic, c.Queue)
		return c.Offset > p.given(c.Topic, c.Queue, c.Offset, b.High)
	})
	_, err := p.offsets.MergeMax(list)
	return protocol.Reply{}, err
}

// has tells whether the asker for a table has its present state already.
func has(r *remoting.Request, mark string) bool {
	known, ok := r.Fields.Get(protocol.FieldUnless)
	return ok && known == mark
}

func marked(mark string) []protocol.KV { return []protocol.KV{{Key: protocol.FieldMark, Value: mark}} }

func unchanged(mark string) protocol.Reply {
	return protocol.Reply{Extra: append(marked(mark), protocol.KV{Key: protocol.FieldUnchanged, Value: "true"})}
}
