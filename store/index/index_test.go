package index

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/netip"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/internal/vfs/vfstest"
	"github.com/ratchetmq/ratchet/message"
)

const dir = "/store/index"

var start = time.Date(2026, 11, 29, 14, 52, 46, 531e6, time.Local)

// small is the size of the fixtures' files.
func small() Options {
	return Options{Slots: 50, Entries: 200, Now: func() time.Time { return start }}
}

func open(t testing.TB, disk *vfstest.Mem, opts Options) *Index {
	t.Helper()
	x, err := Open(disk, dir, opts)
	require.NoError(t, err)
	return x
}

// record makes a stored message of 100 bytes at number*100.
func record(number int, topic, unique, user, tags string) *message.Record {
	var props []byte
	props = message.AppendProperty(props, message.PropertyUniqueKey, unique)
	props = message.AppendProperty(props, message.PropertyKeys, user)
	props = message.AppendProperty(props, message.PropertyTags, tags)
	return &message.Record{
		Size: 100, PhysicalOffset: offset.Physical(number * 100), Topic: []byte(topic), Properties: props,
		StoreTimestamp: start.UnixMilli() + int64(number)*250, StoreHost: netip.MustParseAddrPort("127.0.0.1:10911"),
	}
}

// numbered is a message with a unique key, two keys of which one is shared by ten messages, and one of three tags.
func numbered(i int) *message.Record {
	return record(i, "T", fmt.Sprintf("U%05d", i), fmt.Sprintf("k%05d shared%d", i, i/10), fmt.Sprintf("tag%d", i%3))
}

func find(t testing.TB, x *Index, topic, key string, kind Kind) (found []offset.Physical) {
	t.Helper()
	require.NoError(t, x.Each(topic, key, kind, math.MinInt64, math.MaxInt64, func(phy offset.Physical) bool {
		found = append(found, phy)
		return true
	}))
	return found
}

// requireNumbered checks that the messages from (included) to (excluded) are found by each of their keys, and none
// else by their unique keys.
func requireNumbered(t *testing.T, x *Index, from, to int) {
	t.Helper()
	tagged := map[string][]offset.Physical{}
	for i := to - 1; i >= from; i-- {
		phy := offset.Physical(i * 100)
		require.Contains(t, find(t, x, "T", fmt.Sprintf("U%05d", i), UniqueKey), phy)
		require.Contains(t, find(t, x, "T", fmt.Sprintf("k%05d", i), UserKey), phy)
		require.Contains(t, find(t, x, "T", fmt.Sprintf("shared%d", i/10), UserKey), phy)
		tag := fmt.Sprintf("tag%d", i%3)
		tagged[tag] = append(tagged[tag], phy)
	}
	for tag, want := range tagged {
		require.Equal(t, want, find(t, x, "T", tag, TagKey))
	}
	require.Empty(t, find(t, x, "T", fmt.Sprintf("U%05d", to), UniqueKey))
}

// fileNames are the index files, the oldest first.
func fileNames(t testing.TB, disk *vfstest.Mem) (names []string) {
	t.Helper()
	entries, err := disk.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	slices.Sort(names)
	return names
}

func TestQuerySeesWhatWasPutBefore(t *testing.T) {
	x := open(t, vfstest.New(), small())
	for i := range 30 {
		require.NoError(t, x.Put(numbered(i)))
		requireNumbered(t, x, 0, i+1)
		if i%7 == 0 {
			require.NoError(t, x.Flush())
			requireNumbered(t, x, 0, i+1)
		}
	}
	require.NoError(t, x.Close())
	require.ErrorIs(t, x.Put(numbered(31)), ErrClosed)
	require.ErrorIs(t, x.Flush(), ErrClosed)
}

func TestQueryNewestFirstWithinTimeAndLimit(t *testing.T) {
	x := open(t, vfstest.New(), small())
	for i := range 20 {
		require.NoError(t, x.Put(record(i, "T", "", "same", "")))
		if i == 9 {
			require.NoError(t, x.Flush())
		}
	}
	at := func(i int) int64 { return start.UnixMilli() + int64(i)*250 }
	got, err := x.Query("T", "same", math.MinInt64, math.MaxInt64, 3)
	require.NoError(t, err)
	require.Equal(t, []offset.Physical{1900, 1800, 1700}, got)

	// The file keeps whole seconds, so up to a second more than asked for is found; never less.
	got, err = x.Query("T", "same", at(8), at(12), 100)
	require.NoError(t, err)
	for i := 8; i <= 12; i++ {
		require.Contains(t, got, offset.Physical(i*100))
	}
	require.NotContains(t, got, offset.Physical(7*100))
	require.NotContains(t, got, offset.Physical(16*100))
	require.True(t, slices.IsSortedFunc(got, func(a, b offset.Physical) int { return int(b - a) }))

	got, err = x.Query("T", "same", at(100), at(200), 100)
	require.NoError(t, err)
	require.Empty(t, got)
}

