package store

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/internal/vfs"
	"github.com/ratchetmq/ratchet/internal/vfs/vfstest"
	"github.com/ratchetmq/ratchet/message"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMessageComesBackAsItWasSent(t *testing.T) {
	s := mustRun(t, small(vfstest.New()))
	sent := Message{
		Topic: "T", QueueID: 3, Flag: 0x1234, SysFlag: message.FlagCompressed, BornTimestamp: 1_700_000_000_001,
		BornHost: netip.MustParseAddrPort("[2001:db8::7]:4711"), ReconsumeTimes: 2, PreparedTransactionOffset: 99,
		Body: []byte("body"), Properties: []byte("TAGS\x01a\x02"),
	}
	a, err := s.Append(sent)
	require.NoError(t, err)
	waitDispatched(t, s, a.End)
	got := readQueue(t, s, "T", 3)
	require.Len(t, got, 1)
	r := got[0]
	require.Equal(t, sent.Topic, string(r.Topic))
	require.Equal(t, sent.QueueID, r.QueueID)
	require.Equal(t, sent.Flag, r.Flag)
	require.Equal(t, sent.SysFlag|message.FlagBornHostV6, r.SysFlag)
	require.Equal(t, sent.BornTimestamp, r.BornTimestamp)
	require.Equal(t, sent.BornHost, r.BornHost)
	require.Equal(t, testHost, r.StoreHost)
	require.Equal(t, sent.ReconsumeTimes, r.ReconsumeTimes)
	require.Equal(t, sent.PreparedTransactionOffset, r.PreparedTransactionOffset)
	require.Equal(t, sent.Body, r.Body)
	require.Equal(t, sent.Properties, r.Properties)
	require.Equal(t, a.Physical, r.PhysicalOffset)
	require.Equal(t, a.StoreTimestamp, r.StoreTimestamp)

	whole, err := s.Record(a.Physical, []byte("x"))
	require.NoError(t, err)
	require.Equal(t, "body", string(records(t, whole[1:])[0].Body))
	_, err = s.Record(a.Physical+1, nil)
	require.ErrorIs(t, err, ErrNotFound)
	_, err = s.Record(a.End, nil)
	require.ErrorIs(t, err, ErrNotFound)
	_, err = s.Record(-1, nil)
	require.ErrorIs(t, err, ErrNotFound)
}

func TestQueueOffsetsAreConsecutiveAcrossSegmentsAndQueueFiles(t *testing.T) {
	s := mustRun(t, small(vfstest.New()))
	var want [3][]string
	var end offset.Physical
	for i := range 150 {
		q := int32(i % 3)
		a, err := s.Append(text("T", q, fmt.Sprint("body", i)))
		require.NoError(t, err)
		require.EqualValues(t, i/3, a.Queue)
		want[q] = append(want[q], fmt.Sprint("body", i))
		end = a.End
	}
	require.Greater(t, len(*s.log.segments.Load()), 3)
	waitDispatched(t, s, end)
	for q := range want {
		require.Equal(t, want[q], bodies(readQueue(t, s, "T", int32(q))))
		b, ok := s.Bounds("T", int32(q))
		require.True(t, ok)
		require.Equal(t, Bounds{0, 50}, b)
	}
	require.LessOrEqual(t, s.files.cache.open(), 4)
}

func TestConcurrentAppends(t *testing.T) {
	for _, mode := range []FlushMode{AsyncFlush, SyncFlush} {
		o := small(vfstest.New())
		o.SegmentSize, o.Flush = 1<<16, mode
		s := mustRun(t, o)
		const writers, each = 8, 100
		var g errgroup.Group
		var mu sync.Mutex
		seen := map[offset.Physical]bool{}
		for w := range writers {
			g.Go(func() error {
				last := offset.Queue(-1)
				for i := range each {
					a, err := s.Append(text("T", int32(w%2), fmt.Sprint(w, "-", i)))
					if err != nil {
						return err
					}
					if a.Queue <= last {
						return fmt.Errorf("queue offset %d after %d", a.Queue, last)
					}
					last = a.Queue
					mu.Lock()
					seen[a.Physical] = true
					mu.Unlock()
				}
				return nil
			})
		}
		require.NoError(t, g.Wait())
		require.Len(t, seen, writers*each)
		waitDispatched(t, s, s.Written())
		for q := range int32(2) {
			got := readQueue(t, s, "T", q)
			require.Len(t, got, writers*each/2)
			for i, r := range got {
				require.EqualValues(t, i, r.QueueOffset)
				require.True(t, seen[r.PhysicalOffset])
			}
		}
	}
}

