package sim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/netip"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ratchetmq/ratchet/delay"
	"github.com/ratchetmq/ratchet/ha"
	"github.com/ratchetmq/ratchet/internal/config"
	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/internal/state"
	"github.com/ratchetmq/ratchet/internal/vfs/vfstest"
	"github.com/ratchetmq/ratchet/processor"
	"github.com/ratchetmq/ratchet/protocol"
	"github.com/ratchetmq/ratchet/remoting"
	"github.com/ratchetmq/ratchet/store"
)

const (
	root      = "/store"
	groupName = "b"
)

// settings of a seed, for all brokers.
type settings struct {
	role       config.Role // of the master
	flush      store.FlushMode
	brokers    int
	plain      bool // slaves are as simple as Java ones
	fixed      bool // brokers know each other's addresses from the configuration
	segment    int64
	bytesBound int64
	msgsBound  int64
	leastBytes int64
	batch      int // of an HA frame
	limit      time.Duration
	weak       weakness
	damage     bool // a power cut can leave the log damaged in its midst, see disk.after
	acts       bool // an operator resets offsets and deletes topics, and some messages are delayed, see acts_test.go
	troubles   bool // disks fail or are full, and networks let things through in one direction, see trouble_test.go
	swaps      bool // an operator gives roles by the configuration, not by a command
}

// node is a machine: its disk, and the process on it, if any.
type node struct {
	c            *cluster
	host         int
	addr, haAddr string

	mu        sync.Mutex
	disk      *vfstest.Mem      // guarded by mu
	boot      int               // guarded by mu
	wiped     bool              // guarded by mu; since then it was not level with another
	other     bool              // guarded by mu; its configuration has the other role, see process.configured
	p         *process          // guarded by mu; nil: none runs
	flushed   offset.Physical   // guarded by mu; of the log, when the last process ended
	committed map[progress]mark // guarded by mu; when the last process was killed
}

func (n *node) process() *process {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.p
}

// process is a broker that runs, or did.
type process struct {
	n      *node
	c      *cluster
	number int // of the life of the node
	disk   *disk
	boot   string
	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{}
	up     atomic.Bool  // it answers
	since  atomic.Int64 // when it began to, ns
	dead   atomic.Bool  // it was killed: nothing comes out of it any more
	log    *slog.Logger

	store     *store.Store
	topics    *state.Topics
	groups    *state.Groups
	offsets   *state.Offsets
	delay     *delay.Scheduler
	processor *processor.Processor
	listener  *listener
	memory    *ha.Memory
	replicas  *ha.Replicas
	group     member

	walked walk              // by the ledger
	acked  map[progress]mark // commits that were answered; guarded by the node's mu
}

// start begins a process on a node that has none.
func (n *node) start() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.p != nil {
		return
	}
	n.c.lives++
	p := &process{
		n: n, c: n.c, number: n.c.lives, disk: &disk{Mem: n.disk, trusted: n.c.set.weak == trustDisk}, boot: fmt.Sprintf("boot-%d-%d", n.host, n.boot),
		done: make(chan struct{}), acked: map[progress]mark{}, log: n.c.log.With("host", n.host, "life", n.c.lives),
	}
	kill := func() { p.crash(vfstest.KeepAll, false) }
	p.disk.die.Store(&kill)
	n.c.processes = append(n.c.processes, p)
	p.ctx, p.cancel = context.WithCancel(context.Background())
	n.p = p
	go p.main()
}

// crash ends the process at once. With power the machine goes, too, and what was not synced may be gone.
func (p *process) crash(keep vfstest.Keep, power bool) {
	n := p.n
	n.mu.Lock()
	defer n.mu.Unlock()
	if !p.dead.CompareAndSwap(false, true) {
		return
	}
	if n.p != p {
		return // it has ended by itself
	}
	p.c.ledger.note("host %d dies: power=%v keep=%v", n.host, power, keep)
	p.disk.dead.Store(true)
	n.disk = p.disk.after(keep, p.c.set.damage, p.c.seed^uint64(p.number))
	if p.up.Load() {
		n.flushed = p.store.Flushed()
	}
	if power {
		n.boot++
		p.c.ledger.powerCut(n.host, n.flushed)
	}
	p.c.ledger.ends(p, power)
	n.p = nil
	p.c.net.drop(n.host, power)
	p.cancel()
}

// stop ends the process in order. It returns when that is begun.
func (p *process) stop() { p.cancel() }

