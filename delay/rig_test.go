package delay

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/internal/vfs/vfstest"
	"github.com/ratchetmq/ratchet/message"
	"github.com/ratchetmq/ratchet/store"
)

const (
	root = "/store"
	path = "/store/config/delayOffset.json"
)

// rig is a store with a scheduler, both running, on a disk in memory.
type rig struct {
	t         testing.TB
	disk      *vfstest.Mem
	store     *store.Store
	scheduler *Scheduler
	logs      *lines
	stopDelay func() error
	stopStore func() error
}

// lines keeps the log.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer // guarded by mu
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *lines) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Count(l.buf.Bytes(), []byte(text))
}

// seam stands between scheduler and store.
type seam struct {
	Store
	append   func(n int) error // asked before an append of n messages
	appended func(n int)       // told after one
	read     func()
	slow     time.Duration // the disk takes so long to flush
}

func (s *seam) WhenFlushed(end offset.Physical, fn func(error)) {
	if s.slow == 0 { // no timer that is due at once: Go's race detector fails on those in a bubble now and then (go.dev/issue/78156)
		s.Store.WhenFlushed(end, fn)
		return
	}
	time.AfterFunc(s.slow, func() { s.Store.WhenFlushed(end, fn) })
}

func (s *seam) Append(msgs ...store.Message) (store.Appended, error) {
	if s.append != nil {
		if err := s.append(len(msgs)); err != nil {
			return store.Appended{}, err
		}
	}
	a, err := s.Store.Append(msgs...)
	if s.appended != nil {
		s.appended(len(msgs))
	}
	return a, err
}

func (s *seam) Read(q store.Query, dst []byte) ([]byte, store.Batch, error) {
	if s.read != nil {
		s.read()
	}
	return s.Store.Read(q, dst)
}

func begin(t testing.TB, disk *vfstest.Mem, change func(*seam, *Options)) *rig {
	t.Helper()
	r := &rig{t: t, disk: disk, logs: &lines{}}
	var err error
	r.store, err = store.Open(store.Options{
		FS: disk, Root: root, SegmentSize: 4 << 20, ConsumeQueueUnits: 20_000, TagsCode: defaults(t).TagsCode,
		StoreHost: netip.MustParseAddrPort("127.0.0.1:10911"),
	})
	require.NoError(t, err)
	s := &seam{Store: r.store}
	opts := Options{FS: disk, Path: path, Logger: slog.New(slog.NewTextHandler(r.logs, nil))}
	if change != nil {
		change(s, &opts)
	}
	opts.Store = s
	r.scheduler, err = Open(opts)
	require.NoError(t, err)
	r.stopStore = background(r.store.Run)
	r.stopDelay = background(r.scheduler.Run)
	t.Cleanup(func() { // when a test fails: a bubble waits for its goroutines
		_ = r.stopDelay()
		_ = r.stopStore()
		_ = r.store.Close()
	})
	return r
}

// background runs a loop; the function returned ends it and waits.
func background(run func(context.Context) error) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	return sync.OnceValue(func() error {
		cancel()
		return <-done
	})
}

// stop is an orderly stop.
func (r *rig) stop() {
	r.t.Helper()
	require.NoError(r.t, r.stopDelay())
	require.NoError(r.t, r.stopStore())
	require.NoError(r.t, r.store.Close())
}

// send stores a delayed message with that unique key for queue T/0.
func (r *rig) send(level int, unique string) {
	r.t.Helper()
	m := store.Message{
		Topic: "T", BornTimestamp: 1000, BornHost: netip.MustParseAddrPort("10.0.0.1:1234"), Body: []byte("body of " + unique),
		Flag: 5, SysFlag: message.FlagLZ4, ReconsumeTimes: 2,
		Properties: props("UNIQ_KEY", unique, "DELAY", strconv.Itoa(level), "TAGS", "TagA"),
	}
	_, delayed, err := defaults(r.t).Rewrite(&m, nil)
	require.NoError(r.t, err)
	require.True(r.t, delayed)
	_, err = r.store.Append(m)
	require.NoError(r.t, err)
}

// each reads a whole queue.
func (r *rig) each(topic string, queue int32, fn func(*message.Record)) {
	r.t.Helper()
	for at := offset.Queue(0); ; {
		buf, batch, err := r.store.Read(store.Query{Topic: topic, Queue: queue, From: at, MaxMessages: 1000}, nil)
		require.NoError(r.t, err)
		for rest := buf; len(rest) > 0; {
			rec, err := message.Parse(rest)
			require.NoError(r.t, err)
			fn(&rec)
			rest = rest[rec.Size:]
		}
		if batch.Next <= at {
			return
		}
		at = batch.Next
	}
}

// delivered are the unique keys in T/0, in order.
func (r *rig) delivered() (keys []string) {
	r.t.Helper()
	r.each("T", 0, func(rec *message.Record) {
		key, _ := message.Property(rec.Properties, message.PropertyUniqueKey)
		keys = append(keys, string(key))
	})
	return keys
}

func numbers(from, to int) (keys []string) {
	for i := from; i < to; i++ {
		keys = append(keys, key(i))
	}
	return keys
}

func key(i int) string { return fmt.Sprintf("%06d", i) }

// load sends messages of level 1, two a millisecond.
func (r *rig) load(total int) {
	for i := range total {
		r.send(1, key(i))
		if i%2 == 1 {
			time.Sleep(time.Millisecond)
		}
	}
}

// scheduled are the unique keys of the messages that wait or waited on level 1, in order.
func (r *rig) scheduled() (keys []string) {
	r.each(Topic, 0, func(rec *message.Record) {
		key, _ := message.Property(rec.Properties, message.PropertyUniqueKey)
		keys = append(keys, string(key))
	})
	return keys
}

// requireAllOnce starts on a disk, lets everything become due, and requires each message once and in order; and that
// another start adds nothing.
func requireAllOnce(t *testing.T, disk *vfstest.Mem, apart bool) (total int) {
	t.Helper()
	for range 2 {
		r := begin(t, disk, nil)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		want, got := r.scheduled(), r.delivered()
		total = len(want)
		if apart { // holes in the log take deliveries, or the messages that were delivered, and don't keep the order
			slices.Sort(got)
			count := len(got)
			got = slices.Compact(got)
			require.Len(t, got, count, "delivered twice")
			sent := map[string]bool{}
			for _, key := range want {
				sent[key] = true
			}
			got = slices.DeleteFunc(got, func(key string) bool { return !sent[key] })
		}
		// Not Equal of the whole: its text of ten thousand keys helps nobody.
		require.Equal(t, total, len(got), "delivered") //nolint:testifylint // Len would print ten thousand keys
		for i := range got {
			require.Equal(t, want[i], got[i], "delivery %d", i)
		}
		r.stop()
	}
	return total
}
