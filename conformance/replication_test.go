//go:build conformance

package conformance

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/message"
	"github.com/ratchetmq/ratchet/protocol"
)

// replicated runs a test for both releases of Java's, side by side.
func replicated(t *testing.T, fn func(t *testing.T, java owner)) {
	t.Parallel()
	for _, version := range []owner{"4.9.7", "5.4.0"} {
		t.Run(string(version), func(t *testing.T) {
			t.Parallel()
			folders <- struct{}{}
			defer func() { <-folders }()
			fn(t, version)
		})
	}
}

// TestJavaSlave has a stock slave follow our SYNC_MASTER, through the restarts of both, and our master come back with less
// than the slave has.
func TestJavaSlave(t *testing.T) { replicated(t, testJavaSlaveFollows) }

func testJavaSlaveFollows(t *testing.T, java owner) {
	r := newReplicas(t, string(java))
	r.master.give(t, ratchet)
	r.master.createTopic(t, "Probe", 1, false)
	require.Equal(t, protocol.SlaveNotAvailable, r.master.try(t, "Probe"))
	r.slave.give(t, java)
	r.synced(t)
	r.more(t, 0)
	r.slave.paused(t, func() { require.Equal(t, protocol.FlushSlaveTimeout, r.master.try(t, "Probe")) })
	r.synced(t)
	r.level(t, 0)

	r.slave.take(t, syscall.SIGKILL)
	require.Eventually(t, func() bool { return len(r.master.status(t).Slaves) == 0 }, ownerStart, 20*time.Millisecond)
	require.Equal(t, protocol.SlaveNotAvailable, r.master.try(t, "Probe"))
	r.slave.give(t, java)
	r.synced(t)
	r.level(t, 0)

	// Ours is killed while it is sent to; what it said is on both is there.
	s := r.master.storm(t, 0)
	require.Eventually(t, s.blows, ownerStart, time.Millisecond)
	r.master.take(t, syscall.SIGKILL)
	s.wait()
	r.master.keep(t)
	r.master.give(t, ratchet)
	r.synced(t)
	r.more(t, 1)
	r.level(t, 0)
	r.sameTables(t)
	s.missing(r.sameMessages(t)).require(t, "what was acknowledged before the kill")

	// It comes back with what it had before, and then with nothing. Meanwhile the groups have gone on at the slave.
	for i, back := range []func(*testing.T){r.master.replace, func(t *testing.T) {
		t.Helper()
		require.NoError(t, os.RemoveAll(r.master.store()))
	}} {
		before := r.master.see(t)
		_, end := r.master.span(t)
		r.master.take(t, syscall.SIGKILL)
		for q := range int32(4) {
			r.slave.commit(t, "Billing", "Orders", q, r.slave.maxOffset(t, "Orders", q)-int64(3-i))
		}
		r.slave.commit(t, "Billing", "Events", 0, 1) // less than the master knows of
		want := maps.Clone(before.commits)
		for q := range int32(4) {
			want[progress{"Billing", "Orders", q}] = r.slave.maxOffset(t, "Orders", q) - int64(3-i)
		}
		if i > 0 { // nobody knows of more any more
			want[progress{"Billing", "Events", 0}] = 1
		}
		back(t)
		early := r.watch(t, end)
		r.master.give(t, ratchet)
		early(t)
		found := r.master.see(t)
		if i == 0 { // the older copy had it
			want[progress{"Billing", "Events", 0}] = found.commits[progress{"Billing", "Events", 0}]
			require.Positive(t, want[progress{"Billing", "Events", 0}]-1)
		}
		require.Equal(t, want, found.commits)
		before.commits = nil
		before.changed(found, true).require(t, "what the master got back")
		require.Empty(t, before.added(found))
		r.synced(t)
		for n := range 20 { // no new topics: the slave would not know them for up to a minute
			r.master.send(t, protocol.SendMessageRequest{Topic: "Orders", QueueID: int32(n % 4)}, []byte("follows on"))
		}
		r.level(t, 0)
	}
	r.sameMessages(t)
	r.master.take(t, syscall.SIGTERM)
	inspect(t, "check", "-levels", delays, "-slots", "100", r.master.store())
}

// watch looks at the name server until the master is registered there, and demands that its log goes to end by then.
func (r *replicas) watch(t *testing.T, end int64) (registered func(*testing.T)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	found := make(chan int64, 1)
	go func() { // owned: by the caller of registered, which waits for it
		defer close(found)
		for ; ctx.Err() == nil; time.Sleep(time.Millisecond) {
			answer, err := r.master.client.Call(ctx, r.namesrv.address, protocol.GetBrokerClusterInfo, nil, nil, nil)
			var info protocol.ClusterInfo
			if err != nil || protocol.Unmarshal(answer.Body, &info) != nil {
				continue
			}
			if info.BrokerAddrTable["interop-a"].BrokerAddrs[0] == r.master.address {
				var s protocol.ReplicaStatus
				if answer, err = r.master.client.Call(ctx, r.master.address, protocol.GetReplicaStatus, nil, nil, nil); err == nil {
					err = protocol.Unmarshal(answer.Body, &s)
				}
				if err == nil {
					found <- s.End
					return
				}
			}
		}
	}()
	return func(t *testing.T) {
		t.Helper()
		defer cancel()
		select {
		case at := <-found:
			require.GreaterOrEqual(t, at, end, "where the master's log ended when it was registered")
		case <-time.After(replicaWait):
			require.Fail(t, "the master does not register")
		}
	}
}

