package inspect

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/internal/vfs/vfstest"
	"github.com/ratchetmq/ratchet/message"
	"github.com/ratchetmq/ratchet/store"
	"github.com/ratchetmq/ratchet/store/index"
)

const root = "/store"

var host = netip.MustParseAddrPort("127.0.0.1:10911")

// written is a small store that our own package has written and closed: 40 messages in three queues, log files of 4096
// bytes, queue files of 16 entries, an index file of 50 slots.
func written(tb testing.TB) *vfstest.Mem {
	tb.Helper()
	once.Do(func() { // the store is copied, not written again, for each test and each input of the fuzzer
		fsys := write(tb)
		for _, name := range fsys.Files() {
			data, err := fsys.ReadFile(name)
			require.NoError(tb, err)
			files[name] = data
		}
	})
	fsys := vfstest.New()
	for name, data := range files {
		require.NoError(tb, fsys.MkdirAll(filepath.Dir(name)))
		fsys.WriteFile(name, data)
	}
	return fsys
}

var (
	once  sync.Once
	files = map[string][]byte{}
)

func write(tb testing.TB) *vfstest.Mem {
	tb.Helper()
	fsys := vfstest.New()
	now := time.UnixMilli(1_800_000_000_000)
	clock := func() time.Time { now = now.Add(time.Millisecond); return now }
	require.NoError(tb, fsys.MkdirAll(root+"/config"))
	ix, err := index.Open(fsys, root+"/index", index.Options{Slots: 50, Entries: 200, Now: func() time.Time { return time.UnixMilli(1_800_000_000_000) }})
	require.NoError(tb, err)
	s, err := store.Open(store.Options{FS: fsys, Root: root, SegmentSize: 4096, ConsumeQueueUnits: 16, Index: ix, StoreHost: host, Now: clock})
	require.NoError(tb, err)
	for i := range 40 {
		props := message.AppendProperty(nil, message.PropertyUniqueKey, fmt.Sprintf("U%03d", i))
		props = message.AppendProperty(props, message.PropertyTags, []string{"red", "blue"}[i%2])
		props = message.AppendProperty(props, message.PropertyKeys, fmt.Sprintf("k%d all", i))
		_, err := s.Append(store.Message{
			Topic: []string{"Alpha", "Beta"}[i%2], QueueID: int32(i % 4 / 3), BornTimestamp: int64(i), BornHost: host,
			Body: []byte(strings.Repeat("body ", 10)), Properties: props,
		})
		require.NoError(tb, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.NoError(tb, s.Run(ctx))
	require.NoError(tb, s.Close())
	require.NoError(tb, ix.Close())
	if spare := root + "/commitlog/00000000000000008192"; exists(fsys, spare) { // made ahead, when there was time for it
		require.NoError(tb, fsys.Remove(spare))
	}
	write := func(name, text string) { fsys.WriteFile(root+"/"+name, []byte(text)) }
	write("config/topics.json", `{"topicConfigTable":{"Alpha":{"perm":6},"Beta":{"perm":6}}}`)
	write("config/subscriptionGroup.json", `{"subscriptionGroupTable":{"g":{"groupName":"g"}}}`)
	write("config/consumerOffset.json", `{"offsetTable":{"Alpha@g":{0:7}}}`)
	write("config/delayOffset.json", `{"offsetTable":{3:2}}`)
	return fsys
}

// patch changes bytes of a file of the store.
func patch(tb testing.TB, fsys *vfstest.Mem, name string, at int64, b ...byte) {
	tb.Helper()
	f, err := fsys.Open(root + "/" + name)
	require.NoError(tb, err)
	_, err = f.WriteAt(b, at)
	require.NoError(tb, err)
	require.NoError(tb, f.Close())
}

func truncate(tb testing.TB, fsys *vfstest.Mem, name string, size int64) {
	tb.Helper()
	f, err := fsys.Open(root + "/" + name)
	require.NoError(tb, err)
	require.NoError(tb, f.Truncate(size))
	require.NoError(tb, f.Close())
}

const (
	log0   = "commitlog/00000000000000000000"
	log1   = "commitlog/00000000000000004096"
	queue0 = "consumequeue/Alpha/0/00000000000000000000"
	queue1 = "consumequeue/Alpha/0/00000000000000000320"
)

func indexName(tb testing.TB, fsys *vfstest.Mem) string {
	list, err := fsys.ReadDir(root + "/index")
	require.NoError(tb, err)
	require.Len(tb, list, 1)
	return "index/" + list[0].Name()
}

func TestOwnStoreIsHealthy(t *testing.T) {
	r, out := check(t, root, Options{FS: written(t)})
	require.True(t, r.Healthy(), out)
	require.Contains(t, out, "40 records")
	require.Contains(t, out, "index       1 files, 160 entries")
	require.NotContains(t, out, "index-missing")
	require.NotContains(t, out, "index-behind")
}

// A key that the index does not have is told, and is no damage: RocketMQ's index may have less than the log.
func TestKeysMissingFromTheIndexAreNoted(t *testing.T) {
	fsys := written(t)
	name := indexName(t, fsys)
	data, err := fsys.ReadFile(root + "/" + name)
	require.NoError(t, err)
	require.Equal(t, byte(161), data[39], "the next entry")
	patch(t, fsys, name, 39, 161-10) // two records, of a third the tags and a key
	r, out := check(t, root, Options{FS: fsys})
	require.True(t, r.Healthy(), out)
	require.Equal(t, 3, r.Notes["index-missing"])
	fsys.WriteFile(root+"/abort", nil)
	r, _ = check(t, root, Options{FS: fsys})
	require.Equal(t, 3, r.Notes["index-missing"]+r.Notes["index-behind"])
}

// at is the position and size of the n-th record.
func nth(tb testing.TB, fsys *vfstest.Mem, n int) (at, size int64) {
	tb.Helper()
	l, err := openLog(fsys, []string{root + "/commitlog"})
	require.NoError(tb, err)
	defer l.open.close()
	sc := newScanner(l, 0)
	for i := 0; ; {
		it, ok, err := sc.next()
		require.NoError(tb, err)
		require.True(tb, ok)
		if it.kind != itemRecord {
			continue
		}
		if i == n {
			return it.at, it.end - it.at
		}
		i++
	}
}

func be64(n int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }

func TestDamageIsFoundWhereItIs(t *testing.T) {
	clean := written(t)
	at3, size := nth(t, clean, 3)
	at4, _ := nth(t, clean, 4)
	first, _ := nth(t, clean, 0)
	require.Zero(t, first)
	ix := indexName(t, clean)
	for name, test := range map[string]struct {
		damage func(m *vfstest.Mem)
		want   []string // pieces of the output
		not    []string
	}{
		"body":     {func(m *vfstest.Mem) { patch(t, m, log0, at3+90, 'X') }, []string{fmt.Sprintf("record-body      %s:%d  Beta/1@0", log0, at3), "damaged: 1 findings"}, nil},
		"position": {func(m *vfstest.Mem) { patch(t, m, log0, at3+message.PosPhysicalOffset+7, 1) }, []string{fmt.Sprintf("record-position  %s:%d", log0, at3)}, []string{"log-damaged"}},
		"queue offset": {func(m *vfstest.Mem) { patch(t, m, log0, at3+message.PosQueueOffset+7, 9) }, []string{
			"entry-wrong      consumequeue/Beta/1/00000000000000000000:180  Beta/1@9", "entry-dangling   consumequeue/Beta/1/00000000000000000000:0",
		}, []string{"record-order"}},
		"queue id": {func(m *vfstest.Mem) { patch(t, m, log0, at3+message.PosQueueID, 0x80) }, []string{fmt.Sprintf("record-queue     %s:%d", log0, at3)}, nil},
		"magic": {func(m *vfstest.Mem) { patch(t, m, log0, at3+message.PosMagic, 0) }, []string{
			fmt.Sprintf("log-damaged      %s:%d  magic code 00a320a7; %d bytes up to %d", log0, at3, size, at4), "entry-dangling   consumequeue/Beta/1/00000000000000000000:0",
		}, nil},
		"size":           {func(m *vfstest.Mem) { patch(t, m, log0, at3+3, byte(size+1)) }, []string{fmt.Sprintf("log-damaged      %s:%d", log0, at3), fmt.Sprintf("up to %d", at4)}, nil},
		"page of zeros":  {func(m *vfstest.Mem) { patch(t, m, log0, at3, make([]byte, 500)...) }, []string{fmt.Sprintf("log-damaged      %s:%d  zeros", log0, at3), "entry-dangling", "index-dangling"}, nil},
		"blank record":   {func(m *vfstest.Mem) { patch(t, m, log1, 0, 0xFF) }, []string{"log-damaged      " + log1 + ":0"}, nil},
		"first file cut": {func(m *vfstest.Mem) { truncate(t, m, log0, 2000) }, []string{"log-file-size    " + log0 + ":0  2000 bytes", "log-damaged"}, nil},
		"file missing": {func(m *vfstest.Mem) {
			require.NoError(t, m.Remove(root+"/"+log1))
			m.WriteFile(root+"/commitlog/00000000000000008192", make([]byte, 4096))
		}, []string{"log-damaged      commitlog:4096  file missing; 4096 bytes up to 8192"}, nil},
		"entry wrong": {func(m *vfstest.Mem) { patch(t, m, queue0, 2*entrySize, be64(0)...) }, []string{
			fmt.Sprintf("entry-wrong      %s:40  Alpha/0@2: points at 0", queue0), fmt.Sprintf("entry-dangling   %s:40  Alpha/0@2: points at 0: record of Alpha/0@0", queue0), "queue-order",
		}, nil},
		"entry size":         {func(m *vfstest.Mem) { patch(t, m, queue0, 2*entrySize+11, 1) }, []string{fmt.Sprintf("entry-wrong      %s:40", queue0)}, nil},
		"tags code":          {func(m *vfstest.Mem) { patch(t, m, queue0, 2*entrySize+19, 1) }, []string{fmt.Sprintf("entry-tags       %s:40", queue0), "damaged: 1 findings"}, nil},
		"entry missing":      {func(m *vfstest.Mem) { patch(t, m, queue0, 2*entrySize, make([]byte, entrySize)...) }, []string{fmt.Sprintf("entry-missing    %s:40", queue0), fmt.Sprintf("queue-hole       %s:60", queue0)}, nil},
		"last entry missing": {func(m *vfstest.Mem) { patch(t, m, queue1, 3*entrySize, make([]byte, entrySize)...) }, []string{fmt.Sprintf("entry-missing    %s:60  Alpha/0@19", queue1), "damaged: 1 findings"}, nil},
		"entry ahead":        {func(m *vfstest.Mem) { patch(t, m, queue1, 4*entrySize, append(be64(50000), 0, 0, 1, 0)...) }, []string{fmt.Sprintf("entry-ahead      %s:80", queue1)}, nil},
		"queue gone":         {func(m *vfstest.Mem) { require.NoError(t, m.RemoveAll(root+"/consumequeue/Beta")) }, []string{"queue-missing", "Beta/0@0"}, nil},
		"index hash":         {func(m *vfstest.Mem) { patch(t, m, ix, 40+200+20*3+3, 0xEE) }, []string{"index-entry      " + ix + ":300", "index-chain"}, nil},
		"index phy":          {func(m *vfstest.Mem) { patch(t, m, ix, 40+200+20*3+11, 7) }, []string{"index-dangling   " + ix + ":300  entry 3: no record at 7"}, nil},
		"index chain":        {func(m *vfstest.Mem) { patch(t, m, ix, 40+200+20*30+19, 99) }, []string{"index-chain      " + ix + ":840"}, nil},
		"index slot":         {func(m *vfstest.Mem) { patch(t, m, ix, 40, 0, 0, 0, 1) }, []string{"index-slot       " + ix + ":40"}, nil},
		"index header":       {func(m *vfstest.Mem) { patch(t, m, ix, 36, 0xFF) }, []string{"index-header     " + ix + ":0"}, nil},
		"checkpoint":         {func(m *vfstest.Mem) { patch(t, m, checkpointFile, 8, 0x7F) }, []string{"checkpoint       checkpoint:8", "damaged: 1 findings"}, nil},
		"checkpoint garbage": {func(m *vfstest.Mem) { m.WriteFile(root+"/checkpoint", []byte("garbage")) }, []string{"checkpoint       checkpoint:0  7 bytes"}, nil},
		"json":               {func(m *vfstest.Mem) { m.WriteFile(root+"/config/topics.json", []byte(`{"topicConfigTable":{`)) }, []string{"config           config/topics.json:0"}, nil},
		"offset beyond": {func(m *vfstest.Mem) {
			m.WriteFile(root+"/config/consumerOffset.json", []byte(`{"offsetTable":{"Alpha@g":{0:77}}}`))
		}, []string{"offset-beyond    config/consumerOffset.json:0  Alpha@g queue 0: offset 77, the queue ends at 20"}, nil},
		"deletions": {func(m *vfstest.Mem) { m.WriteFile(root+"/deletedTopics", []byte("100 Old\nx\n")) }, []string{"deleted-topics   deletedTopics:8"}, nil},
		"tail":      {func(m *vfstest.Mem) { at, _ := nth(t, m, 39); patch(t, m, logOf(at), at%4096+message.PosMagic, 1) }, []string{"log-tail", "entry-ahead", "index-dangling"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			m := written(t)
			test.damage(m)
			r, out := check(t, root, Options{FS: m})
			require.False(t, r.Healthy())
			for _, w := range test.want {
				require.Contains(t, out, w)
			}
			for _, w := range test.not {
				require.NotContains(t, out, w)
			}
		})
	}
}

func logOf(at int64) string { return fmt.Sprintf("commitlog/%020d", at-at%4096) }

// TestWhatABrokerHasNotFinishedIsNoDamage: with the abort file there, the ends may be apart.
func TestWhatABrokerHasNotFinishedIsNoDamage(t *testing.T) {
	m := written(t)
	m.WriteFile(root+"/abort", nil)
	patch(t, m, queue1, 3*entrySize, make([]byte, entrySize)...)
	r, out := check(t, root, Options{FS: m})
	require.True(t, r.Healthy(), out)
	require.Contains(t, out, "note  not-dispatched")
}

func TestMessagesOfDeletedTopicsNeedNoQueue(t *testing.T) {
	m := written(t)
	require.NoError(t, m.RemoveAll(root+"/consumequeue/Beta"))
	m.WriteFile(root+"/deletedTopics", []byte("1000000 Beta\n"))
	r, out := check(t, root, Options{FS: m})
	require.True(t, r.Healthy(), out)
	require.Contains(t, out, "note  deleted-topic    20")
}

func TestFindingsAreBoundedAndCounted(t *testing.T) {
	m := written(t)
	require.NoError(t, m.RemoveAll(root+"/consumequeue/Beta"))
	r, out := check(t, root, Options{FS: m, MaxLines: 3})
	require.Equal(t, 20, r.Kinds["queue-missing"])
	require.Equal(t, 3, strings.Count(out, "no such queue"))
	require.Contains(t, out, "count queue-missing    20, 17 not shown")
}

func TestWhatIsNoStore(t *testing.T) {
	var out strings.Builder
	_, err := Check(context.Background(), &out, t.TempDir(), Options{})
	require.ErrorIs(t, err, ErrNoStore)
	_, err = Check(context.Background(), &out, filepath.Join(t.TempDir(), "none"), Options{})
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorIs(t, Summary(context.Background(), &out, t.TempDir(), Options{}), ErrNoStore)
}

// TestGoldenOutput pins what all commands print about the small store; UPDATE_GOLDEN=1 writes it anew.
func TestGoldenOutput(t *testing.T) {
	m, o, ctx := written(t), Options{}, context.Background()
	o.FS = m
	var out strings.Builder
	part := func(name string, err error) {
		require.NoError(t, err, name)
		fmt.Fprintf(&out, "--- %s\n", name)
	}
	part("summary", Summary(ctx, &out, root, o))
	part("log", Log(ctx, &out, root, LogFilter{}, o))
	part("log of a topic", Log(ctx, &out, root+"/"+log1, LogFilter{Topic: "Beta", Body: true, Range: Range{From: 4500, N: 2}}, o))
	part("queue", Queue(ctx, &out, root, "Alpha", 0, Range{From: 14, N: 4}, o))
	part("index", Index(ctx, &out, root+"/"+indexName(t, m), Range{N: 5}, o))
	part("checkpoint", Checkpoint(&out, root+"/checkpoint", o))
	part("offsets", Offsets(&out, root, o))
	_, err := Check(ctx, &out, root, o)
	part("check", err)
	path := filepath.Join("testdata", "small.txt")
	if os.Getenv("UPDATE_GOLDEN") != "" {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, []byte(out.String()), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), out.String())
}

func diff(tb testing.TB, m *vfstest.Mem, change func(m *vfstest.Mem)) (int, string) {
	tb.Helper()
	for _, name := range m.Files() {
		data, err := m.ReadFile(name)
		require.NoError(tb, err)
		copied := strings.Replace(name, root, "/other", 1)
		require.NoError(tb, m.MkdirAll(filepath.Dir(copied)))
		m.WriteFile(copied, data)
	}
	change(m)
	var out strings.Builder
	n, err := Diff(context.Background(), &out, "/other", root, Options{FS: m})
	require.NoError(tb, err)
	return n, out.String()
}

func TestDiffFindsWhatDiffers(t *testing.T) {
	n, out := diff(t, written(t), func(*vfstest.Mem) {})
	require.Zero(t, n, out)
	require.Contains(t, out, "equal")
	at3, _ := nth(t, written(t), 3)
	for name, test := range map[string]struct {
		change func(m *vfstest.Mem)
		want   []string
	}{
		"body": {func(m *vfstest.Mem) { patch(t, m, log0, at3+90, 'X', 'Y') }, []string{
			fmt.Sprintf("record   %d: 2 bytes differ; a has Beta/1@0, b has Beta/1@0", at3), fmt.Sprintf("log      2 bytes differ, the first at %d", at3+90),
		}},
		"shorter log": {func(m *vfstest.Mem) {
			at, size := nth(t, m, 39)
			patch(t, m, logOf(at), at%4096, make([]byte, size)...)
		}, []string{"only-a   log "}},
		"queue":      {func(m *vfstest.Mem) { patch(t, m, queue1, 3*entrySize, make([]byte, entrySize)...) }, []string{"queue    Alpha/0: a has 0 .. 20, b has 0 .. 19"}},
		"queue gone": {func(m *vfstest.Mem) { require.NoError(t, m.RemoveAll(root+"/consumequeue/Beta/1")) }, []string{"queue    Beta/1: only a has it, 0 .. 10"}},
		"offset": {func(m *vfstest.Mem) {
			m.WriteFile(root+"/config/consumerOffset.json", []byte(`{"offsetTable":{"Alpha@g":{0:8}}}`))
		}, []string{"offset   consumerOffset Alpha@g 0: a has 7, b has 8"}},
		"level": {func(m *vfstest.Mem) { require.NoError(t, m.Remove(root+"/config/delayOffset.json")) }, []string{"offset   delayOffset level 3: only a has it, 2"}},
		"topic": {func(m *vfstest.Mem) {
			m.WriteFile(root+"/config/topics.json", []byte(`{"topicConfigTable":{"Alpha":{"perm":4},"New":{}}}`))
		}, []string{
			`topic    Alpha: a has {"perm":6}, b has {"perm":4}`, "topic    Beta: only a has it", "topic    New: only b has it",
		}},
		"group": {func(m *vfstest.Mem) { require.NoError(t, m.Remove(root+"/config/subscriptionGroup.json")) }, []string{"group    g: only a has it"}},
	} {
		t.Run(name, func(t *testing.T) {
			n, out := diff(t, written(t), test.change)
			require.NotZero(t, n)
			for _, w := range test.want {
				require.Contains(t, out, w)
			}
		})
	}
}

// FuzzCheck: whatever bytes stand where in whatever file, everything ends and nothing panics.
func FuzzCheck(f *testing.F) {
	f.Add(uint8(0), uint16(4), []byte{0})
	f.Add(uint8(3), uint16(36), []byte{0xFF, 0xFF, 0xFF, 0xFF})
	f.Add(uint8(5), uint16(0), make([]byte, 300))
	f.Add(uint8(7), uint16(28), []byte{0x7F, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF})
	f.Fuzz(func(t *testing.T, file uint8, at uint16, b []byte) {
		m := written(t)
		if len(b) > 4096 {
			b = b[:4096]
		}
		var names []string
		for _, name := range m.Files() {
			names = append(names, strings.TrimPrefix(name, root+"/"))
		}
		patch(t, m, names[int(file)%len(names)], int64(at%8192), b...)
		var out strings.Builder
		_, err := Check(context.Background(), &out, root, Options{FS: m})
		require.NoError(t, err)
		require.NoError(t, Log(context.Background(), &out, root, LogFilter{Body: true}, Options{FS: m}))
		require.NoError(t, Summary(context.Background(), &out, root, Options{FS: m}))
		_ = Queue(context.Background(), &out, root, "Alpha", 0, Range{}, Options{FS: m})
	})
}

// TestAppendsBehindTheWindow: the scanner has read zeros ahead, and then the broker appends.
func TestAppendsBehindTheWindow(t *testing.T) {
	m := written(t)
	at, size := nth(t, m, 38)
	tail := make([]byte, 4096-at%4096)
	f, err := m.Open(root + "/" + logOf(at))
	require.NoError(t, err)
	_, err = f.ReadAt(tail, at%4096)
	require.NoError(t, err)
	patch(t, m, logOf(at), at%4096, make([]byte, len(tail))...)
	l, err := openLog(m, []string{root + "/commitlog"})
	require.NoError(t, err)
	sc := newScanner(l, 0)
	for n := 0; n < 38; {
		it, ok, err := sc.next()
		require.NoError(t, err)
		require.True(t, ok)
		if it.kind == itemRecord {
			n++
		}
	}
	patch(t, m, logOf(at), at%4096, tail...)
	it, ok, err := sc.next()
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, itemRecord, it.kind, it.why)
	require.Equal(t, at+size, it.end)
}

