package ha

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ratchetmq/ratchet/internal/config"
	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/protocol"
	"github.com/ratchetmq/ratchet/store"
)

const (
	drainTimeout  = 30 * time.Second // for the slave to have everything
	handOverAsk   = 30 * time.Second // for it to become the master; it writes a dozen files, and its disk may be slow
	drainLook     = 20 * time.Millisecond
	takeOverLimit = 25 * time.Second

	handsOverTo = "its role is being handed over to "
	inDoubt     = "it was handing its role over, and what became of that is to be found out"
)

// Switch makes a slave the master and this master its slave, without loss: no more messages are taken here, the slave gets
// everything that was, and only then the roles change. When it fails this broker goes on as the master, once it knows that
// the other has not become it.
func (g *Group) Switch(ctx context.Context, slave string) error {
	peer := g.peers.Ask(ctx, slave)
	switch {
	case peer.Err != nil:
		return fmt.Errorf("ask %s: %w", slave, peer.Err)
	case peer.Java:
		return fmt.Errorf("%s: %w", slave, errNotOurs)
	case peer.Status.State != StateFollowing || peer.Status.Waiting != "":
		return fmt.Errorf("%s does not follow this master: %s %s", slave, peer.Status.State, peer.Status.Waiting)
	}
	role, id := g.now()
	g.stand(Standing{Master: true, HandsOver: handsOverTo + slave})
	g.mu.Lock()
	undeliver := g.undeliver
	g.mu.Unlock()
	if undeliver != nil {
		undeliver()
	}
	g.opts.Store.Hold(true) // a send that was let in before may still wait for the disk
	end, err := g.drain(ctx, slave)
	if err != nil {
		g.opts.Store.Hold(false)
		g.stand(Standing{Master: true})
		return err
	}
	order := protocol.TakeOverRequest{
		End: int64(end), ID: id, Role: role.String(), Master: g.opts.Addr, Epochs: Starts(g.opts.Memory.Epochs()),
		Deleted: map[string]int64{},
	}
	for _, gap := range g.opts.Store.Gaps().Queues {
		order.Queues = append(order.Queues, protocol.QueueFree{Topic: gap.Topic, Queue: gap.Queue, To: int64(gap.To)})
	}
	for topic, below := range g.opts.Store.Deleted() {
		order.Deleted[topic] = int64(below)
	}
	body, err := protocol.Marshal(order)
	if err == nil {
		err = g.opts.Memory.HandOver(Handing{To: slave, ID: peer.Status.BrokerID})
	}
	if err == nil {
		err = g.call(ctx, slave, protocol.TakeOver, body)
	}
	if err == nil {
		err = g.become(config.Slave, peer.Status.BrokerID, slave)
	}
	if err != nil {
		g.reopen()
	}
	return err
}

// drain waits until the slave has all that is here, where nothing is appended any more.
func (g *Group) drain(ctx context.Context, slave string) (end offset.Physical, err error) {
	ctx, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	end = g.opts.Store.Written()
	for {
		if peer := g.peers.Ask(ctx, slave); peer.Err == nil && peer.end() == end {
			return end, nil
		}
		select {
		case <-time.After(drainLook):
		case <-ctx.Done():
			return end, fmt.Errorf("%s does not come to the log's end %d: %w", slave, end, ctx.Err())
		}
	}
}

func (g *Group) call(ctx context.Context, addr string, code protocol.RequestCode, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, handOverAsk)
	defer cancel()
	resp, err := g.opts.Client.Call(ctx, addr, code, nil, nil, body)
	if err != nil {
		return err
	}
	if resp.Code != int32(protocol.Success) {
		return fmt.Errorf("%s: %s", addr, resp.Remark)
	}
	return nil
}

// become changes the role, durably.
func (g *Group) become(role config.Role, id int64, master string) error {
	to := Switch{Configured: g.configured, Role: role.String(), ID: id}
	if was, wasID := g.now(); role == config.Slave && was != config.Slave {
		to.Gave = &Gave{To: master, Role: was.String(), ID: wasID}
	}
	if err := g.opts.Memory.SetRole(to); err != nil {
		return err
	}
	g.mu.Lock()
	before := g.role
	g.role, g.id, g.master, g.doubt = role, id, master, false
	end := g.turn
	g.mu.Unlock()
	if role == config.Slave { // the new master has all that was seen here
		if err := g.opts.Memory.Covered(); err != nil {
			g.log.Error("not noted that the new master has everything", "err", err)
		}
	}
	g.log.Warn("role changed", "before", before.String(), "after", role.String(), "id", id)
	end()
	return nil
}

// reopen is a new turn as master, which asks first whether the other has become it after all.
func (g *Group) reopen() {
	g.stand(Standing{Master: true, Closed: inDoubt})
	g.mu.Lock()
	g.doubt = true
	end := g.turn
	g.mu.Unlock()
	end()
}

