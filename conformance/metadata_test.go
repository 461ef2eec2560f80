//go:build conformance

package conformance

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/delay"
	"github.com/ratchetmq/ratchet/ha"
	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/internal/state"
	"github.com/ratchetmq/ratchet/internal/vfs"
	"github.com/ratchetmq/ratchet/message"
	"github.com/ratchetmq/ratchet/protocol"
	"github.com/ratchetmq/ratchet/remoting"
	"github.com/ratchetmq/ratchet/store"
)

// aheadOfAll stands for a log that has everything another broker's log has.
type aheadOfAll struct{ *store.Store }

func (aheadOfAll) Written() offset.Physical { return 1 << 50 }
func (aheadOfAll) Flushed() offset.Physical { return 1 << 50 }

// newTables opens the tables of a broker of ours in a new folder, to take over those of others.
func newTables(t *testing.T) (m *ha.Metadata, removed *[]string) {
	t.Helper()
	dir := t.TempDir()
	logger := slog.New(slog.DiscardHandler)
	files := state.Files{FS: vfs.OS{}, Dir: filepath.Join(dir, "config"), Logger: logger}
	yes := func() bool { return true }
	topics, err := state.OpenTopics(state.TopicOptions{Files: files, Broker: "interop-a", Cluster: "interop", AutoCreate: yes, DefaultQueues: 8, DelayLevels: 18})
	require.NoError(t, err)
	groups, err := state.OpenGroups(state.GroupOptions{Files: files, AutoCreate: yes})
	require.NoError(t, err)
	offsets, err := state.OpenOffsets(state.OffsetOptions{Files: files})
	require.NoError(t, err)
	log, err := store.Open(store.Options{FS: vfs.OS{}, Root: dir, SegmentSize: 1 << 20, StoreHost: netip.MustParseAddrPort("127.0.0.1:10911")})
	require.NoError(t, err)
	scheduler, err := delay.Open(delay.Options{Store: aheadOfAll{log}, Path: filepath.Join(dir, "config", "delayOffset.json")})
	require.NoError(t, err)
	client, err := remoting.NewClient(remoting.ClientConfig{Logger: logger})
	require.NoError(t, err)
	t.Cleanup(func() {
		client.Close()
		require.NoError(t, offsets.Close())
		require.NoError(t, log.Close())
	})
	removed = new([]string)
	return &ha.Metadata{
		Topics: topics, Groups: groups, Offsets: offsets, Delay: scheduler, Client: client, Logger: logger,
		Removed: func(topic string) error {
			*removed = append(*removed, topic)
			return offsets.RemoveTopic(topic)
		},
	}, removed
}

// settings fills a broker with what others are to take over: topics, groups, offsets, a message that was delayed and one
// that waits.
func (f *folder) settings(t *testing.T) {
	t.Helper()
	f.createTopic(t, "Orders", 4, true)
	f.createTopic(t, "Short", 1, false)
	f.createGroup(t, "Billing", 5)
	f.createGroup(t, "Shipping", 7)
	f.send(t, protocol.SendMessageRequest{Topic: "Short", Properties: properties(
		message.PropertyUniqueKey, "short", message.PropertyDelayLevel, "1",
	)}, []byte("short"))
	for q := range int32(4) {
		for range 5 {
			f.send(t, protocol.SendMessageRequest{Topic: "Orders", QueueID: q}, []byte("order"))
		}
	}
	require.Eventually(t, func() bool { return f.maxOffset(t, "Orders", 3) == 5 && f.maxOffset(t, "Short", 0) == 1 }, ownerStart, 20*time.Millisecond)
	for q := range int32(4) {
		f.commit(t, "Billing", "Orders", q, int64(q)+1)
	}
	f.commit(t, "Shipping", "Short", 0, 1)
	require.Eventually(t, func() bool { return f.delayOffsets(t)[1] == 1 }, ownerStart, 100*time.Millisecond)
}

func (f *folder) delayOffsets(t *testing.T) map[int32]int64 {
	t.Helper()
	var table protocol.DelayOffsetTable
	require.NoError(t, protocol.Unmarshal(f.call(t, protocol.GetAllDelayOffset, nil, nil).Body, &table))
	return table.OffsetTable
}

func (f *folder) consumerOffsets(t *testing.T) map[string]map[int32]int64 {
	t.Helper()
	var table protocol.ConsumerOffsetTable
	require.NoError(t, protocol.Unmarshal(f.call(t, protocol.GetAllConsumerOffset, nil, nil).Body, &table))
	return table.OffsetTable
}

