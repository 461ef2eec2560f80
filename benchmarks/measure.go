package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// A round is one measurement of one target.
type round struct {
	Messages int64   `json:"messages"`
	Seconds  float64 `json:"seconds"`
	CPU      float64 `json:"cpuSeconds"`
	RSS      int64   `json:"rss"`
	Switches int64   `json:"contextSwitches"`
	P50      float64 `json:"p50Micros"`
	P99      float64 `json:"p99Micros"`
	findings
}

func (r *round) rate() float64       { return float64(r.Messages) / r.Seconds }
func (r *round) perMillion() float64 { return r.CPU / float64(r.Messages) * 1e6 }

// series are the rounds of one target in one case.
type series struct {
	Target string  `json:"target"`
	Rounds []round `json:"rounds"`
}

// result is one case.
type result struct {
	Case   string    `json:"case"`
	Title  string    `json:"title"`
	Series []*series `json:"series"`
}

func (r *result) of(target string) *series {
	i := slices.IndexFunc(r.Series, func(s *series) bool { return s.Target == target })
	if i < 0 {
		return nil
	}
	return r.Series[i]
}

// spread is a median with the smallest and the largest.
type spread struct{ low, median, high float64 }

func (s *series) spread(of func(*round) float64) spread {
	if s == nil || len(s.Rounds) == 0 {
		return spread{}
	}
	var all []float64
	for i := range s.Rounds {
		all = append(all, of(&s.Rounds[i]))
	}
	middle := median(all)
	return spread{all[0], middle, all[len(all)-1]}
}

// median sorts the values.
func median(all []float64) float64 {
	slices.Sort(all)
	n := len(all)
	return (all[(n-1)/2] + all[n/2]) / 2
}

// settle is how long a broker may work on behind the last message of a round, indexing it for one: this is part of what
// messages cost.
const settle = 300 * time.Millisecond

// dispatched waits until the queues of a topic have got so many messages: brokers fill them behind their answers. When
// they grow no more they are as good as they get.
func dispatched(addr, topic string, queues int32, want int64) error {
	w, err := dial(addr)
	if err != nil {
		return err
	}
	defer w.Close()
	before, since := int64(-1), time.Now()
	for {
		total := int64(0)
		for queue := range queues {
			end, err := queueEnd(w, topic, queue)
			if err != nil {
				return err
			}
			total += end
		}
		if total != before {
			before, since = total, time.Now()
		}
		if total >= want || time.Since(since) > 15*time.Second {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// A run is what the flags ask for.
type run struct {
	stand   *stand
	targets []string
	rounds  int
	last    time.Duration // of a round
	warm    time.Duration
	serial  int
	scale   scale
	filler  *filler // nil: free memory is left alone
}

// fill makes memory the same for all.
func (r *run) fill(ctx context.Context) error {
	if r.filler == nil {
		return nil
	}
	return r.filler.fill(ctx)
}

// measure runs one case: every target is warmed up, then they take turns.
func (r *run) measure(ctx context.Context, w *workload) (*result, error) {
	res := &result{Case: w.name, Title: w.title}
	var running []*target
	defer func() {
		if w.done != nil {
			w.done()
		}
		for _, t := range running {
			r.stand.end(t)
		}
	}()
	topics := map[string]string{}
	r.stand.syncing = w.flush
	for _, name := range r.targets {
		if !w.bounds && (name == bareGnet || name == gnetAppends) || w.names && name == gnetAppends {
			continue
		}
		start := r.stand.start
		if w.names {
			start = r.stand.startNames
		}
		t, err := start(ctx, name)
		if err != nil {
			return nil, err
		}
		running = append(running, t)
		res.Series = append(res.Series, &series{Target: name})
		if w.prepare != nil && !(w.names && t.isBound()) { // a bound knows no registrations
			topics[name] = r.topic(w)
			if !w.names {
				if err := r.ready(t, topics[name], w.queues); err != nil {
					return nil, err
				}
			}
			if err := w.prepare(t.addr, topics[name]); err != nil {
				return nil, fmt.Errorf("%s: %s: %w", w.name, name, err)
			}
		}
	}
	for n := -1; n < r.rounds; n++ { // round -1 warms up
		if err := r.fill(ctx); err != nil {
			return nil, err
		}
		for i, t := range running {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			last := r.last
			if n < 0 {
				if last = r.warm; last == 0 {
					continue
				}
			}
			one, err := r.once(w, t, topics[t.name], last)
			if err != nil {
				return nil, fmt.Errorf("%s: %s: %w", w.name, t.name, err)
			}
			if n < 0 {
				continue
			}
			res.Series[i].Rounds = append(res.Series[i].Rounds, *one)
			fmt.Fprintf(os.Stderr, "%-17s %-12s %9.0f/s %8.2f s/M  p50 %7.0f µs  p99 %8.0f µs  %4d MB %s\n", w.name, t.name, one.rate(),
				one.perMillion(), one.P50, one.P99, one.RSS>>20, one.remarks())
		}
	}
	return res, nil
}

// remarks are what is wrong with a round, "" if nothing is.
func (f *findings) remarks() string {
	text := ""
	for _, one := range []struct {
		n    int64
		what string
	}{{f.Lost, "lost"}, {f.Duplicated, "twice"}, {f.Corrupt, "corrupt"}, {f.Stray, "stray"}, {f.Denied, "denied but stored"}, {f.Refused, "refused"}} {
		if one.n > 0 {
			text += fmt.Sprintf(" %d %s", one.n, one.what)
		}
	}
	return text
}

func (r *run) topic(w *workload) string {
	r.serial++
	return fmt.Sprintf("bench-%s-%d", w.name, r.serial)
}

// ready makes a topic, as often as it takes a broker that has only just started.
func (r *run) ready(t *target, topic string, queues int32) (err error) {
	for range 50 {
		if err = makeTopic(t.addr, topic, queues); err == nil {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return err
}

// once is one round of one target. None may lose a message or deliver one twice.
func (r *run) once(w *workload, t *target, topic string, last time.Duration) (*round, error) {
	if topic == "" {
		topic = r.topic(w)
		if err := r.ready(t, topic, w.queues); err != nil {
			return nil, err
		}
	}
	unix.Sync() // what another target has written must not go to the disk while this one is measured
	before, err := t.usage()
	if err != nil {
		return nil, err
	}
	o, err := w.run(t, topic, last)
	if err != nil {
		return nil, err
	}
	if !t.isBound() && o.verify != nil {
		if err := dispatched(t.addr, topic, w.queues, o.messages); err != nil {
			return nil, err
		}
	}
	time.Sleep(settle)
	after, err := t.usage()
	if err != nil {
		return nil, err
	}
	if o.verify != nil {
		found, err := o.verify()
		if err != nil {
			return nil, err
		}
		o.findings.add(found)
	}
	one := &round{
		Messages: o.messages, Seconds: o.elapsed.Seconds(), CPU: (after.cpu - before.cpu).Seconds(), RSS: after.rss,
		Switches: after.switches - before.switches, findings: o.findings,
		P50: float64(o.latency.quantile(0.5)) / 1e3, P99: float64(o.latency.quantile(0.99)) / 1e3,
	}
	if one.bad() > 0 {
		return nil, fmt.Errorf("messages are wrong:%s", one.remarks())
	}
	if one.Messages == 0 {
		return nil, fmt.Errorf("no message came through:%s", one.remarks())
	}
	return one, nil
}