// TakeOver is a slave's part in Switch. It says that it takes the role over before it asks whether that is still offered, and
// an old master takes the offer back before it asks what became of it: so one of them sees the other, however slow they are.
func (g *Group) TakeOver(ctx context.Context, order protocol.TakeOverRequest) error {
	if !g.takes(true) {
		return errors.New("this broker is the master, or is about to be")
	}
	defer g.takes(false)
	if end := g.opts.Store.Written(); int64(end) != order.End {
		return fmt.Errorf("the log here ends at %d, the master's at %d", end, order.End)
	}
	var role config.Role
	if err := role.UnmarshalText([]byte(order.Role)); err != nil || role == config.Slave {
		return fmt.Errorf("%q is no master's role", order.Role)
	}
	if err := g.opts.Metadata.Fetch(ctx, order.Master, AsSlave); err != nil {
		return fmt.Errorf("tables of %s: %w", order.Master, err)
	}
	deleted := map[string]offset.Physical{}
	for topic, below := range order.Deleted {
		deleted[topic] = offset.Physical(below)
	}
	if err := g.opts.Store.AdoptDeleted(deleted); err != nil {
		return err
	}
	if err := g.keepFree(order.Queues); err != nil {
		return err
	}
	if err := g.opts.Memory.Adopt(Epochs(order.Epochs)); err != nil {
		return err
	}
	if err := g.opts.Memory.Level(true); err != nil {
		return err
	}
	g.suspect.Store(false)
	if err := g.stillOffered(ctx, order.Master); err != nil {
		return err
	}
	if err := g.become(role, order.ID, ""); err != nil {
		return err
	}
	return g.opens(ctx)
}

// takes begins or ends a take-over, of which a slave has one at a time.
func (g *Group) takes(begin bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if begin && (g.taking || g.role != config.Slave) {
		return false
	}
	g.taking = begin
	return true
}

// keepFree keeps the places free that the old master did: no message shows a slave that they are.
func (g *Group) keepFree(queues []protocol.QueueFree) error {
	lost := store.Lost{Queue: func(_ string, _ int32, next offset.Queue) offset.Queue { return next }}
	for _, q := range queues {
		lost.Others = append(lost.Others, store.QueueSpan{Topic: q.Topic, Queue: q.Queue, To: offset.Queue(q.To)})
	}
	_, err := g.opts.Store.Leave(lost)
	return err
}

// stillOffered asks the old master whether it still hands its role over: the order may be one that it has given up meanwhile.
func (g *Group) stillOffered(ctx context.Context, master string) error {
	peer := g.peers.Ask(ctx, master)
	switch {
	case peer.Err != nil:
		return fmt.Errorf("ask %s again: %w", master, peer.Err)
	case peer.Status.Waiting != handsOverTo+g.opts.Addr:
		return fmt.Errorf("%s does not hand its role over any more", master)
	}
	return nil
}

// yield makes this broker, which did not know what had become of its role, the slave of the one that has it.
func (g *Group) yield(y *Yielded) error {
	id := y.ID
	if h := g.opts.Memory.Handing(); h != nil {
		id = h.ID
	}
	return g.become(config.Slave, id, y.To)
}

const takeBackLook = 5 * time.Second

// takeBack makes this slave the master again that it was, should the broker to which it gave the role have lost its disk, and
// the memory of having the role with it.
func (g *Group) takeBack(ctx context.Context) {
	now, ok := g.opts.Memory.Role(g.configured)
	if !ok || now.Gave == nil {
		return
	}
	var role config.Role
	if err := role.UnmarshalText([]byte(now.Gave.Role)); err != nil {
		g.log.Error("a role that was given away is not known", "role", now.Gave.Role, "err", err)
		return
	}
	for {
		select {
		case <-time.After(takeBackLook):
		case <-ctx.Done():
			return
		}
		if g.roleIsForgotten(ctx, now.Gave.To) {
			break
		}
	}
	g.log.Error("the master that this broker gave its role to has lost its disk: the role is taken back", "addr", now.Gave.To)
	err := g.opts.Memory.Expose() // that broker may have been alone
	if err == nil {
		err = g.become(role, now.Gave.ID, "")
	}
	if err != nil {
		g.log.Error("the role is not taken back", "err", err)
	}
}

// roleIsForgotten says whether a broker that had been given the role knows nothing of it any more, and no other has it: all
// that were ever seen have to say so.
func (g *Group) roleIsForgotten(ctx context.Context, to string) (forgotten bool) {
	for _, p := range g.peers.All(ctx) {
		if p.Err != nil || p.Status.Role != slaveRole {
			return false
		}
		forgotten = forgotten || p.Addr == to && !p.Java && p.Status.End == 0 && len(p.Status.Epochs) == 0
	}
	return forgotten
}

// opens waits until this broker is an open master.
func (g *Group) opens(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, takeOverLimit)
	defer cancel()
	for {
		if s := g.Standing(); s.Master && s.Closed == "" {
			return nil
		}
		select {
		case <-time.After(drainLook):
		case <-ctx.Done():
			return fmt.Errorf("the role is taken, but this broker is not open as master yet: %s: %w", g.Standing().Closed, ctx.Err())
		}
	}
}
