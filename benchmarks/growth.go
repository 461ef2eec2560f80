package main

import (
	"context"
	"fmt"
	"time"

	"github.com/ratchetmq/ratchet/protocol"
)

// flat is how much more a message may cost at the far end of a series than at its near one: what a noisy machine alone
// makes of two equal costs.
const flat = 1.25

// producerSeries is the throughput of more and more producers that wait for each answer. Many must not get less than
// the best number of them.
func producerSeries(ctx context.Context, r *run, name string) ([]fact, error) {
	const queues = 16
	t, err := r.stand.start(ctx, name)
	if err != nil {
		return nil, err
	}
	defer r.stand.end(t)
	counts := r.scale.producers
	rates, costs := make([][]float64, len(counts)), make([][]float64, len(counts))
	for n := -1; n < r.scale.rounds; n++ {
		for i, count := range counts {
			w := sending("producers", "", sendLoad{codec: protocol.JSON, conns: count, window: 1, size: kib, queues: min(queues, count)}, goal{})
			one, err := r.once(&w, t, "", r.scale.span)
			if err != nil {
				return nil, fmt.Errorf("%d producers: %w", count, err)
			}
			if n >= 0 { // round -1 warms up
				rates[i], costs[i] = append(rates[i], one.rate()), append(costs[i], one.perMillion())
			}
		}
	}
	var all []fact
	best, many := 0.0, 0.0
	for i, count := range counts {
		rate := median(rates[i])
		if best = max(best, rate); count == 256 {
			many = rate
		}
		what := fmt.Sprintf("%s producers, one in flight each: ", grouped(count))
		all = append(all, atLeast(what+"messages a second", rate, "/s", 0), atMost(what+"CPU per million", median(costs[i]), "s", 0))
	}
	return append(all, atLeast("256 producers: share of the best number's throughput", 100*many/best, "%", 80)), nil
}

// A point of a series is a sweep and the broker that it loads.
type point struct {
	name   string
	target *target
	sweep  sweep
	costs  []float64 // CPU seconds per million messages, by round
	begun  usage     // when it was warm
	sent   int64     // since then
}

func (p *point) once(last time.Duration, counts bool) error {
	if !counts && !p.target.isBound() { // queues and files come into being
		first := p.sweep
		first.limit = int64(len(first.queues))
		if _, err := first.run(p.target.addr, time.Hour); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		last := first.queues[len(first.queues)-1] // dispatch goes by the log's order
		if err := dispatched(p.target.addr, last.topic, last.id+1, int64(last.id)+1); err != nil {
			return err
		}
	}
	before, err := p.target.usage()
	if err != nil {
		return err
	}
	o, err := p.sweep.run(p.target.addr, last)
	if err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	time.Sleep(settle)
	after, err := p.target.usage()
	if !counts {
		p.begun = after
		return err
	}
	p.costs, p.sent = append(p.costs, perMillion(before, after, o.messages)), p.sent+o.messages
	return err
}

func perMillion(before, after usage, messages int64) float64 {
	return (after.cpu - before.cpu).Seconds() / float64(messages) * 1e6
}

// series has the points take turns and says what the last costs more than the first.
func (r *run) series(points []*point, what string) ([]fact, error) {
	for n := -1; n < r.scale.rounds; n++ {
		for _, p := range points {
			if err := p.once(r.scale.span, n >= 0); err != nil {
				return nil, err
			}
		}
	}
	var all []fact
	for _, p := range points {
		all = append(all, atMost(p.name+": CPU per million", median(p.costs), "s", 0))
	}
	first, last := all[0].Value, all[len(all)-1].Value
	return append(all, atMost(what, last/first, "×", flat)), nil
}

// sweepTarget is a broker with enough topics for n queues.
func (r *run) sweepTarget(ctx context.Context, name string, n int) (*target, []queueName, error) {
	topic := func(i int) string { return fmt.Sprintf("bench-sweep-%d", i) }
	t, err := r.stand.startOn(ctx, name, func(store string) error {
		return writeTopics(store, (n+topicQueues-1)/topicQueues, topicQueues, topic)
	})
	if err != nil {
		return nil, nil, err
	}
	return t, queuesOfTopics(n, topic), sendOne(t.addr, topic(0))
}

