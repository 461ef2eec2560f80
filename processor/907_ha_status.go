// GET_BROKER_HA_STATUS (907); and of Ratchet's own: GetReplicaStatus, OpenMaster, SwitchMaster, TakeOver, ForgetPeer.
//
// Kept: what mqadmin's haStatus shows, of a master and of a slave.
// Not kept: transferredByteInSecond is 0; it is a rate that this broker does not measure.

package processor

import (
	"context"

	"github.com/ratchetmq/ratchet/protocol"
	"github.com/ratchetmq/ratchet/remoting"
)

func (p *Processor) haStatus(context.Context, *remoting.Request) (protocol.Reply, error) {
	s := p.peers.Status()
	info := protocol.HARuntimeInfo{
		HAConnectionInfo: []protocol.HAConnectionRuntimeInfo{},
		Master:           p.peers.Standing().Master, MasterCommitLogMaxOffset: s.End,
	}
	for _, slave := range s.Slaves {
		if slave.InSync {
			info.InSyncSlaveNums++
		}
		info.HAConnectionInfo = append(info.HAConnectionInfo, protocol.HAConnectionRuntimeInfo{
			Addr: slave.Addr, Diff: slave.Behind, InSync: slave.InSync,
			SlaveAckOffset: max(slave.Acked, 0), TransferFromWhere: slave.Sent,
		})
	}
	if s.Master != nil {
		info.MasterCommitLogMaxOffset = s.Master.End
		info.HAClientRuntimeInfo = protocol.HAClientRuntimeInfo{
			IsActivated: s.Waiting == "", MasterAddr: s.Master.HAAddr, MaxOffset: s.End, MasterFlushOffset: s.Master.End,
		}
	}
	return bodyReply(info)
}

func (p *Processor) replicaStatus(context.Context, *remoting.Request) (protocol.Reply, error) {
	return bodyReply(p.peers.Status())
}

func (p *Processor) openMaster(_ context.Context, r *remoting.Request) (protocol.Reply, error) {
	s := p.peers.Standing()
	if !s.Master || s.Closed == "" {
		return protocol.Reply{}, refuse(protocol.SystemError, "broker %s does not wait for its replicas: it is %s", p.brokerName, p.peers.Status().State)
	}
	p.log.Warn("opened by an operator's order", "client", r.Conn.RemoteAddr(), "reason", s.Closed)
	p.peers.Force()
	return protocol.Reply{}, nil
}

func (p *Processor) forgetPeer(_ context.Context, r *remoting.Request) (protocol.Reply, error) {
	addr := string(r.Body)
	if err := p.peers.Forget(addr); err != nil {
		return protocol.Reply{}, refuse(protocol.SystemError, "%v", err)
	}
	p.log.Warn("broker of the group forgotten by an operator's order", "client", r.Conn.RemoteAddr(), "addr", addr)
	return protocol.Reply{}, nil
}

func (p *Processor) switchMaster(ctx context.Context, r *remoting.Request) (protocol.Reply, error) {
	var order protocol.SwitchRequest
	if err := protocol.Unmarshal(r.Body, &order); err != nil {
		return protocol.Reply{}, err
	}
	p.log.Warn("role handed over by an operator's order", "client", r.Conn.RemoteAddr(), "slave", order.Slave)
	if err := p.peers.Switch(ctx, order.Slave); err != nil {
		return protocol.Reply{}, refuse(protocol.SystemError, "role not handed over: %v", err)
	}
	return protocol.Reply{}, nil
}

func (p *Processor) takeOver(ctx context.Context, r *remoting.Request) (protocol.Reply, error) {
	var order protocol.TakeOverRequest
	if err := protocol.Unmarshal(r.Body, &order); err != nil {
		return protocol.Reply{}, err
	}
	if err := p.peers.TakeOver(ctx, order); err != nil {
		return protocol.Reply{}, refuse(protocol.SystemError, "role not taken over: %v", err)
	}
	return protocol.Reply{}, nil
}
