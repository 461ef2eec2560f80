package ha

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/message"
	"github.com/ratchetmq/ratchet/protocol"
	"github.com/ratchetmq/ratchet/store"
)

// Dial opens a connection to an HA port.
type Dial func(ctx context.Context, addr string) (net.Conn, error)

// FollowerOptions describe a Follower.
type FollowerOptions struct {
	Store  *store.Store
	Peers  *Peers
	Memory *Memory
	Dial   Dial
	// Master is the master's address, as the name server tells it, and that of its HA port, if the configuration names it:
	// else the master itself is asked. Empty: not known.
	Master  func() (addr, haAddr string)
	Flushed bool // report what is on the disk only
	// LastFileOnly: without data here, begin at the master's last file.
	LastFileOnly bool
	// Tables is called when the master's tables have changed; may be nil.
	Tables    func()
	Heartbeat time.Duration // [5 s]
	Silence   time.Duration // [20 s]
	Logger    *slog.Logger
}

// Follower keeps a slave's log the same as its master's.
type Follower struct {
	opts FollowerOptions
	log  *slog.Logger

	mu      sync.Mutex
	master  protocol.MasterStatus // guarded by mu
	low     offset.Physical       // guarded by mu; where the master's log began when it was last asked
	waiting string                // guarded by mu; why nothing comes
	level   time.Time             // guarded by mu; when this broker last had all that the master had
}

// NewFollower makes a Follower.
func NewFollower(o FollowerOptions) *Follower {
	if o.Heartbeat <= 0 {
		o.Heartbeat = 5 * time.Second
	}
	if o.Silence <= 0 {
		o.Silence = 20 * time.Second
	}
	return &Follower{opts: o, log: o.Logger.With("component", "ha"), waiting: "not begun"}
}

const (
	followPause = time.Second     // after a connection that ended
	alarmPause  = 5 * time.Second // after one whose data can't be right
)

// Run follows until ctx is done.
func (f *Follower) Run(ctx context.Context) error {
	for {
		err := f.once(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the end that was asked for
		}
		f.waits(err)
		if err == nil {
			continue
		}
		pause := followPause
		if errors.Is(err, message.ErrCorrupt) {
			pause = alarmPause
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil
		}
	}
}

// waits notes why nothing comes, and logs it when it is new.
func (f *Follower) waits(err error) {
	why := ""
	if err != nil {
		why = err.Error()
	}
	f.mu.Lock()
	before := f.waiting
	f.waiting = why
	f.mu.Unlock()
	if why != before && why != "" {
		f.log.Warn("does not follow", "before", before, "after", why)
	}
}

var errNoMaster = errors.New("no master is known")

// once asks the master, and follows it until the connection ends or the logs turn out to have diverged.
func (f *Follower) once(ctx context.Context) error {
	told, configured := f.opts.Master()
	peer, err := f.findMaster(ctx, told)
	if err != nil {
		return err
	}
	haAddr := cmp.Or(configured, peer.Status.HAAddr)
	f.mu.Lock()
	f.master = protocol.MasterStatus{Addr: peer.Addr, HAAddr: haAddr, End: peer.Status.End}
	f.low = offset.Physical(peer.Status.Low)
	f.mu.Unlock()
	if err := f.opts.Memory.Saw([]string{peer.Addr}); err != nil { // should this broker be made the master
		return err
	}
	if err := f.mayFollow(&peer); err != nil {
		return err
	}
	p := &puller{
		store: f.opts.Store, dial: f.opts.Dial, silence: f.opts.Silence, heartbeat: f.opts.Heartbeat,
		flushed: f.opts.Flushed, progress: f.came, tables: f.opts.Tables, end: f.ends,
		greeting: f.opts.Peers.greeting(&peer, f.opts.Memory, true),
		connected: func() {
			f.log.Info("following", "addr", haAddr, "phy", int64(f.opts.Store.Written()), "master", peer.Status.End)
			f.waits(nil)
		},
	}
	err = f.pull(ctx, p, haAddr, &peer)
	var fork *Fork
	if errors.As(err, &fork) {
		return f.cut(fork, &peer)
	}
	return err
}

