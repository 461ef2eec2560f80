package store

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/internal/vfs/vfstest"
	"github.com/ratchetmq/ratchet/message"
)

// ledger is what the outside world knows about the messages of a crash run.
type ledger struct {
	sent  map[string]bool            // bodies that were ever handed to Append
	acked map[offset.Physical]string // answered, since the last power cut survived
	safe  map[offset.Physical]string // flushed, and told so
	cut   bool                       // there was a power cut: numbers may be missing
}

func newLedger() *ledger {
	return &ledger{sent: map[string]bool{}, acked: map[offset.Physical]string{}, safe: map[offset.Physical]string{}}
}

// TestCrashes lets a store append, flush, dispatch and write checkpoints in random order, cuts the power or kills the
// process at a random operation, opens what is left, and goes on; several lives a seed. CRASH_SEEDS=from-to runs other
// seeds than usual; a single one also shows the store's log.
func TestCrashes(t *testing.T) {
	from, to := 0, 1000
	if testing.Short() {
		to = 200
	}
	if s := os.Getenv("CRASH_SEEDS"); s != "" {
		_, err := fmt.Sscanf(s, "%d-%d", &from, &to)
		require.NoError(t, err)
	}
	for seed := from; seed < to; seed++ {
		logger := slog.New(slog.DiscardHandler)
		if to-from == 1 {
			logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
		}
		crashRun(t, uint64(seed), logger)
		if t.Failed() {
			t.Fatalf("run it again with CRASH_SEEDS=%d-%d", seed, seed+1)
		}
	}
}

func crashRun(t *testing.T, seed uint64, logger *slog.Logger) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	disk := vfstest.New()
	l := newLedger()
	sameBoot := false // a store has come through Open since the last power cut; of every second seed they don't know it
	for life := range 4 {
		// What is written during recovery can be hit as well.
		disk.SetFault(dieAt(rnd.IntN(400)))
		o := crashOptions(disk, rnd, logger)
		o.SameBoot = sameBoot && seed%2 == 0
		s, err := Open(o)
		if err == nil {
			sameBoot = true
			disk.SetFault(nil)
			l.check(t, s)
			disk.SetFault(dieAt(rnd.IntN(300)))
			live(t, s, l, rnd, life)
		} else {
			require.ErrorIs(t, err, errDead)
		}
		disk.SetFault(nil)
		switch end := rnd.IntN(4); {
		case end == 0 || seed%3 == 0: // kill -9; of every third seed all lives end like that
			disk = kill(disk)
			if !l.cut { // or its files may be short
				requireWhole(t, disk, &o)
			}
		case end == 1:
			disk = disk.CrashClone(vfstest.KeepNothing, 0)
			l.powerCut()
			sameBoot = false
		default:
			disk = disk.CrashClone(vfstest.KeepSome, rnd.Uint64())
			l.powerCut()
			sameBoot = false
		}
	}
	o := crashOptions(disk, rnd, logger)
	o.SameBoot = sameBoot && seed%2 == 0
	s, err := Open(o)
	require.NoError(t, err)
	l.check(t, s)
	require.NoError(t, s.Close())
}

// requireWhole wants the full length of all files of log and queues. Java's brokers refuse a store with a shorter one.
func requireWhole(t *testing.T, disk *vfstest.Mem, o *Options) {
	t.Helper()
	for _, name := range disk.Files() {
		want := int(o.SegmentSize)
		switch {
		case strings.Contains(name, "/commitlog/"):
		case strings.Contains(name, "/"+queueFolder+"/"):
			want = o.ConsumeQueueUnits * entrySize
		default:
			continue
		}
		data, err := disk.ReadFile(name)
		require.NoError(t, err)
		require.Len(t, data, want, name)
	}
}

func crashOptions(disk *vfstest.Mem, rnd *rand.Rand, logger *slog.Logger) Options {
	o := small(disk)
	o.SegmentSize, o.Logger = 20_000, logger
	if rnd.IntN(2) == 0 {
		o.Flush = SyncFlush
	}
	return o
}

var errDead = errors.New("process is dead")

// dieAt ends everything at the n-th operation that changes the disk; a write may come half.
func dieAt(n int) func(vfstest.Op) *vfstest.Fault {
	fail := vfstest.FailNth(n+1, nil, errDead)
	return func(op vfstest.Op) *vfstest.Fault {
		f := fail(op)
		if f != nil && op.Kind == vfstest.OpWrite && n > 0 {
			f.Short = op.Len * (n % 4) / 4
			n = 0
		}
		return f
	}
}