func TestKeyTwiceInAMessageIsFoundOnce(t *testing.T) {
	x := open(t, vfstest.New(), small())
	require.NoError(t, x.Put(record(1, "T", "a", "a b  a ", "")))
	for range 2 {
		require.Equal(t, []offset.Physical{100}, find(t, x, "T", "a", AnyKey))
		require.Equal(t, []offset.Physical{100}, find(t, x, "T", "b", AnyKey))
		require.NoError(t, x.Flush())
	}
	require.Equal(t, uint32(5), x.files[0].disk.next, "entries as Java writes them: a, a, b, a")
}

// Scenario 6-15: "Aa" and "BB" have the same hash code.
func TestCollidingTopicsAndKeysAreToldApart(t *testing.T) {
	x := open(t, vfstest.New(), small())
	one, other := record(1, "AaTopic", "", "Aa", ""), record(2, "BBTopic", "", "BB", "")
	require.NoError(t, x.Put(one))
	require.NoError(t, x.Put(other))
	// AaTopic#BB, which nobody sent, has the hash of both.
	require.Equal(t, []offset.Physical{200, 100}, find(t, x, "AaTopic", "BB", AnyKey))
	for _, r := range []*message.Record{one, other} {
		require.False(t, Matches(r, "AaTopic", "BB", AnyKey))
		require.False(t, Matches(r, "BBTopic", "Aa", AnyKey))
	}
	require.True(t, Matches(one, "AaTopic", "Aa", AnyKey))
	require.True(t, Matches(other, "BBTopic", "BB", AnyKey))
	require.False(t, Matches(other, "AaTopic", "Aa", AnyKey))
}

func TestMatches(t *testing.T) {
	r := record(1, "T", "UNIQUE", "one two  three", "tag a")
	for _, c := range []struct {
		topic, key string
		kind       Kind
		want       bool
	}{
		{"T", "UNIQUE", AnyKey, true},
		{"T", "UNIQUE", UniqueKey, true},
		{"T", "UNIQUE", UserKey, false},
		{"T", "two", AnyKey, true},
		{"T", "two", UserKey, true},
		{"T", "two", UniqueKey, false},
		{"T", "three", AnyKey, true},
		{"T", "thre", AnyKey, false},
		{"T", "one two", AnyKey, false},
		{"T", "", AnyKey, false},
		{"T", "", UserKey, false},
		{"t", "two", AnyKey, false},
		{"T", "tag a", TagKey, true},
		{"T", "tag", TagKey, false},
		{"T", "tag a", AnyKey, false},
	} {
		require.Equal(t, c.want, Matches(r, c.topic, c.key, c.kind), "%+v", c)
	}
}

func TestRollbackIsNotIndexed(t *testing.T) {
	x := open(t, vfstest.New(), small())
	for i, flag := range []int32{0, message.FlagPrepared, message.FlagCommit, message.FlagRollback} {
		r := record(i, "T", "", "k", "")
		r.SysFlag = flag
		require.NoError(t, x.Put(r))
	}
	require.Equal(t, []offset.Physical{200, 100, 0}, find(t, x, "T", "k", AnyKey))
}

func TestHashOfMinimumIsZero(t *testing.T) {
	text := []byte("polygenelubricants") // famous for its hash code, the smallest int
	require.Equal(t, int32(math.MinInt32), message.HashCode(text))
	require.Zero(t, hashOf(0, text))
	require.Equal(t, uint32(2112), hashOf(0, []byte("Aa")))
	require.Equal(t, uint32(2112), hashOf(0, []byte("BB")))
}

// TestPrefixHashesTheWholeText: what RocketMQ hashes is "topic#key" and "topic#T#tags".
func TestPrefixHashesTheWholeText(t *testing.T) {
	var p prefix
	for _, topic := range []string{"T", "Topic", "%RETRY%g", "ä", "T"} {
		r := record(0, topic, "unique-ü", "k1 k2", "tag").DispatchRequest(0)
		var want []uint32
		for _, text := range []string{"#unique-ü", "#k1", "#k2", "#T#tag"} {
			want = append(want, hashOf(0, []byte(topic+text)))
		}
		require.Equal(t, want, p.appendHashes(nil, &r, true))
	}
}

