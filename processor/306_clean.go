// CLEAN_EXPIRED_CONSUMEQUEUE (306), DELETE_EXPIRED_COMMITLOG (329): let go of what is older than fileReservedTime now,
// whatever the hour.
//
// Changed: both do the same; queue files always go together with the messages that they point to.

package processor

import (
	"context"
	"strconv"

	"github.com/ratchetmq/ratchet/protocol"
	"github.com/ratchetmq/ratchet/remoting"
)

func (p *Processor) cleanExpired(_ context.Context, r *remoting.Request) (protocol.Reply, error) {
	n, err := p.store.Clean()
	if err != nil {
		return protocol.Reply{}, err
	}
	p.log.Info("cleaned on command", "count", n, "client", r.Conn.RemoteAddr())
	return protocol.Reply{Remark: strconv.Itoa(n) + " commit log files removed"}, nil
}
