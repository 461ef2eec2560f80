package store

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/ratchetmq/ratchet/internal/vfs"
	"github.com/ratchetmq/ratchet/message"
	"github.com/ratchetmq/ratchet/store/index"
)

// How long a start takes: the time of Open, key index included, until messages are taken and given. The files have
// RocketMQ's sizes. What was just written is in the page cache, as it is after a killed process; after a power cut the
// disk's speed is the limit.

// startOptions are a broker's.
func startOptions(root string) Options {
	o := Options{FS: vfs.OS{}, Root: root, StoreHost: testHost, OpenIndex: openIndex(root, false)}
	if os.Getenv("START_LOG") != "" { // how long each phase takes
		o.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	return o
}

func openIndex(root string, sameBoot bool) func(bool, int64) (Indexer, error) {
	return func(clean bool, synced int64) (Indexer, error) {
		return index.Open(vfs.OS{}, filepath.Join(root, "index"), index.Options{Unclean: !clean, SameBoot: sameBoot, SyncedTime: synced})
	}
}

// abandon leaves a store as a killed process does.
func abandon(b *testing.B, s *Store) {
	b.Helper()
	if x, ok := s.opts.Index.(*index.Index); ok {
		require.NoError(b, x.Close())
	}
	s.closed = true
	require.NoError(b, errors.Join(s.files.cache.drop(nil), s.log.close(), s.lock.Close()))
}

// keyed is what a Java client sends with one key: 1 KiB of body.
func keyed(n int, topic string, queue int32) Message {
	m := kilobyte()
	m.Topic, m.QueueID = topic, queue
	m.Properties = message.AppendProperty(m.Properties, message.PropertyUniqueKey, fmt.Sprintf("7F00000100002A139A55%012X", n))
	m.Properties = message.AppendProperty(m.Properties, message.PropertyKeys, fmt.Sprint("order", n))
	return m
}

// opens is Open again and again, each time after the prepared damage. Besides the time by the clock it reports that of
// the processors, which does not depend on what else the machine does.
func opens(b *testing.B, o Options, want Bounds, prepare func()) {
	var busy time.Duration
	for b.Loop() {
		b.StopTimer()
		prepare()
		before := processorTime(b)
		b.StartTimer()
		s, err := Open(o)
		b.StopTimer()
		busy += processorTime(b) - before
		if err != nil {
			b.Fatal(err)
		}
		if got, _ := s.Bounds("topic0", 0); got != want {
			b.Fatal(got)
		}
		abandon(b, s)
		b.StartTimer()
	}
	b.ReportMetric(busy.Seconds()/float64(b.N), "cpu-s/op")
}

func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	require.NoError(b, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkStartAfterKill is 4 GiB of log of which 8 queues have the entries.
func BenchmarkStartAfterKill(b *testing.B) {
	root := b.TempDir()
	o := startOptions(root)
	s, err := Open(o)
	require.NoError(b, err)
	n := 0
	for ; s.Written() < 4<<30; n++ {
		_, err := s.Append(keyed(n, "topic0", int32(n%8)))
		require.NoError(b, err)
		if n%100_000 == 0 {
			level(b, s)
			require.NoError(b, s.saveCheckpoint())
		}
	}
	level(b, s)
	require.NoError(b, s.saveCheckpoint())
	want, _ := s.Bounds("topic0", 0)
	abandon(b, s)
	remove := func(names ...string) func() {
		return func() {
			for _, name := range names {
				require.NoError(b, os.RemoveAll(filepath.Join(root, name)))
			}
		}
	}
	b.Run("checkpoint", func(b *testing.B) { opens(b, o, want, remove()) })
	b.Run("no checkpoint", func(b *testing.B) { opens(b, o, want, remove(checkpointFile)) })
	b.Run("no checkpoint, same boot", func(b *testing.B) {
		o := o
		o.SameBoot, o.OpenIndex = true, openIndex(root, true)
		opens(b, o, want, remove(checkpointFile))
	})
	b.Run("nothing but the log", func(b *testing.B) {
		opens(b, o, want, remove(checkpointFile, queueFolder, "index"))
	})
}

// manyQueues are 2,500 topics of 8 queues.
const manyQueues = 20_000

func eachOfMany(n int, fn func(n int, topic string, queue int32)) {
	for i := range manyQueues * n {
		fn(i, fmt.Sprint("topic", i/8%(manyQueues/8)), int32(i%8))
	}
}

// BenchmarkStartWithManyQueues is 20,000 queues of 10 messages each.
func BenchmarkStartWithManyQueues(b *testing.B) {
	root := b.TempDir()
	o := startOptions(root)
	s, err := Open(o)
	require.NoError(b, err)
	eachOfMany(10, func(n int, topic string, queue int32) {
		_, err := s.Append(keyed(n, topic, queue))
		require.NoError(b, err)
	})
	level(b, s)
	require.NoError(b, s.saveCheckpoint())
	abandon(b, s)
	abort := filepath.Join(root, abortFile)
	b.Run("clean", func(b *testing.B) {
		opens(b, o, Bounds{0, 10}, func() { require.NoError(b, os.RemoveAll(abort)) })
	})
	b.Run("killed", func(b *testing.B) { opens(b, o, Bounds{0, 10}, func() {}) })
	b.Run("no checkpoint", func(b *testing.B) {
		opens(b, o, Bounds{0, 10}, func() { require.NoError(b, os.RemoveAll(filepath.Join(root, checkpointFile))) })
	})
	b.Run("no queues", func(b *testing.B) {
		opens(b, o, Bounds{0, 10}, func() { require.NoError(b, os.RemoveAll(filepath.Join(root, queueFolder))) })
	})
}
