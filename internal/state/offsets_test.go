package state

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/internal/vfs"
	"github.com/ratchetmq/ratchet/internal/vfs/vfstest"
	"github.com/ratchetmq/ratchet/protocol"
)

const dir = "/store/config"

// clock is a time that a test moves.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.UnixMilli(1_700_000_000_000)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func openOffsets(t testing.TB, fsys vfs.FS, now func() time.Time) *Offsets {
	t.Helper()
	o, err := OpenOffsets(OffsetOptions{Files: Files{FS: fsys, Dir: dir, Now: now}})
	require.NoError(t, err)
	return o
}

func commit(t testing.TB, o *Offsets, group, topic string, queue int32, off offset.Queue) Committed {
	t.Helper()
	c, err := o.Commit(Commit{Group: group, Topic: topic, Queue: queue, Offset: off, Known: -1})
	require.NoError(t, err)
	return c
}

func requireOffset(t testing.TB, o *Offsets, group, topic string, queue int32, want offset.Queue) {
	t.Helper()
	got, ok := o.Query(group, topic, queue)
	require.True(t, ok, "%s %s/%d", group, topic, queue)
	require.Equal(t, want, got, "%s %s/%d", group, topic, queue)
}

// killed is what the disk holds after kill -9: the page cache survives the process.
func killed(m *vfstest.Mem) *vfstest.Mem { return m.CrashClone(vfstest.KeepAll, 0) }

// Scenario 1-04: RocketMQ is back at 0, since it persists every 5 s and first after 10 s.
func TestACommitSurvivesKill(t *testing.T) {
	fsys := vfstest.New()
	o := openOffsets(t, fsys, nil)
	commit(t, o, "g", "t", 0, 150)
	o = openOffsets(t, killed(fsys), nil)
	requireOffset(t, o, "g", "t", 0, 150)

	fsys = vfstest.New()
	o = openOffsets(t, fsys, nil)
	commit(t, o, "g", "t", 0, 150)
	require.NoError(t, o.Save())
	commit(t, o, "g", "t", 0, 190)
	o = openOffsets(t, killed(fsys), nil)
	requireOffset(t, o, "g", "t", 0, 190)
}

func TestACommitSurvivesPowerLossOnceTheJournalIsSynced(t *testing.T) {
	fsys := vfstest.New()
	o := openOffsets(t, fsys, nil)
	commit(t, o, "g", "t", 0, 150)
	require.NoError(t, o.Tick())
	commit(t, o, "g", "t", 0, 160)
	for seed := range uint64(20) {
		again := openOffsets(t, fsys.CrashClone(vfstest.KeepSome, seed), nil)
		got, ok := again.Query("g", "t", 0)
		require.True(t, ok)
		require.Contains(t, []offset.Queue{150, 160}, got)
	}
	requireOffset(t, openOffsets(t, fsys.CrashClone(vfstest.KeepNothing, 0), nil), "g", "t", 0, 150)
}

// Scenario 1-08.
func TestACommitThatCanNotBeIsRefused(t *testing.T) {
	o := openOffsets(t, vfstest.New(), nil)
	put := func(off, known offset.Queue) (Committed, error) {
		return o.Commit(Commit{Group: "g", Topic: "t", Offset: off, Known: known})
	}
	for _, step := range []struct {
		off, known offset.Queue
		err        error
		want       Committed
		then       offset.Queue
	}{
		{8, 10, nil, Committed{Stored: true, Before: -1}, 8},
		{999, 10, ErrOffsetBeyond, Committed{Before: -1}, 8},
		{-7, 10, ErrNegativeOffset, Committed{Before: -1}, 8},
		{-1, -1, ErrNegativeOffset, Committed{Before: -1}, 8},
		{3, 10, nil, Committed{Stored: true, WentBack: true, Before: 8}, 3},
		{3, 10, nil, Committed{Stored: true, Before: 3}, 3},
		{10, 10, nil, Committed{Stored: true, Before: 3}, 10},
		{999, -1, nil, Committed{Stored: true, Before: 10}, 999},
	} {
		got, err := put(step.off, step.known)
		require.ErrorIs(t, err, step.err)
		require.Equal(t, step.want, got)
		requireOffset(t, o, "g", "t", 0, step.then)
	}
	require.Equal(t, OffsetStats{Commits: 5, WentBack: 1, Refused: 3}, o.Stats())
	for _, c := range []Commit{{Topic: "t"}, {Group: "g"}, {Group: "g", Topic: "a@b"}, {Group: "g", Topic: "t", Queue: -1}} {
		_, err := o.Commit(c)
		require.ErrorIs(t, err, ErrOffsetName)
	}
}