func TestLongListsAreSortedBySlot(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for _, n := range []int{0, 10, 3000, 100_000} {
		for _, slots := range []uint32{1, 2, 2048, 2049, DefaultSlots, math.MaxInt32} {
			var w writer
			for i := range n {
				w.order = append(w.order, uint64(random.Uint32N(slots))<<32|uint64(i))
			}
			want := slices.Sorted(slices.Values(w.order))
			w.sort(slots)
			require.Equal(t, want, slices.Clip(w.order))
		}
	}
}

// Who puts, and all who wait for dispatch with it, wait for no disk while Run has one to wait for.
func TestRunWritesWhileOthersPut(t *testing.T) {
	disk := vfstest.New()
	x := open(t, disk, Options{Slots: 1000, Entries: 10 * maxList})
	ctx, stop := context.WithCancel(t.Context())
	var users errgroup.Group
	users.Go(func() error { return x.Run(ctx) })
	require.NoError(t, x.Put(record(0, "T", "first", "", ""))) // which makes the file
	entered, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	disk.SetFault(func(op vfstest.Op) *vfstest.Fault {
		if op.Kind == vfstest.OpWrite {
			once.Do(func() { close(entered); <-goOn })
		}
		return nil
	})
	requests := make([]message.DispatchRequest, maxList+1000)
	for i := range requests {
		requests[i] = record(1+i, "T", "u", "", "").DispatchRequest(0)
	}
	require.NoError(t, x.PutAll(requests[:enough]))
	<-entered
	put := make(chan error)
	users.Go(func() error { put <- x.PutAll(requests[enough:]); return nil })
	select {
	case err := <-put:
		require.NoError(t, err)
	case <-time.After(time.Minute):
		close(goOn)
		t.Fatal("put waits for the disk")
	}
	close(goOn)
	require.NoError(t, x.Put(record(1+len(requests), "T", "last", "", "")))
	require.Eventually(t, func() bool {
		x.mu.Lock()
		defer x.mu.Unlock()
		return len(x.frozen)+len(x.fresh) < enough
	}, time.Minute, time.Millisecond, "the rest is written, too")
	stop()
	require.NoError(t, users.Wait())
	require.NoError(t, x.Close())
	x = open(t, disk, Options{Slots: 1000, Entries: 10 * maxList})
	for _, key := range []string{"first", "last"} {
		require.Len(t, find(t, x, "T", key, AnyKey), 1)
	}
	require.EqualValues(t, 3+len(requests), x.head.next)
}

func TestFilesRoll(t *testing.T) {
	disk := vfstest.New()
	x := open(t, disk, small())
	const n = 300 // 4 keys each: six files and a bit
	for i := range n {
		require.NoError(t, x.Put(numbered(i)))
	}
	requireNumbered(t, x, 0, n)
	require.NoError(t, x.Flush())
	requireNumbered(t, x, 0, n)
	require.Len(t, x.files, 7)
	for _, f := range x.files[:6] {
		require.Equal(t, uint32(200), f.disk.next)
	}
	require.Equal(t, numbered(n-1).StoreTimestamp, x.SyncedTime())
	require.NoError(t, x.Close())

	x = open(t, disk, small())
	requireNumbered(t, x, 0, n)
	require.Equal(t, offset.Physical((n-1)*100), x.End())
	for i := range n + 5 { // below End nothing happens, and the last record is there completely
		require.NoError(t, x.Put(numbered(i)))
	}
	require.NoError(t, x.Close())
	x = open(t, disk, small())
	requireNumbered(t, x, 0, n+5)
	require.Len(t, disk.Files(), 7)
}