// TestWhatWasPutAsideCanBeRead: the tail of a log that had diverged, in the file that the store has left.
func TestWhatWasPutAsideCanBeRead(t *testing.T) {
	fsys := written(t)
	s, err := store.Open(store.Options{FS: fsys, Root: root, SegmentSize: 4096, ConsumeQueueUnits: 16, StoreHost: host})
	require.NoError(t, err)
	at, err := s.FirstRecord(s.Written() - 3000)
	require.NoError(t, err)
	end := s.Written()
	aside, err := s.Truncate(at)
	require.NoError(t, err)
	require.NoError(t, s.Close())

	var before, after strings.Builder
	require.NoError(t, Log(context.Background(), &before, root, LogFilter{Range: Range{From: int64(at)}}, Options{FS: written(t)}))
	require.NoError(t, Log(context.Background(), &after, aside, LogFilter{}, Options{FS: fsys}))
	require.Contains(t, after.String(), fmt.Sprintf("%12d ", at))
	records := func(text string) (list []string) {
		for line := range strings.Lines(text) {
			if strings.Contains(line, " ok ") {
				list = append(list, line)
			}
		}
		return list
	}
	require.Greater(t, end, at)
	require.NotEmpty(t, records(after.String()))
	require.Equal(t, records(before.String()), records(after.String()))
}
