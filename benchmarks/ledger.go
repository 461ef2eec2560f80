package main

import (
	"fmt"
	"math/bits"

	"golang.org/x/sync/errgroup"

	"github.com/ratchetmq/ratchet/protocol"
)

// numberSpace is how many messages a sender may number; sender i begins at i times that.
const numberSpace = 1 << 40

// bitmap is a set of numbers from 0 on.
type bitmap []uint64

// add says whether n was there already.
func (b *bitmap) add(n int64) (again bool) {
	word, bit := int(n>>6), uint64(1)<<(n&63)
	if word >= len(*b) {
		*b = append(*b, make([]uint64, max(1024, word+1-len(*b), len(*b)/2))...)
	}
	again = (*b)[word]&bit != 0
	(*b)[word] |= bit
	return again
}

func (b bitmap) has(n int64) bool {
	word := int(n >> 6)
	return word < len(b) && b[word]&(1<<(n&63)) != 0
}

func (b bitmap) count() (n int64) {
	for _, w := range b {
		n += int64(bits.OnesCount64(w))
	}
	return n
}

// A ledger knows what one sender has sent and been told. Only the sender writes to it.
type ledger struct {
	sent    int64 // messages
	refused bitmap
	codes   map[int32]int64
}

// refuse notes that count messages from n on were answered with an error.
func (l *ledger) refuse(n int64, count int, code int32) {
	for i := range int64(count) {
		l.refused.add(n + i)
	}
	if l.codes == nil {
		l.codes = map[int32]int64{}
	}
	l.codes[code] += int64(count)
}

// findings are what a comparison of what was sent with what is there has shown.
type findings struct {
	Lost       int64 `json:"lost,omitempty"`       // acknowledged and not there
	Duplicated int64 `json:"duplicated,omitempty"` // there twice
	Corrupt    int64 `json:"corrupt,omitempty"`    // not what was sent
	Stray      int64 `json:"stray,omitempty"`      // never sent
	Denied     int64 `json:"denied,omitempty"`     // refused, and stored all the same
	Refused    int64 `json:"refused,omitempty"`    // refused, and not there
}

func (f *findings) bad() int64 { return f.Lost + f.Duplicated + f.Corrupt + f.Stray + f.Denied }

func (f *findings) add(o findings) {
	f.Lost += o.Lost
	f.Duplicated += o.Duplicated
	f.Corrupt += o.Corrupt
	f.Stray += o.Stray
	f.Denied += o.Denied
	f.Refused += o.Refused
}

// A tally collects what a reader has seen of all senders. It belongs to one goroutine.
type tally struct {
	seen  []bitmap // by sender
	count int64
	findings
}

func (t *tally) take(n int64) {
	sender, i := int(n/numberSpace), n%numberSpace
	if sender > 1<<12 {
		t.Stray++
		return
	}
	for sender >= len(t.seen) {
		t.seen = append(t.seen, nil)
	}
	t.count++
	if t.seen[sender].add(i) {
		t.Duplicated++
	}
}

// compare is what the readers have seen of what the senders know.
func compare(ledgers []*ledger, tallies []*tally, unanswered bool) findings {
	var f findings
	for _, t := range tallies {
		f.add(t.findings)
	}
	for sender, l := range ledgers {
		var all bitmap
		for _, t := range tallies {
			if sender >= len(t.seen) {
				continue
			}
			for word, got := range t.seen[sender] {
				if word >= len(all) {
					all = append(all, make(bitmap, len(t.seen[sender])-len(all))...)
				}
				f.Duplicated += int64(bits.OnesCount64(all[word] & got)) // two readers have it
				all[word] |= got
			}
		}
		found := int64(0)
		for n := range l.sent {
			seen, refused := all.has(n), l.refused.has(n)
			if seen {
				found++
			}
			switch {
			case seen && refused:
				f.Denied++
			case refused:
				f.Refused++
			case !seen && unanswered: // one-way requests: nobody promised anything
				f.Refused++
			case !seen:
				f.Lost++
			}
		}
		f.Stray += all.count() - found
	}
	return f
}

// readBack pulls all queues of a topic from their beginning to their end, several at a time.
func readBack(addr, topic string, queues int32) ([]*tally, error) {
	tallies := make([]*tally, queues)
	var group errgroup.Group
	group.SetLimit(4)
	for queue := range queues {
		group.Go(func() (err error) {
			tallies[queue], err = readQueue(addr, topic, queue)
			return err
		})
	}
	return tallies, group.Wait()
}

func readQueue(addr, topic string, queue int32) (*tally, error) {
	w, err := dial(addr)
	if err != nil {
		return nil, err
	}
	defer w.Close()
	t := new(tally)
	end, err := queueEnd(w, topic, queue)
	if err != nil {
		return nil, err
	}
	var out []byte
	for from := int64(0); from < end; {
		w.opaque++
		w.within(ioTimeout)
		out = pullRequest(out[:0], protocol.JSON, w.opaque, "benchmark_verifier", topic, queue, from, 0)
		if _, err := w.Write(out); err != nil {
			return nil, err
		}
		a, err := w.next()
		if err != nil {
			return nil, err
		}
		next, ok := a.number("nextBeginOffset")
		if !ok || a.code != 0 && next <= from {
			return nil, fmt.Errorf("pull of %s/%d at %d of %d: code %d: %s", topic, queue, from, end, a.code, a.header)
		}
		if a.code == 0 && eachRecord(a.body, func(n, _, _ int64) error { t.take(n); return nil }) != nil {
			t.Corrupt++
		}
		from = max(next, from)
	}
	return t, nil
}
