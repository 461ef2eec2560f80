package sim

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing/synctest"
	"time"

	"github.com/ratchetmq/ratchet/internal/config"
	"github.com/ratchetmq/ratchet/internal/vfs/vfstest"
	"github.com/ratchetmq/ratchet/store"
)

// cluster is all there is in a seed.
type cluster struct {
	seed      uint64
	set       settings
	began     time.Time
	log       *slog.Logger
	net       *network
	names     *nameServer
	ledger    *ledger
	nodes     []*node
	consumers []*consumer
	lives     int // of all nodes
	rnd       *rand.Rand
	sent      int
	requests  sync.WaitGroup
	processes []*process
}

// pick is one of the choices.
func pick[T any](rnd *rand.Rand, choices ...T) T { return choices[rnd.IntN(len(choices))] }

func drawSettings(rnd *rand.Rand, weak weakness) settings {
	s := settings{
		role: pick(rnd, config.SyncMaster, config.AsyncMaster), flush: pick(rnd, store.AsyncFlush, store.AsyncFlush, store.SyncFlush),
		brokers: pick(rnd, 2, 2, 3), plain: rnd.IntN(5) == 0, fixed: rnd.IntN(3) > 0, segment: pick[int64](rnd, 4<<10, 16<<10),
		bytesBound: pick[int64](rnd, 4<<10, 12<<10), msgsBound: 24, leastBytes: pick[int64](rnd, 1, 16<<10),
		batch: pick(rnd, 300, 1024, 32<<10), limit: pick(rnd, 2*time.Second, 15*time.Second, time.Minute), weak: weak,
	}
	if weak == countAnyAck {
		s.plain = true
	}
	switch weak {
	case neverCompare:
		s.plain = false
	case showUnreplicated:
		s.role = config.SyncMaster
	case overwriteOffsets:
		s.limit = 2 * time.Second
	default:
	}
	if weak.losesTail() {
		s.flush, s.leastBytes, s.fixed, s.limit = store.AsyncFlush, 16<<10, true, 2*time.Second
	}
	return s
}

// kind is a set of schedules.
type kind uint8

const (
	ordinary kind = iota
	damaged       // see settings.damage
	acting        // see settings.acts
	troubled      // see settings.troubles
)

// run plays a seed, in a bubble of its own.
func run(seed uint64, weak weakness, kind kind, logs bool) *ledger {
	rnd := rand.New(rand.NewPCG(seed, 0x5eed))
	set := drawSettings(rnd, weak)
	set.damage, set.acts = kind == damaged, kind == acting
	if kind == troubled {
		set.drawTroubles(rnd)
	}
	c := begin(seed, rnd, set, logs)
	time.Sleep(2 * time.Second)
	plan := c.pointedPlan()
	pointed := len(plan) > 0
	if !pointed {
		plan = c.drawPlan()
	}
	for range 30 + rnd.IntN(70) {
		if len(plan) > 0 && (pointed || rnd.IntN(3) > 0) {
			plan[0]()
			plan = plan[1:]
		} else {
			c.act()
		}
		time.Sleep(c.pause())
		synctest.Wait()
		if c.ledger.step(); c.ledger.failed() {
			break
		}
	}
	if !c.ledger.failed() {
		c.calm()
	}
	c.end()
	return c.ledger
}

