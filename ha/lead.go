package ha

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/store"
)

// LeaderOptions describe a Leader.
type LeaderOptions struct {
	Store    *store.Store
	Peers    *Peers
	Memory   *Memory
	Metadata Tables
	Dial     Dial
	Sync     bool          // SYNC_MASTER
	Limit    time.Duration // how long to wait for replicas that do not answer
	// What a power cut can take: bytes of the log, messages of a queue.
	BytesBound    int64
	MessagesBound int64
	// Kept is for how long messages are kept.
	Kept time.Duration
	// Suspect: what was not flushed before the start may be gone, see Memory.Awake.
	Suspect   bool
	Doubt     bool             // see Survival
	OnWait    func(why string) // called when the reason to wait is a new one; may be nil
	Heartbeat time.Duration    // [5 s]
	Silence   time.Duration    // [20 s]
	Logger    *slog.Logger
}

// Tables are topics, groups and offsets, as far as a returning master takes them over.
type Tables interface {
	// Merge adds what the broker at addr knows: nothing is removed, offsets only rise.
	Merge(ctx context.Context, addr string) error
	// Committed calls fn with the highest offset that any group has committed, for each queue.
	Committed(fn func(topic string, queue int32, next offset.Queue))
	// Queues calls fn for each queue that the topics have, whether it has had a message or not.
	Queues(fn func(topic string, queue int32))
}

// Leader is what a master does before it opens, and later when a replica comes back that has what is missing here.
type Leader struct {
	opts LeaderOptions
	log  *slog.Logger

	mu      sync.Mutex
	waiting string // guarded by mu
	forced  bool   // guarded by mu
	poke    chan struct{}
	sharing turn            // of looking at a slave: gaps may be filled from it
	kept    offset.Physical // the log's end when everything was kept free that is lost, -1 before; of Prepare
}

// NewLeader makes a Leader.
func NewLeader(o LeaderOptions) *Leader {
	if o.Heartbeat <= 0 {
		o.Heartbeat = 5 * time.Second
	}
	if o.Silence <= 0 {
		o.Silence = 20 * time.Second
	}
	return &Leader{opts: o, log: o.Logger.With("component", "ha"), waiting: "replicas are being asked", poke: make(chan struct{}, 1), kept: -1}
}

// Waiting says what keeps the master from opening.
func (l *Leader) Waiting() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waiting
}

// Force makes Prepare go on with what there is.
func (l *Leader) Force() {
	l.mu.Lock()
	l.forced = true
	l.mu.Unlock()
	select {
	case l.poke <- struct{}{}:
	default:
	}
}

const askPause = 500 * time.Millisecond

// Prepare brings this broker to where it may serve as master, which may take until the time to wait is over: it has what
// the replicas have, and what may have been given out and could not be got is kept free. exposed says that readers may have
// seen, or may see now, what no slave has. An error means that ctx is done, or that the store has failed.
func (l *Leader) Prepare(ctx context.Context) (exposed bool, err error) {
	began := time.Now()
	own := Survival{Suspect: l.opts.Suspect, Untold: l.opts.Memory.Untold(), Doubt: l.opts.Doubt, Exposed: l.opts.Memory.Exposed() || !l.opts.Sync}
	alive := max(l.opts.Store.LastTime(), l.opts.Memory.OpenedAt())
	wasEmpty := l.opts.Store.Written() == 0
	forks := map[string]offset.Physical{}
	var peers []Peer
	for {
		peers = l.opts.Peers.All(ctx)
		own.Low, own.End, own.Epoch = l.opts.Store.Low(), l.opts.Store.Written(), l.opts.Memory.Epoch()
		own.Damaged = len(l.opts.Store.Damaged()) > 0
		others := replicas(peers, forks, alive, own.Epoch)
		if wasEmpty && (anyHas(others) || own.Epoch == 0 && anyKnows(others)) && !l.opts.Memory.New() {
			if err := l.opts.Memory.Begins(); err != nil {
				if err := l.pause(ctx, Decision{Why: "its disk is a new one"}, err); err != nil {
					return false, err
				}
				continue
			}
		}
		if l.opts.Memory.New() { // what was on the old disk may have been more than the others have
			own.Suspect, own.New = true, true
			// A SYNC_MASTER whose slave was away for a while has shown what the slave does not have. Numbers are kept free for
			// that, unless a Java slave is there: it can't follow a queue that jumps.
			own.Exposed = own.Exposed || !slices.ContainsFunc(peers, func(p Peer) bool { return p.Java })
		}
		l.mu.Lock()
		forced := l.forced
		l.mu.Unlock()
		d := Decide(own, others, time.Since(began), l.opts.Limit, forced)
		switch d.Action {
		case Open:
			if err = l.merge(ctx, peers); err == nil && !forced {
				err = l.healAll(ctx, peers) // consumers that come first must not step over what can be had
			}
			if err == nil || forced || time.Since(began) >= l.opts.Limit {
				if exposed, err = l.open(ctx, own, peers, d); err == nil {
					return exposed, nil
				}
			}
		case Fetch:
			err = l.fetch(ctx, &peers[d.From], forks)
		case Cut:
			_, err = l.opts.Store.Truncate(others[d.From].Forked)
			delete(forks, peers[d.From].Addr)
		case Yield:
			return false, &Yielded{To: peers[d.From].Addr, ID: freeID(peers)}
		case Wait:
			err = errors.New(d.Why)
		}
		if err := l.opts.Store.Err(); err != nil {
			return false, err
		}
		if err == nil {
			continue
		}
		if err := l.pause(ctx, d, err); err != nil {
			return false, err
		}
	}
}

