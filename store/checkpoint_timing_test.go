package store

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/internal/vfs"
)

// BenchmarkCheckpointOfManyQueues is a checkpoint when each of 20,000 queues has got a message since the last.
func BenchmarkCheckpointOfManyQueues(b *testing.B) {
	s := mustOpen(b, Options{FS: vfs.OS{}, Root: b.TempDir(), StoreHost: testHost})
	for b.Loop() {
		b.StopTimer()
		eachOfMany(1, func(n int, topic string, queue int32) {
			_, err := s.Append(keyed(n, topic, queue))
			require.NoError(b, err)
		})
		level(b, s)
		b.StartTimer()
		require.NoError(b, s.saveCheckpoint())
	}
}

// BenchmarkSendsBesideCheckpoint is a checkpoint of 10,000 queues, and 2,000 sends a second to these, one after the other: how long
// they take while it is written, and while it is not.
func BenchmarkSendsBesideCheckpoint(b *testing.B) {
	for name, mode := range map[string]FlushMode{"async": AsyncFlush, "sync": SyncFlush} {
		b.Run(name, func(b *testing.B) {
			s := running(b, mustOpen(b, Options{
				FS: vfs.OS{}, Root: b.TempDir(), StoreHost: testHost, Flush: mode, CheckpointInterval: time.Hour,
			}))
			n := 0
			send := func() time.Duration {
				m := keyed(n, fmt.Sprint("topic", n/8%1250), int32(n%8))
				n++
				began := time.Now()
				a, err := s.Append(m)
				if err == nil && mode == SyncFlush {
					err = s.awaitFlushed(a.End)
				}
				require.NoError(b, err)
				return time.Since(began)
			}
			until := func(end func() bool) (took []time.Duration) {
				for begin := time.Now(); !end(); {
					took = append(took, send())
					time.Sleep(time.Until(begin.Add(time.Duration(len(took)) * time.Second / 2000)))
				}
				return took
			}
			var during, beside []time.Duration
			var busy time.Duration
			for b.Loop() {
				b.StopTimer()
				limit := n + 10_000
				beside = append(beside, until(func() bool { return n == limit })...)
				waitDispatched(b, s, s.Written())
				done := make(chan error, 1)
				before := processorTime(b)
				b.StartTimer()
				go func() { done <- s.saveCheckpoint() }()
				during = append(during, until(func() bool { return len(done) > 0 })...)
				b.StopTimer()
				busy += processorTime(b) - before
				require.NoError(b, <-done)
				b.StartTimer()
			}
			for name, list := range map[string][]time.Duration{"during": during, "beside": beside} {
				slices.Sort(list)
				b.ReportMetric(float64(list[len(list)/2].Microseconds()), name+"-p50-µs")
				b.ReportMetric(float64(list[len(list)*99/100].Microseconds()), name+"-p99-µs")
			}
			b.ReportMetric(busy.Seconds()/float64(b.N), "cpu-s/op")
		})
	}
}
