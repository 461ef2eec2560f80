package main

import (
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ratchetmq/ratchet/protocol"
)

// sendLoad is a closed loop: each connection keeps window requests in flight, sends the next ones when answers come,
// and writes together what is due together.
type sendLoad struct {
	codec       protocol.Codec
	conns       int
	window      int
	size        int // of a body
	batch       int // messages in a request; 0 is 1
	queues      int // senders take turns on them; 0: each has its own
	onewayRun   int // so many one-way requests go before each one that is answered
	maxMessages int64
}

// outcome is what one load of a broker has shown, without what the broker's process tells.
type outcome struct {
	messages int64 // acknowledged, or received
	elapsed  time.Duration
	latency  histogram
	findings
	verify func() (findings, error) // looks whether all is there; not part of what is measured
}

// ringSize is more than any window.
const ringSize = 1 << 13

// A sender is one connection of a sendLoad.
type sender struct {
	outbox
	press   press
	load    *sendLoad
	request *template
	oneway  *template
	ledger  ledger
	next    int64 // number of the next message
	opaques int32 // requests made
	flying  int   // requests without an answer
	acked   int64
	at      [ringSize]int64 // when a request left
	number  [ringSize]int64 // its first message
	latency histogram
}

func (l *sendLoad) count() int { return max(l.batch, 1) }

func newSender(l *sendLoad, w *wire, topic string, index int) *sender {
	s := &sender{load: l, outbox: outbox{wire: w}, next: int64(index) * numberSpace}
	queue := int32(index)
	if l.queues > 0 {
		queue %= int32(l.queues)
	}
	s.request = sendTemplate(l.codec, topic, queue, l.size, l.count(), false)
	if l.onewayRun > 0 {
		s.oneway = sendTemplate(l.codec, topic, queue, l.size, l.count(), true)
	}
	return s
}

// post adds a request to what is to be written.
func (s *sender) post(t *template, at, due int64) {
	slot := s.opaques & (ringSize - 1)
	s.at[slot], s.number[slot] = at, s.next
	s.out = s.press.append(s.out, t, firstOpaque+s.opaques, s.next, due)
	s.opaques++
	s.next += int64(len(t.bodies))
	s.ledger.sent += int64(len(t.bodies))
}

// launch posts one round of the window: a request, behind its one-way ones.
func (s *sender) launch(at int64) {
	for range s.load.onewayRun {
		s.post(s.oneway, at, at)
	}
	s.post(s.request, at, at)
	s.flying++
}

// answered takes one answer.
func (s *sender) answered(a answer, at int64) error {
	slot := (a.opaque - firstOpaque) & (ringSize - 1)
	if a.opaque-firstOpaque >= s.opaques || a.opaque-firstOpaque < s.opaques-ringSize {
		return fmt.Errorf("answer to request %d, %d were made", a.opaque-firstOpaque, s.opaques)
	}
	s.flying--
	s.latency.add(at - s.at[slot])
	if a.code != 0 {
		s.ledger.refuse(s.number[slot]%numberSpace, s.load.count(), a.code)
		return nil
	}
	s.acked += int64(s.load.count() * (1 + s.load.onewayRun))
	return nil
}

// run sends until stop says so, then waits for the answers that are due.
func (s *sender) run(stop *atomic.Bool) error {
	limit := int64(1) << 62
	if s.load.maxMessages > 0 {
		limit = s.load.maxMessages / int64(s.load.conns)
	}
	for at := now(); s.flying < s.load.window; {
		s.launch(at)
	}
	var deadline time.Time
	for s.flying > 0 {
		if err := s.write(); err != nil {
			return err
		}
		if time.Until(deadline) < ioTimeout/2 { // not for each read: it has a price
			deadline = time.Now().Add(ioTimeout)
			s.wire.within(ioTimeout)
		}
		if err := s.wire.more(); err != nil {
			return fmt.Errorf("%d requests are not answered: %w", s.flying, err)
		}
		at := now()
		for {
			frame, err := s.wire.buffered()
			if err != nil {
				return err
			}
			if frame == nil {
				break
			}
			a, err := parseAnswer(frame)
			if err != nil {
				return err
			}
			if err := s.answered(a, at); err != nil {
				return err
			}
			if !stop.Load() && s.ledger.sent < limit {
				s.launch(at)
			}
		}
	}
	return nil
}

// run loads addr for the given time. The ledgers are for who wants to compare.
func (l *sendLoad) run(addr, topic string, last time.Duration) (*outcome, []*ledger, error) {
	wires, err := dialAll(addr, l.conns)
	if err != nil {
		return nil, nil, err
	}
	defer closeAll(wires)
	var stop atomic.Bool
	timer := time.AfterFunc(last, func() { stop.Store(true) })
	defer timer.Stop()
	senders := make([]*sender, l.conns)
	for i := range senders {
		senders[i] = newSender(l, wires[i], topic, i)
	}
	var group errgroup.Group
	begin := time.Now()
	for _, s := range senders {
		group.Go(func() error {
			err := s.run(&stop)
			if err != nil {
				stop.Store(true)
			}
			return err
		})
	}
	err = group.Wait()
	o := &outcome{elapsed: time.Since(begin)}
	var ledgers []*ledger
	for _, s := range senders {
		o.messages += s.acked
		o.latency.merge(&s.latency)
		ledgers = append(ledgers, &s.ledger)
	}
	return o, ledgers, err
}