func (p *process) main() {
	defer close(p.done)
	time.Sleep(time.Duration(p.number) * time.Microsecond) // so that no two come to the same moment by their timers
	err := p.build()
	if err == nil {
		err = p.serve()
	}
	err = errors.Join(err, p.closeFiles())
	p.up.Store(false)
	n := p.n
	n.mu.Lock()
	defer n.mu.Unlock()
	if p.dead.Load() {
		return
	}
	if err != nil && p.disk.failed() { // with what it could not write at last
		p.c.ledger.note("the broker on host %d ends with an error: %v", n.host, err)
	} else if err != nil {
		p.c.ledger.violate("LIVE", "the broker on host %d ends with an error: %v", n.host, err)
	}
	if n.p == p {
		if p.store != nil {
			n.flushed = p.store.Flushed()
		}
		p.c.ledger.note("host %d has stopped", n.host)
		n.committed = nil
		p.dead.Store(true)
		n.p = nil
		p.c.net.drop(n.host, false)
	}
}

var baseSettings = sync.OnceValue(func() config.Broker {
	s, _, err := config.LoadBroker("", nil, root, config.Env{Home: "/", Lookup: func(string) (string, bool) { return "", false }})
	if err != nil {
		panic(err)
	}
	return *s
})

func (p *process) configured() (config.Role, int64) {
	p.n.mu.Lock()
	defer p.n.mu.Unlock()
	if (p.n.host == 1) != p.n.other {
		return p.c.set.role, 0
	}
	if p.n.host == 1 {
		return config.Slave, int64(p.c.set.brokers)
	}
	return config.Slave, int64(p.n.host - 1)
}

func (p *process) build() (err error) {
	set := p.c.set
	s := baseSettings()
	s.Name, s.IP1, s.IP2, s.Port, s.HAPort = groupName, hostIP(p.n.host), hostIP(p.n.host), 10911, 10912
	s.Role, s.ID = p.configured()
	s.DefaultQueues, s.OffsetSaveEvery, s.MaxUnflushedBytes, s.MaxUnflushedMessages = 4, 5*time.Second, set.bytesBound, set.msgsBound
	if set.flush == store.SyncFlush {
		s.Flush = config.SyncFlush
	}
	live := config.NewLive(&s, nil, config.Env{})
	p.replicas = p.newReplicas()
	if p.memory, err = ha.OpenMemory(p.disk, root); err != nil {
		return err
	}
	options := store.Options{
		FS: p.disk, Root: root, SegmentSize: set.segment, ConsumeQueueUnits: 16,
		Flush: set.flush, FlushLeastBytes: set.leastBytes, MaxUnflushedBytes: set.bytesBound, MaxUnflushedMessages: set.msgsBound,
		Confirmed: p.replicas.Confirmed, StoreHost: netip.MustParseAddrPort(p.n.addr), OpenWorkers: 1, Logger: p.log,
		SameBoot: p.memory.SameBoot(p.boot),
	}
	levels, err := delay.ParseLevels(s.DelayLevels)
	if err != nil {
		return err
	}
	options.TagsCode = levels.TagsCode
	if set.weak == showUnreplicated {
		options.Confirmed = nil
	}
	if p.store, err = store.Open(options); err != nil {
		return err
	}
	suspect, err := p.memory.Awake(p.boot, p.store.WasClean(), set.flush == store.SyncFlush, func() bool { return true })
	if err != nil {
		p.store.Break(err)
		return err
	}
	if set.weak == neverSuspect {
		suspect = false
	}
	files := state.Files{FS: p.disk, Dir: filepath.Join(root, "config"), Logger: p.log}
	p.topics, err = state.OpenTopics(state.TopicOptions{
		Files: files, Broker: s.Name, Cluster: s.Cluster, AutoCreate: func() bool { return true },
		DefaultQueues: int32(s.DefaultQueues), DelayLevels: int32(len(levels)),
	})
	if err != nil {
		return err
	}
	p.groups, err = state.OpenGroups(state.GroupOptions{Files: files, AutoCreate: func() bool { return true }})
	if err != nil {
		return err
	}
	if p.offsets, err = state.OpenOffsets(state.OffsetOptions{Files: files, SaveEvery: s.OffsetSaveEvery}); err != nil {
		return err
	}
	p.delay, err = delay.Open(delay.Options{
		Store: p.store, Levels: levels, FS: p.disk, Path: filepath.Join(root, "config", "delayOffset.json"), Logger: p.log,
	})
	if err != nil {
		return err
	}
	p.group = p.newMember(s, suspect)
	p.processor = processor.New(processor.Config{
		Store: p.store, Delay: levels, Scheduler: p.delay, Topics: p.topics, Groups: p.groups, Offsets: p.offsets,
		Clients: state.NewClients(state.ClientOptions{}), Locks: state.NewLocks(state.LockOptions{}), Settings: live,
		Replicas: p.replicas, Group: p.group, StoreHost: options.StoreHost, Memory: 1 << 30,
		Lane: func(int) processor.Lane { return processor.Lane{} },
		Room: func(string) (processor.Room, error) { return processor.Room{}, nil }, Logger: p.log,
	})
	return nil
}

