package main

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/ratchetmq/ratchet/protocol"
)

// flowLoad sends messages and receives them at the queues' ends, all at once.
type flowLoad struct {
	codec protocol.Codec
	rate  int // messages a second, whatever the answers take; 0: a closed loop at full speed
	conns int // for sending, and as many for receiving; one queue each
	size  int
}

// A receiver pulls one queue as it grows. The broker holds its pulls.
type receiver struct {
	wire    *wire
	codec   protocol.Codec
	topic   string
	queue   int32
	from    int64
	tally   tally
	latency histogram
	last    time.Time // when the last message came
}

// run pulls until it has seen as many messages as want says, once want is not negative.
func (r *receiver) run(want *atomic.Int64) error {
	var out []byte
	for opaque := int32(firstOpaque); ; opaque++ {
		if n := want.Load(); n >= 0 && r.tally.count >= n {
			return nil
		}
		out = pullRequest(out[:0], r.codec, opaque, "benchmark_consumer", r.topic, r.queue, r.from, time.Second)
		r.wire.within(ioTimeout)
		if _, err := r.wire.Write(out); err != nil {
			return err
		}
		a, err := r.wire.next()
		if err != nil {
			return err
		}
		at := now()
		next, ok := a.number("nextBeginOffset")
		switch {
		case a.code == int32(protocol.Success) && ok:
			err = eachRecord(a.body, func(n, due, _ int64) error {
				r.tally.take(n)
				r.latency.add(at - due)
				return nil
			})
			r.last = time.Now()
		case a.code == int32(protocol.PullNotFound) || a.code == int32(protocol.PullRetryImmediately):
		default:
			err = fmt.Errorf("pull of %s/%d at %d: code %d: %s", r.topic, r.queue, r.from, a.code, a.header)
		}
		if err != nil {
			return err
		}
		r.from = max(next, r.from)
	}
}

// paced sends at a fixed rate: message n is due at n times the interval, however late its forerunners were, and its
// latency counts from then on. One goroutine serves all connections, on a thread of its own, since the runtime's timers
// are too coarse.
func paced(rate int, senders []*sender, each int64) error {
	return pace(rate, each*int64(len(senders)), func(n, due int64) {
		s := senders[n%int64(len(senders))]
		s.post(s.request, due, due)
	}, func() error { return writeAll(senders) })
}

// pace calls post for each number below total when it is due, and flush behind all that are due together.
func pace(rate int, total int64, post func(n, due int64), flush func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	interval := int64(time.Second) / int64(rate)
	begin := now()
	for n := int64(0); n < total; {
		if wait := begin + n*interval - now(); wait > 0 {
			pause := unix.NsecToTimespec(wait)
			_ = unix.Nanosleep(&pause, nil) // cut short by a signal it only comes round earlier
			continue
		}
		for at := now(); n < total && begin+n*interval <= at; n++ {
			post(n, begin+n*interval)
		}
		if err := flush(); err != nil {
			return err
		}
	}
	return nil
}

// answers reads what n paced sends are answered. A refused one is not waited for at the other end.
func answers(s *sender, n int64, want *atomic.Int64) error {
	for range n {
		a, err := s.wire.next()
		if err != nil {
			return err
		}
		s.latency.add(now() - s.at[(a.opaque-firstOpaque)&(ringSize-1)])
		if a.code != 0 {
			s.ledger.refuse(int64(a.opaque-firstOpaque), 1, a.code) // of single messages the opaques count as well
			want.Add(-1)
		}
	}
	return nil
}

func (l *flowLoad) run(addr, topic string, last time.Duration) (*outcome, error) {
	sending, err := dialAll(addr, l.conns)
	if err != nil {
		return nil, err
	}
	defer closeAll(sending)
	receiving, err := dialAll(addr, l.conns)
	if err != nil {
		return nil, err
	}
	defer closeAll(receiving)

	load := &sendLoad{codec: l.codec, conns: l.conns, window: 32, size: l.size}
	senders, receivers := make([]*sender, l.conns), make([]*receiver, l.conns)
	wants := make([]atomic.Int64, l.conns)
	var in errgroup.Group
	for i := range l.conns {
		senders[i] = newSender(load, sending[i], topic, i)
		receivers[i] = &receiver{wire: receiving[i], codec: l.codec, topic: topic, queue: int32(i)}
		wants[i].Store(-1)
		in.Go(func() error { return receivers[i].run(&wants[i]) })
	}
	begin := time.Now()
	var out errgroup.Group
	if l.rate > 0 {
		each := int64(l.rate) * int64(last) / int64(time.Second) / int64(l.conns)
		for i, s := range senders {
			wants[i].Store(each)
			sending[i].within(last + ioTimeout)
			out.Go(func() error { return answers(s, each, &wants[i]) })
		}
		err = paced(l.rate, senders, each)
	} else {
		var stop atomic.Bool
		timer := time.AfterFunc(last, func() { stop.Store(true) })
		defer timer.Stop()
		for _, s := range senders {
			out.Go(func() error { return s.run(&stop) })
		}
	}
	if failed := out.Wait(); failed != nil {
		err = failed
	}
	var ledgers []*ledger
	var tallies []*tally
	for i, s := range senders {
		wants[i].Store(s.ledger.sent - s.ledger.refused.count())
		ledgers = append(ledgers, &s.ledger)
	}
	if err != nil {
		closeAll(receiving)
	}
	if failed := in.Wait(); err == nil {
		err = failed
	}
	o := new(outcome)
	for _, r := range receivers {
		o.elapsed = max(o.elapsed, r.last.Sub(begin)) // a receiver may have waited for a message that nobody sent
		o.messages += r.tally.count
		o.latency.merge(&r.latency)
		tallies = append(tallies, &r.tally)
	}
	o.findings = compare(ledgers, tallies, false)
	return o, err
}
