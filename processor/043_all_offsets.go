// GET_ALL_CONSUMER_OFFSET (43): what a slave, or a returning master, asks for.
//
// Kept: the table by topic@group and queue.
// Changed: it says which offsets an operator has reset, in a field that Java brokers pass over. A replica that has the
// present state is told so, instead of being given it again.

package processor

import (
	"context"

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

// has tells whether the asker for a table has its present state already.
func has(r *remoting.Request, mark string) bool {
	known, ok := r.Fields.Get(protocol.FieldUnless)
	return ok && known == mark
}

func marked(mark string) []protocol.KV { return []protocol.KV{{Key: protocol.FieldMark, Value: mark}} }

func unchanged(mark string) protocol.Reply {
	return protocol.Reply{Extra: append(marked(mark), protocol.KV{Key: protocol.FieldUnchanged, Value: "true"})}
}