func TestHighestOnlyRises(t *testing.T) {
	fsys := vfstest.New()
	o := openOffsets(t, fsys, nil)
	_, ok := o.Highest("t", 0)
	require.False(t, ok)
	commit(t, o, "a", "t", 0, 8)
	commit(t, o, "b", "t", 0, 5)
	commit(t, o, "a", "t", 0, 3)
	commit(t, o, "a", "t", 1, 0)
	require.NoError(t, o.RemoveGroup("a"))
	check := func(o *Offsets, queue int32, want offset.Queue) {
		h, ok := o.Highest("t", queue)
		require.True(t, ok)
		require.Equal(t, want, h)
	}
	check(o, 0, 8)
	check(o, 1, 0)
	require.NoError(t, o.RemoveTopic("t"))
	_, ok = o.Highest("t", 0)
	require.False(t, ok, "a topic that is created again starts anew")
}

// Scenario 1-13.
func TestARemovedGroupDoesNotComeBack(t *testing.T) {
	for name, restart := range map[string]func(*testing.T, *Offsets, *vfstest.Mem) *Offsets{
		"killed": func(t *testing.T, _ *Offsets, fsys *vfstest.Mem) *Offsets { return openOffsets(t, killed(fsys), nil) },
		"stopped": func(t *testing.T, o *Offsets, fsys *vfstest.Mem) *Offsets {
			require.NoError(t, o.Close())
			return openOffsets(t, fsys, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			fsys := vfstest.New()
			o := openOffsets(t, fsys, nil)
			commit(t, o, "g", "t", 0, 10)
			commit(t, o, "g", protocol.RetryTopic("g"), 0, 2)
			commit(t, o, "other", "t", 0, 7)
			require.NoError(t, o.Reset("g", "t", 0, 4))
			require.Equal(t, []string{"%RETRY%g", "t"}, o.GroupTopics("g"))
			require.Equal(t, []string{"g", "other"}, o.TopicGroups("t"))
			require.NoError(t, o.RemoveGroup("g"))
			for range 2 {
				_, ok := o.Query("g", "t", 0)
				require.False(t, ok)
				_, ok = o.PulledReset("g", "t", 0, 10)
				require.False(t, ok, "nor does its reset")
				require.Empty(t, o.GroupTopics("g"))
				require.Equal(t, []string{"other"}, o.TopicGroups("t"))
				require.Zero(t, o.Stats().PendingResets)
				requireOffset(t, o, "other", "t", 0, 7)
				o = restart(t, o, fsys)
			}
		})
	}
}

// Scenario 1-16.
func TestAResetWinsOverLateCommits(t *testing.T) {
	fsys, c := vfstest.New(), newClock()
	o := openOffsets(t, fsys, c.Now)
	commit(t, o, "g", "t", 0, 1000)
	require.NoError(t, o.Reset("g", "t", 0, 100))
	for range 2 { // the second time after a restart
		requireOffset(t, o, "g", "t", 0, 100)
		require.True(t, commit(t, o, "g", "t", 0, 1010).Ignored)
		requireOffset(t, o, "g", "t", 0, 100)
		o = openOffsets(t, killed(fsys), c.Now)
	}
	to, ok := o.PulledReset("g", "t", 0, 1010)
	require.True(t, ok)
	require.Equal(t, offset.Queue(100), to)
	// A 4.9 client reports the old position for up to 10 s after it was told, and the answer may be lost.
	c.advance(5 * time.Second)
	require.True(t, commit(t, o, "g", "t", 0, 1010).Ignored)
	_, ok = o.PulledReset("g", "t", 0, 1010)
	require.True(t, ok)
	// It follows.
	require.True(t, commit(t, o, "g", "t", 0, 100).Stored)
	require.Zero(t, o.Stats().PendingResets)
	_, ok = o.PulledReset("g", "t", 0, 100)
	require.False(t, ok)
	require.True(t, commit(t, o, "g", "t", 0, 120).Stored)
	requireOffset(t, o, "g", "t", 0, 120)
}