// pause notes why the master is still closed, and waits until it is time to ask again.
func (l *Leader) pause(ctx context.Context, d Decision, err error) error {
	l.waits(d, err)
	select {
	case <-time.After(askPause):
	case <-l.poke:
	case <-ctx.Done():
	}
	return ctx.Err()
}

// Yielded is Prepare's error when another broker has taken the role over.
type Yielded struct {
	To string
	ID int64 // of a slave, which no other broker has that answered
}

func freeID(peers []Peer) int64 {
	for id := int64(1); ; id++ {
		if !slices.ContainsFunc(peers, func(p Peer) bool { return p.Err == nil && p.Status.BrokerID == id }) {
			return id
		}
	}
}

func (y *Yielded) Error() string { return y.To + " has taken the role over" }

// waits notes what keeps the master closed, and logs it when it is new.
func (l *Leader) waits(d Decision, err error) {
	why := d.Why
	if err != nil && d.Action != Wait {
		why = fmt.Sprintf("%s, but: %v", d.Why, err)
	}
	l.mu.Lock()
	before := l.waiting
	l.waiting = why
	l.mu.Unlock()
	if before != why {
		l.log.Warn("not open yet", "before", before, "after", why)
		if l.opts.OnWait != nil {
			l.opts.OnWait(why)
		}
	}
}

// replicas is what Decide is to know of the peers. A Java broker does not say whether it lost power. One that runs since
// before alive, when this broker is known to have lived before its start, did not lose it together with this one.
func replicas(peers []Peer, forks map[string]offset.Physical, alive int64, epoch int32) []Replica {
	list := make([]Replica, len(peers))
	for i, p := range peers {
		list[i] = Replica{Name: p.Addr, Answered: p.Err == nil}
		if p.Err != nil {
			continue
		}
		list[i].Low, list[i].End = offset.Physical(p.Status.Low), p.end()
		epochs := Epochs(p.Status.Epochs)
		list[i].Epoch = lastEpoch(epochs)
		if later := slices.IndexFunc(epochs, func(e Epoch) bool { return e.Number > epoch }); later >= 0 {
			list[i].Later = epochs[later].Start
		}
		list[i].Leads, list[i].Suspect = p.leads(), p.Status.Suspect || p.Java && alive > 0 && p.Status.Since > alive
		list[i].Master, list[i].Takes = p.Status.Role != slaveRole, p.Status.State == StateTaking
		list[i].Forked, list[i].Parted = forks[p.Addr]
	}
	return list
}

// anyKnows says whether one has heard of a master that was open: what that had given out it may have lost since.
func anyKnows(list []Replica) bool {
	return slices.ContainsFunc(list, func(r Replica) bool { return r.Epoch > 0 })
}

func anyHas(list []Replica) bool {
	for _, r := range list {
		if r.End > 0 {
			return true
		}
	}
	return false
}

// fetch gets what a replica has and this broker does not, and what it knows.
func (l *Leader) fetch(ctx context.Context, from *Peer, forks map[string]offset.Physical) error {
	before := l.opts.Store.Written()
	l.mu.Lock()
	l.waiting = fmt.Sprintf("%s has the log up to %d, which is being fetched", from.Addr, from.Status.End)
	l.mu.Unlock()
	l.log.Info("catching up", "addr", from.Addr, "before", int64(before), "after", from.Status.End)
	err := l.puller(from).pull(ctx, from.Status.HAAddr, offset.Physical(from.Status.Low), from.end())
	var fork *Fork
	if errors.As(err, &fork) {
		if kept, err := l.keepTail(fork.At, from); kept || err != nil {
			return err
		}
		forks[from.Addr] = fork.At
		l.log.Error("the log of a replica parts from this one", "addr", from.Addr, "phy", int64(fork.At))
		return nil
	}
	if err != nil {
		return fmt.Errorf("fetch from %s: %w", from.Status.HAAddr, err)
	}
	if !from.Java {
		if err := l.opts.Memory.Adopt(longer(l.opts.Memory.Epochs(), Epochs(from.Status.Epochs))); err != nil {
			return err
		}
	}
	return flush(ctx, l.opts.Store, l.opts.Store.Written())
}