// TestJavaMaster has our slave follow a stock SYNC_MASTER, through the restarts of both, and the master come back with less
// than the slave has.
func TestJavaMaster(t *testing.T) { replicated(t, testJavaMaster) }

func testJavaMaster(t *testing.T, java owner) {
	r := newReplicas(t, string(java))
	none := protocol.SlaveNotAvailable
	if java == "5.4.0" {
		r.master.set(t, "inSyncReplicas", 2) // with 1, its default, SYNC_MASTER waits for nobody
		none = protocol.FlushSlaveTimeout    // it does not look whether there is a slave
	}
	r.master.set(t, "brokerRole", "ASYNC_MASTER")
	r.master.give(t, java)
	r.more(t, 0)
	r.more(t, 1)
	r.master.take(t, syscall.SIGTERM)
	r.master.keep(t)
	r.master.set(t, "brokerRole", "SYNC_MASTER")
	r.master.give(t, java)
	_, older := r.master.span(t)
	require.Greater(t, older, int64(2<<20), "the master has several files")
	require.Equal(t, none, r.master.try(t, "Probe"))

	// All files come, not the last one alone, as would be without a word about where to begin.
	r.slave.give(t, ratchet)
	r.synced(t)
	r.level(t, 0)
	r.more(t, 2)
	r.slave.paused(t, func() { require.Equal(t, protocol.FlushSlaveTimeout, r.master.try(t, "Probe")) })
	r.synced(t)
	r.slave.take(t, syscall.SIGKILL)
	require.Eventually(t, func() bool { return r.master.try(t, "Probe") == none }, ownerStart, 50*time.Millisecond) // it has to notice
	r.slave.give(t, ratchet)
	r.synced(t)
	r.level(t, 0)
	s := r.master.storm(t, 0)
	require.Eventually(t, s.blows, ownerStart, time.Millisecond)
	r.master.take(t, syscall.SIGKILL)
	s.wait()
	r.master.give(t, java)
	r.synced(t)
	r.level(t, 0)
	r.sameTables(t)
	s.missing(r.sameMessages(t)).require(t, "what was acknowledged before the kill")

	// The master comes back with what it had long before. The slave keeps what it has, gives it to who asks, and says
	// nothing that a send could take for an acknowledgement.
	before := r.slave.see(t)
	r.master.take(t, syscall.SIGKILL)
	_, end := r.slave.span(t)
	r.master.replace(t)
	r.master.give(t, java)
	require.Eventually(t, func() bool { return strings.Contains(r.slave.status(t).Waiting, "has less") }, ownerStart,
		50*time.Millisecond)
	require.Contains(t, []protocol.ResponseCode{none, protocol.FlushSlaveTimeout}, r.master.try(t, "Probe"))
	_, at := r.slave.span(t)
	require.Equal(t, end, at)
	r.slave.logs(t, "the master has less than is here: nothing is removed") // of its tables neither
	still := r.slave.see(t)
	before.changed(still, true).require(t, "what the slave keeps")

	// The master passes it with other bytes.
	body := []byte(strings.Repeat("other", 60_000))
	for _, now := r.master.span(t); now <= end; _, now = r.master.span(t) {
		r.master.send(t, protocol.SendMessageRequest{Topic: "Orders", Properties: properties(
			message.PropertyUniqueKey, "other", "WAIT", "false")}, body)
	}
	r.synced(t)
	r.level(t, 0)
	aside, err := filepath.Glob(filepath.Join(r.slave.store(), "diverged", "*"))
	require.NoError(t, err)
	require.Len(t, aside, 1)
	told := inspect(t, "log", "-n", "1000000", aside[0])
	diverged := 0
	for _, q := range still.queues {
		for _, r := range q.records {
			if int64(r.PhysicalOffset) < older {
				continue
			}
			diverged++
			require.Contains(t, told, fmt.Sprintf("\n%12d %8d ", r.PhysicalOffset, r.Size), "what was put aside")
		}
	}
	require.Positive(t, diverged)
	r.master.asked = nil // its groups are where they were long before; at the slave they do not go back
	r.sameMessages(t)
	r.slave.take(t, syscall.SIGTERM)
	inspect(t, "check", "-levels", delays, "-slots", "100", r.slave.store())
	require.Empty(t, slices.DeleteFunc(r.slave.lines(t), func(line string) bool { return !strings.Contains(line, "not a record") }))
}