// A file says from the start where the one before it ends. A broker of Java's that finds it without entries, after a kill,
// would otherwise index again, into this file, what it reads of the log below that place.
func TestNewFileSaysWhereTheOldOneEnds(t *testing.T) {
	disk := vfstest.New()
	x := open(t, disk, small())
	require.NoError(t, x.Put(numbered(0)))
	put := 1
	for ; len(fileNames(t, disk)) < 2; put++ {
		require.NoError(t, x.Put(numbered(put)))
	}
	names := fileNames(t, disk)
	headers := make([]header, 2)
	for i, name := range names {
		f, err := disk.Open(path.Join(dir, name))
		require.NoError(t, err)
		var b [headerSize]byte
		require.NoError(t, readFull(f, b[:], 0))
		require.NoError(t, f.Close())
		headers[i] = decodeHeader(b[:])
	}
	first, second := headers[0], headers[1]
	require.EqualValues(t, 200, first.next)
	require.Equal(t, header{
		beginTime: first.endTime, endTime: first.endTime, beginPhy: first.endPhy, endPhy: first.endPhy, next: 1,
	}, second)

	// After a kill it is as good as any other empty file.
	lines := new(bytes.Buffer)
	opts := small()
	opts.Unclean, opts.Logger = true, slog.New(slog.NewTextHandler(lines, nil))
	x = open(t, disk, opts)
	require.Empty(t, lines.String())
	for i := range put + 50 {
		require.NoError(t, x.Put(numbered(i)))
	}
	requireNumbered(t, x, 0, put+50)
}

func TestDeleteBefore(t *testing.T) {
	disk := vfstest.New()
	opts := small()
	x := open(t, disk, opts)
	disk.WriteFile(dir+"/20200101000000000", make([]byte, 1000)) // of another size: not ours to read
	require.NoError(t, x.Close())
	x = open(t, disk, opts)
	for i := range 300 {
		require.NoError(t, x.Put(numbered(i)))
	}
	require.NoError(t, x.Flush())
	second := x.files[1].disk.endPhy
	require.NoError(t, x.DeleteBefore(second))
	require.Len(t, x.files, 6, "the first file only has records below")
	require.NotContains(t, disk.Files(), dir+"/20200101000000000")
	require.NoError(t, x.DeleteBefore(math.MaxInt64))
	require.Len(t, x.files, 1, "the file that is written to stays")
	require.Len(t, disk.Files(), 1)
	require.Equal(t, []offset.Physical{299 * 100}, find(t, x, "T", "U00299", UniqueKey))
	require.NoError(t, x.Close())
}

func TestResetForgetsWhatTheLogLost(t *testing.T) {
	for _, flushed := range []bool{true, false} {
		for _, cut := range []int{0, 1, 20, 49, 50, 51, 120, 200} {
			t.Run(fmt.Sprint(flushed, cut), func(t *testing.T) {
				disk := vfstest.New()
				x := open(t, disk, small())
				for i := range 120 {
					require.NoError(t, x.Put(numbered(i)))
				}
				if flushed {
					require.NoError(t, x.Flush())
				}
				require.NoError(t, x.Reset(offset.Physical(cut*100)))
				require.LessOrEqual(t, x.End(), offset.Physical(cut*100))
				require.LessOrEqual(t, x.End(), offset.Physical(119*100))
				if cut < 120 {
					require.Empty(t, find(t, x, "T", fmt.Sprintf("k%05d", cut), UserKey))
				}
				requireNumbered(t, x, 0, min(cut, 120))
				for i := min(cut, 119); i < 140; i++ {
					require.NoError(t, x.Put(numbered(i)))
				}
				requireNumbered(t, x, 0, 140)
				require.NoError(t, x.Close())

				straight := vfstest.New()
				y := open(t, straight, small())
				for i := range 140 {
					require.NoError(t, y.Put(numbered(i)))
				}
				require.NoError(t, y.Close())
				requireSameFiles(t, straight, disk)
			})
		}
	}
}

func requireSameFiles(t *testing.T, want, got *vfstest.Mem) {
	t.Helper()
	wantFiles, gotFiles := want.Files(), got.Files()
	require.Len(t, gotFiles, len(wantFiles))
	for i := range wantFiles {
		a, err := want.ReadFile(wantFiles[i])
		require.NoError(t, err)
		b, err := got.ReadFile(gotFiles[i])
		require.NoError(t, err)
		requireSameFile(t, a, b)
	}
}

// requireSameFile compares two index files of the fixtures' size: the header, the slots, the entries that count.
func requireSameFile(t *testing.T, want, got []byte) {
	t.Helper()
	l := layout{50, 200}
	h := decodeHeader(want)
	require.Equal(t, h, decodeHeader(got))
	require.Equal(t, want[headerSize:l.entryAt(0)], got[headerSize:l.entryAt(0)], "slots")
	require.Equal(t, want[l.entryAt(1):l.entryAt(h.next)], got[l.entryAt(1):l.entryAt(h.next)], "entries")
	require.Len(t, got, int(l.size()))
}

