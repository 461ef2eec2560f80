package store

import (
	"crypto/sha256"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/internal/vfs/vfstest"
)

// outcome is all that a recovery decides: the bytes of every file that it leaves, and what it says.
type outcome struct {
	files   map[string][sha256.Size]byte
	written offset.Physical
	damage  []Span
	queues  map[string]Bounds
	indexed []offset.Physical
}

func recovered(t *testing.T, image *vfstest.Mem, o Options, workers int) outcome {
	t.Helper()
	x := &recordingIndex{}
	o.FS, o.Index, o.OpenWorkers = image.CrashClone(vfstest.KeepAll, 0), x, workers
	s, err := Open(o)
	require.NoError(t, err)
	out := outcome{files: map[string][sha256.Size]byte{}, written: s.Written(), damage: s.Damaged(), queues: map[string]Bounds{}}
	s.EachQueue(func(topic string, queue int32, b Bounds) { out.queues[fmt.Sprint(topic, "/", queue)] = b })
	require.NoError(t, s.Close())
	disk := o.FS.(*vfstest.Mem)
	for _, name := range disk.Files() {
		data, err := disk.ReadFile(name)
		require.NoError(t, err)
		out.files[name] = sha256.Sum256(data)
	}
	out.indexed = x.put
	return out
}

// How many goroutines recover a store has no part in what comes of it, whatever is damaged.
func TestOutcomeDoesNotDependOnWorkers(t *testing.T) {
	seeds := uint64(60)
	if testing.Short() {
		seeds = 10
	}
	for seed := range seeds {
		rnd := rand.New(rand.NewPCG(seed, 2))
		disk := vfstest.New()
		o := small(disk)
		o.Now = func() time.Time { return time.UnixMilli(1_000_000) }
		total := 60
		if seed%6 == 0 { // log files of several parts, records that are larger than one, calm long enough to read ahead again
			o.SegmentSize, total = 5<<20, 150
		}
		s := mustOpen(t, o)
		for i := range total {
			size := rnd.IntN(int(o.SegmentSize) / 20)
			if i == 7 {
				size = int(o.SegmentSize) / 6
			}
			topic := fmt.Sprint("T", rnd.IntN(3))
			put(t, s, tagged(topic, rnd.Int32N(3), "tag", fmt.Sprint(i, strings.Repeat("x", size))))
		}
		image := kill(disk)
		end := s.Written()
		var logs []string
		for _, name := range image.Files() {
			if strings.Contains(name, "/commitlog/") {
				logs = append(logs, name)
			}
		}
		for range rnd.IntN(6) {
			at := rnd.Int64N(int64(end))
			name, at := logs[at/o.SegmentSize], at%o.SegmentSize
			switch rnd.IntN(3) {
			case 0:
				flip(t, image, name, at)
			case 1:
				patch(t, image, name, at/512*512, make([]byte, 512))
			default:
				n := min(rnd.Int64N(o.SegmentSize/3), o.SegmentSize-at)
				patch(t, image, name, at, make([]byte, n))
			}
		}
		one := recovered(t, image, o, 1)
		for _, workers := range []int{2, 7} {
			many := recovered(t, image, o, workers)
			require.Equal(t, one.written, many.written, "seed %d", seed)
			require.Equal(t, one.damage, many.damage, "seed %d", seed)
			require.Equal(t, one.queues, many.queues, "seed %d", seed)
			require.Equal(t, one.indexed, many.indexed, "seed %d", seed)
			for name, sum := range one.files {
				require.Equal(t, sum, many.files[name], "seed %d: %s differs", seed, name)
			}
			require.Len(t, many.files, len(one.files))
		}
	}
}

// A read that fails ends a recovery with several workers as it ends one with one, and nothing goes on in the background.
func TestWorkersEndOnAnError(t *testing.T) {
	disk := vfstest.New()
	o := small(disk)
	s := mustOpen(t, o)
	for i := range 60 {
		put(t, s, text("T", int32(i%4), strings.Repeat("x", 200)))
	}
	for _, part := range []string{"/commitlog/00000000000000008192", "/consumequeue/T/2/"} {
		for _, workers := range []int{1, 3} {
			image := kill(disk)
			image.SetFault(func(op vfstest.Op) *vfstest.Fault {
				if op.Kind == vfstest.OpRead && strings.Contains(op.Name, part) {
					return &vfstest.Fault{Err: errDisk}
				}
				return nil
			})
			o.FS, o.OpenWorkers = image, workers
			_, err := Open(o)
			require.ErrorIs(t, err, errDisk)
			image.SetFault(nil)
			require.NoError(t, mustOpen(t, o).Close(), "the folder was given back")
		}
	}
}

// What an operator sees of a start that takes its time; a short one is not commented.
func TestProgressIsTold(t *testing.T) {
	o := small(vfstest.New())
	o.SegmentSize = 4 * chunk
	s := mustOpen(t, o)
	for range 60 {
		put(t, s, text("T", 0, strings.Repeat("x", chunk)))
	}
	for _, step := range []time.Duration{0, time.Second} {
		var lines strings.Builder
		clock := time.UnixMilli(1_000_000)
		r := newRecovery(s, false)
		r.progress = newProgress(slog.New(slog.NewTextHandler(&lines, nil)), func() time.Time {
			clock = clock.Add(step)
			return clock
		})
		require.NoError(t, r.scan())
		told := strings.Count(lines.String(), `msg="store opens" phase="commit log" done=`)
		if step == 0 {
			require.Zero(t, told)
			continue
		}
		require.Greater(t, told, 20)
		require.LessOrEqual(t, told, 40, "every second look at the clock")
	}
}

func TestBordersOfRecords(t *testing.T) {
	disk := vfstest.New()
	s := mustOpen(t, small(disk))
	var ends []int64
	for range 3 {
		ends = append(ends, int64(put(t, s, text("T", 0, strings.Repeat("x", 1100))).End))
	}
	put(t, s, text("T", 0, strings.Repeat("y", 1100))) // in the next file: this one ends in a blank record
	data, err := disk.ReadFile(logFile(0))
	require.NoError(t, err)
	whole := func(b []byte) []int64 {
		w, next := borders(b, 0, 4096)
		return []int64{w, next}
	}
	require.Equal(t, []int64{4096, 0}, whole(data))
	require.Equal(t, []int64{0, headSize}, whole(nil))
	require.Equal(t, []int64{0, ends[0]}, whole(data[:ends[0]-1]))
	require.Equal(t, []int64{ends[0], headSize}, whole(data[:ends[0]+headSize-1]))
	require.Equal(t, []int64{ends[0], ends[1] - ends[0]}, whole(data[:ends[1]-1]))
	broken := slices.Clone(data)
	broken[ends[1]+4]++ // magic code
	require.Equal(t, []int64{ends[1], 0}, whole(broken))
	w, _ := borders(data[ends[0]:], 0, 4096)
	require.Zero(t, w, "a record that says that it stands elsewhere")
}