func TestAResetEndsWithAPullOfItsOffset(t *testing.T) {
	fsys := vfstest.New()
	o := openOffsets(t, fsys, nil)
	require.NoError(t, o.Reset("g", "t", 0, 1000)) // forth, for a group that was never here
	_, ok := o.PulledReset("g", "t", 0, 1000)
	require.False(t, ok)
	require.Zero(t, o.Stats().PendingResets)
	require.True(t, commit(t, o, "g", "t", 0, 5).WentBack, "from here on the group may do what it likes")
	require.Zero(t, openOffsets(t, killed(fsys), nil).Stats().PendingResets)
}

func TestAResetEndsSomeTimeAfterAClientWasToldThatDoesNotFollow(t *testing.T) {
	c := newClock()
	o := openOffsets(t, vfstest.New(), c.Now)
	commit(t, o, "g", "t", 0, 1000)
	require.NoError(t, o.Reset("g", "t", 0, 100))
	c.advance(time.Hour)
	_, ok := o.PulledReset("g", "t", 0, 1000)
	require.True(t, ok, "the time runs from when it was told, not from the reset")
	c.advance(toldFor - time.Second)
	_, ok = o.PulledReset("g", "t", 0, 1000)
	require.True(t, ok)
	c.advance(2 * time.Second)
	_, ok = o.PulledReset("g", "t", 0, 1000)
	require.False(t, ok)
	require.True(t, commit(t, o, "g", "t", 0, 1001).Stored)

	require.NoError(t, o.Reset("g", "t", 0, 100))
	_, ok = o.PulledReset("g", "t", 0, 1001)
	require.True(t, ok)
	c.advance(toldFor)
	_, ok = o.PulledReset("g", "t", 0, 1001)
	require.True(t, ok)
	c.advance(time.Second)
	require.True(t, commit(t, o, "g", "t", 0, 1002).Stored)
	require.Zero(t, o.Stats().PendingResets)
	require.ErrorIs(t, o.Reset("g", "t", 0, -1), ErrNegativeOffset)
	require.ErrorIs(t, o.Reset("g", "a@b", 0, 1), ErrOffsetName)
}

// TestAResetIsToldAgainToAGroupThatWasSilent: the answer by which it was told may be lost, with the client's connection.
func TestAResetIsToldAgainToAGroupThatWasSilent(t *testing.T) {
	c := newClock()
	o := openOffsets(t, vfstest.New(), c.Now)
	commit(t, o, "g", "t", 0, 1000)
	require.NoError(t, o.Reset("g", "t", 0, 100))
	for range 2 {
		_, ok := o.PulledReset("g", "t", 0, 1000)
		require.True(t, ok)
		c.advance(toldFor + time.Second)
		require.True(t, commit(t, o, "g", "t", 0, 1000).Ignored)
	}
	to, ok := o.PulledReset("g", "t", 0, 1000)
	require.True(t, ok)
	require.EqualValues(t, 100, to)
}

// TestAnOperatorsActSurvivesAPowerCut, where a commit of the last second does not.
func TestAnOperatorsActSurvivesAPowerCut(t *testing.T) {
	fsys := vfstest.New()
	o := openOffsets(t, fsys, nil)
	commit(t, o, "g", "t", 0, 1000)
	commit(t, o, "g", "deleted", 0, 5)
	require.NoError(t, o.Reset("g", "t", 0, 100))
	after := openOffsets(t, fsys.CrashClone(vfstest.KeepNothing, 1), nil)
	requireOffset(t, after, "g", "t", 0, 100)
	require.EqualValues(t, 1, after.Stats().PendingResets)
	require.NoError(t, o.RemoveTopic("deleted"))
	_, ok := openOffsets(t, fsys.CrashClone(vfstest.KeepNothing, 1), nil).Query("g", "deleted", 0)
	require.False(t, ok)
}

