package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"text/tabwriter"
	"time"
)

// A fact is one number that is no load: what a start takes, what rests in memory, what share arrives.
type fact struct {
	Name    string  `json:"name"`
	Target  string  `json:"target,omitempty"` // "": ours
	Value   float64 `json:"value"`
	Unit    string  `json:"unit"`
	Goal    float64 `json:"goal,omitempty"` // of ours, at most; 0: nothing is asked
	AtLeast bool    `json:"atLeast,omitempty"`
}

func atMost(name string, value float64, unit string, goal float64) fact {
	return fact{Name: name, Value: value, Unit: unit, Goal: goal}
}

func atLeast(name string, value float64, unit string, goal float64) fact {
	return fact{Name: name, Value: value, Unit: unit, Goal: goal, AtLeast: true}
}

func (f *fact) reached() bool {
	if f.AtLeast {
		return f.Value >= f.Goal
	}
	return f.Value <= f.Goal
}

func (f *fact) asked() string {
	switch {
	case f.Goal == 0:
		return ""
	case f.AtLeast:
		return fmt.Sprintf("≥ %g", f.Goal)
	}
	return fmt.Sprintf("≤ %g", f.Goal)
}

// A trial measures what takes no turns: starts, what rests in memory, how a cost grows. It gives facts.
type trial struct {
	name  string
	title string
	java  bool // the Java brokers go through it, too
	bound bool // and the bare bound
	run   func(ctx context.Context, r *run, target string) ([]fact, error)
}

// scale is how large the trials are: so large for who measures, tiny for who tests the harness.
type scale struct {
	killed       []int64 // bytes of log that a killed broker leaves
	killedTopics int     // of 8 queues that one leaves
	backlog      int64   // bytes of log that are read cold
	flood        int64   // one-way sends
	queues       []int
	conns        []int
	producers    []int
	grown        []int64 // bytes of log
	rounds       int
	span         time.Duration // of one measurement
	calm         time.Duration // how long what shall be idle is watched
	starts       int
	topics       int // at a broker that starts
	clients      int
}

func fullScale(grow int64, rounds int) scale {
	sc := scale{
		killed: []int64{2355 << 20, 4 << 30}, killedTopics: 2500, backlog: 2 << 30, flood: 1_000_000,
		queues: []int{1, 10, 100, 1_000, 10_000}, conns: []int{1, 10, 100, 1_000}, producers: []int{1, 4, 16, 64, 256, 1024},
		grown: []int64{1 << 20}, rounds: rounds, span: time.Second, calm: 10 * time.Second, starts: 9, topics: 5_000, clients: 10_000,
	}
	for size := int64(1) << 30; size < grow; size *= 2 {
		sc.grown = append(sc.grown, size)
	}
	sc.grown = append(sc.grown, grow)
	return sc
}

func trials() []trial {
	ours := func(measure func(*stand, context.Context, scale) ([]fact, error)) func(context.Context, *run, string) ([]fact, error) {
		return func(ctx context.Context, r *run, _ string) ([]fact, error) { return measure(r.stand, ctx, r.scale) }
	}
	return []trial{
		{name: "size", title: "the binary", run: ours((*stand).size)},
		{name: "cold-start", title: "start on an empty folder", run: ours((*stand).coldStart)},
		{name: "idle", title: "memory and processor time at rest", run: ours((*stand).idle)},
		{name: "many-topics", title: "start with 5,000 topics", run: ours((*stand).manyTopics)},
		{name: "many-connections", title: "10,000 idle connections", run: ours((*stand).manyConnections)},
		{name: "kill-log", title: "start on the log that a killed broker has left", java: true, run: killedLogs},
		{name: "kill-queues", title: "start on 20,000 queues that a killed broker has left", run: killedQueues},
		{name: "flood", title: "one-way sends that nobody slows down: what share arrives", java: true, run: flood},
		{name: "producers", title: "1 to 1,024 producers with one send in flight each", java: true, run: producerSeries},
		{name: "cold-reads", title: "a backlog read from the disk beside 10,000 sends a second", run: coldReads},
		{name: "grow-queues", title: "what a message costs on 1 to 10,000 queues", run: growQueues},
		{name: "grow-connections", title: "what a message costs from 1 to 1,000 connections", bound: true, run: growConnections},
		{name: "grow-log", title: "what a message costs behind 1 MiB to several GiB of log", run: growLog},
	}
}

// try runs a trial with each target that it is for.
func (r *run) try(ctx context.Context, one *trial) ([]fact, error) {
	var all []fact
	var failed []error
	r.stand.syncing = false
	for _, target := range r.targets {
		theirs := target == java540 || target == java497
		if theirs && !one.java || target == bareGnet && !one.bound || target == gnetAppends {
			continue
		}
		if err := cmp.Or(ctx.Err(), r.fill(ctx)); err != nil {
			return all, err
		}
		found, err := one.run(ctx, r, target)
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %s: %w", one.name, target, err))
		}
		for _, f := range found {
			if target != ratchet {
				f.Target, f.Goal = target, 0
			}
			fmt.Fprintf(os.Stderr, "%-17s %-12s %-74s %10.2f %s\n", one.name, target, f.Name, f.Value, f.Unit)
			all = append(all, f)
		}
	}
	return all, errors.Join(failed...)
}

// keepFacts puts what an earlier run has, and this one has not, before what this one has.
func keepFacts(now, earlier []fact) []fact {
	kept := slices.DeleteFunc(slices.Clone(earlier), func(f fact) bool {
		return slices.ContainsFunc(now, func(n fact) bool { return n.Name == f.Name && n.Target == f.Target })
	})
	return append(kept, now...)
}

// printFacts writes a line for each name, with a column for each broker.
func printFacts(w io.Writer, facts []fact) {
	if len(facts) == 0 {
		return
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "\n\t%s\t%s\t%s\t%s\tgoal\t\n", ratchet, java540, java497, bareGnet)
	done := map[string]bool{}
	for _, f := range facts {
		if done[f.Name] {
			continue
		}
		done[f.Name] = true
		fmt.Fprintf(t, "%s, %s", f.Name, f.Unit)
		verdict := ""
		for _, target := range []string{"", java540, java497, bareGnet} {
			i := slices.IndexFunc(facts, func(o fact) bool { return o.Name == f.Name && o.Target == target })
			if i < 0 {
				fmt.Fprint(t, "\t–")
				continue
			}
			fmt.Fprintf(t, "\t%.2f", facts[i].Value)
			if o := &facts[i]; o.Goal != 0 {
				if verdict = o.asked(); o.reached() {
					verdict += "  reached"
				} else {
					verdict += "  MISSED"
				}
			}
		}
		fmt.Fprintf(t, "\t%s\t\n", verdict)
	}
	t.Flush()
}
