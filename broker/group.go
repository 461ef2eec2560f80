package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ratchetmq/ratchet/ha"
	"github.com/ratchetmq/ratchet/internal/config"
	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/processor"
	"github.com/ratchetmq/ratchet/protocol"
)

// group is the broker's part in its group of master and slaves. It is a master that opens when it is known to be behind
// nobody, or a slave that follows; an operator may make one the other. All methods may be called from any goroutine.
type group struct {
	broker   *Broker
	memory   *ha.Memory
	peers    *ha.Peers
	replicas *ha.Replicas
	metadata *ha.Metadata
	sender   *ha.Sender
	listener net.Listener
	haAddr   string // advertised
	log      *slog.Logger

	configured string // role and id in the file
	suspect    atomic.Bool

	standing atomic.Pointer[processor.Standing] // a new one for each change

	mu       sync.Mutex
	role     config.Role        // guarded by mu
	id       int64              // guarded by mu
	since    time.Time          // guarded by mu; of the state
	leader   *ha.Leader         // guarded by mu; of a master
	follower *ha.Follower       // guarded by mu; of a slave
	turn     context.CancelFunc // guarded by mu; ends the present role
	doubt    bool               // guarded by mu; another broker may have become the master meanwhile
	master   string             // guarded by mu; the master's address, as the name servers say
}

var dialer net.Dialer

func dialHA(ctx context.Context, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, haConnectTimeout)
	defer cancel()
	return dialer.DialContext(ctx, "tcp", addr)
}

const (
	haConnectTimeout = 3 * time.Second
	// attachLimit is how long slaves that are there are waited for before a master opens.
	attachLimit   = 5 * time.Second
	openingReason = "its slaves are about to connect"
	leaveLimit    = 3 * time.Second
	// settleLimit is after what time a start is over even though the master is not open.
	settleLimit = 2 * time.Second
)

// opened is what the group needs of a broker whose store and tables are open.
func (g *group) init(b *Broker, s *config.Broker, suspect bool) {
	g.broker, g.log = b, b.log.With("component", "group")
	g.role, g.id, g.configured = s.Role, s.ID, fmt.Sprintf("%s %d", s.Role, s.ID)
	g.suspect.Store(suspect)
	if to, ok := g.memory.Role(g.configured); ok {
		if err := g.role.UnmarshalText([]byte(to.Role)); err == nil {
			g.id = to.ID
			g.log.Warn("another role than the configuration's, after a switch", "before", g.configured, "after", to.Role, "id", to.ID)
		}
	}
	g.peers = ha.NewPeers(ha.PeerOptions{
		Client: b.client, Name: s.Name, Self: b.addr, Fixed: s.Replicas, Memory: g.memory, Logger: g.log,
		Namesrv: func() []string { return b.settings.Get().Namesrv },
	})
	g.metadata = &ha.Metadata{
		Topics: b.topics, Groups: b.groups, Offsets: b.offsets, Delay: b.delay, Client: b.client, Logger: g.log,
		Written: b.store.Written, Removed: b.processor.DropTopic, Changed: make(chan struct{}, 1),
	}
	g.sender = ha.NewSender(ha.SenderOptions{
		Store: b.store, Replicas: g.replicas, Batch: s.HABatchSize, Heartbeat: s.HAHeartbeat, Silence: s.HAHousekeeping,
		Shares: g.shares, Name: s.Name, Epochs: g.memory.Epochs, Tables: g.tables, LastFileOnly: s.LastFileOnly, Logger: b.log,
	})
	g.stand(processor.Standing{Master: g.role != config.Slave, Closed: "it is starting"})
}

// replicasOf are the slaves of a broker whose parts are still to be made.
func (g *group) replicasOf(b *Broker, s *config.Broker) *ha.Replicas {
	return ha.NewReplicas(ha.ReplicaOptions{
		Need: s.InSyncReplicas - 1, Timeout: s.SlaveTimeout, BehindMax: s.HASlaveBehindMax, Logger: b.log.With("component", "ha"),
		Written: func() offset.Physical { return b.store.Written() },
		Expose:  func() error { return g.memory.Expose() },
		Covered: func() {
			if err := g.memory.Covered(); err != nil {
				g.log.Error("not noted that slaves have everything", "err", err)
			}
		},
		Wake: func() { b.store.WakeDispatch() },
	})
}

func (g *group) stand(s processor.Standing) {
	g.standing.Store(&s)
	g.mu.Lock()
	g.since = time.Now()
	g.mu.Unlock()
}