// Promise P4: progress only rises between replicas, but an operator's reset wins.
func TestMergeTakesTheMaximumUnlessAResetStandsBetween(t *testing.T) {
	for _, c := range []struct {
		name      string
		mine      func(*Offsets)
		peer      Position
		want      offset.Queue
		raised    int
		stillTold bool
	}{
		{"new", func(*Offsets) {}, Position{Offset: 7}, 7, 1, false},
		{"higher", func(o *Offsets) { commit(t, o, "g", "t", 0, 5) }, Position{Offset: 7}, 7, 1, false},
		{"lower", func(o *Offsets) { commit(t, o, "g", "t", 0, 9) }, Position{Offset: 7}, 9, 0, false},
		{"negative", func(o *Offsets) { commit(t, o, "g", "t", 0, 9) }, Position{Offset: -1}, 9, 0, false},
		{"a peer from before my reset", resetTo100, Position{Offset: 990}, 100, 0, true},
		{"a peer above my reset's prior, not seen yet by the group", resetTo100, Position{Offset: 2000}, 100, 0, true},
		{"a Java peer after my reset, below its prior", settledAt100, Position{Offset: 150, Plain: true}, 100, 0, false},
		{"a Java peer after my reset, above its prior", settledAt100, Position{Offset: 1100, Plain: true}, 1100, 1, false},
		{"a peer that knows resets, but not mine, above its prior", settledAt100, Position{Offset: 1100}, 100, 0, false},
		{"a peer where the group has followed", resetTo100, Position{Offset: 100, Epoch: 1_700_000_000_000}, 100, 1, false},
		{"a peer from before the first of two resets", func(o *Offsets) {
			resetTo100(o)
			_ = o.Reset("g", "t", 0, 50)
			o.PulledReset("g", "t", 0, 50)
		}, Position{Offset: 990}, 50, 0, false},
		{"a peer with the first of two resets", func(o *Offsets) {
			resetTo100(o)
			_ = o.Reset("g", "t", 0, 50)
			o.PulledReset("g", "t", 0, 50)
		}, Position{Offset: 110, Epoch: 1_700_000_000_000}, 50, 0, false},
		{"a peer with the same reset", settledAt100, Position{Offset: 150, Epoch: 1_700_000_000_000}, 150, 1, false},
		{"a peer with a later reset", settledAt100, Position{Offset: 50, Epoch: 1_700_000_000_001}, 50, 1, false},
		{"a peer with a later reset that is pending", settledAt100, Position{Offset: 50, Epoch: 1_700_000_000_001, Pending: true}, 50, 1, true},
		{"a peer with a reset, I have none", func(o *Offsets) { commit(t, o, "g", "t", 0, 1000) }, Position{Offset: 50, Epoch: 1}, 50, 1, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			fsys := vfstest.New()
			o := openOffsets(t, fsys, newClock().Now)
			c.mine(o)
			c.peer.Group, c.peer.Topic = "g", "t"
			raised, err := o.MergeMax([]Position{c.peer})
			require.NoError(t, err)
			require.Equal(t, c.raised, raised)
			requireOffset(t, o, "g", "t", 0, c.want)
			requireOffset(t, openOffsets(t, killed(fsys), nil), "g", "t", 0, c.want)
			_, told := o.PulledReset("g", "t", 0, 12345)
			require.Equal(t, c.stillTold, told)
		})
	}
}

func resetTo100(o *Offsets) {
	_, _ = o.Commit(Commit{Group: "g", Topic: "t", Offset: 1000, Known: -1})
	_ = o.Reset("g", "t", 0, 100)
}

func settledAt100(o *Offsets) {
	resetTo100(o)
	o.PulledReset("g", "t", 0, 100)
}

func TestAMergeOfOurOwnTableChangesNothing(t *testing.T) {
	o := openOffsets(t, vfstest.New(), nil)
	commit(t, o, "g", "t", 3, 10)
	commit(t, o, "h", "t", 0, 5)
	require.NoError(t, o.Reset("h", "t", 0, 2))
	table := o.Table()
	require.Equal(t, map[string]map[int32]int64{"t@g": {3: 10}, "t@h": {0: 2}}, table.OffsetTable)
	raised, err := o.MergeMax(Positions(table))
	require.NoError(t, err)
	require.Zero(t, raised)
	var all []Position
	o.Each(func(p Position) bool { all = append(all, p); return true })
	raised, err = o.MergeMax(all)
	require.NoError(t, err)
	require.Zero(t, raised)
	n := 0
	o.Each(func(Position) bool { n++; return false })
	require.Equal(t, 1, n)
}