// findMaster asks whom a name server has named as the master, if any has. When that is no master, it looks for one among
// the brokers of the group: name servers tell of a new one only at the next registration.
func (f *Follower) findMaster(ctx context.Context, told string) (Peer, error) {
	why := errNoMaster
	if told != "" {
		peer := f.opts.Peers.Ask(ctx, told)
		if peer.Err == nil && peer.Status.Role != slaveRole {
			return peer, nil
		}
		if why = peer.Err; why == nil {
			why = errors.New("it is a slave")
		}
		why = fmt.Errorf("master %s: %w", told, why)
	}
	for _, peer := range f.opts.Peers.All(ctx) {
		if peer.Err == nil && peer.Status.Role != slaveRole {
			return peer, nil
		}
	}
	return Peer{}, why
}

// begin is where the part of the master's log begins that this broker is to have.
func (f *Follower) begin(peer *Peer) offset.Physical {
	low := offset.Physical(peer.Status.Low)
	if s := f.opts.Store; f.opts.LastFileOnly && s.Low() == s.Written() {
		return max(low, peer.end()-peer.end()%offset.Physical(s.SegmentSize()))
	}
	return low
}

// mayFollow says no while following would do harm: a master that has less is about to get what this broker has, or has
// lost it, and must not be told that this broker has what it never sent.
func (f *Follower) mayFollow(peer *Peer) error {
	end := f.opts.Store.Written()
	switch {
	case !peer.Java && peer.Status.State != StateOpen && peer.Status.State != StateOpening:
		return fmt.Errorf("master %s is not open yet: %s", peer.Addr, peer.Status.Waiting)
	case peer.end() < end:
		return fmt.Errorf("%w: the master's log ends at %d, this one at %d", ErrBehind, peer.Status.End, end)
	}
	if peer.Java {
		return nil
	}
	return f.opts.Memory.Adopt(Epochs(peer.Status.Epochs))
}

// cut follows the master where the logs part: what this broker has behind is put aside. A place that the master keeps
// free is none where they part: it may want to have from here what belongs there.
func (f *Follower) cut(fork *Fork, peer *Peer) error {
	for _, gap := range peer.Status.Gaps {
		if int64(fork.At) >= gap.From && int64(fork.At) < gap.To {
			return fmt.Errorf("the master keeps [%d, %d) free, and has not fetched what is here", gap.From, gap.To)
		}
	}
	before := f.opts.Store.Written()
	aside, err := f.opts.Store.Truncate(fork.At)
	if err != nil {
		return fmt.Errorf("cut at %d, where the master's log parts from this one: %w", fork.At, err)
	}
	f.log.Error("this log had diverged from the master's and was cut", "phy", int64(fork.At), "before", int64(before), "path", aside,
		"addr", peer.Addr)
	return nil
}

func (f *Follower) came(at offset.Physical, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.master.End = max(f.master.End, int64(at))
	if int64(at) < f.master.End {
		return
	}
	if f.level.IsZero() { // once for each Follower: a broker that is killed has not lost what it had
		if err := f.opts.Memory.Level(false); err != nil {
			f.log.Error("not noted that everything is here", "err", err)
			return
		}
	}
	f.level = now
}

// ends notes where the master's log ends.
func (f *Follower) ends(at offset.Physical) {
	f.mu.Lock()
	f.master.End = max(f.master.End, int64(at))
	f.mu.Unlock()
}

// MasterAddr is the address of the master that is followed; empty: none is.
func (f *Follower) MasterAddr() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.master.Addr
}

// MasterLow is where the master's log began when it was last asked.
func (f *Follower) MasterLow() offset.Physical {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.low
}

// Status is the master as this slave sees it, and why nothing comes, if so.
func (f *Follower) Status() (protocol.MasterStatus, string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.master
	s.Behind = max(0, s.End-int64(f.opts.Store.Written()))
	if s.Behind > 0 && !f.level.IsZero() {
		s.Lag = time.Since(f.level).Milliseconds()
	}
	return s, f.waiting
}

// Epochs is a list of epochs as the wire has it, Starts the way back.
func Epochs(list []protocol.EpochStart) []Epoch {
	out := make([]Epoch, len(list))
	for i, e := range list {
		out[i] = Epoch{e.Epoch, offset.Physical(e.StartOffset)}
	}
	return out
}
