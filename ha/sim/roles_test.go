package sim

import (
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratchetmq/ratchet/internal/config"
	"github.com/ratchetmq/ratchet/internal/vfs/vfstest"
	"github.com/ratchetmq/ratchet/store"
)

// TestTheLaterLifeWinsThoughItsLogIsTheShorter: a master dies with much that its slaves do not have. An operator gives the role to one
// of them in its configuration, and later back.
func TestTheLaterLifeWinsThoughItsLogIsTheShorter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rnd := rand.New(rand.NewPCG(1, 1))
		set := drawSettings(rnd, none)
		set.role, set.flush, set.brokers, set.plain, set.fixed = config.SyncMaster, store.AsyncFlush, 3, false, true
		set.limit = 2 * time.Second
		c := begin(1, rnd, set, false)
		first, second, third := c.nodes[0], c.nodes[1], c.nodes[2]
		send := func(count, size int) {
			for range count {
				c.sendTo(queueName{"T", 0}, 1, size)
				c.requests.Wait()
			}
		}
		starts := func(nodes ...*node) {
			for _, n := range nodes {
				n.start()
			}
			time.Sleep(20 * time.Second)
		}
		time.Sleep(20 * time.Second)
		send(5, 100)
		c.kill(second, vfstest.KeepAll, false)
		c.kill(third, vfstest.KeepAll, false)
		time.Sleep(10 * time.Second)
		send(20, 300)
		c.kill(first, vfstest.KeepAll, false)
		time.Sleep(20 * time.Second)

		second.other = true
		starts(second, third)
		send(3, 100) // both have them
		c.kill(second, vfstest.KeepAll, false)
		c.kill(third, vfstest.KeepAll, false)
		time.Sleep(20 * time.Second)

		second.other = false
		starts(second, third, first)
		c.calm()
		c.end()
		if len(c.ledger.broken) > 0 {
			t.Errorf("%s\n%s", strings.Join(c.ledger.lines, "\n"), strings.Join(c.ledger.broken, "\n"))
		}
	})
}

// TestATailThatBelongsIntoAGapIsKept: the broker that has it comes back as the master, where another one was that kept its place
// free.
func TestATailThatBelongsIntoAGapIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rnd := rand.New(rand.NewPCG(1, 1))
		set := drawSettings(rnd, none)
		set.role, set.flush, set.brokers, set.plain, set.fixed = config.AsyncMaster, store.AsyncFlush, 2, false, true
		set.segment, set.bytesBound, set.limit = 4<<10, 12<<10, 2*time.Second
		c := begin(1, rnd, set, false)
		first, second := c.nodes[0], c.nodes[1]
		send := func(count int) {
			for range count {
				c.sendTo(queueName{"T", 0}, 1, 300)
				c.requests.Wait()
			}
		}
		time.Sleep(20 * time.Second)
		send(5)
		time.Sleep(10 * time.Second)
		c.kill(second, vfstest.KeepAll, false)
		send(10)
		c.kill(first, vfstest.KeepAll, false)
		time.Sleep(20 * time.Second)
		second.other = true
		second.start()
		time.Sleep(20 * time.Second)
		send(3)
		c.kill(second, vfstest.KeepAll, false)
		time.Sleep(20 * time.Second)
		second.other = false
		first.start()
		second.start()
		time.Sleep(20 * time.Second)
		c.calm()
		c.end()
		if len(c.ledger.broken) > 0 {
			t.Errorf("%s\n%s", strings.Join(c.ledger.lines, "\n"), strings.Join(c.ledger.broken, "\n"))
		}
	})
}
