package index

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/message"
)

// timed prepares records of four keys each, and an index of the default size on a real disk.
func timed(b *testing.B) (*Index, []*message.Record) {
	x, err := Open(osFS, b.TempDir(), Options{})
	require.NoError(b, err)
	b.Cleanup(func() { _ = x.Close() })
	records := make([]*message.Record, 100_000)
	for i := range records {
		records[i] = record(i, "BenchmarkTopic", fmt.Sprintf("7F00000100002A9F%016X", i),
			fmt.Sprintf("order-%d customer-%d", i, i%1000), "TagA")
	}
	return x, records
}

// BenchmarkPut is one message with four keys, its share of the writes included.
func BenchmarkPut(b *testing.B) {
	x, records := timed(b)
	b.ReportAllocs()
	phy := offset.Physical(0)
	for i := 0; b.Loop(); i++ {
		r := records[i%len(records)]
		phy += 1000
		r.PhysicalOffset = phy
		if err := x.Put(r); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkFlush is what a second's messages cost the flusher.
func BenchmarkFlush(b *testing.B) {
	for _, perFlush := range []int{10, 1000, 10_000, 30_000} {
		b.Run(fmt.Sprint(perFlush), func(b *testing.B) {
			x, records := timed(b)
			phy := offset.Physical(0)
			var flushing time.Duration
			for b.Loop() {
				for range perFlush {
					phy += 1000
					r := records[int(phy/1000)%len(records)]
					r.PhysicalOffset = phy
					if err := x.Put(r); err != nil {
						b.Fatal(err)
					}
				}
				began := time.Now()
				require.NoError(b, x.Flush())
				flushing += time.Since(began)
			}
			b.ReportMetric(float64(flushing.Microseconds())/float64(b.N), "µs/flush")
		})
	}
}

func BenchmarkQuery(b *testing.B) {
	x, records := timed(b)
	for _, r := range records {
		require.NoError(b, x.Put(r))
	}
	require.NoError(b, x.Flush())
	for _, c := range []struct {
		name, key string
		kind      Kind
		limit     int
	}{
		{"unique", "7F00000100002A9F0000000000001234", UniqueKey, 1},
		{"customer", "customer-7", UserKey, 32},
		{"tag-all", "TagA", TagKey, 1 << 30},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				n := 0
				err := x.Each("BenchmarkTopic", c.key, c.kind, 0, 1<<60, func(offset.Physical) bool {
					n++
					return n < c.limit
				})
				if err != nil || n == 0 {
					b.Fatal(n, err)
				}
			}
		})
	}
}