// TestTablesOfJavaBrokers has our broker take over what a Java broker gives, at once and in pages.
func TestTablesOfJavaBrokers(t *testing.T) {
	for _, c := range []struct {
		name, version string
		more          []any
	}{
		{"4.9.7", "4.9.7", nil},
		{"5.4.0", "5.4.0", nil},
		{"5.4.0-pages", "5.4.0", []any{"enableSplitMetadata", true, "splitMetadataSize", 3}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			folders <- struct{}{}
			defer func() { <-folders }()
			testTablesOfJava(t, c.version, c.more)
		})
	}
}

func testTablesOfJava(t *testing.T, version string, more []any) {
	dir := filepath.Join(workDir, strings.ReplaceAll(t.Name(), "/", "-"))
	require.NoError(t, os.MkdirAll(dir, 0o755))
	f := newFolder(t, dir, version, startNamesrv(t, dir, ""), more...)
	f.give(t, owner(version))
	f.settings(t)
	theirs := &view{}
	theirs.tables(t, f)

	if len(more) > 0 {
		page := &protocol.GetAllTopicConfigRequest{TopicSeq: protocol.Some(int32(0)), MaxTopicNum: 2000}
		var part protocol.TopicConfigSerializeWrapper
		require.NoError(t, protocol.Unmarshal(f.call(t, protocol.GetAllTopicConfig, page, nil).Body, &part))
		require.Len(t, part.TopicConfigTable, 3, "it gives pages")
	}

	slave, removed := newTables(t)
	_, end := f.span(t)
	slave.Written = func() offset.Physical { return offset.Physical(end) } // as far as the master: with more it would not believe it
	fetch := func(m *ha.Metadata, adopt ha.Adopt) {
		t.Helper()
		require.NoError(t, m.Fetch(t.Context(), f.address, adopt))
	}
	same := func(m *ha.Metadata) {
		t.Helper()
		for name, c := range theirs.topics {
			ours, ok := m.Topics.Get(name)
			require.True(t, ok, name)
			if !m.Topics.IsSystem(name) {
				require.Equal(t, normalTopic(c), normalTopic(*ours))
			}
		}
		for name, c := range theirs.groups {
			ours, ok := m.Groups.Get(name)
			require.True(t, ok, name)
			require.Equal(t, normalGroup(c), normalGroup(*ours))
		}
		require.Equal(t, f.consumerOffsets(t), m.Offsets.Table().OffsetTable)
		var delays protocol.DelayOffsetTable
		require.NoError(t, protocol.Unmarshal(m.Delay.Table(), &delays))
		require.Equal(t, f.delayOffsets(t), delays.OffsetTable)
	}
	fetch(slave, ha.AsSlave)
	same(slave)
	master, _ := newTables(t)
	_, err := master.Offsets.Commit(state.Commit{Group: "Billing", Topic: "Orders", Queue: 0, Offset: 1, Known: -1})
	require.NoError(t, err)
	fetch(master, ha.AsMaster)
	same(master)

	// What goes there goes here; and nothing but that.
	f.call(t, protocol.DeleteTopicInBroker, &protocol.DeleteTopicRequest{Topic: "Short"}, nil)
	f.call(t, protocol.DeleteSubscriptionGroup, &protocol.DeleteSubscriptionGroupRequest{GroupName: "Shipping", CleanOffset: true}, nil)
	// Java keeps the offsets of a deleted topic for a while, and 4.9 those of the group, which it asks for by another name.
	f.commit(t, "Billing", "Orders", 0, 5)
	fetch(slave, ha.AsSlave)
	fetch(master, ha.AsMaster)
	require.Equal(t, []string{"Short"}, *removed)
	_, ok := slave.Topics.Get("Short")
	require.False(t, ok)
	_, ok = slave.Groups.Get("Shipping")
	require.False(t, ok)
	require.Empty(t, slave.Offsets.TopicGroups("Short"))
	require.Equal(t, map[int32]offset.Queue{0: 5, 1: 2, 2: 3, 3: 4}, slave.Offsets.Queues("Billing", "Orders"))
	_, ok = master.Topics.Get("Short")
	require.True(t, ok)
	require.Equal(t, map[int32]offset.Queue{0: 5, 1: 2, 2: 3, 3: 4}, master.Offsets.Queues("Billing", "Orders"))

	// The other way round the consumers are further here: so they stay.
	_, err = master.Offsets.Commit(state.Commit{Group: "Billing", Topic: "Orders", Queue: 3, Offset: 5, Known: -1})
	require.NoError(t, err)
	fetch(master, ha.AsMaster)
	require.Equal(t, map[int32]offset.Queue{0: 5, 1: 2, 2: 3, 3: 5}, master.Offsets.Queues("Billing", "Orders"))
}

