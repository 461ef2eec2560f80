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

// TestASlaveHasWhatItsMasterHadNotFlushed: with SYNC_FLUSH, too, slaves get what is written. Its place is not given to others when a
// power cut takes it from the master, and the slave, whose readers have seen it, is away.
func TestASlaveHasWhatItsMasterHadNotFlushed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rnd := rand.New(rand.NewPCG(1, 1))
		set := drawSettings(rnd, none)
		set.role, set.flush, set.brokers, set.plain, set.fixed = config.AsyncMaster, store.SyncFlush, 2, false, true
		set.limit = 5 * time.Second
		c := begin(1, rnd, set, false)
		master, slave := c.nodes[0], c.nodes[1]
		at := queueName{"T", 0}
		time.Sleep(10 * time.Second)
		c.sendTo(at, 1, 100)
		c.requests.Wait()
		master.process().disk.stall.Store(int64(time.Second))
		c.sendTo(at, 1, 100)
		time.Sleep(100 * time.Millisecond)
		c.kill(master, vfstest.KeepNothing, true)
		c.requests.Wait()
		time.Sleep(10 * time.Second)
		for _, k := range c.consumers {
			if k.queueName == at {
				c.pull(k, 0, 32)
				c.pull(k, 0, 32)
			}
		}
		c.kill(slave, vfstest.KeepAll, false)
		master.start()
		time.Sleep(20 * time.Second)
		c.sendTo(at, 3, 100)
		c.requests.Wait()
		c.calm()
		c.end()
		if len(c.ledger.broken) > 0 {
			t.Errorf("%s\n%s", strings.Join(c.ledger.lines, "\n"), strings.Join(c.ledger.broken, "\n"))
		}
	})
}
