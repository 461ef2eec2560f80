package sim

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ratchetmq/ratchet/ha"
	"github.com/ratchetmq/ratchet/internal/config"
	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/internal/state"
	"github.com/ratchetmq/ratchet/processor"
	"github.com/ratchetmq/ratchet/protocol"
	"github.com/ratchetmq/ratchet/remoting"
)

const (
	haHeartbeat   = time.Second
	haSilence     = 5 * time.Second
	registerEvery = 5*time.Second + 13*time.Microsecond // never at the moment of another timer
)

// member is a process's part in the group: an ha.Group, or a plain slave.
type member interface {
	processor.Group
	Run(ctx context.Context, settled func()) error
	Serve(ctx context.Context, ln net.Listener) error
	MasterIs(addr string)
	BrokerID() int64
}

func (p *process) newReplicas() *ha.Replicas {
	return ha.NewReplicas(ha.ReplicaOptions{
		Need: 1, Timeout: 3 * time.Second, BehindMax: 256 << 20, Logger: p.log,
		Written: func() offset.Physical { return p.store.Written() },
		Expose:  func() error { return p.memory.Expose() },
		Covered: func() { _ = p.memory.Covered() },
		Wake:    func() { p.store.WakeDispatch() },
	})
}

// newMember wires the group as package broker does.
func (p *process) newMember(s config.Broker, suspect bool) member {
	metadata := &ha.Metadata{
		Topics: p.topics, Groups: p.groups, Offsets: p.offsets, Delay: p.delay, Client: caller{p}, Logger: p.log,
		Written: p.store.Written, Deleted: p.store.Deleted, Removed: func(topic string) error { return p.processor.DropTopic(topic) },
		Changed: make(chan struct{}, 1),
	}
	if p.c.set.plain && s.Role == config.Slave {
		metadata.Deleted = nil // the stream of such a slave does not tell
		return newPlain(p, metadata)
	}
	s.HAHeartbeat, s.HAHousekeeping, s.HABatchSize, s.RecoverTimeout = haHeartbeat, haSilence, p.c.set.batch, p.c.set.limit
	s.Namesrv = config.List{hostIP(names) + ":9876"}
	if p.c.set.fixed {
		for _, n := range p.c.nodes {
			s.Replicas = append(s.Replicas, n.addr)
		}
	}
	if p.n.lostAll() {
		s.RecoverTimeout = forever // nothing bounds what may be missing: an operator would wait
	}
	switch p.c.set.weak {
	case openUnasked:
		s.RecoverTimeout, suspect = 0, false
	case noQueueFloor:
		s.MaxUnflushedMessages = 0
	case noLogGap, neverCompare, countAnyAck:
		s.MaxUnflushedBytes = 0
	default:
	}
	return ha.NewGroup(ha.GroupOptions{
		Settings: config.NewLive(&s, nil, config.Env{}), Addr: p.n.addr, HAAddr: p.n.haAddr, Suspect: suspect,
		Store: p.store, Memory: p.memory, Replicas: p.replicas, Metadata: metadata, Merging: tables{metadata, p},
		Client: caller{p}, Dial: p.dial, Register: p.register, Deliver: p.delay.Run, Logger: p.log,
	})
}

// plain says whether this is a slave as simple as a Java one.
func (p *process) plain() bool { return p.c.set.plain && p.n.host != 1 }

// open says whether this is a master that takes messages.
func (p *process) open() bool {
	s := p.group.Standing()
	return s.Master && s.Closed == "" && s.HandsOver == ""
}

// leading says whether it is a master that has come so far that slaves may connect.
func (p *process) leading() bool {
	s := p.group.Standing()
	return s.Master && (s.Closed == "" || p.group.Status().State == ha.StateOpening)
}

// register keeps the name server informed until ctx is done, and hears from it who the master is. The function returned
// waits for that to end.
func (p *process) register(ctx context.Context) (left func()) {
	if p.open() {
		p.n.whole()
		p.c.ledger.opened(p)
	}
	id := p.group.BrokerID()
	heard := func() bool { return !p.dead.Load() && p.c.net.reaches(p.n.host, names) }
	var loop sync.WaitGroup
	loop.Go(func() {
		for ctx.Err() == nil {
			if heard() {
				if master := p.c.names.register(id, p.n.addr); p.c.net.reaches(names, p.n.host) {
					p.group.MasterIs(master)
				}
			}
			select {
			case <-time.After(registerEvery):
			case <-ctx.Done():
			}
		}
		if heard() {
			p.c.names.leave(id, p.n.addr)
		}
	})
	return loop.Wait
}