// logCounter counts records by message.
type logCounter struct {
	slog.Handler
	count atomic.Int64
}

func (h *logCounter) Handle(context.Context, slog.Record) error {
	h.count.Add(1)
	return nil
}

// Scenario 2-11: the index can't be made; messages go on, nothing grows, and later it works again.
func TestFolderThatIsAFile(t *testing.T) {
	disk := vfstest.New()
	require.NoError(t, disk.MkdirAll(path.Dir(dir)))
	disk.WriteFile(dir, []byte("in the way"))
	logs := &logCounter{Handler: slog.DiscardHandler}
	now := start
	opts := small()
	opts.Logger, opts.Now = slog.New(enabled{logs}), func() time.Time { return now }
	x := open(t, disk, opts)
	for i := range 10_000 {
		require.NoError(t, x.Put(numbered(i)))
		require.NoError(t, x.Flush(), "nothing was taken, nothing is to be made durable")
		now = now.Add(20 * time.Millisecond) // 200 s in all
	}
	require.ErrorContains(t, x.Err(), dir)
	require.Equal(t, 10_000, x.Skipped())
	require.Zero(t, x.End())
	require.LessOrEqual(t, logs.count.Load(), int64(5), "one line at Open, one a minute after it")
	require.Less(t, disk.Count(vfstest.OpMkdir), 15, "the pauses grow")
	require.Equal(t, []string{dir}, disk.Files())

	require.NoError(t, disk.Remove(dir))
	now = now.Add(lastBackoff)
	require.NoError(t, x.Put(numbered(10_000)))
	require.NoError(t, x.Err())
	require.NoError(t, x.Flush())
	require.Equal(t, []offset.Physical{10_000 * 100}, find(t, x, "T", "U10000", UniqueKey))
}

func TestFailedCreationLeavesNothing(t *testing.T) {
	for _, kind := range []vfstest.Kind{vfstest.OpTruncate, vfstest.OpSyncDir} {
		disk := vfstest.New()
		now := start
		opts := small()
		opts.Now = func() time.Time { return now }
		x := open(t, disk, opts)
		disk.SetFault(vfstest.FailNth(1, func(op vfstest.Op) bool { return op.Kind == kind }, syscall.ENOSPC))
		for i := range 1000 {
			require.NoError(t, x.Put(numbered(i)))
			now = now.Add(time.Second)
		}
		require.Equal(t, 1000, x.Skipped())
		require.ErrorIs(t, x.Err(), syscall.ENOSPC)
		require.Empty(t, disk.Files())
		require.Less(t, disk.Count(vfstest.OpCreate), 30)
		disk.SetFault(nil)
		now = now.Add(lastBackoff)
		require.NoError(t, x.Put(numbered(1000)))
	}
}

// A full disk shows when the sparse file is written to. What was Put waits in memory, and nothing is lost if there is
// room again in time.
func TestFullDiskIsWaitedOut(t *testing.T) {
	disk := vfstest.New()
	now := start
	opts := small()
	opts.Now = func() time.Time { return now }
	x := open(t, disk, opts)
	for i := range 10 {
		require.NoError(t, x.Put(numbered(i)))
	}
	for n := 1; n <= 4; n++ { // each of the writes: entries, slots, header
		disk.SetFault(vfstest.FailNth(n, func(op vfstest.Op) bool { return op.Kind == vfstest.OpWrite }, syscall.ENOSPC))
		err := x.Flush()
		if err == nil {
			break
		}
		require.Less(t, n, 4)
		require.ErrorIs(t, err, ErrUnavailable)
		requireNumbered(t, x, 0, 10)
		now = now.Add(lastBackoff)
	}
	require.NoError(t, x.Put(numbered(10)))
	disk.SetFault(nil)
	now = now.Add(lastBackoff)
	require.NoError(t, x.Flush())
	require.NoError(t, x.Err())
	requireNumbered(t, x, 0, 11)
	require.NoError(t, x.Close())
	x = open(t, disk, opts)
	requireNumbered(t, x, 0, 11)
	require.Len(t, disk.Files(), 1)
}

