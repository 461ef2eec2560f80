package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/internal/vfs"
	"github.com/ratchetmq/ratchet/internal/vfs/vfstest"
	"github.com/ratchetmq/ratchet/message"
)

const testRoot = "/store"

var testHost = netip.MustParseAddrPort("127.0.0.1:10911")

// small are options with files so small that tests cross their borders.
func small(fsys vfs.FS) Options {
	return Options{
		FS: fsys, Root: testRoot, SegmentSize: 4096, ConsumeQueueUnits: 16, MaxOpenQueueFiles: 4,
		FlushInterval: time.Millisecond, StoreHost: testHost,
	}
}

func mustOpen(tb testing.TB, o Options) *Store {
	tb.Helper()
	s, err := Open(o)
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = s.Close() })
	return s
}

// running starts Run; it ends at the latest with the test.
func running(tb testing.TB, s *Store) *Store {
	tb.Helper()
	result := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { result <- s.Run(ctx) }()
	tb.Cleanup(func() {
		cancel()
		<-result
	})
	return s
}

func mustRun(tb testing.TB, o Options) *Store {
	tb.Helper()
	return running(tb, mustOpen(tb, o))
}

func text(topic string, queue int32, body string) Message {
	return Message{Topic: topic, QueueID: queue, Body: []byte(body), BornTimestamp: 7, BornHost: testHost}
}

func tagged(topic string, queue int32, tags, body string) Message {
	m := text(topic, queue, body)
	m.Properties = message.AppendProperty(nil, message.PropertyTags, tags)
	return m
}

// level brings queues level with the log without Run.
func level(tb testing.TB, s *Store) {
	tb.Helper()
	require.NoError(tb, s.log.flush())
	require.NoError(tb, s.dispatcher.drain())
}

// put appends one message to a store without Run and dispatches it.
func put(tb testing.TB, s *Store, m Message) Appended {
	tb.Helper()
	a, err := s.Append(m)
	require.NoError(tb, err)
	level(tb, s)
	return a
}

func waitDispatched(tb testing.TB, s *Store, end offset.Physical) {
	tb.Helper()
	require.Eventually(tb, func() bool { return s.Dispatched() >= end }, time.Minute, time.Millisecond)
}

// records cuts what Read returned into records.
func records(tb testing.TB, b []byte) (list []message.Record) {
	tb.Helper()
	for len(b) > 0 {
		r, err := message.Parse(b)
		if err == nil {
			err = r.CheckBody()
		}
		if err != nil {
			tb.Fatal(err)
		}
		list, b = append(list, r), b[r.Size:]
	}
	return list
}

// readQueue reads a queue from its low to its high end.
func readQueue(tb testing.TB, s *Store, topic string, queue int32) (list []message.Record) {
	tb.Helper()
	b, ok := s.Bounds(topic, queue)
	if !ok {
		return nil
	}
	for at := b.Low; at < b.High; {
		buf, batch, err := s.Read(Query{Topic: topic, Queue: queue, From: at}, nil)
		if err != nil || batch.Next <= at {
			tb.Fatalf("read %s/%d at %d: %v, next %d, %v", topic, queue, at, batch.Status, batch.Next, err)
		}
		found := records(tb, buf)
		if len(found) != batch.Count {
			tb.Fatalf("read %s/%d at %d: %d records, count is %d", topic, queue, at, len(found), batch.Count)
		}
		list, at = append(list, found...), batch.Next
	}
	return list
}

func bodies(list []message.Record) (texts []string) {
	for _, r := range list {
		texts = append(texts, string(r.Body))
	}
	return texts
}

func logFile(start int64) string { return fmt.Sprintf("%s/commitlog/%020d", testRoot, start) }

func queueFile(topic string, queue int32, first int64) string {
	return fmt.Sprintf("%s/consumequeue/%s/%d/%020d", testRoot, topic, queue, first*entrySize)
}

// patch overwrites bytes of a file.
func patch(tb testing.TB, m *vfstest.Mem, name string, at int64, b []byte) {
	tb.Helper()
	f, err := m.Open(name)
	require.NoError(tb, err)
	_, err = f.WriteAt(b, at)
	require.NoError(tb, err)
	require.NoError(tb, f.Sync())
}

func isZero(b []byte) bool { return len(bytes.Trim(b, "\x00")) == 0 }

// flip damages a byte.
func flip(tb testing.TB, m *vfstest.Mem, name string, at int64) {
	tb.Helper()
	data, err := m.ReadFile(name)
	require.NoError(tb, err)
	patch(tb, m, name, at, []byte{data[at] ^ 0x40})
}

// kill is the disk as kill -9 leaves it: all that was written, no orderly stop.
func kill(m *vfstest.Mem) *vfstest.Mem { return m.CrashClone(vfstest.KeepAll, 0) }

func u32(v uint32) []byte { return binary.BigEndian.AppendUint32(nil, v) }
