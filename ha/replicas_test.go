package ha

import (
	"context"
	"log/slog"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/internal/offset"
)

// slaves is a Replicas whose log and memory the test plays.
type slaves struct {
	*Replicas
	written          atomic.Int64
	exposed, covered atomic.Int32
}

func playSlaves(t *testing.T, need int) *slaves {
	t.Helper()
	s := &slaves{}
	s.written.Store(100)
	s.Replicas = NewReplicas(ReplicaOptions{
		Need: need, Timeout: 3 * time.Second, BehindMax: 50, Written: func() offset.Physical { return offset.Physical(s.written.Load()) },
		Expose: func() error { s.exposed.Add(1); return nil }, Covered: func() { s.covered.Add(1) }, Wake: func() {},
		Logger: slog.New(slog.DiscardHandler),
	})
	ctx, stop := context.WithCancel(t.Context())
	go func() { _ = s.Run(ctx) }()
	t.Cleanup(stop)
	return s
}

func (s *slaves) when(end offset.Physical) func() (Outcome, bool) {
	var got []Outcome
	s.When(end, func(o Outcome) { got = append(got, o) })
	return func() (Outcome, bool) {
		synctest.Wait()
		if len(got) > 1 {
			panic("answered twice")
		}
		if len(got) == 0 {
			return 0, false
		}
		return got[0], true
	}
}

func requireOutcome(t *testing.T, want Outcome, ask func() (Outcome, bool)) {
	t.Helper()
	got, ok := ask()
	require.True(t, ok, "not answered")
	require.Equal(t, want, got)
}

func TestSendsWaitForSlaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := playSlaves(t, 1)
		s.Begin(true, 100, false)
		s.Serve()
		requireOutcome(t, NotAvailable, s.when(110))

		a := s.add("a")
		requireOutcome(t, NotAvailable, s.when(110)) // it has not shown yet that it shares the log
		s.ack(a, 100)
		s.written.Store(110)
		waits := s.when(110)
		_, ok := waits()
		require.False(t, ok)
		s.ack(a, 109)
		_, ok = waits()
		require.False(t, ok)
		s.ack(a, 110)
		requireOutcome(t, Replicated, waits)

		s.written.Store(120)
		late := s.when(120)
		time.Sleep(4 * time.Second)
		requireOutcome(t, TimedOut, late)

		left := s.when(120)
		s.remove(a)
		requireOutcome(t, NotAvailable, left)

		b := s.add("b") // far behind
		s.ack(b, 10)
		requireOutcome(t, NotAvailable, s.when(120))
	})
}

// TestLateAnswersAreNoted: a sender that is told that no slave has its message knows the message's number all the same.
func TestLateAnswersAreNoted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := playSlaves(t, 1)
		s.Begin(true, 100, false)
		a := s.add("a")
		s.ack(a, 100)
		s.Serve()
		s.written.Store(110)
		late := make(chan Outcome, 1)
		var noted int32
		s.When(110, func(o Outcome) {
			noted = s.exposed.Load()
			late <- o
		})
		time.Sleep(4 * time.Second)
		require.Equal(t, TimedOut, <-late)
		require.EqualValues(t, 1, noted, "before the answer")
		require.EqualValues(t, 100, s.Confirmed(), "readers don't see it")

		before := s.covered.Load()
		s.ack(a, 109)
		time.Sleep(2 * time.Second)
		require.Equal(t, before, s.covered.Load())
		s.ack(a, 110)
		time.Sleep(2 * time.Second)
		require.Equal(t, before+1, s.covered.Load())
	})
}

func TestTwoSlavesAreNeeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := playSlaves(t, 2)
		s.Begin(true, 100, false)
		s.Serve()
		a := s.add("a")
		s.ack(a, 100)
		requireOutcome(t, NotAvailable, s.when(100))
		b := s.add("b")
		s.ack(b, 90)
		waits := s.when(100)
		_, ok := waits()
		require.False(t, ok, "the slower one counts")
		s.ack(b, 100)
		requireOutcome(t, Replicated, waits)
	})
}

// TestReadersSeeWhatSlavesHave, and everything while there are none, but only after that was noted.
func TestReadersSeeWhatSlavesHave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := playSlaves(t, 1)
		require.EqualValues(t, math.MaxInt64, s.Confirmed(), "an ASYNC_MASTER hides nothing")
		a := s.add("a")
		s.ack(a, 100)
		s.Begin(true, 100, false)
		s.Serve()
		s.written.Store(130)
		synctest.Wait()
		require.EqualValues(t, 100, s.Confirmed())
		s.ack(a, 120)
		require.EqualValues(t, 120, s.Confirmed())
		require.Zero(t, s.exposed.Load())

		s.remove(a)
		synctest.Wait()
		require.EqualValues(t, math.MaxInt64, s.Confirmed())
		require.EqualValues(t, 1, s.exposed.Load())

		s.written.Store(140) // seen by readers, and by no slave
		b := s.add("b")
		s.ack(b, 130)
		synctest.Wait()
		require.EqualValues(t, 140, s.Confirmed(), "what was seen stays seen")
		require.Zero(t, s.covered.Load())
		s.ack(b, 140)
		synctest.Wait()
		require.EqualValues(t, 1, s.covered.Load())
		s.written.Store(150)
		require.EqualValues(t, 140, s.Confirmed())
	})
}