func TestFullDiskForLongDropsAndBoundsMemory(t *testing.T) {
	disk := vfstest.New()
	now := start
	opts := Options{Now: func() time.Time { return now }}
	opts.Slots, opts.Entries = 1000, 10*maxList
	x := open(t, disk, opts)
	disk.SetFault(vfstest.FailNth(1, func(op vfstest.Op) bool { return op.Kind == vfstest.OpWrite }, syscall.ENOSPC))
	for i := range 2 * maxList {
		require.NoError(t, x.Put(record(i, "T", "u", "", "")))
	}
	require.Zero(t, x.Skipped())
	for i := range 1000 {
		require.NoError(t, x.Put(record(2*maxList+i, "T", "u", "", "")))
	}
	require.Equal(t, 1000, x.Skipped())
	require.LessOrEqual(t, len(x.fresh)+len(x.frozen), 2*maxList)
	end := x.End()
	require.Equal(t, offset.Physical(2*maxList*100), end)
	disk.SetFault(nil)
	now = now.Add(lastBackoff)
	require.NoError(t, x.Put(record(2*maxList, "T", "back", "", "")), "from End on")
	require.Equal(t, []offset.Physical{end}, find(t, x, "T", "back", AnyKey))
}

func TestNamesOnlyRise(t *testing.T) {
	require.Equal(t, "20261129145246531", nextName("20261129145246531", ""))
	require.Equal(t, "20261129145246532", nextName("20261129145246531", "20261129145246531"))
	require.Equal(t, "20261129145247000", nextName("20240101000000000", "20261129145246999"))

	disk := vfstest.New()
	x := open(t, disk, small())
	require.NoError(t, x.Put(numbered(1)))
	require.Equal(t, []string{dir + "/20261129145246531"}, disk.Files(), "the local time, as Java names it")
	require.True(t, isName(path.Base(disk.Files()[0])))
	require.False(t, isName("2026112914524653x"))
}

func TestDefaultFileHasJavasSize(t *testing.T) {
	require.Equal(t, int64(420_000_040), layout{DefaultSlots, DefaultEntries}.size())
	root := t.TempDir()
	x, err := Open(osFS, filepath.Join(root, "index"), Options{})
	require.NoError(t, err)
	require.NoError(t, x.Put(numbered(1)))
	require.NoError(t, x.Close())
	entries, err := os.ReadDir(filepath.Join(root, "index"))
	require.NoError(t, err)
	info, err := entries[0].Info()
	require.NoError(t, err)
	require.Equal(t, int64(420_000_040), info.Size())
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		require.Less(t, st.Blocks*512, int64(1<<20), "sparse: one message takes no 400 MB")
	}
}

func TestSenselessSizes(t *testing.T) {
	for _, opts := range []Options{{Slots: -1}, {Entries: 1}, {Entries: math.MaxInt32 + 1}} {
		_, err := Open(vfstest.New(), dir, opts)
		require.Error(t, err)
	}
}

func TestMissingFolderIsEmpty(t *testing.T) {
	disk := vfstest.New()
	x := open(t, disk, small())
	require.Zero(t, x.End())
	require.NoError(t, x.Err())
	require.Empty(t, find(t, x, "T", "k", AnyKey))
	require.NoError(t, x.Flush())
	require.NoError(t, x.Close())
	_, err := disk.Stat(dir)
	require.ErrorIs(t, err, fs.ErrNotExist, "nothing is made before there is something to write")
}

func TestHeaderGolden(t *testing.T) {
	disk := vfstest.New()
	x := open(t, disk, small())
	require.NoError(t, x.Put(record(1, "T", "", "Aa", ""))) // T#Aa
	require.NoError(t, x.Close())
	b, err := disk.ReadFile(disk.Files()[0])
	require.NoError(t, err)
	hash := hashOf(0, []byte("T#Aa"))
	require.Equal(t, uint32((('T'*31+'#')*31+'A')*31+'a'), hash)
	l := layout{50, 200}
	stamp := uint64(start.UnixMilli() + 250)
	want := make([]byte, l.size())
	put := func(at int64, size int, v uint64) {
		for i := range size {
			want[at+int64(i)] = byte(v >> (8 * (size - 1 - i)))
		}
	}
	put(0, 8, stamp)
	put(8, 8, stamp)
	put(16, 8, 100)
	put(24, 8, 100)
	put(32, 4, 1)
	put(36, 4, 2)
	put(40+4*int64(hash%50), 4, 1)
	put(40+4*50+20, 4, uint64(hash))
	put(40+4*50+24, 8, 100)
	require.True(t, bytes.Equal(want, b))
}
