package sim

import (
	"time"

	"github.com/ratchetmq/ratchet/internal/vfs/vfstest"
)

// drawPlan is a story that loses something, to be told between other things; most seeds have none.
func (c *cluster) drawPlan() (plan []func()) {
	master, slaves := c.nodes[0], c.nodes[1:]
	traffic := func(n int) {
		for range n {
			plan = append(plan, func() { c.actSend() }, func() { c.actPull() })
		}
	}
	start := func(list ...*node) {
		for _, n := range list {
			plan = append(plan, func() { c.begins(n) })
		}
	}
	keep := pick(c.rnd, vfstest.KeepNothing, vfstest.KeepNothing, vfstest.KeepSome)
	story := c.rnd.IntN(5)
	if c.set.weak == showUnreplicated {
		story = 2
	}
	switch story {
	case 0: // the master loses its tail while the slaves are away, and opens without them
		traffic(2 + c.rnd.IntN(4))
		plan = append(plan, func() {
			for _, n := range slaves {
				c.ledger.note("host %d goes away", n.host)
				c.net.part(master.host, n.host, true)
			}
		})
		traffic(c.rnd.IntN(3))
		plan = append(plan, func() { c.kill(master, keep, true) })
		start(master)
		plan = append(plan, func() { time.Sleep(c.set.limit + 3*time.Second) })
		traffic(2 + c.rnd.IntN(3))
		plan = append(plan, c.join, func() { time.Sleep(4 * time.Second) })
		traffic(2)
	case 1: // all lose power
		traffic(2 + c.rnd.IntN(4))
		plan = append(plan, func() {
			for _, n := range c.nodes {
				c.kill(n, keep, true)
			}
		})
		start(c.nodes...)
		plan = append(plan, func() { time.Sleep(8 * time.Second) })
		traffic(4)
	case 2: // a message is read that a slow slave does not have yet, and the master loses it
		at := queueName{"T", 0}
		traffic(1 + c.rnd.IntN(3))
		plan = append(plan, func() { time.Sleep(3 * time.Second) })
		for _, n := range slaves {
			plan = append(plan, func() { c.net.setSlow(n.host, 900*time.Millisecond) })
		}
		readers := func() {
			for _, k := range c.consumers {
				if k.queueName == at {
					c.withConsumer(k, func() { c.pull(k, 0, 32) })
				}
			}
		}
		plan = append(plan, readers, func() {
			time.Sleep(300 * time.Millisecond)
			c.sendTo(at, 1, 50)
			time.Sleep(30 * time.Millisecond)
			readers()
			time.Sleep(30 * time.Millisecond)
			c.kill(master, vfstest.KeepNothing, true)
		}, c.join)
		start(c.nodes...)
		plan = append(plan, func() { time.Sleep(8 * time.Second) }, func() { c.sendTo(at, 2, 50) })
	default:
	}
	return plan
}

// pointedPlan is the story that a protection is for, where chance would seldom tell it; nil when that is switched on.
// What comes behind it is as random as ever.
func (c *cluster) pointedPlan() []func() {
	master, slaves := c.nodes[0], c.nodes[1:]
	at := queueName{"T", 0}
	part := func() {
		for _, n := range slaves {
			c.net.part(master.host, n.host, true)
		}
	}
	alone := c.set.limit + 3*time.Second
	switch {
	case c.set.weak.losesTail():
		size := c.rnd.IntN(300)
		return []func(){
			func() { time.Sleep(alone) }, // slaves connect
			func() { c.sendTo(at, 1, 50); time.Sleep(15 * time.Second) },
			func() { // slaves have these, the master is to lose them
				c.sendTo(at, 2, size)
				time.Sleep(100 * time.Millisecond)
				if c.set.weak != openUnasked {
					part()
				}
				c.kill(master, vfstest.KeepNothing, true)
			},
			func() { c.begins(master); time.Sleep(alone) },
			func() { c.sendTo(at, 2, size); time.Sleep(time.Second) }, // others that end where those did
			func() { c.join(); time.Sleep(alone) },
			func() { c.sendTo(at, 1, c.rnd.IntN(300)) },
			func() { time.Sleep(time.Second) },
		}
	case c.set.weak == overwriteOffsets:
		commits := func() {
			for _, k := range c.consumers {
				if k.queueName == at {
					c.withConsumer(k, func() { c.pull(k, 0, 1); c.commit(k) })
				}
			}
		}
		return []func(){
			func() { c.sendTo(at, 5, 50); time.Sleep(time.Second) },
			func() { commits(); time.Sleep(5 * time.Second) },
			func() { part(); commits(); time.Sleep(time.Second) }, // slaves don't hear of these
			func() { c.kill(master, vfstest.KeepAll, false); c.join() },
			func() { c.begins(master); time.Sleep(alone) },
		}
	}
	return nil
}
