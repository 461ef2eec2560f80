package main

import (
	"time"

	"github.com/ratchetmq/ratchet/protocol"
)

// goal is what a case is to reach, as ratios of medians; 0: nothing is asked.
type goal struct {
	cpuJava    float64 // broker CPU per message to that of the better Java broker, at most
	cpuBound   float64 // to that of the bound that appends, at most
	throughput float64 // messages a second to the better Java broker's, at least
	p50, p99   float64 // latency to the better Java broker's, at most

	perMillion float64 // CPU seconds, at most
	micros     float64 // p99, at most
}

func asked(cpuJava, cpuBound, throughput, p50, p99 float64) goal {
	return goal{cpuJava: cpuJava, cpuBound: cpuBound, throughput: throughput, p50: p50, p99: p99}
}

// A workload is one case: run loads a target for some time, on a topic that is new.
type workload struct {
	name   string
	title  string
	queues int32
	bounds bool // the bounds can serve it
	java   bool // it needs Java even where no Java broker is measured
	flush  bool // brokers have SYNC_FLUSH
	names  bool // it loads name servers
	goal   goal
	// prepare is called before each target's rounds, once; its topic is that of all rounds then.
	prepare func(addr, topic string) error
	done    func() // ends what prepare has left open
	run     func(t *target, topic string, last time.Duration) (*outcome, error)
}

// sending is a workload of a closed loop. What was stored is read back after the measurement.
func sending(name, title string, load sendLoad, g goal) workload {
	queues := int32(load.conns)
	if load.queues > 0 {
		queues = int32(load.queues)
	}
	return workload{
		name: name, title: title, queues: queues, bounds: true, goal: g,
		run: func(t *target, topic string, last time.Duration) (*outcome, error) {
			o, ledgers, err := load.run(t.addr, topic, last)
			if err != nil || t.isBound() {
				return o, err
			}
			o.verify = func() (findings, error) {
				tallies, err := readBack(t.addr, topic, queues)
				if err != nil {
					return findings{}, err
				}
				return compare(ledgers, tallies, load.onewayRun > 0), nil
			}
			return o, nil
		},
	}
}

func flowing(name, title string, load flowLoad, g goal) workload {
	return workload{
		name: name, title: title, queues: int32(load.conns), goal: g,
		run: func(t *target, topic string, last time.Duration) (*outcome, error) {
			return load.run(t.addr, topic, last)
		},
	}
}

const kib = 1 << 10

// workloads are all cases, in the order in which they run.
func workloads() []workload {
	catching := catchUp{codec: protocol.JSON, queues: 4, count: 200_000, size: kib}
	holding := heldPulls{queues: 500, groups: 4, conns: 20, rate: 200, size: 128}
	all := []workload{
		sending("one-in-flight", "send, one in flight, 4 connections",
			sendLoad{codec: protocol.JSON, conns: 4, window: 1, size: kib}, asked(0.22, 1.6, 3, 0, 0)),
		sending("pipelined-json", "send, 4 connections × 32, JSON header",
			sendLoad{codec: protocol.JSON, conns: 4, window: 32, size: kib}, asked(0.18, 2, 5, 0, 0)),
		sending("pipelined-binary", "send, 4 connections × 32, binary header",
			sendLoad{codec: protocol.Binary, conns: 4, window: 32, size: kib}, asked(0.15, 2, 6, 0, 0)),
		sending("small", "send 128 B, 4 connections × 32, JSON header",
			sendLoad{codec: protocol.JSON, conns: 4, window: 32, size: 128}, goal{}),
		sending("16k", "send 16 KiB, 4 connections × 8",
			sendLoad{codec: protocol.JSON, conns: 4, window: 8, size: 16 * kib, maxMessages: 60_000}, asked(0.55, 1.3, 1.5, 0, 0)),
		sending("256k", "send 256 KiB, 2 connections × 2",
			sendLoad{codec: protocol.JSON, conns: 2, window: 2, size: 256 * kib, maxMessages: 4_000}, asked(0.95, 1.15, 1, 0, 0)),
		sending("one-way", "one-way sends, every 64th answered",
			sendLoad{codec: protocol.JSON, conns: 4, window: 1, size: kib, onewayRun: 63}, asked(0.2, 2, 0, 0, 0)),
		sending("batch", "batches of 32, 4 connections × 4",
			sendLoad{codec: protocol.JSON, conns: 4, window: 4, size: kib, batch: 32, maxMessages: 600_000}, asked(0.3, 2, 2.5, 0, 0)),
		flowing("flow-2000", "send → receive at 2,000/s",
			flowLoad{codec: protocol.JSON, rate: 2_000, conns: 4, size: kib}, asked(0.25, 0, 0, 0.25, 0.25)),
		flowing("flow-10000", "send → receive at 10,000/s",
			flowLoad{codec: protocol.JSON, rate: 10_000, conns: 4, size: kib}, asked(0.25, 0, 0, 0, 0.5)),
		flowing("tail", "send → receive at full speed",
			flowLoad{codec: protocol.JSON, conns: 4, size: kib}, asked(0.25, 0, 2, 0, 0.5)),
		{
			name: "catch-up", title: "catch-up pull, 4 connections", queues: 4, bounds: true, goal: asked(0.35, 2, 2, 0, 0),
			prepare: catching.prepare,
			run: func(t *target, topic string, last time.Duration) (*outcome, error) {
				o, err := catching.run(t.addr, topic, last)
				if t.isBound() && err == nil {
					o.findings = findings{} // it answers with the same messages for ever
				}
				return o, err
			},
		},
		{
			name: "held", title: "2,000 held pulls on 500 queues, 200 messages/s that wake 4 each", queues: 500,
			run: func(t *target, topic string, last time.Duration) (*outcome, error) {
				return holding.run(t.addr, topic, last)
			},
		},
	}
	burst := sending("burst", "5,000 sends at once on one connection",
		sendLoad{codec: protocol.JSON, conns: 1, window: 5_000, size: kib, maxMessages: 5_000}, goal{})
	flushed := sending("flushed", "SYNC_FLUSH, 64 producers, one in flight each",
		sendLoad{codec: protocol.JSON, conns: 64, window: 1, size: kib}, asked(0, 0, 2, 0, 0))
	flushed.bounds, flushed.flush = false, true
	client := clientLoad{version: "5.4.0", window: 512, size: kib, warm: 4 * time.Second}
	return append(all,
		sending("producers-256", "send, one in flight, 256 connections",
			sendLoad{codec: protocol.JSON, conns: 256, window: 1, size: kib}, goal{}),
		burst, flushed,
		workload{
			name: "java-client", title: "the Java client 5.4.0, asynchronous sends, 512 in flight", queues: 8, java: true,
			goal: asked(0, 0, 1.3, 0, 0), run: client.run,
		},
		querying("routes", "route queries among 50,000 topics, 4 connections × 32", routeLoad{topics: 50_000, conns: 4, window: 32},
			goal{perMillion: 5}),
		querying("routes-paced", "the same, 50 connections, 2,000/s", routeLoad{topics: 50_000, conns: 50, rate: 2_000},
			goal{micros: 5_000}),
		querying("routes-register", "the same, while the broker registers all its topics anew",
			routeLoad{topics: 50_000, conns: 50, rate: 2_000, register: true}, goal{}),
	)
}
