package sim

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratchetmq/ratchet/ha"
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
