//go:build conformance && linux

package crash

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// powerLife is how many cycles a store lives through; then it would be too large for its disk, and each verification,
// which reads all of it, too slow.
const powerLife = 13

// powerCycles is how often a power-cut test cuts: CI's number, or POWERCUT_CYCLES.
func powerCycles(t *testing.T, ci int) int {
	text, ok := os.LookupEnv("POWERCUT_CYCLES")
	if !ok {
		return ci
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err)
	return n
}

// TestPowerCutSyncFlush: what was acknowledged is there after a power cut, where the broker said; nothing else is.
func TestPowerCutSyncFlush(t *testing.T) { powerCut(t, "SYNC_FLUSH", powerCycles(t, 25)) }

// TestPowerCutAsyncFlush: the last messages may be lost, and only these.
func TestPowerCutAsyncFlush(t *testing.T) { powerCut(t, "ASYNC_FLUSH", powerCycles(t, 10)) }

// powerCut spreads the cycles over stores, in turn on ext4 and XFS.
func powerCut(t *testing.T, flush string, cycles int) {
	kinds := []string{"ext4", "xfs"}
	stores := max(len(kinds), (cycles+powerLife-1)/powerLife)
	first := 0 // the way in which the store's first cycle ends; the next store goes on with the next
	for n := range stores {
		count := cycles / stores
		if n < cycles%stores {
			count++
		}
		t.Run(fmt.Sprintf("%s-%d", kinds[n%len(kinds)], n/len(kinds)), func(t *testing.T) {
			newPowerStore(t, kinds[n%len(kinds)], flush).live(first, count)
		})
		first += count
	}
}

// powerStore is a store on a disk of its own, and a broker on it that is started again and again.
type powerStore struct {
	t      *testing.T
	sync   bool
	disk   *disk
	server *server
	ledger *powerLedger

	messages int           // acknowledged
	lost     int           // of these
	oldest   time.Duration // before the cut, of those
	ahead    int           // how often a consumer was ahead of its queue
}

func newPowerStore(t *testing.T, kind, flush string) *powerStore {
	c := &powerStore{t: t, sync: flush == "SYNC_FLUSH", disk: newDisk(t, kind), ledger: newPowerLedger()}
	// Small files, so that each kind has its changes of file in every cycle.
	c.server = prepareServer(t, "-v", "-set", "flushDiskType="+flush, "-set", "mappedFileSizeCommitLog=1048576",
		"-set", "mappedFileSizeConsumeQueue=4000", "-set", "maxHashSlotNum=500", "-set", "maxIndexNum=2000")
	c.server.data = c.disk.dir + "/data"
	return c
}

// live lets the store go through cycles. Each has the power cut in another situation.
func (c *powerStore) live(first, cycles int) {
	defer func() { // also when it has failed
		c.t.Logf("%d cycles, %d messages acknowledged, %d of them lost, the oldest %v old; a consumer ahead of its queue %d times",
			cycles, c.messages, c.lost, c.oldest.Round(time.Millisecond), c.ahead)
		if c.t.Failed() {
			c.t.Logf("the broker's log:\n%s", c.server.log())
		}
	}()
	c.cutWhileStarting() // the very first start
	c.start()
	ends := []func(*load) (cut time.Time, clean string){
		c.underLoad, c.killedThenCut, c.killedStartedCut, c.afterStop, c.underLoad, c.twice, c.longUnderLoad, c.duringStop,
	}
	pauses := []time.Duration{0, time.Millisecond, 10 * time.Millisecond}
	for n := range cycles {
		cycle := fmt.Sprintf("%d", n)
		a := startLoad(c.t, c.server.broker, c.ledger, cycle, pauses[n%len(pauses)])
		end := (first + n) % len(ends)
		cut, clean := ends[end](a)
		a.over.Store(true)
		a.work.Wait()
		require.False(c.t, c.t.Failed(), "cycle %d, end %d", n, end)
		before := len(c.server.log())
		c.start()
		c.requireLogged(before, clean)
		c.verify(cut)
	}
	c.awaitDelayed()
	c.server.stop()
}

// start starts the broker and waits until it is open, which a slow disk can make later than its start.
func (c *powerStore) start() {
	before := len(c.server.log())
	c.server.start()
	require.Eventually(c.t, func() bool { return strings.Contains(c.server.log()[before:], "msg=open ") }, time.Minute,
		10*time.Millisecond, "the broker does not open")
}