// growQueues has a broker for each number of queues, so that none pays for what another's queues need behind the sends:
// files that are synced, for one. This is counted apart, over all the time, in which a broker has most of the time
// nothing else to do.
func growQueues(ctx context.Context, r *run, name string) ([]fact, error) {
	var points []*point
	for _, n := range r.scale.queues {
		t, queues, err := r.sweepTarget(ctx, name, n)
		if t != nil {
			defer r.stand.end(t)
		}
		if err != nil {
			return nil, err
		}
		points = append(points, &point{
			name: "sends to " + grouped(n) + " queues", target: t, sweep: sweep{conns: 4, burst: 32, queues: queues},
		})
	}
	most := points[len(points)-1]
	all, err := r.series(points, "cost of a message to "+grouped(len(most.sweep.queues))+" queues by that to one")
	if err != nil {
		return nil, err
	}
	for _, p := range points {
		after, err := p.target.usage()
		if err != nil {
			return nil, err
		}
		all = append(all, atMost(p.name+": the same with all between the turns", perMillion(p.begun, after, p.sent), "s", 0))
	}
	return all, nil
}

func growConnections(ctx context.Context, r *run, name string) ([]fact, error) {
	t, queues, err := r.sweepTarget(ctx, name, 16)
	if t != nil {
		defer r.stand.end(t)
	}
	if err != nil {
		return nil, err
	}
	var points []*point
	for _, n := range r.scale.conns {
		points = append(points, &point{
			name: "sends from " + grouped(n) + " connections, 32 at a time", target: t, sweep: sweep{conns: n, burst: 32, queues: queues},
		})
	}
	most := points[len(points)-1]
	return r.series(points, "cost of a message from "+grouped(most.sweep.conns)+" connections by that from one")
}

// growLog compares a broker whose log grows with one that is new, in turns: what else the machine does meets both. Then it is
// killed, and starts on that log. What fills the log in between are large messages, or it would take long.
func growLog(ctx context.Context, r *run, name string) ([]fact, error) {
	const filling = 16 * kib
	old, err := r.stand.start(ctx, name)
	if err != nil {
		return nil, err
	}
	defer r.stand.end(old)
	topic := "bench-grown"
	if err := r.ready(old, topic, startQueues); err != nil {
		return nil, err
	}
	w := sending("grown", "", sendLoad{codec: protocol.JSON, conns: 4, window: 32, size: kib}, goal{})
	var all []fact
	written, filled := int64(0), int64(0)
	for _, size := range r.scale.grown {
		if more := size - written; more > 0 {
			n, err := fillLog(old, topic, more, filling)
			if err != nil {
				return all, err
			}
			filled += n
			written += n * recordSize(topic, filling)
		}
		now, err := r.besideNew(ctx, name, old, &w)
		if err != nil {
			return all, err
		}
		written += now.sent * recordSize(topic, kib)
		what := fmt.Sprintf("behind %d MiB of log: ", size>>20)
		all = append(
			all,
			atMost(what+"CPU per million", now.cost, "s", 0),
			atMost(what+"by that of a new broker in the same seconds", now.ratio, "×", flat),
			atMost(what+"memory", float64(now.rss)/(1<<20), "MiB", 0),
		)
	}
	found, err := r.afterKillOf(ctx, old, fmt.Sprintf("%d MiB of log", written>>20), startGoals{}, topic, filled)
	return append(all, found...), err
}

// A standing is how a broker does beside a new one.
type standing struct {
	cost  float64 // CPU seconds per million messages
	ratio float64 // by that of the new one
	rss   int64   // bytes
	sent  int64   // messages, in all
}

// besideNew loads a broker, and one without a log, in turns.
func (r *run) besideNew(ctx context.Context, name string, old *target, w *workload) (s standing, err error) {
	young, err := r.stand.start(ctx, name)
	if err != nil {
		return s, err
	}
	defer r.stand.end(young)
	var costs, ratios []float64
	for n := -1; n < r.scale.rounds; n++ {
		a, err := r.once(w, old, "", r.scale.span)
		if err != nil {
			return s, err
		}
		b, err := r.once(w, young, "", r.scale.span)
		if err != nil {
			return s, err
		}
		s.sent, s.rss = s.sent+a.Messages, a.RSS
		if n >= 0 {
			costs, ratios = append(costs, a.perMillion()), append(ratios, a.perMillion()/b.perMillion())
		}
	}
	s.cost, s.ratio = median(costs), median(ratios)
	return s, nil
}
