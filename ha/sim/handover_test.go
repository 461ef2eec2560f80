package sim

import (
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratchetmq/ratchet/ha"
	"github.com/ratchetmq/ratchet/internal/config"
	"github.com/ratchetmq/ratchet/store"
)

// TestASlaveSaysThatItTakesTheRoleOver, all the time until it has it or not: an old master that has given up waiting for it asks,
// and must not open beside it.
func TestASlaveSaysThatItTakesTheRoleOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := drawSettings(rand.New(rand.NewPCG(1, 1)), none)
		set.brokers, set.plain, set.fixed = 2, false, true
		c := begin(1, rand.New(rand.NewPCG(1, 1)), set, false)
		time.Sleep(set.limit + 10*time.Second)
		slave := c.nodes[1].process()
		c.actSwitch(2)
		said := map[string]bool{}
		for began := time.Now(); !slave.open() && time.Since(began) < time.Minute; {
			said[slave.group.Status().State] = true
			time.Sleep(100 * time.Microsecond)
		}
		if !said[ha.StateTaking] {
			t.Errorf("it said only %v", said)
		}
		c.end()
	})
}

// TestSendThatWaitsForTheDiskWhileTheRoleIsHandedOver: the broker has let it in before, and must not store it behind the end at which
// the new master begins.
func TestSendThatWaitsForTheDiskWhileTheRoleIsHandedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rnd := rand.New(rand.NewPCG(1, 1))
		set := drawSettings(rnd, none)
		set.role, set.flush, set.brokers, set.plain, set.fixed = config.AsyncMaster, store.AsyncFlush, 2, false, true
		set.bytesBound, set.leastBytes, set.segment, set.limit = 4<<10, 16<<10, 64<<10, 2*time.Second
		c := begin(1, rnd, set, false)
		time.Sleep(10 * time.Second)
		master, slave := c.nodes[0].process(), c.nodes[1].process()
		master.disk.stall.Store(int64(time.Second))
		for range 30 {
			c.sendTo(queueName{"T", 0}, 1, 300)
			time.Sleep(5 * time.Millisecond)
		}
		c.actSwitch(2)
		for began := time.Now(); !slave.open() && time.Since(began) < time.Minute; {
			time.Sleep(10 * time.Millisecond)
		}
		c.requests.Wait()
		master.disk.stall.Store(0)
		c.calm()
		c.end()
		if len(c.ledger.broken) > 0 {
			t.Errorf("%s\n%s", strings.Join(c.ledger.lines, "\n"), strings.Join(c.ledger.broken, "\n"))
		}
	})
}