func TestBatchIsInOneSegmentWithConsecutiveOffsets(t *testing.T) {
	s := mustRun(t, small(vfstest.New()))
	var end offset.Physical
	for i := range 20 {
		var batch []Message
		for j := range 5 {
			batch = append(batch, text("T", 0, fmt.Sprintf("%d.%d %s", i, j, strings.Repeat("x", 100))))
		}
		a, err := s.Append(batch...)
		require.NoError(t, err)
		require.EqualValues(t, 5*i, a.Queue)
		require.Equal(t, a.Physical, batch[0].At)
		for j, m := range batch {
			require.EqualValues(t, 5*i+j, m.QueueOffset)
			r, err := s.Record(m.At, nil)
			require.NoError(t, err)
			require.Contains(t, string(r), string(m.Body))
		}
		require.Equal(t, int64(a.Physical)/4096, int64(a.End-1)/4096)
		end = a.End
	}
	waitDispatched(t, s, end)
	got := readQueue(t, s, "T", 0)
	require.Len(t, got, 100)
	for i, r := range got {
		require.Contains(t, string(r.Body), fmt.Sprintf("%d.%d ", i/5, i%5))
	}
}

// Large bodies go to the file without a copy, on a file system that can do so.
func TestBodiesOfAllSizesInOneAppend(t *testing.T) {
	for _, fs := range []vfs.FS{vfstest.New(), vfs.OS{}} {
		s := mustOpen(t, Options{FS: fs, Root: t.TempDir(), SegmentSize: 1 << 20, StoreHost: testHost})
		var sent []Message
		var want []string
		for i, size := range []int{1, largeBody, largeBody - 1, 3 * largeBody, largeBody + 1, 0, 5, largeBody} {
			m := tagged("T", 0, "tag", strings.Repeat(string(rune('a'+i)), size))
			sent, want = append(sent, m), append(want, string(m.Body))
		}
		a, err := s.Append(sent...)
		require.NoError(t, err)
		require.Equal(t, s.Written(), a.End)
		b, err := s.Append(sent[1])
		require.NoError(t, err)
		require.Equal(t, a.End, b.Physical)
		require.NoError(t, s.dispatcher.drain())
		got := readQueue(t, s, "T", 0)
		require.Equal(t, append(want, want[1]), bodies(got))
		for i := range sent {
			require.Equal(t, sent[i].At, got[i].PhysicalOffset)
			require.Equal(t, sent[i].Properties, got[i].Properties)
		}
		require.NoError(t, s.Close())
	}
}

// The bytes of the rest of a segment are a fixed format: Java reads it, too.
func TestSegmentEndsInABlankRecord(t *testing.T) {
	disk := vfstest.New()
	s := mustOpen(t, small(disk))
	first := put(t, s, text("T", 0, strings.Repeat("a", 3000)))
	next := put(t, s, text("T", 0, strings.Repeat("b", 3000)))
	require.EqualValues(t, 4096, next.Physical)
	data, err := disk.ReadFile(logFile(0))
	require.NoError(t, err)
	require.Len(t, data, 4096)
	room := 4096 - uint32(first.End)
	require.Equal(t, u32(room), data[first.End:first.End+4])
	require.Equal(t, []byte{0xCB, 0xD4, 0x31, 0x94}, data[first.End+4:first.End+8])
	require.True(t, isZero(data[first.End+8:]))
}

// At least eight bytes stay free for the blank record; a record that leaves exactly eight still fits.
func TestSegmentBorderToTheByte(t *testing.T) {
	fixed := 91 + len("T") // of a record with IPv4 hosts
	for left := range 20 {
		s := mustOpen(t, small(vfstest.New()))
		put(t, s, text("T", 0, strings.Repeat("a", 4096-fixed-8-fixed-8-left)))
		second := put(t, s, text("T", 0, "12345678"))
		if left == 0 {
			require.EqualValues(t, 4096-8, second.End, "left %d", left)
		}
		third := put(t, s, text("T", 0, "c"))
		require.EqualValues(t, 4096, third.Physical)
		require.Len(t, readQueue(t, s, "T", 0), 3)
		require.NoError(t, s.Close())
	}
	s := mustOpen(t, small(vfstest.New()))
	first := put(t, s, text("T", 0, strings.Repeat("a", 4096-fixed-8)))
	require.EqualValues(t, 4088, first.End)
	_, err := s.Append(text("T", 0, strings.Repeat("a", 4096-fixed-7)))
	require.ErrorIs(t, err, ErrTooLarge)
}

