package store

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/internal/vfs/vfstest"
)

// cleaned is a store with a few segments whose retention the test decides.
func cleaned(t *testing.T, m *vfstest.Mem, policy *Retention, expired *[]Expired) *Store {
	o := small(m)
	o.Retention = func() Retention { return *policy }
	o.CleanInterval = time.Hour // the test looks itself
	o.OnExpire = func(e Expired) { *expired = append(*expired, e) }
	return mustRun(t, o)
}

func TestOldSegmentsGo(t *testing.T) {
	m := vfstest.New()
	policy := Retention{Reserved: -time.Second, MaxUsed: 1, Force: 1, Refuse: 1, Batch: 100} // everything is old enough
	var expired []Expired
	s := cleaned(t, m, &policy, &expired)
	for i := range 400 {
		put(t, s, text("T", int32(i%2), fmt.Sprintf("%d %s", i, strings.Repeat("x", 300))))
		if i == 0 {
			put(t, s, text("Early", 0, "gone with the first segment"))
		}
	}
	level(t, s)
	s.flusher.flush()
	before := *s.log.segments.Load()
	n, err := s.Clean()
	require.NoError(t, err)
	require.Positive(t, n)
	require.Equal(t, before[n].start, s.Low())

	for queue := range int32(2) {
		b, ok := s.Bounds("T", queue)
		require.True(t, ok)
		require.Equal(t, offset.Queue(200), b.High)
		require.Positive(t, b.Low)
		list := readQueue(t, s, "T", queue)
		require.Len(t, list, int(b.High-b.Low), "what is left can be read")
		for i, r := range list {
			require.Equal(t, b.Low+offset.Queue(i), r.QueueOffset)
			require.True(t, strings.HasPrefix(string(r.Body), fmt.Sprintf("%d ", 2*int(r.QueueOffset)+int(queue))))
		}
		_, batch, err := s.Read(Query{Topic: "T", Queue: queue, From: 0}, nil)
		require.NoError(t, err)
		require.Equal(t, BelowLow, batch.Status)
		require.Equal(t, b.Low, batch.Next, "a reader at the old beginning goes on at the new one")
	}
	b, _ := s.Bounds("Early", 0)
	require.Equal(t, Bounds{1, 1}, b, "an empty queue keeps its numbering")
	told := map[string]Bounds{}
	for _, e := range expired {
		told[fmt.Sprint(e.Topic, e.Queue)] = e.Bounds
	}
	require.Equal(t, Bounds{0, 1}, told["Early0"])
	low, _ := s.Bounds("T", 1)
	require.Equal(t, Bounds{0, low.Low}, told["T1"])

	// All of that is the same after a restart, and numbering goes on.
	require.NoError(t, s.Close())
	again := mustRun(t, small(m))
	for queue := range int32(2) {
		b, _ := again.Bounds("T", queue)
		was := told[fmt.Sprint("T", queue)]
		require.Equal(t, Bounds{was.High, 200}, b)
	}
	require.Equal(t, offset.Queue(1), put(t, again, text("Early", 0, "next")).Queue)
}

func TestQueueFilesGoWithTheirMessages(t *testing.T) {
	m := vfstest.New()
	policy := Retention{Reserved: -time.Second, MaxUsed: 1, Force: 1, Refuse: 1, Batch: 100}
	var expired []Expired
	s := cleaned(t, m, &policy, &expired)
	for range 600 {
		put(t, s, text("T", 0, strings.Repeat("x", 300)))
	}
	level(t, s)
	s.flusher.flush()
	files := func() (n int) {
		for _, name := range m.Files() {
			if strings.Contains(name, "/consumequeue/T/0/") {
				n++
			}
		}
		return n
	}
	before := files()
	_, err := s.Clean()
	require.NoError(t, err)
	require.Less(t, files(), before)
	b, _ := s.Bounds("T", 0)
	require.Len(t, readQueue(t, s, "T", 0), int(b.High-b.Low))
}

func TestAFullDiskRefusesUntilThereIsRoom(t *testing.T) {
	m := vfstest.New()
	policy := Retention{Reserved: time.Hour, MaxUsed: 0.5, Force: 0.8, Refuse: 0.9, Batch: 10}
	var expired []Expired
	s := cleaned(t, m, &policy, &expired)
	for range 20 {
		put(t, s, text("T", 0, "x"))
	}
	m.SetLimit(m.Used() + m.Used()/20)
	_, err := s.clean(false)
	require.NoError(t, err)
	_, err = s.Append(text("T", 0, "x"))
	require.ErrorIs(t, err, ErrFull)
	for _, word := range []string{"commitlog", "%", "90"} {
		require.Contains(t, err.Error(), word)
	}
	require.NoError(t, s.Err(), "it is not broken")
	m.SetLimit(m.Used() * 10)
	_, err = s.clean(false)
	require.NoError(t, err)
	put(t, s, text("T", 0, "x"))
	waitDispatched(t, s, s.Written())
	require.Len(t, readQueue(t, s, "T", 0), 21)
}

func TestForcedCleaningStopsWhenThereIsRoom(t *testing.T) {
	m := vfstest.New()
	policy := Retention{Reserved: 1000 * time.Hour, MaxUsed: 0.5, Force: 0.8, Refuse: 1, Forcibly: true, Batch: 10}
	var expired []Expired
	s := cleaned(t, m, &policy, &expired)
	for range 600 {
		put(t, s, text("T", 0, strings.Repeat("x", 300)))
	}
	level(t, s)
	s.flusher.flush()
	segments := len(*s.log.segments.Load())
	m.SetLimit(m.Used() * 10 / 9) // 90 % full
	n, err := s.clean(false)
	require.NoError(t, err)
	require.Positive(t, n)
	require.Less(t, n, segments-1, "it does not take more than it must")
	require.NotEmpty(t, expired)
}

// TestRemovedSegmentIsNotMadeAnew: the preparer may have looked at the log's end long before.
func TestRemovedSegmentIsNotMadeAnew(t *testing.T) {
	m := vfstest.New()
	policy := Retention{Reserved: -time.Second, MaxUsed: 1, Force: 1, Refuse: 1, Batch: 100}
	var expired []Expired
	s := cleaned(t, m, &policy, &expired)
	for range 40 {
		put(t, s, text("T", 0, strings.Repeat("x", 300)))
	}
	s.flusher.flush()
	n, err := s.Clean()
	require.NoError(t, err)
	require.Positive(t, n)
	_, err = s.log.ensure(s.Low() - 1)
	require.ErrorIs(t, err, ErrNotFound)
	require.NotContains(t, m.Files(), logFile(int64(s.Low())-4096))
}