// Standing is what the broker is to its clients.
func (g *group) Standing() processor.Standing {
	s := *g.standing.Load()
	if !s.Master {
		g.mu.Lock()
		if g.follower != nil {
			s.MasterLow = g.follower.MasterLow()
		}
		g.mu.Unlock()
	}
	return s
}

func (g *group) now() (role config.Role, id int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.role, g.id
}

// brokerID is the id to register with.
func (g *group) brokerID() int64 {
	_, id := g.now()
	return id
}

// masterIs is told of each answer of a name server: who the master is, for a slave; empty: nobody.
func (g *group) masterIs(addr string) {
	if addr == "" || addr == g.broker.addr {
		return
	}
	g.mu.Lock()
	g.master = addr
	g.mu.Unlock()
}

func (g *group) masterAddr() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.master
}

// run plays the broker's role, and the next one after a switch, until ctx is done. settled is called whenever the
// broker can be used, or is known to wait.
func (g *group) run(ctx context.Context, settled func()) error {
	for ctx.Err() == nil {
		turn, end := context.WithCancel(ctx)
		g.mu.Lock()
		g.turn = end
		role := g.role
		g.mu.Unlock()
		var err error
		if role == config.Slave {
			err = g.follow(turn, settled)
		} else {
			err = g.lead(turn, settled)
		}
		end()
		if err != nil {
			return err
		}
	}
	return nil
}

// lead is a master's turn: closed until it is known that nobody has more, then open.
func (g *group) lead(ctx context.Context, settled func()) error {
	s := g.broker.settings.Get()
	role, _ := g.now()
	sync := role == config.SyncMaster
	g.mu.Lock()
	limit, doubt := s.RecoverTimeout, g.doubt
	g.mu.Unlock()
	if doubt {
		limit = 1 << 62
	}
	leader := ha.NewLeader(ha.LeaderOptions{
		Store: g.broker.store, Peers: g.peers, Memory: g.memory, Metadata: g.metadata, Dial: dialHA,
		Sync: sync, Limit: limit, BytesBound: s.MaxUnflushedBytes, MessagesBound: s.MaxUnflushedMessages,
		Suspect: g.suspect.Load() || doubt || g.memory.Follows(), Heartbeat: s.HAHeartbeat, Silence: s.HAHousekeeping, Logger: g.broker.log,
		OnWait: func(why string) {
			g.stand(processor.Standing{Master: true, Closed: why})
			settled()
		},
	})
	g.mu.Lock()
	g.leader, g.follower = leader, nil
	g.mu.Unlock()
	g.stand(processor.Standing{Master: true, Closed: leader.Waiting()})
	defer time.AfterFunc(settleLimit, settled).Stop() // it may have much to fetch
	exposed, err := leader.Prepare(ctx)
	if err != nil {
		settled()
		<-ctx.Done() // a broken store can be read by nobody who is not told that it is whole
		return nil
	}
	g.suspect.Store(false)
	g.mu.Lock()
	g.doubt = false
	g.mu.Unlock()
	g.replicas.Begin(sync, g.broker.store.Written(), exposed)
	defer g.replicas.End()
	g.broker.store.WakeDispatch()
	g.sender.Again()
	if sync {
		g.awaitSlaves(ctx)
	}
	g.replicas.Serve()
	g.stand(processor.Standing{Master: true})
	g.broker.registrar.start(ctx, s.Namesrv)
	defer g.broker.registrar.wait()
	settled()
	return g.broker.delay.Run(ctx)
}

// awaitSlaves gives slaves that are there the time to connect, so that the first messages are not answered with
// SLAVE_NOT_AVAILABLE.
func (g *group) awaitSlaves(ctx context.Context) {
	g.stand(processor.Standing{Master: true, Closed: openingReason})
	ctx, cancel := context.WithTimeout(ctx, attachLimit)
	defer cancel()
	expected := 0
	for _, p := range g.peers.All(ctx) {
		if p.Err == nil && p.Status.State == ha.StateFollowing {
			expected++
		}
	}
	for g.replicas.InSync() < expected {
		select {
		case <-time.After(drainLook):
		case <-ctx.Done():
			return
		}
	}
}