func TestAppendRefusals(t *testing.T) {
	o := small(vfstest.New())
	o.SegmentSize, o.MaxMessageSize = 1<<17, 1000
	s := mustRun(t, o)
	long := text("T", 0, "b")
	long.Properties = make([]byte, 32768)
	for name, c := range map[string]struct {
		m    Message
		want error
	}{
		"no topic":       {text("", 0, "b"), ErrTopic},
		"folder":         {text("..", 0, "b"), ErrTopic},
		"path":           {text("a/b", 0, "b"), ErrTopic},
		"long topic":     {text(strings.Repeat("t", 256), 0, "b"), ErrTopic},
		"negative queue": {text("T", -1, "b"), ErrTopic},
		"body":           {text("T", 0, strings.Repeat("b", 1001)), ErrTooLarge},
		"properties":     {long, ErrProperties},
	} {
		_, err := s.Append(c.m)
		require.ErrorIs(t, err, c.want, name)
		_, err = s.Append(text("T", 0, "good"), c.m)
		require.ErrorIs(t, err, c.want, name)
	}
	_, err := s.Append()
	require.Error(t, err)
	require.Zero(t, s.Written())
	long.Properties = long.Properties[:32767]
	for i := range long.Properties {
		long.Properties[i] = 'p'
	}
	_, err = s.Append(long, text(strings.Repeat("t", 255), 0, strings.Repeat("b", 1000)))
	require.NoError(t, err)
	waitDispatched(t, s, s.Written())
	require.Len(t, readQueue(t, s, strings.Repeat("t", 255), 0), 1)
}

func TestStoreTimestampNeverFalls(t *testing.T) {
	now := time.UnixMilli(1_000_000)
	disk := vfstest.New()
	o := small(disk)
	o.Now = func() time.Time { return now }
	s := mustOpen(t, o)
	require.EqualValues(t, 1_000_000, put(t, s, text("T", 0, "a")).StoreTimestamp)
	now = now.Add(-time.Second)
	require.EqualValues(t, 1_000_000, put(t, s, text("T", 0, "b")).StoreTimestamp)
	require.NoError(t, s.Close())
	s = mustOpen(t, o)
	require.EqualValues(t, 1_000_000, put(t, s, text("T", 0, "c")).StoreTimestamp)
}

func TestPreparedAndRolledBackMessagesAreInNoQueue(t *testing.T) {
	s := mustOpen(t, small(vfstest.New()))
	for _, flag := range []int32{message.FlagPrepared, message.FlagRollback} {
		m := text("T", 0, "hidden")
		m.SysFlag = flag
		a := put(t, s, m)
		require.Zero(t, a.Queue)
		_, err := s.Record(a.Physical, nil)
		require.NoError(t, err)
	}
	m := text("T", 0, "committed")
	m.SysFlag = message.FlagCommit
	require.Zero(t, put(t, s, m).Queue)
	require.Equal(t, []string{"committed"}, bodies(readQueue(t, s, "T", 0)))
}

func TestArrivalsAreToldInOrder(t *testing.T) {
	s := mustOpen(t, small(vfstest.New()))
	arrivals := make(chan Arrival, 100)
	s.OnArrival(func(a Arrival) {
		b, ok := s.Bounds(a.Topic, a.Queue)
		if !ok || b.High <= a.Offset {
			a.Offset = -1 // told before it can be read
		}
		arrivals <- a
	})
	running(t, s)
	for i := range 50 {
		_, err := s.Append(tagged("T", 1, "x", fmt.Sprint(i)))
		require.NoError(t, err)
	}
	for i := range 50 {
		a := <-arrivals
		require.Equal(t, "T", a.Topic)
		require.EqualValues(t, 1, a.Queue)
		require.EqualValues(t, i, a.Offset)
		require.EqualValues(t, 'x', a.TagsCode)
	}
}

func TestSyncFlushShowsOnlyWhatIsFlushed(t *testing.T) {
	o := small(vfstest.New())
	o.Flush = SyncFlush
	s := mustOpen(t, o)
	a, err := s.Append(text("T", 0, "a"))
	require.NoError(t, err)
	require.NoError(t, s.dispatcher.drain())
	require.Zero(t, s.Dispatched())
	require.NoError(t, s.log.flush()) // a checkpoint does that, too
	s.flusher.flush()
	require.Len(t, s.dispatcher.wake, 1, "dispatch is told by the flusher, whoever has synced")
	require.NoError(t, s.dispatcher.drain())
	require.Equal(t, a.End, s.Dispatched())
}