// serve runs the parts, and stops them from the front to the back as package broker does.
func (p *process) serve() error {
	p.listener = p.c.net.listen(p.n.host, p.n.haAddr)
	backRoot, stopBack := context.WithCancel(context.Background())
	defer stopBack()
	back, backCtx := errgroup.WithContext(backRoot)
	back.Go(func() error { return p.store.Run(backCtx) })
	back.Go(func() error { return p.offsets.Run(backCtx) })
	back.Go(func() error { return p.group.Serve(backCtx, p.listener) })
	frontRoot, stopFront := context.WithCancel(p.ctx)
	defer stopFront()
	defer context.AfterFunc(backCtx, stopFront)()
	front, frontCtx := errgroup.WithContext(frontRoot)
	processorCtx, stopProcessor := context.WithCancel(backCtx)
	defer stopProcessor()
	front.Go(func() error { return p.processor.Run(processorCtx) })
	front.Go(func() error {
		defer stopProcessor()
		return p.group.Run(frontCtx, func() {})
	})
	p.since.Store(time.Now().UnixNano())
	p.up.Store(!p.dead.Load())
	err := front.Wait()
	p.up.Store(false) // the server has ended
	stopBack()
	return errors.Join(err, back.Wait())
}

func (p *process) closeFiles() error {
	var errs []error
	if p.listener != nil {
		_ = p.listener.Close()
	}
	if p.offsets != nil {
		errs = append(errs, p.offsets.Close())
	}
	if p.groups != nil {
		errs = append(errs, p.groups.Close())
	}
	if p.topics != nil {
		errs = append(errs, p.topics.Close())
	}
	if p.store != nil {
		errs = append(errs, p.store.Close())
	}
	return errors.Join(errs...)
}

// Serve answers a request that came over the network. It is remoting's handler.
func (p *process) Serve(ctx context.Context, r *remoting.Request) {
	if p.c.set.plain && p.n.host != 1 && protocol.RequestCode(r.Code) == protocol.GetReplicaStatus {
		r.Reply(protocol.Reply{Code: protocol.RequestCodeNotSupported})
		return
	}
	p.processor.Serve(ctx, r)
}

// call asks what listens at an address. It is the network's part of remoting.Client.
func (c *cluster) call(
	ctx context.Context, host int, addr string, code protocol.RequestCode, h protocol.Header, extra []protocol.KV, body []byte,
) (*remoting.Response, error) {
	at, err := netip.ParseAddrPort(addr)
	if err != nil {
		return nil, err
	}
	to := int(at.Addr().As4()[3])
	from := netip.AddrPortFrom(netip.MustParseAddr(hostIP(host)), 30000)
	if err := c.travel(ctx, host, to); err != nil {
		return nil, err
	}
	var handler remoting.Handler
	var p *process
	if to == names {
		handler = remoting.HandlerFunc(c.names.serve)
	} else {
		p = c.nodes[to-1].process()
		if p == nil || !p.up.Load() {
			return nil, syscall.ECONNREFUSED
		}
		handler = p
	}
	resp, err := remoting.Exchange(ctx, handler, from, code, h, extra, body)
	if err != nil {
		return nil, err
	}
	if p != nil && p.dead.Load() {
		return nil, syscall.ECONNRESET
	}
	if err := c.travel(ctx, to, host); err != nil {
		return nil, err
	}
	return resp, nil
}

// travel is the way of a message; it gets lost when it can't come.
func (c *cluster) travel(ctx context.Context, from, to int) error {
	c.net.mu.Lock()
	delay := time.Duration(mix(c.seed, c.net.way(from, to))%2000) * time.Microsecond
	c.net.mu.Unlock()
	select {
	case <-time.After(delay):
	case <-ctx.Done():
		return ctx.Err()
	}
	if !c.net.reaches(from, to) {
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

func mix(a, b uint64) uint64 {
	x := a ^ b*0x9E3779B97F4A7C15
	x ^= x >> 31
	x *= 0xBF58476D1CE4E5B9
	return x ^ x>>29
}

// caller is a process's ha.Caller.
type caller struct{ p *process }

func (k caller) Call(
	ctx context.Context, addr string, code protocol.RequestCode, h protocol.Header, extra []protocol.KV, body []byte,
) (*remoting.Response, error) {
	if k.p.dead.Load() {
		return nil, errDead
	}
	if k.p.c.set.weak == openUnasked && k.p.n.host == 1 {
		return nil, errors.New("nobody is asked")
	}
	resp, err := k.p.c.call(ctx, k.p.n.host, addr, code, h, extra, body)
	if k.p.dead.Load() {
		return nil, errDead
	}
	if err == nil {
		k.p.deceive(code, resp)
	}
	return resp, err
}

const forever = time.Duration(math.MaxInt64)