// follow is a slave's turn.
func (g *group) follow(ctx context.Context, settled func()) error {
	s := g.broker.settings.Get()
	follower := ha.NewFollower(ha.FollowerOptions{
		Store: g.broker.store, Peers: g.peers, Memory: g.memory, Dial: dialHA,
		Master:  func() (addr, haAddr string) { return g.masterAddr(), g.broker.settings.Get().HAMasterAddr },
		Flushed: s.Flush == config.SyncFlush, Heartbeat: s.HAHeartbeat, Silence: s.HAHousekeeping,
		LastFileOnly: s.LastFileOnly, Logger: g.broker.log,
		Tables: func() {
			select {
			case g.metadata.Changed <- struct{}{}:
			default:
			}
		},
	})
	if err := g.memory.Follow(); err != nil {
		return err
	}
	g.mu.Lock()
	g.leader, g.follower = nil, follower
	g.mu.Unlock()
	g.stand(processor.Standing{})
	g.sender.Again()
	g.broker.registrar.start(ctx, s.Namesrv)
	defer g.broker.registrar.wait()
	settled()
	var loops errgroup.Group
	loops.Go(func() error { return follower.Run(ctx) })
	loops.Go(func() error {
		g.metadata.Follow(ctx, follower.MasterAddr)
		return nil
	})
	return loops.Wait()
}

// serve runs what both roles have: the HA port, and what is known of slaves.
func (g *group) serve(ctx context.Context) error {
	root, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	loops, inner := errgroup.WithContext(root)
	loops.Go(func() error { return g.sender.Serve(inner, g.listener) })
	loops.Go(func() error { return g.replicas.Run(inner) })
	loops.Go(func() error {
		defer stop()
		select {
		case <-ctx.Done():
			g.leaveLevel()
		case <-inner.Done(): // one of the others has failed
		}
		return nil
	})
	return loops.Wait()
}

// leaveLevel gives slaves that are near the time to get the last of the log, when this broker stops.
func (g *group) leaveLevel() {
	for began := time.Now(); time.Since(began) < leaveLimit; time.Sleep(drainLook) {
		if g.replicas.Level() {
			return
		}
	}
}

// shares is what the sender asks of a slave that connects.
func (g *group) shares(ctx context.Context, who ha.Reader) error {
	g.mu.Lock()
	leader := g.leader
	g.mu.Unlock()
	if closed := g.Standing().Closed; leader == nil || closed != "" && closed != openingReason {
		return ha.ErrStranger // it serves its log to whoever asks, and counts nobody
	}
	return leader.Shares(ctx, who)
}

// tables changes when topics, groups or consumer offsets do.
func (g *group) tables() uint64 {
	stats := g.broker.offsets.Stats()
	return stats.Commits + stats.Resets + uint64(g.broker.topics.Version().Counter) + uint64(g.broker.groups.Version().Counter)
}

// Forget drops a broker of the group that will not come back, so that nobody waits for it.
func (g *group) Forget(addr string) error { return g.memory.Forget(addr) }

// Force opens a master that waits.
func (g *group) Force() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.leader != nil {
		g.leader.Force()
	}
}

// Status is the operator's view.
func (g *group) Status() protocol.ReplicaStatus {
	store, standing := g.broker.store, g.Standing()
	g.mu.Lock()
	follower := g.follower
	s := protocol.ReplicaStatus{
		BrokerName: g.broker.settings.Get().Name, BrokerID: g.id, Role: g.role.String(), Since: g.since.UnixMilli(),
	}
	g.mu.Unlock()
	s.HAAddr = g.haAddr
	s.Low, s.End, s.Flushed, s.Shown = int64(store.Low()), int64(store.Written()), int64(store.Flushed()), int64(store.Dispatched())
	s.Suspect, s.Exposed, s.Peers = g.memory.Suspect(), g.memory.Exposed(), g.memory.Peers()
	s.Gaps, s.Slaves = []protocol.LogGap{}, []protocol.SlaveStatus{}
	s.Epochs = ha.Starts(g.memory.Epochs())
	for _, gap := range store.Gaps().Log {
		s.Gaps = append(s.Gaps, protocol.LogGap{From: int64(gap.From), To: int64(gap.To)})
	}
	for _, l := range g.replicas.Links() {
		s.Slaves = append(s.Slaves, protocol.SlaveStatus{
			Addr: l.Addr, Since: l.Since.UnixMilli(), Heard: l.Heard.UnixMilli(), Sent: int64(l.Sent), Acked: int64(l.Acked),
			Behind: s.End - max(int64(l.Acked), 0), InSync: l.InSync,
		})
	}
	switch {
	case follower != nil:
		master, waiting := follower.Status()
		s.State, s.Waiting, s.Master = ha.StateFollowing, waiting, &master
	case standing.Closed == openingReason:
		s.State, s.Waiting = ha.StateOpening, standing.Closed
	case standing.HandsOver != "":
		s.State, s.Waiting = ha.StateClosed, standing.HandsOver
	case standing.Closed != "":
		s.State, s.Waiting = ha.StateClosed, standing.Closed
	default:
		s.State = ha.StateOpen
	}
	return s
}

var errNotOurs = errors.New("it is no Ratchet broker, which alone can take a role over")