// An operator's reset goes to a replica with the table, and wins there over the larger number.
func TestResetsTravelWithTheTable(t *testing.T) {
	master, slave := openOffsets(t, vfstest.New(), nil), openOffsets(t, vfstest.New(), nil)
	take := func() {
		t.Helper()
		text, err := protocol.Marshal(master.Table())
		require.NoError(t, err)
		var table protocol.ConsumerOffsetTable
		require.NoError(t, protocol.Unmarshal(text, &table))
		_, err = slave.MergeMax(Positions(&table))
		require.NoError(t, err)
	}
	at := func() offset.Queue {
		p, _ := slave.Query("g", "t", 0)
		return p
	}
	commit(t, master, "g", "t", 0, 10)
	take()
	require.NoError(t, master.Reset("g", "t", 0, 3))
	take()
	require.Equal(t, offset.Queue(3), at())
	_, told := slave.PulledReset("g", "t", 0, 10)
	require.True(t, told, "the group has not followed yet, and is told here too")
	master.PulledReset("g", "t", 0, 3)
	commit(t, master, "g", "t", 0, 5)
	take()
	require.Equal(t, offset.Queue(5), at())
}

func TestAMarkChangesWithTheTable(t *testing.T) {
	fsys := vfstest.New()
	o := openOffsets(t, fsys, nil)
	seen := map[string]bool{}
	changed := func(what string) {
		t.Helper()
		require.False(t, seen[o.Mark()], what)
		seen[o.Mark()] = true
		require.NoError(t, o.Save())
		require.True(t, seen[o.Mark()], "a snapshot changes nothing")
	}
	changed("at first")
	commit(t, o, "g", "t", 0, 10)
	changed("commit")
	commit(t, o, "g", "t", 0, 10)
	require.True(t, seen[o.Mark()], "nothing new")
	require.NoError(t, o.Reset("g", "t", 0, 3))
	changed("reset")
	o.PulledReset("g", "t", 0, 3)
	changed("the group followed")
	require.NoError(t, o.RemoveTopic("t"))
	changed("topic removed")
}

func TestQueuesOfAGroup(t *testing.T) {
	o := openOffsets(t, vfstest.New(), nil)
	commit(t, o, "g", "t", 0, 1)
	commit(t, o, "g", "t", 7, 2)
	require.Equal(t, map[int32]offset.Queue{0: 1, 7: 2}, o.Queues("g", "t"))
	require.Empty(t, o.Queues("g", "nosuch"))
	require.NoError(t, o.Remove("g", "t"))
	require.Empty(t, o.Queues("g", "t"))
	require.NoError(t, o.Remove("g", "nosuch"))
}

// What Commit answered for is there after a kill, with commits from many goroutines while snapshots are made.
func TestCommitsWhileSnapshotsAreMade(t *testing.T) {
	fsys := vfstest.New()
	o := openOffsets(t, fsys, nil)
	const workers, each = 8, 200
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range each {
				_, err := o.Commit(Commit{Group: fmt.Sprint("g", w%3), Topic: fmt.Sprint("t", w), Queue: int32(i % 4), Offset: offset.Queue(i), Known: -1})
				if err != nil {
					panic(err)
				}
			}
		})
	}
	for range 20 {
		require.NoError(t, o.Save())
	}
	wg.Wait()
	again := openOffsets(t, killed(fsys), nil)
	require.Equal(t, o.Table().OffsetTable, again.Table().OffsetTable)
	require.Equal(t, slices.Sorted(maps.Keys(o.index.topics)), slices.Sorted(maps.Keys(again.index.topics)))
	for w := range workers {
		requireOffset(t, again, fmt.Sprint("g", w%3), fmt.Sprint("t", w), 3, each-1)
	}
}