// spoiled are lines of a Java slave's log that say that it could not use what its master gave. It also asks for what we
// have not: how a topic is consumed, and timers.
var spoiled = regexp.MustCompile(`(?i)sync ?(TopicConfig|ConsumerOffset|DelayOffset|SubscriptionGroup).*exception|` +
	`(decode|parse|load).*(delayOffset|consumerOffset|topics|subscriptionGroup).*(fail|exception|error)`)

// TestJavaSlaves has a stock slave take its tables from our master. 5.4 does so for the first time after a minute.
func TestJavaSlaves(t *testing.T) {
	for _, version := range []string{"4.9.7", "5.4.0"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			folders <- struct{}{}
			defer func() { <-folders }()
			testJavaSlave(t, version)
		})
	}
}

func testJavaSlave(t *testing.T, version string) {
	dir := filepath.Join(workDir, strings.ReplaceAll(t.Name(), "/", "-"))
	slaveDir := filepath.Join(dir, "slave")
	require.NoError(t, os.MkdirAll(slaveDir, 0o755))
	n := startNamesrv(t, dir, "")
	master := newFolder(t, dir, version, n)
	master.give(t, ratchet)
	master.settings(t)
	master.call(t, protocol.InvokeBrokerToResetOffset, &protocol.ResetOffsetRequest{
		Group: "Billing", Topic: "Orders", IsForce: true, QueueID: protocol.Some(int32(3)), Offset: protocol.Some(int64(2)),
	}, nil)
	want := master.consumerOffsets(t)
	require.Equal(t, int64(2), want["Orders@Billing"][3])
	given := &view{}
	given.tables(t, master)

	slave := newFolder(t, slaveDir, version, n, "brokerId", 1, "brokerRole", "SLAVE")
	slave.give(t, owner(version))
	taken := &view{}
	require.Eventually(t, func() bool {
		return maps.EqualFunc(want, slave.consumerOffsets(t), maps.Equal[map[int32]int64, map[int32]int64])
	}, 3*time.Minute, 500*time.Millisecond, "consumer offsets of the slave")
	require.Eventually(t, func() bool { // the tables come one after the other
		taken.tables(t, slave)
		return missing(given.topics, taken.topics) == nil && missing(given.groups, taken.groups) == nil
	}, time.Minute, 200*time.Millisecond, "topics and groups of the slave")
	for name, c := range given.topics {
		require.Equal(t, normalTopic(c), normalTopic(taken.topics[name]))
	}
	for name, c := range given.groups {
		require.Equal(t, normalGroup(c), normalGroup(taken.groups[name]))
	}
	var file protocol.DelayOffsetTable
	text, err := os.ReadFile(filepath.Join(slaveDir, "store", "config", "delayOffset.json"))
	require.NoError(t, err)
	require.NoError(t, protocol.Unmarshal(text, &file))
	require.Equal(t, master.delayOffsets(t), file.OffsetTable)
	for _, line := range slave.lines(t) {
		require.NotRegexp(t, spoiled, line)
	}

	// Our master is gone; the group goes on at the slave. A master that returns learns of it, and of nothing else.
	master.take(t, syscall.SIGKILL)
	slave.commit(t, "Billing", "Orders", 0, 4)
	slave.commit(t, "Billing", "Orders", 1, 0)
	back, _ := newTables(t)
	_, err = back.Offsets.MergeMax(state.Positions(&protocol.ConsumerOffsetTable{OffsetTable: want}))
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	require.NoError(t, back.Merge(ctx, slave.address))
	require.Equal(t, map[int32]offset.Queue{0: 4, 1: 2, 2: 3, 3: 2}, back.Offsets.Queues("Billing", "Orders"))
	_, ok := back.Topics.Get("Orders")
	require.True(t, ok)
}

// missing are the names in one table that another lacks.
func missing[V any](in, from map[string]V) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(in)) {
		if _, ok := from[name]; !ok {
			names = append(names, name)
		}
	}
	return names
}

// lines is what the owner has logged.
func (f *folder) lines(t *testing.T) (all []string) {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(f.home, "logs", "rocketmqlogs", "*.log"))
	require.NoError(t, err)
	for _, log := range append(logs, f.server.Log) {
		text, err := os.ReadFile(log)
		require.NoError(t, err)
		all = append(all, strings.Split(string(text), "\n")...)
	}
	return all
}