// begin starts all brokers.
func begin(seed uint64, rnd *rand.Rand, set settings, logs bool) *cluster {
	c := &cluster{
		seed: seed, set: set, began: time.Now(), rnd: rnd, net: newNetwork(seed),
		names: &nameServer{known: map[int64]registration{}}, log: slog.New(slog.DiscardHandler),
	}
	c.ledger = newLedger(c)
	if logs {
		c.log = slog.New(ledgerHandler{l: c.ledger})
	}
	c.ledger.note("%v %v, %d brokers, plain=%v, replicaAddrs=%v, segment %d, bound %d, limit %v", c.set.role, flushName(c.set.flush),
		c.set.brokers, c.set.plain, c.set.fixed, c.set.segment, c.set.bytesBound, c.set.limit)
	for host := 1; host <= c.set.brokers; host++ {
		c.nodes = append(c.nodes, &node{
			c: c, host: host, addr: hostIP(host) + ":10911", haAddr: hostIP(host) + ":10912", disk: vfstest.New(),
		})
	}
	for _, g := range []string{"G", "H"} {
		for _, topic := range c.topics() {
			for queue := range int32(2) {
				c.consumers = append(c.consumers, &consumer{
					progress: progress{g, queueName{topic, queue}}, at: -1,
					delivered: map[int64]bool{}, skipped: map[int64]string{}, inGap: map[int64]bool{},
				})
			}
		}
	}
	for _, n := range c.nodes {
		n.start()
	}
	return c
}

func flushName(m store.FlushMode) string {
	if m == store.SyncFlush {
		return "SYNC_FLUSH"
	}
	return "ASYNC_FLUSH"
}

func (c *cluster) pause() time.Duration {
	switch n := c.rnd.IntN(100); {
	case n < 60:
		return time.Duration(c.rnd.IntN(20_000)) * time.Microsecond
	case n < 90:
		return time.Duration(c.rnd.IntN(1500)) * time.Millisecond
	case n < 98:
		return time.Duration(c.rnd.IntN(10)) * time.Second
	}
	return time.Duration(c.rnd.IntN(70)) * time.Second
}

// act does the next thing.
func (c *cluster) act() {
	rnd := c.rnd
	if c.set.acts && rnd.IntN(4) == 0 {
		c.actMore()
		return
	}
	if c.set.troubles && rnd.IntN(8) == 0 {
		c.actTrouble()
		return
	}
	host := 1 + rnd.IntN(len(c.nodes))
	other := 1 + (host+rnd.IntN(len(c.nodes)-1))%len(c.nodes)
	seed, part := rnd.Uint64(), rnd.IntN(8)
	n := c.nodes[host-1]
	switch at := rnd.IntN(1000); {
	case at < 330:
		c.actSend()
	case at < 610:
		c.actPull()
	case at < 690:
		k := pick(rnd, c.consumers...)
		c.withConsumer(k, func() { c.commit(k) })
	case at < 710:
		k := pick(rnd, c.consumers...)
		c.withConsumer(k, func() { k.at = -1 })
	case at < 750:
		c.kill(n, vfstest.KeepAll, false)
	case at < 780:
		c.kill(n, pick(rnd, vfstest.KeepNothing, vfstest.KeepSome), true)
	case at < 800: // both at once
		keep, power := pick(rnd, vfstest.KeepNothing, vfstest.KeepSome), rnd.IntN(3) > 0
		if !power {
			keep = vfstest.KeepAll
		}
		for _, n := range c.nodes {
			c.kill(n, keep, power)
		}
	case at < 840:
		if p := n.process(); p != nil {
			steps := 1 + rnd.Int64N(40)
			c.ledger.note("host %d will die at its %d-th operation from now", host, steps)
			power := seed%3 == 0
			p.disk.setDie(steps, func() { p.crash(pick(rand.New(rand.NewPCG(seed, 1)), vfstest.KeepNothing, vfstest.KeepSome), true) }, power)
		}
	case at < 855:
		if p := n.process(); p != nil {
			c.ledger.note("host %d is to stop", host)
			p.stop()
		}
	case at < 925:
		for _, n := range c.nodes {
			if n.process() == nil && (part > 1 || n == c.nodes[host-1]) {
				c.begins(n)
			}
		}
	case at < 945:
		a, b := host, other
		if part == 0 {
			b = names
		} else if part < 3 {
			b = clients
		}
		c.ledger.note("hosts %d and %d are parted", a, b)
		c.net.part(a, b, true)
	case at < 970:
		c.ledger.note("all are joined")
		c.join()
	case at < 980:
		c.ledger.note("connections between %d and %d are cut", host, other)
		c.net.reset(host, other)
	case at < 987:
		by := time.Duration(part) * 100 * time.Millisecond
		c.ledger.note("host %d is slow by %v", host, by)
		c.net.setSlow(host, by)
	case at < 995:
		c.actSwitch(host)
	default:
		c.actWipe(n)
	}
}

