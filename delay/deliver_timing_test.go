package delay

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/store"
)

// BenchmarkDeliver is one message of 200 bytes from its delay queue to its own, on a real disk.
func BenchmarkDeliver(b *testing.B) {
	levels := Levels{0}
	dir := b.TempDir()
	s, err := store.Open(store.Options{Root: dir, SegmentSize: 256 << 20, TagsCode: levels.TagsCode})
	require.NoError(b, err)
	done := make(chan struct{})
	n := 0
	scheduler, err := Open(Options{
		Levels: levels, Path: filepath.Join(dir, "config", "delayOffset.json"),
		Store: &seam{Store: s, appended: func(count int) {
			if n += count; n == b.N {
				close(done)
			}
		}},
	})
	require.NoError(b, err)
	stopStore := background(s.Run)
	m := store.Message{Topic: "T", Body: make([]byte, 200), Properties: props("UNIQ_KEY", key(1), "DELAY", "1")}
	_, _, err = levels.Rewrite(&m, nil)
	require.NoError(b, err)
	for range b.N {
		_, err := s.Append(m)
		require.NoError(b, err)
	}
	for bounds, _ := s.Bounds(Topic, 0); bounds.High < offset.Queue(b.N); bounds, _ = s.Bounds(Topic, 0) {
	}
	b.ReportAllocs()
	b.ResetTimer()
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- scheduler.Run(ctx) }()
	<-done
	b.StopTimer()
	cancel()
	require.NoError(b, <-ended)
	require.NoError(b, stopStore())
	require.NoError(b, s.Close())
}
