package sim

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/ratchetmq/ratchet/internal/config"
	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/internal/vfs/vfstest"
)

// In a troubled seed an operation of a disk fails now and then, a disk is full for a while, and a network lets things through in one
// direction only. Some seeds are acting or damaged, too, and in some an operator gives the roles by the configuration.

func (s *settings) drawTroubles(rnd *rand.Rand) {
	s.troubles, s.acts, s.damage = true, rnd.IntN(3) == 0, rnd.IntN(4) == 0
	s.swaps = rnd.IntN(2) == 0 && s.fixed && !s.plain // who does not know the other can't ask it, and a plain slave is never a master
}

// actTrouble does the next thing of those that only troubled seeds have.
func (c *cluster) actTrouble() {
	rnd := c.rnd
	host := 1 + rnd.IntN(len(c.nodes))
	from, to := host, 1+(host+rnd.IntN(len(c.nodes)-1))%len(c.nodes)
	at, steps, short, pages, part := rnd.IntN(100), 1+rnd.IntN(60), rnd.IntN(2) == 0, rnd.Int64N(12), rnd.IntN(8)
	n := c.nodes[host-1]
	p := n.process()
	switch {
	case at < 30:
		if p != nil {
			c.ledger.note("host %d: the %d-th operation from now fails", host, steps)
			p.disk.hurt(steps, short)
		}
	case at < 45:
		if p != nil {
			c.ledger.note("host %d: the disk has room for %d pages", host, pages)
			p.disk.fill(pages)
		}
	case at < 65:
		c.ledger.note("the disks have room")
		for _, n := range c.nodes {
			c.mend(n)
		}
	case at < 85:
		switch part {
		case 0:
			to = names
		case 1:
			from = names
		case 2:
			to = clients
		case 3:
			from, to = clients, host
		}
		if from == names {
			to = host
		}
		c.ledger.note("nothing comes from host %d to %d", from, to)
		c.net.partOneWay(from, to, true)
	case at < 95:
		c.ledger.note("all are joined")
		c.join()
	default:
		c.actSwap()
	}
}

// mend gives a disk room. A broker whose store is broken takes messages again after a restart, for which an operator ends it.
func (c *cluster) mend(n *node) {
	n.mu.Lock()
	n.disk.SetLimit(0)
	n.mu.Unlock()
	if p := n.process(); p != nil && p.up.Load() && p.disk.failed() && p.store.Err() != nil {
		c.kill(n, vfstest.KeepAll, false)
	}
}

// actSwap gives the role of the master to the other of the first two in the configuration of both. Each reads that when it starts. The
// new master has all but for less than what it keeps places free for when it can't ask the others: an operator who makes one
// the master that has been away for long has lost what that has not.
func (c *cluster) actSwap() {
	if !c.set.swaps {
		return
	}
	var to *process
	var end offset.Physical
	for i, n := range c.nodes {
		p := n.process()
		if p == nil || !p.up.Load() || n.lostAll() {
			return
		}
		if role, _ := p.configured(); i < 2 && role == config.Slave {
			to = p
		}
		end = max(end, p.store.Written())
	}
	const much = 2000 // bytes: fewer messages than settings.msgsBound
	if end-to.store.Written() > much {
		return
	}
	c.ledger.note("roles are swapped")
	for _, n := range c.nodes {
		c.kill(n, vfstest.KeepAll, false)
	}
	for _, n := range c.nodes[:2] {
		n.mu.Lock()
		n.other = !n.other
		n.mu.Unlock()
	}
}

// TestTroubles plays troubled seeds.
func TestTroubles(t *testing.T) { playSeeds(t, 400, troubled) }

// failedTroubles have broken a promise once.
var failedTroubles = []struct {
	seed  uint64
	found string
}{
	{4628, "a power cut was forgotten by a start that failed, since the disk was full"},
	{3939, "a queue's file was left when its topic was deleted, and the topic could not come again"},
	{4088, "the same, when the process died in the midst of that: what was deleted was back"},
	{733, "(the schedule itself: one was made the master that had next to nothing)"},
	{3927, "(the same)"},
	{3693, "(the ledger itself: it took what came after a power cut for a life that this had ended)"},
	{5893, "(the schedule itself: a disk was taken that alone knew of a deletion)"},
	{4967, "(the ledger itself: the disk had failed where it did not look)"},
	{5221, "(the ledger itself: a reset that the old master alone had heard of)"},
}

func TestTroublesThatFailed(t *testing.T) {
	for _, f := range failedTroubles {
		t.Run(fmt.Sprint(f.seed), func(t *testing.T) {
			t.Parallel()
			if lines, broken := play(t, f.seed, none, troubled, false); len(broken) > 0 {
				t.Errorf("%s\n%s\nonce found: %s", strings.Join(lines, "\n"), strings.Join(broken, "\n"), f.found)
			}
		})
	}
}
