package state

import (
	"sync"

	"github.com/ratchetmq/ratchet/protocol"
)

// untold are the positions that clients have committed here while another broker is the master, which does not know them
// yet. They are in memory only: after a restart the master learns of them when it asks for the whole table.
type untold struct {
	mu     sync.Mutex
	places map[untoldPlace]struct{} // guarded by mu
}

type untoldPlace struct {
	group, topic string
	queue        int32
}

func (u *untold) add(places ...untoldPlace) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.places == nil {
		u.places = map[untoldPlace]struct{}{}
	}
	for _, at := range places {
		u.places[at] = struct{}{}
	}
}

func (u *untold) take() (places []untoldPlace) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for at := range u.places {
		places = append(places, at)
	}
	u.places = nil
	return places
}

// TellMaster calls fn with the positions that were committed with Commit.Slave since the last time, as they are now, if
// there are any. When fn fails they come again.
func (o *Offsets) TellMaster(fn func(*protocol.ConsumerOffsetTable) error) error {
	places := o.untold.take()
	var list []Position
	for _, at := range places {
		s := o.shard(at.topic)
		s.mu.RLock()
		if p := s.at(at.group, at.topic, at.queue); p != nil { // else it was removed
			list = append(list, p.position(at.group, at.topic, at.queue))
		}
		s.mu.RUnlock()
	}
	if len(list) == 0 {
		return nil
	}
	err := fn(tableOf(func(yield func(Position) bool) {
		for _, p := range list {
			if !yield(p) {
				return
			}
		}
	}))
	if err != nil {
		o.untold.add(places...)
	}
	return err
}