// keepTail keeps what this log has from a position on, where a broker with a later epoch keeps the place free for just that: it was
// the master while this one was away. Behind the gap this log can follow the other.
func (l *Leader) keepTail(at offset.Physical, other *Peer) (kept bool, err error) {
	end := l.opts.Store.Written()
	i := slices.IndexFunc(other.gaps(), func(gap store.Span) bool { return gap.Has(at) && end < gap.To })
	if i < 0 || lastEpoch(Epochs(other.Status.Epochs)) <= l.opts.Memory.Epoch() {
		return false, nil
	}
	// It has numbered on above as many as can be lost: more would have the numbers of what it has behind the gap.
	if n, err := l.opts.Store.Messages(at, l.opts.MessagesBound); err != nil || n > l.opts.MessagesBound {
		return false, err
	}
	gap, err := l.opts.Store.Leave(store.Lost{
		Log: other.gaps()[i].To, Queue: func(_ string, _ int32, next offset.Queue) offset.Queue { return next },
	})
	if err == nil {
		l.log.Info("the end of this log belongs into a gap of another", "addr", other.Addr, "phy", int64(at), "gap", gap.Log)
	}
	return err == nil, err
}

// puller reads the log of another broker, and does not count as its slave.
func (l *Leader) puller(from *Peer) *puller {
	o := &l.opts
	return quietPuller(o.Store, o.Dial, o.Silence, o.Heartbeat, o.Peers.greeting(from, o.Memory, false))
}

// longer is the list of epochs that goes further.
func longer(a, b []Epoch) []Epoch {
	if lastEpoch(b) > lastEpoch(a) {
		return b
	}
	return a
}

// merge takes over what the replicas know beside messages. The progress of delayed ones counts what is in the log, and is
// only taken once that is on disk: as a slave this broker may not have flushed it yet.
func (l *Leader) merge(ctx context.Context, peers []Peer) error {
	if err := flush(ctx, l.opts.Store, l.opts.Store.Written()); err != nil {
		return err
	}
	var errs []error
	for _, p := range peers {
		if p.Err != nil {
			continue
		}
		if err := l.opts.Metadata.Merge(ctx, p.Addr); err != nil {
			errs = append(errs, fmt.Errorf("tables of %s: %w", p.Addr, err))
		}
	}
	return errors.Join(errs...)
}

// open keeps free what may have been given out and could not be got, and begins an epoch.
func (l *Leader) open(ctx context.Context, own Survival, peers []Peer, d Decision) (exposed bool, err error) {
	exposed = !l.opts.Sync || len(peers) == 0
	if own.End == l.kept && !slices.ContainsFunc(peers, func(p Peer) bool { return p.Err == nil && p.end() > own.End }) {
		d.LogGap, d.QueueGap = false, false // that is done, and what came then has failed
	}
	lost := store.Lost{Queue: func(_ string, _ int32, next offset.Queue) offset.Queue {
		if d.QueueGap {
			next += offset.Queue(l.opts.MessagesBound)
		}
		return next
	}}
	if d.QueueGap { // of a queue whose messages are all lost, the store knows nothing
		l.opts.Metadata.Queues(func(topic string, queue int32) {
			if _, known := l.opts.Store.Bounds(topic, queue); !known {
				lost.Others = append(lost.Others, store.QueueSpan{Topic: topic, Queue: queue})
			}
		})
		if l.opts.Memory.Follows() { // another broker, or this one on its old disk, may have made topics that none knows
			lost.Unseen = store.Unseen{From: offset.Queue(l.opts.MessagesBound), Until: time.Now().Add(l.opts.Kept).UnixMilli()}
		}
	}
	if d.LogGap {
		lost.Log = own.End + offset.Physical(l.opts.BytesBound)
	}
	for _, p := range peers {
		exposed = exposed || p.Err != nil || p.end() < own.End
		if p.Err != nil || !d.LogGap || p.end() <= own.End {
			continue
		}
		// An operator opens this master although that broker has more: nothing of it must be given out again.
		lost.Log = max(lost.Log, p.end())
		if err := l.highs(ctx, p.Addr, &lost); err != nil {
			return exposed, err
		}
	}
	l.opts.Metadata.Committed(func(topic string, queue int32, next offset.Queue) {
		if next > l.opts.Store.Given(topic, queue) {
			lost.Others = append(lost.Others, store.QueueSpan{Topic: topic, Queue: queue, To: next})
		}
	})
	added, err := l.opts.Store.Leave(lost)
	if err != nil {
		return exposed, err
	}
	l.kept = l.opts.Store.Written()
	if len(added.Log)+len(added.Queues) > 0 {
		l.log.Error("places are kept free for what was lost", "log", added.Log, "queues", len(added.Queues))
	}
	if err := flush(ctx, l.opts.Store, l.opts.Store.Written()); err != nil {
		return exposed, err
	}
	if err := l.opts.Memory.Opened(l.opts.Store.Low(), l.opts.Store.Written(), exposed); err != nil {
		return exposed, err
	}
	l.log.Info("open", "why", d.Why, "phy", int64(l.opts.Store.Written()), "epoch", l.opts.Memory.Epoch())
	return exposed, nil
}