func (c *cluster) actSend() {
	at := queueName{pick(c.rnd, "T", "U"), c.rnd.Int32N(2)}
	c.sendTo(at, pick(c.rnd, 1, 1, 1, 2, 5), c.rnd.IntN(300))
}

// sendTo sends so many messages to a queue at once.
func (c *cluster) sendTo(at queueName, count, size int) {
	var ids []string
	for range count {
		c.sent++
		ids = append(ids, fmt.Sprintf("m%d", c.sent))
	}
	c.requests.Go(func() { c.send(at, ids, size, 0) })
}

func (c *cluster) actPull() {
	k := pick(c.rnd, c.consumers...)
	suspend, count := pick(c.rnd, 0, 0, 500*time.Millisecond), pick[int32](c.rnd, 1, 4, 32)
	c.withConsumer(k, func() { c.pull(k, suspend, count) })
}

func (c *cluster) withConsumer(k *consumer, fn func()) {
	c.ledger.mu.Lock()
	busy := k.busy
	k.busy = true
	c.ledger.mu.Unlock()
	if busy {
		return
	}
	c.requests.Go(func() {
		fn()
		c.ledger.mu.Lock()
		k.busy = false
		c.ledger.mu.Unlock()
	})
}

func (c *cluster) kill(n *node, keep vfstest.Keep, power bool) {
	if p := n.process(); p != nil {
		p.crash(keep, power)
	}
}

func (c *cluster) begins(n *node) {
	c.ledger.note("host %d starts", n.host)
	n.start()
}

func (c *cluster) join() {
	for a := 1; a <= names; a++ {
		for b := a + 1; b <= names; b++ {
			c.net.part(a, b, false)
		}
	}
}

// actSwitch hands the role of a master over, as an operator's command does.
func (c *cluster) actSwitch(to int) {
	if c.set.plain || c.set.swaps {
		return
	}
	for _, n := range c.nodes {
		if p := n.process(); p != nil && p.up.Load() && p.open() && n.host != to {
			c.ledger.note("host %d is to hand its role over to host %d", n.host, to)
			c.requests.Go(func() {
				ctx, cancel := context.WithTimeout(p.ctx, time.Minute)
				defer cancel()
				err := p.group.Switch(ctx, c.nodes[to-1].addr)
				c.ledger.note("host %d handed its role over to host %d: %v", n.host, to, err)
			})
			return
		}
	}
}

// actWipe gives a machine a new disk, as long as the others have what was on the old one but for what a power cut may
// take: beyond that nothing can be known.
func (c *cluster) actWipe(n *node) {
	p := n.process()
	if !c.set.fixed || p == nil || !p.up.Load() {
		return
	}
	var best *process
	for _, m := range c.nodes {
		q := m.process()
		if m.lostAll() || q == nil || !q.up.Load() || q.memory.Suspect() || q.group.Standing().Closed != "" {
			return
		}
		if m != n && (best == nil || q.store.Written() > best.store.Written()) {
			best = q
		}
	}
	if best.store.Written() == 0 || p.store.Written()-best.store.Written() > 1000 {
		return
	}
	if gaps := p.store.Gaps().Log; len(gaps) > 0 && !slices.Equal(gaps, best.store.Gaps().Log) {
		return // nobody else knows what is kept free
	}
	if !maps.Equal(p.store.Deleted(), best.store.Deleted()) {
		return // nor which topics were deleted
	}
	c.ledger.note("host %d loses its disk", n.host)
	p.crash(vfstest.KeepNothing, true)
	n.mu.Lock()
	n.disk, n.wiped, n.flushed = vfstest.New(), true, 0
	n.mu.Unlock()
	c.ledger.wiped(n.host)
}

