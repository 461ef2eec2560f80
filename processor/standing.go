package processor

import (
	"context"

	"github.com/ratchetmq/ratchet/ha"
	"github.com/ratchetmq/ratchet/protocol"
)

// Group is the broker's part in its group of master and slaves.
type Group interface {
	Standing() ha.Standing
	Status() protocol.ReplicaStatus
	// Forget drops a broker of the group that will not come back.
	Forget(addr string) error
	// Force makes a master that waits for its replicas open with what it has.
	Force()
	// Switch hands the master's role over to the slave at an address, and returns when that is done.
	Switch(ctx context.Context, slave string) error
	// TakeOver makes this slave the master, if it has all that the old one had.
	TakeOver(ctx context.Context, order protocol.TakeOverRequest) error
}

// allows refuses what this broker may not answer as it stands. The codes are those on which a stock client goes to
// another broker.
func (p *Processor) allows(n need) error {
	if n == anyone {
		return nil
	}
	s := p.peers.Standing()
	switch {
	case s.Closed != "":
		return refuse(protocol.ServiceNotAvailable, "broker %s is not open: %s", p.brokerName, s.Closed)
	case n == leading && s.HandsOver != "":
		return refuse(protocol.ServiceNotAvailable, "broker %s takes no messages: %s", p.brokerName, s.HandsOver)
	case n == leading && !s.Master:
		return refuse(protocol.ServiceNotAvailable, "broker %s is a slave here: this is for its master", p.brokerName)
	}
	return nil
}