func TestCloseStopsInOrder(t *testing.T) {
	disk := vfstest.New()
	o := small(disk)
	o.FlushInterval, o.FlushThorough = time.Hour, time.Hour
	s := mustOpen(t, o)
	require.Contains(t, disk.Files(), testRoot+"/abort")
	result := make(chan error, 1)
	go func() { result <- s.Run(context.Background()) }()
	for i := range 30 {
		_, err := s.Append(text("T", 0, fmt.Sprint(i)))
		require.NoError(t, err)
	}
	waitDispatched(t, s, 1) // Run is at work
	require.NoError(t, s.Close())
	require.NoError(t, <-result)
	require.NoError(t, s.Close())
	require.NotContains(t, disk.Files(), testRoot+"/abort")

	// All of it was made durable.
	o.FS = disk.CrashClone(vfstest.KeepNothing, 0)
	s = mustOpen(t, o)
	require.Len(t, readQueue(t, s, "T", 0), 30)
}

func TestAfterTheStopAppendsAreRefused(t *testing.T) {
	s := mustOpen(t, small(vfstest.New()))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.NoError(t, s.Run(ctx))
	_, err := s.Append(text("T", 0, "late"))
	require.ErrorIs(t, err, ErrClosed)
	var got error
	s.WhenFlushed(1, func(err error) { got = err })
	require.ErrorIs(t, got, ErrClosed)
	require.ErrorIs(t, s.Run(ctx), ErrClosed)
}

func TestSecondOpenIsRefused(t *testing.T) {
	for _, o := range []Options{
		small(vfstest.New()),
		{FS: vfs.OS{}, Root: t.TempDir(), SegmentSize: 1 << 16, ConsumeQueueUnits: 100},
	} {
		s := mustOpen(t, o)
		_, err := Open(o)
		require.ErrorIs(t, err, ErrLocked)
		_, err = s.Append(text("T", 0, "still works"))
		require.NoError(t, err)
		require.NoError(t, s.Close())
		s = mustOpen(t, o)
		require.Len(t, readQueue(t, s, "T", 0), 1)
		require.NoError(t, s.Close())
	}
}

func TestDeletedTopicBeginsAnew(t *testing.T) {
	disk := vfstest.New()
	s := mustOpen(t, small(disk))
	for i := range 40 {
		put(t, s, text("T", int32(i%2), "old"))
	}
	put(t, s, text("U", 0, "other"))
	_, err := s.Append(text("T", 0, "not yet dispatched"))
	require.NoError(t, err)
	require.NoError(t, s.DeleteTopic("T"))
	level(t, s)
	_, ok := s.Bounds("T", 0)
	require.False(t, ok)
	_, batch, err := s.Read(Query{Topic: "T"}, nil)
	require.NoError(t, err)
	require.Equal(t, NoQueue, batch.Status)
	for _, f := range disk.Files() {
		require.NotContains(t, f, "/consumequeue/T/")
	}
	for i := range 5 {
		require.EqualValues(t, i, put(t, s, text("T", 0, fmt.Sprint("new", i))).Queue)
	}
	want := []string{"new0", "new1", "new2", "new3", "new4"}
	require.Equal(t, want, bodies(readQueue(t, s, "T", 0)))

	// A crash does not bring the old messages back, neither in front of the new ones nor behind.
	s = mustOpen(t, small(kill(disk)))
	require.Equal(t, want, bodies(readQueue(t, s, "T", 0)))
	require.Equal(t, []string{"other"}, bodies(readQueue(t, s, "U", 0)))
	require.EqualValues(t, 5, put(t, s, text("T", 0, "x")).Queue)
}

func TestEachQueue(t *testing.T) {
	s := mustOpen(t, small(vfstest.New()))
	put(t, s, text("T", 0, "a"))
	put(t, s, text("T", 1, "a"))
	put(t, s, text("T", 1, "a"))
	got := map[string]Bounds{}
	s.EachQueue(func(topic string, queue int32, b Bounds) { got[fmt.Sprint(topic, queue)] = b })
	require.Equal(t, map[string]Bounds{"T0": {0, 1}, "T1": {0, 2}}, got)
}