// lostAll says whether the disk is a new one, and what is on it is not known to be all that there was.
func (n *node) lostAll() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.wiped
}

func (n *node) whole() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.wiped = false
}

// calm ends all trouble, waits until the group is well again, and lets consumers read to the end.
func (c *cluster) calm() {
	c.ledger.note("trouble ends")
	c.requests.Wait()
	c.join()
	for _, n := range c.nodes {
		c.net.setSlow(n.host, 0)
		if p := n.process(); p != nil {
			p.disk.left.Store(0)
			p.disk.SetFault(nil)
		}
	}
	const patience = 10 * time.Minute
	var master *process
	for began := time.Now(); ; {
		for _, n := range c.nodes {
			if c.mend(n); n.process() == nil {
				c.begins(n)
			}
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if master = c.well(); master != nil {
			break
		}
		if c.ledger.step(); c.ledger.failed() {
			return
		}
		if time.Since(began) > patience {
			c.ledger.violate("LIVE", "the group is not well after %v: %s", patience, c.state())
			return
		}
	}
	time.Sleep(5 * time.Second) // tables
	if c.set.acts {
		time.Sleep(40 * time.Second) // delayed messages; and who has asked for a table in vain asks again
	}
	for _, k := range c.consumers {
		for range 100 {
			before := k.at
			c.pull(k, 0, 32)
			if b, ok := master.store.Bounds(k.topic, k.queue); !ok || k.at >= int64(b.High) || k.at == before && k.at >= 0 {
				break
			}
		}
		if c.commit(k) && c.set.acts {
			c.ledger.settled(k, master)
		}
	}
	synctest.Wait()
	c.ledger.final(master)
	if c.set.acts {
		c.ledger.finalActs(master)
	}
}

// well is the master, if it serves and all others have what it has.
func (c *cluster) well() (master *process) {
	for _, n := range c.nodes {
		p := n.process()
		if p == nil || !p.up.Load() {
			return nil
		}
		if p.open() {
			if master != nil {
				return nil
			}
			master = p
		}
	}
	if master == nil || c.names.route()[0] != master.n.addr {
		return nil
	}
	end := master.store.Written()
	for _, n := range c.nodes {
		if p := n.process(); p.store.Written() != end || p.store.Dispatched() != end {
			return nil
		}
	}
	if master.replicas.Sync() && master.replicas.InSync() < len(c.nodes)-1 {
		return nil
	}
	for _, n := range c.nodes {
		n.whole()
	}
	return master
}

func (c *cluster) state() (text string) {
	for _, n := range c.nodes {
		p := n.process()
		if p == nil || !p.up.Load() {
			text += fmt.Sprintf("host %d is down; ", n.host)
			continue
		}
		s := p.group.Status()
		text += fmt.Sprintf("host %d %s %s [%d, %d) shown %d, epochs %v, gaps %v, in sync %d, %s; ", n.host, s.Role, s.State, p.store.Low(),
			p.store.Written(), p.store.Dispatched(), s.Epochs, p.store.Gaps().Log, p.replicas.InSync(), s.Waiting)
	}
	return text
}

// end stops all that runs.
func (c *cluster) end() {
	c.requests.Wait()
	for _, n := range c.nodes {
		if p := n.process(); p != nil {
			p.stop()
		}
	}
	for _, p := range c.processes {
		<-p.done
	}
}

// ledgerHandler puts what brokers log among what happened.
type ledgerHandler struct {
	l     *ledger
	attrs []slog.Attr
}

func (h ledgerHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h ledgerHandler) Handle(_ context.Context, r slog.Record) error {
	text := r.Message
	for _, a := range h.attrs {
		text += " " + a.String()
	}
	r.Attrs(func(a slog.Attr) bool {
		text += " " + a.String()
		return true
	})
	h.l.note("      %s", text)
	return nil
}

func (h ledgerHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return ledgerHandler{h.l, append(append([]slog.Attr(nil), h.attrs...), attrs...)}
}

func (h ledgerHandler) WithGroup(string) slog.Handler { return h }
