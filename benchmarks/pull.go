package main

import (
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ratchetmq/ratchet/protocol"
)

// catchUp reads queues that are full, from their beginnings to their ends, again and again.
type catchUp struct {
	codec  protocol.Codec
	queues int // one connection each
	count  int // messages in all
	size   int
	rate   int // messages a second from each queue, at most; 0: as fast as they come
}

// prepare fills the topic.
func (l *catchUp) prepare(addr, topic string) error {
	load := &sendLoad{
		codec: protocol.Binary, conns: l.queues, window: 32, size: l.size, batch: 32, maxMessages: int64(l.count),
	}
	_, ledgers, err := load.run(addr, topic, time.Minute)
	for _, s := range ledgers {
		if err == nil && s.refused.count() > 0 {
			err = fmt.Errorf("queues can't be filled: answers %v", s.codes)
		}
	}
	return err
}

func (l *catchUp) run(addr, topic string, last time.Duration) (*outcome, error) {
	wires, err := dialAll(addr, l.queues)
	if err != nil {
		return nil, err
	}
	defer closeAll(wires)
	var stop atomic.Bool
	timer := time.AfterFunc(last, func() { stop.Store(true) })
	defer timer.Stop()
	var group errgroup.Group
	counts := make([]int64, l.queues)
	lost := make([]findings, l.queues)
	begin := time.Now()
	for i, w := range wires {
		group.Go(func() (err error) {
			counts[i], lost[i], err = l.read(w, topic, int32(i), &stop)
			return err
		})
	}
	err = group.Wait()
	o := &outcome{elapsed: time.Since(begin)}
	for i := range counts {
		o.messages += counts[i]
		o.findings.add(lost[i])
	}
	return o, err
}

// read goes round one queue until stop. Offsets must come one after the other, each with a whole message.
func (l *catchUp) read(w *wire, topic string, queue int32, stop *atomic.Bool) (count int64, f findings, err error) {
	var out []byte
	from, round, begin := int64(0), int64(0), time.Now()
	for opaque := int32(firstOpaque); !stop.Load(); opaque++ {
		out = pullRequest(out[:0], l.codec, opaque, "benchmark_consumer", topic, queue, from, 0)
		w.within(ioTimeout)
		if _, err := w.Write(out); err != nil {
			return count, f, err
		}
		a, err := w.next()
		if err != nil {
			return count, f, err
		}
		next, ok := a.number("nextBeginOffset")
		if a.code == int32(protocol.PullNotFound) {
			if round == 0 {
				return count, f, fmt.Errorf("queue %s/%d is empty", topic, queue)
			}
			f.Lost += max(0, int64(l.count/l.queues)-round)
			from, round = 0, 0
			continue
		}
		if a.code != 0 || !ok {
			return count, f, fmt.Errorf("pull of %s/%d at %d: code %d: %s", topic, queue, from, a.code, a.header)
		}
		expected := from
		err = eachRecord(a.body, func(_, _, qoff int64) error {
			switch {
			case qoff < expected:
				f.Duplicated++
			case qoff > expected:
				f.Lost += qoff - expected
			}
			expected = qoff + 1
			count, round = count+1, round+1
			return nil
		})
		if err != nil {
			f.Corrupt++
		}
		from = next
		if l.rate > 0 {
			time.Sleep(time.Until(begin.Add(time.Duration(count) * time.Second / time.Duration(l.rate))))
		}
	}
	return count, f, nil
}

// heldPulls keeps many pulls waiting and wakes some of them with each message that is sent.
type heldPulls struct {
	queues int
	groups int // pulls on each queue
	conns  int // that share them
	rate   int // messages a second
	size   int
}