// highs adds to what is lost the ends that queues have at a broker.
func (l *Leader) highs(ctx context.Context, addr string, lost *store.Lost) error {
	var err error
	l.opts.Store.EachQueue(func(topic string, queue int32, _ store.Bounds) {
		high, askErr := l.opts.Peers.high(ctx, addr, topic, queue)
		if askErr != nil {
			err = fmt.Errorf("end of %s/%d at %s: %w", topic, queue, addr, askErr)
		}
		lost.Others = append(lost.Others, store.QueueSpan{Topic: topic, Queue: queue, To: high})
	})
	return err
}

// ErrStranger says that it can't be told which broker is at the other end of a connection.
var ErrStranger = errors.New("no broker of the group is known there")

// Shares is a Sender's question on an open master: whether the slave that goes on from a position has the same log up to
// there. Our own slaves compare by themselves; a Java slave is read through its HA port. What belongs into a gap of this
// log, and a slave turns out to have, is fetched first.
func (l *Leader) Shares(ctx context.Context, who Reader) error {
	if err := l.sharing.take(ctx); err != nil {
		return err
	}
	defer l.sharing.give()
	peers := l.opts.Peers.All(ctx)
	if who.Own && !slices.ContainsFunc(peers, func(p Peer) bool { return p.Addr == who.Addr }) {
		peers = append(peers, l.opts.Peers.Ask(ctx, who.Addr))
	}
	if err := l.healAll(ctx, peers); err != nil {
		return err
	}
	if end := l.opts.Store.Written(); who.From > end {
		return fmt.Errorf("%w: this log ends at %d, the slave goes on from %d", ErrDiverged, end, who.From)
	}
	if who.Own {
		return l.opts.Memory.Saw([]string{who.Addr})
	}
	slave, err := find(ctx, peers, who.Remote, who.From)
	if err != nil {
		return err
	}
	if !slave.Java {
		return nil
	}
	return l.puller(slave).check(ctx, slave.Status.HAAddr, max(offset.Physical(slave.Status.Low), 0), who.From)
}

// find is the slave of the group at a remote address, which is no listening one: by host, and by what it has. It is
// ErrStranger only if it is known to be none of the group: who can't be asked now is to come again.
func find(ctx context.Context, peers []Peer, remote net.Addr, at offset.Physical) (*Peer, error) {
	host, _, err := net.SplitHostPort(remote.String())
	if err != nil {
		host = remote.String()
	}
	var found *Peer
	for _, p := range peers {
		if p.Err != nil && sameHost(ctx, host, p.Addr) {
			return nil, fmt.Errorf("the broker %s may be the one at %s, but: %w", p.Addr, remote, p.Err)
		}
		if p.Err != nil || p.Status.Role != slaveRole || !sameHost(ctx, host, p.Addr, p.Status.HAAddr) {
			continue
		}
		if found == nil || p.end() == at {
			found = &p
		}
	}
	if found == nil {
		return nil, fmt.Errorf("%w: %s", ErrStranger, remote)
	}
	return found, nil
}

func sameHost(ctx context.Context, host string, addrs ...string) bool {
	for _, addr := range addrs {
		name, _, err := net.SplitHostPort(addr)
		if err != nil {
			continue
		}
		if name == host {
			return true
		}
		ips, err := net.DefaultResolver.LookupHost(ctx, name)
		for _, ip := range ips {
			if err == nil && ip == host {
				return true
			}
		}
	}
	return false
}
