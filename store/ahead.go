package store

import (
	"context"
	"encoding/binary"
	"sync"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/message"
)

// ahead reads and checks the log in front of recovery. One goroutine reads parts of it and finds where records end, by
// their heads alone; workers examine the records; recovery takes the parts in the log's order, and another goroutine
// gives to the index what recovery has taken.
//
// It decides nothing. Where something stands that is not plainly a record or a blank, or can't be read, it stops, and
// recovery looks there itself. So how many workers there are, and which is faster, has no part in the outcome.
type ahead struct {
	log   *commitLog
	index func(*part)

	free    chan *part
	work    chan *part
	order   chan *part
	indexed chan *part
}

// part is a piece of one segment that begins and ends at a record's border.
type part struct {
	segment  Span
	at, end  offset.Physical
	buf      []byte
	findings []finding
	checked  chan struct{} // one value when findings are there
	taken    int           // how many of the findings recovery took
}

// aheadSize is how much of the log is a part. It is small enough to stay in a core's cache between the goroutines.
const aheadSize = 512 << 10

// runAhead reads [from, limit) and calls take for each finding, until that says no, which is where it stops. It returns
// how far that was. index is called for each part that was taken, in order; all calls have ended when run returns.
func (l *commitLog) runAhead(
	workers int, from, limit offset.Physical, take func(*finding) (bool, error), index func(*part),
) (offset.Physical, error) {
	n := workers + 4
	a := &ahead{
		log: l, index: index,
		free: make(chan *part, n), work: make(chan *part, n), order: make(chan *part, n), indexed: make(chan *part, n),
	}
	for range n {
		a.free <- &part{checked: make(chan struct{}, 1)}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { a.read(ctx, from, limit) })
	for range workers {
		wg.Go(a.check)
	}
	wg.Go(a.feed)
	pos, err := a.take(from, take)
	cancel()
	close(a.indexed)
	wg.Wait()
	return pos, err
}

// read is the goroutine that reads. The channels have room for all parts, so that it waits for free ones alone.
func (a *ahead) read(ctx context.Context, pos, limit offset.Physical) {
	defer close(a.order)
	defer close(a.work)
	for pos < limit {
		var p *part
		select {
		case p = <-a.free:
		case <-ctx.Done():
			return
		}
		seg := a.log.at(pos)
		if seg == nil || !p.load(seg, pos, limit) {
			return
		}
		pos = p.end
		a.order <- p
		a.work <- p
	}
}

// load reads what stands from pos on; false when that is nothing to take.
func (p *part) load(seg *segment, pos, limit offset.Physical) bool {
	room := int64(min(seg.end, limit) - pos)
	for size := min(aheadSize, room); ; {
		if int64(cap(p.buf)) < size {
			p.buf = make([]byte, size)
		}
		p.buf = p.buf[:size]
		if err := readFull(seg.file, p.buf, int64(pos-seg.start)); err != nil {
			return false
		}
		whole, next := borders(p.buf, pos, seg.end)
		if whole > 0 {
			p.segment, p.at, p.end = seg.span(), pos, pos+offset.Physical(whole)
			return true
		}
		if next <= size || next > room {
			return false
		}
		size = next // a record larger than a part
	}
}

// borders is how many bytes whole records and a blank take from the beginning of b, which stands at pos. Where a record
// goes on behind b, next is what the part from its beginning needs.
func borders(b []byte, pos, end offset.Physical) (whole, next int64) {
	for {
		room := int64(end-pos) - whole
		if room < message.BlankSize {
			return whole + room, 0
		}
		rest := b[min(whole, int64(len(b))):]
		if len(rest) < headSize {
			return whole, headSize
		}
		size32, magic, _ := message.Peek(rest)
		size := int64(size32)
		switch {
		case magic == message.MagicBlank && size == room:
			return whole + room, 0
		case magic != message.MagicV1 && magic != message.MagicV2 || size <= headSize || size > room,
			binary.BigEndian.Uint64(rest[message.PosPhysicalOffset:]) != uint64(pos)+uint64(whole):
			return whole, 0
		case size > int64(len(rest)):
			return whole, size
		}
		whole += size
	}
}

// check is a worker.
func (a *ahead) check() {
	for p := range a.work {
		p.findings, p.taken = p.findings[:0], 0
		for pos := p.at; pos < p.end; {
			f := examine(p.buf[min(int64(pos-p.at), int64(len(p.buf))):], pos, p.segment)
			p.findings = append(p.findings, f)
			if f.kind != isRecord && f.kind != isBlank {
				break
			}
			pos += offset.Physical(f.size)
		}
		p.checked <- struct{}{}
	}
}

// take goes through the parts in order.
func (a *ahead) take(pos offset.Physical, take func(*finding) (bool, error)) (offset.Physical, error) {
	for p := range a.order {
		<-p.checked
		for i := range p.findings {
			ok, err := take(&p.findings[i])
			if err != nil || !ok {
				a.indexed <- p
				return pos, err
			}
			p.taken++
			pos += offset.Physical(p.findings[i].size)
		}
		a.indexed <- p
	}
	return pos, nil
}

// feed is the goroutine that gives parts to the index, and takes them back for reading.
func (a *ahead) feed() {
	for p := range a.indexed {
		a.index(p)
		a.free <- p
	}
}
