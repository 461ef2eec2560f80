package ha

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

	"github.com/ratchetmq/ratchet/internal/config"
	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/protocol"
	"github.com/ratchetmq/ratchet/store"
)

// Standing is what a broker is to its clients at the moment.
type Standing struct {
	Master bool
	// Closed says why a master answers no clients yet: it may be behind its replicas (P5).
	Closed string
	// HandsOver says why a master takes no more messages, while what it has can be read.
	HandsOver string
	// MasterLow is where the log of a slave's master began when it was last asked.
	MasterLow offset.Physical
}

// Follows says whether another broker may be giving out messages that this one has not yet: to a slave its master, and to a
// master that hands over the slave, which is the master before this one hears of it.
func (s *Standing) Follows() bool { return !s.Master || s.HandsOver != "" }

// GroupOptions are what a Group works with.
type GroupOptions struct {
	Settings *config.Live[config.Broker]
	Addr     string // advertised
	HAAddr   string // advertised, of the HA port
	Suspect  bool   // what was not flushed before the start may be gone, see Memory.Awake

	Store    *store.Store
	Memory   *Memory
	Replicas *Replicas
	Metadata *Metadata
	Merging  Tables // what a returning master merges [Metadata]
	Client   Caller
	Dial     Dial
	// Register keeps the name servers informed of this broker until ctx is done; left returns when they know that it is gone.
	Register func(ctx context.Context) (left func())
	// Deliver delivers delayed messages until ctx is done, on an open master.
	Deliver func(ctx context.Context) error
	Logger  *slog.Logger
}

// Group is a broker's part in its group of master and slaves. It is a master that opens when it is known to be behind
// nobody, or a slave that follows; an operator may make one the other. All methods may be called from any goroutine.
type Group struct {
	opts   GroupOptions
	log    *slog.Logger
	peers  *Peers
	sender *Sender

	configured string // role and id in the file
	suspect    atomic.Bool

	standing atomic.Pointer[Standing] // a new one for each change

	mu        sync.Mutex
	role      config.Role        // guarded by mu
	id        int64              // guarded by mu
	since     time.Time          // guarded by mu; of the state
	leader    *Leader            // guarded by mu; of a master
	follower  *Follower          // guarded by mu; of a slave
	turn      context.CancelFunc // guarded by mu; ends the present role
	doubt     bool               // guarded by mu; another broker may have become the master meanwhile
	taking    bool               // guarded by mu; this slave is about to become the master
	master    string             // guarded by mu; the master's address, as the name servers say
	undeliver func()             // guarded by mu; ends the delivery of delayed messages, and returns when it has ended
}

const (
	// attachLimit is how long slaves that are there are waited for before a master opens.
	attachLimit   = 5 * time.Second
	openingReason = "its slaves are about to connect"
	leaveLimit    = 3 * time.Second
	// settleLimit is after what time a start is over even though the master is not open.
	settleLimit = 15 * time.Second
)

// NewGroup makes the part that the configuration, or an operator's command since, gives this broker.
func NewGroup(o GroupOptions) *Group {
	if o.Merging == nil {
		o.Merging = o.Metadata
	}
	s := o.Settings.Get()
	g := &Group{
		opts: o, log: o.Logger.With("component", "ha"),
		role: s.Role, id: s.ID, configured: fmt.Sprintf("%s %d", s.Role, s.ID),
	}
	g.suspect.Store(o.Suspect)
	g.doubt = o.Memory.Handing() != nil
	if to, ok := o.Memory.Role(g.configured); ok {
		if err := g.role.UnmarshalText([]byte(to.Role)); err == nil {
			g.id = to.ID
			g.log.Warn("another role than the configuration's, after a switch", "before", g.configured, "after", to.Role, "id", to.ID)
		}
	}
	g.peers = NewPeers(PeerOptions{
		Client: o.Client, Name: s.Name, Self: o.Addr, Fixed: s.Replicas, Memory: o.Memory, Logger: g.log,
		Namesrv: func() []string { return o.Settings.Get().Namesrv },
	})
	g.sender = NewSender(SenderOptions{
		Store: o.Store, Replicas: o.Replicas, Batch: s.HABatchSize, Heartbeat: s.HAHeartbeat, Silence: s.HAHousekeeping,
		Shares: g.shares, Name: s.Name, Epochs: o.Memory.Epochs, Tables: g.tables, LastFileOnly: s.LastFileOnly, Logger: o.Logger,
	})
	g.stand(Standing{Master: g.role != config.Slave, Closed: "it is starting"})
	return g
}

func (g *Group) stand(s Standing) {
	g.standing.Store(&s)
	g.mu.Lock()
	g.since = time.Now()
	g.mu.Unlock()
}

