package store

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRetentionDecides(t *testing.T) {
	policy := Retention{
		Reserved: 72 * time.Hour, Hours: []int{4, 16}, MaxUsed: 0.75, Force: 0.85, Forcibly: true, Refuse: 0.90, Batch: 3,
	}
	at := func(hour int) time.Time { return time.Date(2026, 11, 29, hour, 30, 0, 0, time.UTC) }
	ages := func(now time.Time, hours ...int) (times []time.Time) {
		for _, h := range hours {
			times = append(times, now.Add(-time.Duration(h)*time.Hour))
		}
		return times
	}
	for _, c := range []struct {
		name    string
		hour    int
		ages    []int
		used    float64
		command bool
		gentle  bool
		n       int
		why     reason
	}{
		{name: "nothing to keep or to lose", hour: 4, used: 0.1},
		{name: "old, in the hour", hour: 4, ages: []int{100, 80, 10}, used: 0.1, n: 2, why: byAge},
		{name: "old, in the other hour", hour: 16, ages: []int{100, 80, 10}, used: 0.1, n: 2, why: byAge},
		{name: "old, in another hour", hour: 5, ages: []int{100, 80, 10}, used: 0.1},
		{name: "young, in the hour", hour: 4, ages: []int{72, 10}, used: 0.1},
		{name: "an old one behind a young one stays", hour: 4, ages: []int{10, 100}, used: 0.1},
		{name: "no more than a batch", hour: 4, ages: []int{100, 99, 98, 97}, used: 0.1, n: 3, why: byAge},
		{name: "on command", hour: 5, ages: []int{100, 80, 10}, used: 0.1, command: true, n: 2, why: byCommand},
		{name: "on command, but young", hour: 5, ages: []int{10}, used: 0.1, command: true},
		{name: "fuller than it may be", hour: 5, ages: []int{100, 80, 10}, used: 0.76, n: 2, why: byUse},
		{name: "just as full as it may be", hour: 5, ages: []int{100}, used: 0.75},
		{name: "much too full: the oldest goes, young as it is", hour: 5, ages: []int{2, 1}, used: 0.86, n: 1, why: byForce},
		{name: "much too full, but not by force", hour: 5, ages: []int{100, 1}, used: 0.86, gentle: true, n: 1, why: byUse},
		{name: "much too full, and nothing may go", hour: 4, used: 0.99},
		{name: "use not known", hour: 5, ages: []int{100}, used: -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := policy
			p.Forcibly = !c.gentle
			now := at(c.hour)
			n, why := p.decide(holding{now: now, lastWrite: ages(now, c.ages...), used: c.used, command: c.command})
			require.Equal(t, c.n, n)
			require.Equal(t, c.why, why)
		})
	}
}
