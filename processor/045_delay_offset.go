// GET_ALL_DELAY_OFFSET (45): how far each level of delayed messages is delivered.
//
// Kept: the text of delayOffset.json, which a slave writes to its file as it comes.

package processor

import (
	"context"

	"github.com/ratchetmq/ratchet/protocol"
	"github.com/ratchetmq/ratchet/remoting"
)

func (p *Processor) allDelayOffsets(context.Context, *remoting.Request) (protocol.Reply, error) {
	return protocol.Reply{Body: p.scheduler.Table()}, nil
}
