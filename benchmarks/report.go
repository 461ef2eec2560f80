package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// A report is a whole run, as it is saved.
type report struct {
	Date    string    `json:"date"`
	Machine string    `json:"machine"`
	Results []*result `json:"results"`
	Facts   []fact    `json:"facts,omitempty"`
}

func newReport() *report {
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return &report{
		Date:    time.Now().UTC().Format(time.DateOnly),
		Machine: fmt.Sprintf("%d processors, %s, Linux %s, %s", runtime.NumCPU(), cpuModel(), strings.TrimSpace(string(kernel)), runtime.Version()),
	}
}

func cpuModel() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.SplitSeq(string(text), "\n") {
		if key, value, _ := strings.Cut(line, ":"); strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

func load(path string) (*report, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r := new(report)
	return r, json.Unmarshal(text, r)
}

// save writes the results to a file. Those of other cases that are in it already stay.
func (r *report) save(path string) error {
	if kept, err := load(path); err == nil {
		r.keep(kept)
	}
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// keep takes over what an earlier run has and this one has not, in the order of the cases.
func (r *report) keep(earlier *report) {
	r.Facts = keepFacts(r.Facts, earlier.Facts)
	var all []*result
	for _, w := range workloads() {
		for _, list := range [][]*result{r.Results, earlier.Results} {
			if i := slices.IndexFunc(list, func(res *result) bool { return res.Case == w.name }); i >= 0 {
				all = append(all, list[i])
				break
			}
		}
	}
	r.Results = all
}

// print writes a table for each case, and one of the goals.
func (r *report) print(w io.Writer) {
	fmt.Fprintf(w, "%s; %s\n", r.Date, r.Machine)
	for _, res := range r.Results {
		fmt.Fprintf(w, "\n%s\n", res.Title)
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprint(t, "\tmessages/s\tCPU s/million\tp50 µs\tp99 µs\tRSS MB\tswitches/msg\t\n")
		for _, s := range res.Series {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%.0f\t%.2f\t\n", s.Target,
				s.spread((*round).rate).text("%.0f"), s.spread((*round).perMillion).text("%.2f"),
				s.spread(func(o *round) float64 { return o.P50 }).text("%.0f"),
				s.spread(func(o *round) float64 { return o.P99 }).text("%.0f"),
				s.spread(func(o *round) float64 { return float64(o.RSS) / (1 << 20) }).median,
				s.spread(func(o *round) float64 { return float64(o.Switches) / float64(o.Messages) }).median)
		}
		t.Flush()
	}
	r.goals(w)
	printFacts(w, r.Facts)
}

func (s spread) text(format string) string {
	return fmt.Sprintf(format+" ("+format+"…"+format+")", s.median, s.low, s.high)
}

// A check is one goal of one case and what was measured.
type check struct {
	what     string
	ratio    float64
	goal     float64
	atLeast  bool
	measured bool
}

func (c *check) reached() bool {
	if c.atLeast {
		return c.ratio >= c.goal
	}
	return c.ratio <= c.goal
}

// checks compares a case with what it is to reach.
func (r *result) checks(g goal) []check {
	ours := r.of(ratchet)
	best := func(of func(*round) float64, larger bool) float64 {
		best := 0.0
		for _, name := range []string{java540, java497} {
			if m := r.of(name).spread(of).median; m > 0 && (best == 0 || m > best == larger) {
				best = m
			}
		}
		return best
	}
	p50 := func(o *round) float64 { return o.P50 }
	p99 := func(o *round) float64 { return o.P99 }
	all := []check{
		{what: "CPU × better Java", goal: g.cpuJava, ratio: ours.spread((*round).perMillion).median / best((*round).perMillion, false)},
		{what: "CPU × gnet+append", goal: g.cpuBound, ratio: ours.spread((*round).perMillion).median / r.of(gnetAppends).spread((*round).perMillion).median},
		{what: "throughput × better Java", goal: g.throughput, atLeast: true, ratio: ours.spread((*round).rate).median / best((*round).rate, true)},
		{what: "p50 × better Java", goal: g.p50, ratio: ours.spread(p50).median / best(p50, false)},
		{what: "p99 × better Java", goal: g.p99, ratio: ours.spread(p99).median / best(p99, false)},
		{what: "CPU s per million", goal: g.perMillion, ratio: ours.spread((*round).perMillion).median},
		{what: "p99 µs", goal: g.micros, ratio: ours.spread(p99).median},
	}
	var asked []check
	for _, c := range all {
		if c.measured = c.ratio > 0 && c.ratio < 1e9; c.goal > 0 && c.measured {
			asked = append(asked, c)
		}
	}
	return asked
}

func (r *report) goals(w io.Writer) {
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, res := range r.Results {
		for _, known := range workloads() {
			if known.name != res.Case {
				continue
			}
			for _, c := range res.checks(known.goal) {
				verdict, sign := "reached", "≤"
				if !c.reached() {
					verdict = "MISSED"
				}
				if c.atLeast {
					sign = "≥"
				}
				fmt.Fprintf(t, "%s\t%s\t%.2f\t%s %.2f\t%s\n", res.Title, c.what, c.ratio, sign, c.goal, verdict)
			}
		}
	}
	t.Flush()
}