func (l *heldPulls) run(addr, topic string, last time.Duration) (*outcome, error) {
	sending, err := dialAll(addr, 1)
	if err != nil {
		return nil, err
	}
	defer closeAll(sending)
	pulling, err := dialAll(addr, l.conns)
	if err != nil {
		return nil, err
	}
	defer closeAll(pulling)
	var in errgroup.Group
	holders := make([]*holder, l.conns)
	for i := range holders {
		holders[i] = &holder{load: l, wire: pulling[i], topic: topic}
	}
	for i := range l.queues * l.groups {
		h := holders[i%l.conns]
		h.pulls = append(h.pulls, held{group: fmt.Sprintf("benchmark_group_%d", i/l.queues), queue: int32(i % l.queues)})
	}
	interval := time.Second / time.Duration(l.rate)
	total := int64(last / interval)
	want := total * int64(l.groups)
	var got atomic.Int64
	done := make(chan struct{})
	var lost atomic.Bool
	for _, h := range holders {
		if err := h.park(); err != nil {
			return nil, err
		}
		in.Go(func() error {
			err := h.run(func(n int64) {
				if got.Add(n) == want {
					close(done)
				}
			})
			select {
			case <-done:
				return nil // closed at the end
			default:
				if lost.Load() {
					return nil
				}
				return err
			}
		})
	}
	time.Sleep(time.Second) // they are all parked
	templates := make([]*template, l.queues)
	for i := range templates {
		templates[i] = sendTemplate(protocol.JSON, topic, int32(i), l.size, 1, false)
	}
	begin := time.Now()
	var frame []byte
	var press press
	for n := range total {
		time.Sleep(time.Until(begin.Add(time.Duration(n) * interval)))
		frame = press.append(frame[:0], templates[n*7%int64(l.queues)], firstOpaque+int32(n), n, now())
		if _, err := sending[0].Write(frame); err != nil {
			return nil, err
		}
		a, err := sending[0].next()
		if err != nil || a.code != 0 {
			return nil, fmt.Errorf("send to held pulls: code %d: %w", a.code, err)
		}
	}
	o := &outcome{elapsed: time.Since(begin)}
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		lost.Store(true)
		o.Lost = want - got.Load()
	}
	closeAll(pulling)
	err = in.Wait()
	for _, h := range holders {
		o.latency.merge(&h.latency)
		o.findings.add(h.findings)
	}
	o.messages = got.Load()
	return o, err
}

// held is one pull that waits.
type held struct {
	group string
	queue int32
	from  int64
	seen  bitmap
}

// A holder is a connection with many held pulls; a pull's place in the list is its opaque.
type holder struct {
	load    *heldPulls
	wire    *wire
	topic   string
	pulls   []held
	latency histogram
	findings
}

func (h *holder) request(dst []byte, i int) []byte {
	p := &h.pulls[i]
	return pullRequest(dst, protocol.JSON, firstOpaque+int32(i), p.group, h.topic, p.queue, p.from, 30*time.Second)
}

// park lines all pulls up behind what the queues hold.
func (h *holder) park() error {
	var out []byte
	for i := range h.pulls {
		end, err := queueEnd(h.wire, h.topic, h.pulls[i].queue)
		if err != nil {
			return err
		}
		h.pulls[i].from = end
		out = h.request(out, i)
	}
	_, err := h.wire.Write(out)
	return err
}

func (h *holder) run(received func(int64)) error {
	var out []byte
	for {
		a, err := h.wire.next()
		if err != nil {
			return err
		}
		at, i := now(), int(a.opaque-firstOpaque)
		if i < 0 || i >= len(h.pulls) {
			return fmt.Errorf("answer to pull %d of %d", i, len(h.pulls))
		}
		p, n := &h.pulls[i], int64(0)
		if a.code == 0 {
			err := eachRecord(a.body, func(number, due, _ int64) error {
				if p.seen.add(number) {
					h.Duplicated++
				}
				h.latency.add(at - due)
				n++
				return nil
			})
			if err != nil {
				h.Corrupt++
			}
		}
		if next, ok := a.number("nextBeginOffset"); ok {
			p.from = max(p.from, next)
		}
		if _, err := h.wire.Write(h.request(out[:0], i)); err != nil {
			return err
		}
		received(n)
	}
}
