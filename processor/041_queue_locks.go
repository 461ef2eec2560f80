// LOCK_BATCH_MQ (41), UNLOCK_BATCH_MQ (42): an orderly consumer owns a queue while it works on it.

package processor

import (
	"context"

	"github.com/ratchetmq/ratchet/protocol"
	"github.com/ratchetmq/ratchet/remoting"
)

func (p *Processor) lockQueues(_ context.Context, r *remoting.Request) (protocol.Reply, error) {
	var body protocol.LockBatchRequest
	if err := protocol.Unmarshal(r.Body, &body); err != nil {
		return protocol.Reply{}, refuse(protocol.SystemError, "lock body: %v", err)
	}
	locked := p.locks.Lock(body.ConsumerGroup, body.ClientID, body.MQSet)
	return bodyReply(protocol.LockBatchResponse{LockOKMQSet: locked})
}

func (p *Processor) unlockQueues(_ context.Context, r *remoting.Request) (protocol.Reply, error) {
	var body protocol.UnlockBatchRequest
	if err := protocol.Unmarshal(r.Body, &body); err != nil {
		return protocol.Reply{}, refuse(protocol.SystemError, "unlock body: %v", err)
	}
	p.locks.Unlock(body.ConsumerGroup, body.ClientID, body.MQSet)
	return protocol.Reply{}, nil
}
