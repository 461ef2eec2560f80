package store

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/internal/vfs/vfstest"
	"github.com/ratchetmq/ratchet/message"
)

// FuzzRecover opens stores with any bytes written over a commit log file, a queue file or the checkpoint. Whatever they
// are, Open must end well, the same twice, and nothing may be read that the log does not hold.
func FuzzRecover(f *testing.F) {
	disk := vfstest.New()
	s := mustOpen(f, small(disk))
	for i := range 50 {
		put(f, s, tagged("T", int32(i%2), "tag", fmt.Sprint(i, strings.Repeat("x", i*3))))
	}
	require.NoError(f, s.saveCheckpoint())
	image := kill(disk)
	good, err := image.ReadFile(logFile(0))
	require.NoError(f, err)
	f.Add(uint8(0), uint16(0), []byte{}, true)
	f.Add(uint8(0), uint16(200), []byte{0xFF}, false)
	f.Add(uint8(1), uint16(0), good[:500], false)
	f.Add(uint8(0), uint16(96), good[96:700], true)
	f.Add(uint8(2), uint16(40), []byte{0, 0, 0, 0, 0, 0, 0, 1, 0x7F, 0xFF, 0xFF, 0xFF}, false)
	f.Add(uint8(3), uint16(0), bytes.Repeat([]byte{0xFF}, 24), false)
	f.Add(uint8(0), uint16(20), []byte{0x7F, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF}, false)
	names := []string{logFile(0), logFile(4096), queueFile("T", 0, 0), testRoot + "/checkpoint"}
	f.Fuzz(func(t *testing.T, which uint8, at uint16, data []byte, clean bool) {
		name := names[int(which)%len(names)]
		disk := kill(image)
		size := map[bool]int{true: len(good), false: 16 * entrySize}[which%4 < 2]
		if which%4 == 3 {
			size = checkpointSize
		}
		pos := int(at) % size
		patch(t, disk, name, int64(pos), data[:min(len(data), size-pos)])
		if clean {
			require.NoError(t, disk.Remove(testRoot+"/abort"))
		}
		s := mustOpen(t, small(disk))
		first := snapshot(t, s)
		written := s.Written()
		checkZeroBehind(t, s)
		require.NoError(t, s.Close())
		s = mustOpen(t, small(disk))
		require.Equal(t, written, s.Written())
		require.Equal(t, first, snapshot(t, s))
		put(t, s, text("T", 0, "next"))
		require.NoError(t, s.Close())
	})
}

// snapshot is all that can be read.
func snapshot(t *testing.T, s *Store) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	s.EachQueue(func(topic string, queue int32, _ Bounds) {
		for _, r := range readQueue(t, s, topic, queue) {
			whole, err := s.Record(r.PhysicalOffset, nil)
			require.NoError(t, err)
			stored, err := message.Parse(whole)
			require.NoError(t, err)
			require.Equal(t, r, stored)
			key := fmt.Sprint(topic, "/", queue)
			all[key] = append(all[key], fmt.Sprint(r.PhysicalOffset, " ", string(r.Body)))
		}
	})
	return all
}
