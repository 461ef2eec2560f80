package store

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/internal/vfs"
)

// timed is a store on the real disk, without Run.
func timed(b *testing.B) *Store {
	b.Helper()
	return mustOpen(b, Options{FS: vfs.OS{}, Root: b.TempDir(), SegmentSize: 256 << 20, StoreHost: testHost})
}

func kilobyte() Message {
	m := tagged("Topic", 0, "TagA", "")
	m.Body = make([]byte, 1024)
	for i := range m.Body {
		m.Body[i] = byte(i)
	}
	return m
}

func BenchmarkAppend(b *testing.B) {
	for _, writers := range []int{1, 4, 16} {
		b.Run(fmt.Sprint("writers=", writers), func(b *testing.B) {
			s := timed(b)
			m := kilobyte()
			b.SetBytes(int64(len(m.Body)))
			b.ReportAllocs()
			b.SetParallelism((writers + 1) / 2) // times GOMAXPROCS
			if writers == 1 {
				for b.Loop() {
					if _, err := s.Append(m); err != nil {
						b.Fatal(err)
					}
				}
				return
			}
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := s.Append(m); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}

func BenchmarkAppendBatchOf32(b *testing.B) {
	s := timed(b)
	batch := make([]Message, 32)
	for i := range batch {
		batch[i] = kilobyte()
	}
	b.SetBytes(32 * 1024)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Append(batch...); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkSyncFlush is 64 appends whose senders all wait for the disk.
func BenchmarkSyncFlush(b *testing.B) {
	s := running(b, mustOpen(b, Options{
		FS: vfs.OS{}, Root: b.TempDir(), SegmentSize: 256 << 20, StoreHost: testHost, Flush: SyncFlush,
	}))
	m := kilobyte()
	b.ReportAllocs()
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			a, err := s.Append(m)
			if err == nil {
				err = s.awaitFlushed(a.End)
			}
			if err != nil {
				b.Error(err)
				return
			}
		}
	})
}

func BenchmarkRead32(b *testing.B) {
	for _, queues := range []int32{1, 8} {
		b.Run(fmt.Sprint("queues=", queues), func(b *testing.B) {
			s := timed(b)
			m := kilobyte()
			const n = 32 * 64
			for i := range n * queues {
				m.QueueID = i % queues
				_, err := s.Append(m)
				require.NoError(b, err)
			}
			level(b, s)
			buf := make([]byte, 0, 1<<20)
			b.SetBytes(32 * 1024)
			b.ReportAllocs()
			at := offset.Queue(0)
			for b.Loop() {
				_, batch, err := s.Read(Query{Topic: "Topic", From: at, MaxMessages: 32}, buf)
				if err != nil || batch.Count != 32 {
					b.Fatal(batch, err)
				}
				at = batch.Next % n
			}
		})
	}
}

// BenchmarkDispatch is the way of one message of 1 KiB from the log into its queue, of 8.
func BenchmarkDispatch(b *testing.B) {
	s := timed(b)
	m := kilobyte()
	b.SetBytes(1024)
	b.ReportAllocs()
	for n := 0; n < b.N; {
		b.StopTimer()
		for i := 0; i < 1024 && n < b.N; i++ {
			m.QueueID = int32(i % 8)
			if _, err := s.Append(m); err != nil {
				b.Fatal(err)
			}
			n++
		}
		b.StartTimer()
		if err := s.dispatcher.drain(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkAppendAndDispatch is the whole way of one message of 1 KiB into its queue, of 8, with sends as they come through
// the wire: 32 together, and dispatch every 8 times.
func BenchmarkAppendAndDispatch(b *testing.B) {
	for _, size := range []int{1 << 10, 16 << 10} {
		b.Run(fmt.Sprint("size=", size), func(b *testing.B) {
			s := timed(b)
			batch := make([]Message, 32)
			for i := range batch {
				batch[i] = kilobyte()
				batch[i].QueueID = int32(i % 8)
				batch[i].Body = make([]byte, size)
				batch[i].Properties = []byte("UNIQ_KEY\x017F000001000078308DB1671D2EBD0000\x02WAIT\x01true\x02TAGS\x01TagA\x02" +
					"KEYS\x01order-1\x02CLUSTER\x01DefaultCluster\x02MSG_REGION\x01DefaultRegion\x02TRACE_ON\x01true\x02")
			}
			b.SetBytes(int64(size))
			b.ReportAllocs()
			b.ResetTimer()
			for n := 0; n < b.N; n += len(batch) {
				if _, err := s.Append(batch...); err != nil {
					b.Fatal(err)
				}
				if n%(8*len(batch)) != 0 {
					continue
				}
				if err := s.dispatcher.drain(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkSpread is BenchmarkAppendAndDispatch with one message for each queue after the other, whose files are there, until
// all entries are in the files. What it takes of the processors does not depend on what else the machine does.
func BenchmarkSpread(b *testing.B) {
	for _, queues := range []int{1, 100, 1_000, 10_000} {
		b.Run(fmt.Sprint("queues=", queues), func(b *testing.B) {
			s := timed(b)
			batch := make([]Message, 32)
			at := 0
			next := func() {
				for i := range batch {
					batch[i].Topic, batch[i].QueueID = fmt.Sprint("Topic", at/8), int32(at%8)
					at = (at + 1) % queues
				}
				if _, err := s.Append(batch...); err != nil {
					b.Fatal(err)
				}
			}
			for i := range batch {
				batch[i] = kilobyte()
			}
			for range 1 + queues/len(batch) {
				next()
			}
			level(b, s)
			before := processorTime(b)
			b.ResetTimer()
			for n := 0; n < b.N; n += len(batch) {
				next()
				if n%(8*len(batch)) != 0 {
					continue
				}
				if err := s.dispatcher.drain(); err != nil {
					b.Fatal(err)
				}
			}
			if err := errors.Join(s.dispatcher.drain(), s.writeTails()); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(processorTime(b)-before)/float64(b.N), "cpu-ns/op")
		})
	}
}

// BenchmarkNewQueue is the first message of a queue, whose folder and file are made, in topics of 8 queues.
func BenchmarkNewQueue(b *testing.B) {
	s := timed(b)
	m := kilobyte()
	before := processorTime(b)
	b.ReportAllocs()
	b.ResetTimer()
	for n := range b.N {
		m.Topic, m.QueueID = fmt.Sprint("Topic", n/8), int32(n%8)
		if _, err := s.Append(m); err != nil {
			b.Fatal(err)
		}
		if n%32 != 31 {
			continue
		}
		if err := s.dispatcher.drain(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(processorTime(b)-before)/float64(b.N), "cpu-ns/op")
}

// BenchmarkRecoveryScan is reading 64 MiB of log after a crash.
func BenchmarkRecoveryScan(b *testing.B) {
	s := timed(b)
	m := kilobyte()
	for range 64 << 10 {
		_, err := s.Append(m)
		require.NoError(b, err)
	}
	level(b, s)
	b.SetBytes(64 << 20)
	for b.Loop() {
		r := newRecovery(s, false)
		if err := r.scan(); err != nil || r.end != s.Written() {
			b.Fatal(r.end, err)
		}
	}
}