var bootID = regexp.MustCompile(`"boot": *"[^"]*"`)

// remount gives the power back. The machine was not started anew, so that the broker would trust its page cache: it is made to
// forget in which boot it was.
func (c *powerStore) remount() {
	c.disk.remount()
	path := c.server.data + "/store/replication.json"
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) { // it was cut before its first start was through
		return
	}
	require.NoError(c.t, err)
	require.Regexp(c.t, bootID, string(text))
	require.NoError(c.t, os.WriteFile(path, bootID.ReplaceAll(text, []byte(`"boot": ""`)), 0o644))
}

var recovered = regexp.MustCompile(`store recovered.*clean=(\w+)`)

// requireLogged demands that the start says how the stop before was; clean may be empty for "either".
func (c *powerStore) requireLogged(from int, clean string) {
	said := recovered.FindStringSubmatch(c.server.log()[from:])
	require.Len(c.t, said, 2, "the log says nothing of a recovery")
	if clean != "" {
		require.Equal(c.t, clean, said[1])
	}
}

// await lets the load go on for some time, less when it has done enough.
func (c *powerStore) await(least, most time.Duration) {
	target := rand.Int64N(powerBudget)
	end := time.After(least + rand.N(most-least))
	for tick := time.Tick(time.Millisecond); c.ledger.ackedBytes() < target || least > time.Second; {
		select {
		case <-end:
			return
		case <-tick:
		}
	}
}

// cut takes the power away, kills the broker a little later, and gives the power back.
func (c *powerStore) cut(a *load) time.Time {
	if a != nil {
		a.over.Store(true)
	}
	c.ledger.turn(going)
	now := time.Now()
	c.disk.cut()
	c.ledger.turn(gone)
	<-time.After(rand.N(40 * time.Millisecond)) // for the broker to do wrong on a dead disk
	if c.server.cmd != nil {
		c.server.kill9()
	}
	if a != nil {
		a.work.Wait()
	}
	c.remount()
	c.ledger.turn(powered)
	return now
}

func (c *powerStore) cutWhileStarting() {
	c.server.launch()
	<-time.After(rand.N(80 * time.Millisecond))
	c.cut(nil)
}

func (c *powerStore) underLoad(a *load) (time.Time, string) {
	c.await(20*time.Millisecond, 700*time.Millisecond)
	return c.cut(a), "false"
}

// longUnderLoad is long enough for offsets that must be safe.
func (c *powerStore) longUnderLoad(a *load) (time.Time, string) {
	c.await(2500*time.Millisecond, 3500*time.Millisecond)
	return c.cut(a), "false"
}

// twice cuts the power again while the broker recovers from the first cut.
func (c *powerStore) twice(a *load) (time.Time, string) {
	cut, _ := c.underLoad(a)
	c.cutWhileStarting()
	return cut, "false"
}

// killedThenCut leaves everything with the kernel, and cuts while the broker recovers from the kill.
func (c *powerStore) killedThenCut(a *load) (time.Time, string) {
	c.await(20*time.Millisecond, 700*time.Millisecond)
	a.over.Store(true)
	now := time.Now()
	c.server.kill9()
	a.work.Wait() // an answer that is on its way counts
	c.cutWhileStarting()
	return now, "false"
}

// killedStartedCut leaves everything with the kernel, and cuts when the broker has just started on that: what it has
// shown to anybody since must stay.
func (c *powerStore) killedStartedCut(a *load) (time.Time, string) {
	c.await(20*time.Millisecond, 700*time.Millisecond)
	a.over.Store(true)
	c.server.kill9()
	a.work.Wait()
	c.start()
	c.verify(time.Time{})
	return c.cut(nil), "false"
}

// duringStop cuts while the broker stops in order.
func (c *powerStore) duringStop(a *load) (time.Time, string) {
	c.await(20*time.Millisecond, 700*time.Millisecond)
	a.over.Store(true)
	require.NoError(c.t, c.server.cmd.Process.Signal(syscall.SIGTERM))
	<-time.After(rand.N(60 * time.Millisecond))
	return c.cut(a), ""
}

// afterStop cuts after the broker has stopped in order: then nothing may be lost.
func (c *powerStore) afterStop(a *load) (time.Time, string) {
	c.await(20*time.Millisecond, 700*time.Millisecond)
	a.over.Store(true)
	c.server.stop()
	a.work.Wait()
	c.cut(nil)
	return time.Time{}, "true"
}