// live is the life of one process, up to its last operation.
func live(t *testing.T, s *Store, l *ledger, rnd *rand.Rand, life int) {
	t.Helper()
	for i := range 120 {
		var err error
		switch rnd.IntN(12) {
		case 0:
			err = s.log.flush()
			if err == nil {
				l.flushed(s.Flushed())
			}
		case 1, 2:
			_, err = s.dispatcher.step()
		case 3:
			err = s.saveCheckpoint()
			if err == nil {
				l.flushed(s.Flushed())
			}
		case 4:
			if rnd.IntN(10) == 0 {
				err = s.shutdown()
			}
		default:
			err = l.append(t, s, rnd, fmt.Sprintf("%d-%d", life, i))
		}
		if err != nil {
			return
		}
	}
}

func (l *ledger) append(t *testing.T, s *Store, rnd *rand.Rand, name string) error {
	t.Helper()
	var msgs []Message
	queue, topic := rnd.Int32N(2), []string{"A", "B"}[rnd.IntN(2)]
	for j := range 1 + rnd.IntN(3)*rnd.IntN(2) {
		body := fmt.Sprintf("%s-%d %s", name, j, strings.Repeat("b", rnd.IntN(40)*rnd.IntN(40)))
		m := tagged(topic, queue, strings.Repeat("t", 1+rnd.IntN(1500)), body)
		l.sent[body] = true
		msgs = append(msgs, m)
	}
	if _, err := s.Append(msgs...); err != nil {
		return err
	}
	for _, m := range msgs {
		if _, used := l.acked[m.At]; used {
			t.Errorf("position %d is used twice", m.At)
		}
		l.acked[m.At] = string(m.Body)
	}
	return nil
}

// flushed notes what is safe now.
func (l *ledger) flushed(end offset.Physical) {
	for phy, body := range l.acked {
		if phy < end {
			l.safe[phy] = body
		}
	}
}

// powerCut forgets the promises that a power cut may break.
func (l *ledger) powerCut() {
	l.cut = true
	l.acked = map[offset.Physical]string{}
	for phy, body := range l.safe {
		l.acked[phy] = body
	}
}

// check holds the store against the ledger.
func (l *ledger) check(t *testing.T, s *Store) {
	t.Helper()
	found := map[offset.Physical]string{}
	for _, topic := range []string{"A", "B"} {
		for queue := range int32(2) {
			b, _ := s.Bounds(topic, queue)
			last := offset.Queue(-1)
			for _, r := range readQueue(t, s, topic, queue) {
				if r.QueueOffset <= last || r.QueueOffset >= b.High || !l.cut && r.QueueOffset != last+1 {
					t.Errorf("%s/%d: offset %d after %d, high is %d", topic, queue, r.QueueOffset, last, b.High)
				}
				tags, _ := message.Property(r.Properties, message.PropertyTags)
				if !l.sent[string(r.Body)] || strings.Trim(string(tags), "t") != "" {
					t.Errorf("never sent: %q %q", r.Body, r.Properties)
				}
				found[r.PhysicalOffset] = string(r.Body)
				last = r.QueueOffset
			}
		}
	}
	for phy, body := range l.acked {
		if found[phy] != body {
			t.Errorf("message at %d was answered, %q is there", phy, found[phy])
		}
	}
	// What is found now was there for consumers to see; but only the next power cut may take it.
	l.acked = found
	l.flushed(s.Flushed())
	require.Equal(t, s.Written(), s.Dispatched())
	checkZeroBehind(t, s)
}

// checkZeroBehind wants nothing but zeros behind the ends of log and queues.
func checkZeroBehind(t *testing.T, s *Store) {
	t.Helper()
	spans, err := s.log.dataBehind(s.Written())
	require.NoError(t, err)
	require.Empty(t, spans)
	for _, q := range s.queues.all() {
		files := *q.files.Load()
		if len(files) == 0 {
			continue
		}
		end := files[len(files)-1] + s.files.units
		rest := make([]byte, (end-q.high.Load())*entrySize)
		require.NoError(t, s.files.read(q, q.high.Load(), rest))
		require.True(t, isZero(rest), "%s/%d behind %d", q.topic, q.id, q.high.Load())
	}
}