// Standing is what the broker is to its clients.
func (g *Group) Standing() Standing {
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

func (g *Group) now() (role config.Role, id int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.role, g.id
}

// BrokerID is the id to register with.
func (g *Group) BrokerID() int64 {
	_, id := g.now()
	return id
}

// MasterIs is told of each answer of a name server: who the master is, for a slave; empty: nobody.
func (g *Group) MasterIs(addr string) {
	if addr == "" || addr == g.opts.Addr {
		return
	}
	g.mu.Lock()
	g.master = addr
	g.mu.Unlock()
}

func (g *Group) masterAddr() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.master
}

// Run plays the broker's role, and the next one after a switch, until ctx is done. settled is called whenever the
// broker can be used, or is known to wait.
func (g *Group) Run(ctx context.Context, settled func()) error {
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
func (g *Group) lead(ctx context.Context, settled func()) error {
	s := g.opts.Settings.Get()
	role, _ := g.now()
	sync := role == config.SyncMaster
	g.mu.Lock()
	limit, doubt := s.RecoverTimeout, g.doubt
	g.mu.Unlock()
	if doubt {
		limit = 1 << 62
		g.stand(Standing{Master: true, Closed: inDoubt})
	}
	leader := NewLeader(LeaderOptions{
		Store: g.opts.Store, Peers: g.peers, Memory: g.opts.Memory, Metadata: g.opts.Merging, Dial: g.opts.Dial,
		Sync: sync, Limit: limit, BytesBound: s.MaxUnflushedBytes, MessagesBound: s.MaxUnflushedMessages, Kept: s.ReservedTime,
		Doubt: doubt, Suspect: g.suspect.Load() || doubt || g.opts.Memory.Follows(), Heartbeat: s.HAHeartbeat, Silence: s.HAHousekeeping, Logger: g.opts.Logger,
		OnWait: func(why string) {
			g.stand(Standing{Master: true, Closed: why})
			settled()
		},
	})
	g.mu.Lock()
	g.leader, g.follower = leader, nil
	g.mu.Unlock()
	g.stand(Standing{Master: true, Closed: leader.Waiting()})
	defer time.AfterFunc(settleLimit, settled).Stop() // it may have much to fetch
	exposed, err := leader.Prepare(ctx)
	var yielded *Yielded
	if errors.As(err, &yielded) {
		return g.yield(yielded)
	}
	if err != nil {
		settled()
		<-ctx.Done() // a broken store can be read by nobody who is not told that it is whole
		return nil
	}
	g.suspect.Store(false)
	g.mu.Lock()
	g.doubt = false
	g.mu.Unlock()
	g.opts.Replicas.Begin(sync, g.opts.Store.Written(), exposed)
	defer g.opts.Replicas.End()
	g.opts.Store.WakeDispatch()
	g.sender.Again()
	if sync {
		g.awaitSlaves(ctx)
	}
	g.opts.Replicas.Serve()
	g.opts.Store.Hold(false)
	g.stand(Standing{Master: true})
	defer g.opts.Register(ctx)()
	settled()
	return g.deliver(ctx)
}

// deliver delivers delayed messages but while the role is being handed over: each is appended as a new one.
func (g *Group) deliver(ctx context.Context) error {
	for ctx.Err() == nil {
		run, stop := context.WithCancel(ctx)
		done := make(chan struct{})
		g.mu.Lock()
		handsOver := g.standing.Load().HandsOver != ""
		if !handsOver {
			g.undeliver = func() {
				stop()
				<-done
			}
		}
		g.mu.Unlock()
		var err error
		if !handsOver {
			err = g.opts.Deliver(run)
		}
		ended := !handsOver && run.Err() == nil
		stop()
		close(done)
		if err != nil || ended {
			return err
		}
		select {
		case <-time.After(drainLook):
		case <-ctx.Done():
		}
	}
	return nil
}

// awaitSlaves gives slaves that are there the time to connect, so that the first messages are not answered with
// SLAVE_NOT_AVAILABLE.
func (g *Group) awaitSlaves(ctx context.Context) {
	g.stand(Standing{Master: true, Closed: openingReason})
	ctx, cancel := context.WithTimeout(ctx, attachLimit)
	defer cancel()
	expected := 0
	for _, p := range g.peers.All(ctx) {
		if p.Err == nil && p.Status.State == StateFollowing {
			expected++
		}
	}
	for g.opts.Replicas.InSync() < expected {
		select {
		case <-time.After(drainLook):
		case <-ctx.Done():
			return
		}
	}
}

// follow is a slave's turn.
func (g *Group) follow(ctx context.Context, settled func()) error {
	s := g.opts.Settings.Get()
	follower := NewFollower(FollowerOptions{
		Store: g.opts.Store, Peers: g.peers, Memory: g.opts.Memory, Dial: g.opts.Dial,
		Master:  func() (addr, haAddr string) { return g.masterAddr(), g.opts.Settings.Get().HAMasterAddr },
		Flushed: s.Flush == config.SyncFlush, Heartbeat: s.HAHeartbeat, Silence: s.HAHousekeeping,
		LastFileOnly: s.LastFileOnly, Logger: g.opts.Logger,
		Tables: func() {
			select {
			case g.opts.Metadata.Changed <- struct{}{}:
			default:
			}
		},
	})
	if err := g.opts.Memory.Follow(); err != nil {
		return err
	}
	g.mu.Lock()
	g.leader, g.follower = nil, follower
	g.mu.Unlock()
	g.stand(Standing{})
	g.sender.Again()
	defer g.opts.Register(ctx)()
	settled()
	var loops errgroup.Group
	loops.Go(func() error { return follower.Run(ctx) })
	loops.Go(func() error {
		g.takeBack(ctx)
		return nil
	})
	loops.Go(func() error {
		g.opts.Metadata.Follow(ctx, follower.MasterAddr)
		return nil
	})
	return loops.Wait()
}

// Serve runs what both roles have, until ctx is done: the HA port, and what is known of slaves. It closes the listener.
func (g *Group) Serve(ctx context.Context, ln net.Listener) error {
	root, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	loops, inner := errgroup.WithContext(root)
	loops.Go(func() error { return g.sender.Serve(inner, ln) })
	loops.Go(func() error { return g.opts.Replicas.Run(inner) })
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
func (g *Group) leaveLevel() {
	for began := time.Now(); time.Since(began) < leaveLimit; time.Sleep(drainLook) {
		if g.opts.Replicas.Level() {
			return
		}
	}
}

// shares is what the sender asks of a slave that connects.
func (g *Group) shares(ctx context.Context, who Reader) error {
	g.mu.Lock()
	leader := g.leader
	g.mu.Unlock()
	if closed := g.Standing().Closed; leader == nil || closed != "" && closed != openingReason {
		return ErrStranger // it serves its log to whoever asks, and counts nobody
	}
	return leader.Shares(ctx, who)
}

// tables changes when topics, groups or consumer offsets do.
func (g *Group) tables() uint64 {
	m := g.opts.Metadata
	stats := m.Offsets.Stats()
	return stats.Commits + stats.Resets + uint64(m.Topics.Version().Counter) + uint64(m.Groups.Version().Counter)
}

// Forget drops a broker of the group that will not come back, so that nobody waits for it.
func (g *Group) Forget(addr string) error { return g.opts.Memory.Forget(addr) }

// Force opens a master that waits.
func (g *Group) Force() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.leader != nil {
		g.leader.Force()
	}
}

// Status is the operator's view.
func (g *Group) Status() protocol.ReplicaStatus {
	store, standing := g.opts.Store, g.Standing()
	g.mu.Lock()
	follower, taking := g.follower, g.taking && g.role == config.Slave
	s := protocol.ReplicaStatus{
		BrokerName: g.opts.Settings.Get().Name, BrokerID: g.id, Role: g.role.String(), Since: g.since.UnixMilli(),
	}
	g.mu.Unlock()
	s.HAAddr = g.opts.HAAddr
	s.Low, s.End, s.Flushed, s.Shown = int64(store.Low()), int64(store.Written()), int64(store.Flushed()), int64(store.Dispatched())
	s.Suspect, s.Exposed, s.Peers = g.opts.Memory.Suspect(), g.opts.Memory.Exposed(), g.opts.Memory.Peers()
	s.Gaps, s.Slaves = []protocol.LogGap{}, []protocol.SlaveStatus{}
	s.Epochs = Starts(g.opts.Memory.Epochs())
	for _, gap := range store.Gaps().Log {
		s.Gaps = append(s.Gaps, protocol.LogGap{From: int64(gap.From), To: int64(gap.To)})
	}
	for _, d := range store.Damaged() {
		s.Damaged = append(s.Damaged, protocol.LogGap{From: int64(d.From), To: int64(d.To)})
	}
	for _, l := range g.opts.Replicas.Links() {
		s.Slaves = append(s.Slaves, protocol.SlaveStatus{
			Addr: l.Addr, Since: l.Since.UnixMilli(), Heard: l.Heard.UnixMilli(), Sent: int64(l.Sent), Acked: int64(l.Acked),
			Behind: s.End - max(int64(l.Acked), 0), InSync: l.InSync,
		})
	}
	switch {
	case taking:
		s.State = StateTaking
	case follower != nil:
		master, waiting := follower.Status()
		s.State, s.Waiting, s.Master = StateFollowing, waiting, &master
	case standing.Closed == openingReason:
		s.State, s.Waiting = StateOpening, standing.Closed
	case standing.HandsOver != "":
		s.State, s.Waiting = StateClosed, standing.HandsOver
	case standing.Closed != "":
		s.State, s.Waiting = StateClosed, standing.Closed
	default:
		s.State = StateOpen
	}
	return s
}

var errNotOurs = errors.New("it is no Ratchet broker, which alone can take a role over")