// tables are a process's, for its Leader.
type tables struct {
	*ha.Metadata
	p *process
}

// Merge is Metadata's, unless that is weakened to what RocketMQ does: the other's offsets take the place of the own ones.
func (t tables) Merge(ctx context.Context, addr string) error {
	if err := t.Metadata.Merge(ctx, addr); err != nil || t.p.c.set.weak != overwriteOffsets {
		return err
	}
	for _, n := range t.p.c.nodes {
		other := n.process()
		if n.addr != addr || other == nil || !other.up.Load() {
			continue
		}
		other.offsets.Each(func(at state.Position) bool {
			_, _ = t.p.offsets.Commit(state.Commit{Group: at.Group, Topic: at.Topic, Queue: at.Queue, Offset: at.Offset, Known: -1})
			return true
		})
	}
	return nil
}

// plain is a slave as simple as a Java one.
type plain struct {
	p        *process
	metadata *ha.Metadata
	sender   *ha.Sender

	mu     sync.Mutex
	master string // guarded by mu
}

func newPlain(p *process, metadata *ha.Metadata) *plain {
	return &plain{p: p, metadata: metadata, sender: ha.NewSender(ha.SenderOptions{
		Store: p.store, Replicas: p.replicas, Batch: p.c.set.batch, Heartbeat: haHeartbeat, Silence: haSilence,
		Shares: func(context.Context, ha.Reader) error { return ha.ErrStranger }, Logger: p.log,
	})}
}

func (g *plain) Standing() ha.Standing                                    { return ha.Standing{} }
func (g *plain) Status() protocol.ReplicaStatus                           { return protocol.ReplicaStatus{State: "plain"} }
func (g *plain) Force()                                                   {}
func (g *plain) Forget(string) error                                      { return errPlain }
func (g *plain) Switch(context.Context, string) error                     { return errPlain }
func (g *plain) TakeOver(context.Context, protocol.TakeOverRequest) error { return errPlain }
func (g *plain) BrokerID() int64                                          { return int64(g.p.n.host - 1) }

var errPlain = errors.New("a plain slave can't")

func (g *plain) MasterIs(addr string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if addr != "" {
		g.master = addr
	}
}

func (g *plain) masterAddr() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.master
}

func (g *plain) Run(ctx context.Context, _ func()) error {
	defer g.p.register(ctx)()
	var loops errgroup.Group
	loops.Go(func() error { return g.follow(ctx) })
	loops.Go(func() error {
		g.metadata.Follow(ctx, g.masterAddr)
		return nil
	})
	return loops.Wait()
}

func (g *plain) Serve(ctx context.Context, ln net.Listener) error {
	loops, ctx := errgroup.WithContext(ctx)
	loops.Go(func() error { return g.sender.Serve(ctx, ln) })
	loops.Go(func() error { return g.p.replicas.Run(ctx) })
	return loops.Wait()
}

// nameServer knows which brokers there are. A broker that is not heard of for long is forgotten.
type nameServer struct {
	mu    sync.Mutex
	known map[int64]registration // guarded by mu; by broker id
}

type registration struct {
	addr string
	at   time.Time
}

const forgetAfter = 20 * time.Second

func (s *nameServer) register(id int64, addr string) (master string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for other, r := range s.known {
		if r.addr == addr && other != id || time.Since(r.at) > forgetAfter {
			delete(s.known, other)
		}
	}
	s.known[id] = registration{addr, time.Now()}
	return s.known[0].addr
}

func (s *nameServer) leave(id int64, addr string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known[id].addr == addr {
		delete(s.known, id)
	}
}

// route is the addresses by broker id.
func (s *nameServer) route() map[int64]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[int64]string{}
	for id, r := range s.known {
		if time.Since(r.at) <= forgetAfter {
			out[id] = r.addr
		}
	}
	return out
}

func (s *nameServer) serve(_ context.Context, r *remoting.Request) {
	body, err := protocol.Marshal(protocol.ClusterInfo{
		BrokerAddrTable: map[string]protocol.BrokerData{groupName: {BrokerName: groupName, BrokerAddrs: s.route()}},
	})
	if err != nil || protocol.RequestCode(r.Code) != protocol.GetBrokerClusterInfo {
		r.Reply(protocol.Reply{Code: protocol.SystemError})
		return
	}
	r.Reply(protocol.Reply{Body: body})
}
