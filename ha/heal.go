package ha

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/store"
)

// heal fetches from a slave what belongs into a gap of this log: what this broker had lost, and the slave still has. The
// gap is filled from its beginning, in the very places, and consumers that have not come so far get the messages.
func (l *Leader) heal(ctx context.Context, slave *Peer) error {
	for _, gap := range l.opts.Store.Gaps().Log {
		if slave.end() <= gap.From || offset.Physical(slave.Status.Low) > gap.From || slave.keepsFree(gap.From) {
			continue
		}
		to := min(slave.end(), gap.To)
		l.log.Info("filling a gap", "addr", slave.Addr, "from", int64(gap.From), "to", int64(to))
		if err := l.puller(slave).refill(ctx, slave.Status.HAAddr, gap, to); err != nil {
			return err
		}
		if err := l.opts.Metadata.Merge(ctx, slave.Addr); err != nil {
			return err
		}
		l.log.Info("gap filled", "addr", slave.Addr, "from", int64(gap.From), "to", int64(to))
	}
	return nil
}

// keepsFree says whether the slave has the same gap: it followed this broker over it.
func (p *Peer) keepsFree(at offset.Physical) bool {
	for _, gap := range p.Status.Gaps {
		if gap.From <= int64(at) && int64(at) < gap.To {
			return true
		}
	}
	return false
}

// check compares this log with the one at addr, up to at and as far back as a window, and changes nothing.
func (p *puller) check(ctx context.Context, addr string, low, at offset.Physical) error {
	from, err := p.store.FirstRecord(max(low, p.store.Low(), at-firstWindow))
	if err != nil || from >= at {
		return err
	}
	compare := p.store.Compare(from)
	return p.read(ctx, addr, from, at, func(_ offset.Physical, b []byte) error { return agree(compare, b) })
}

// refill puts the bytes that the broker at addr has in [gap.From, to) into the gap, after it has compared what stands
// before.
func (p *puller) refill(ctx context.Context, addr string, gap store.Span, to offset.Physical) error {
	from, err := p.store.FirstRecord(max(p.store.Low(), gap.From-firstWindow))
	if err != nil {
		return err
	}
	from = min(from, gap.From)
	compare := p.store.Compare(from)
	fill := p.store.RefillStream(gap.From)
	return p.read(ctx, addr, from, to, func(at offset.Physical, b []byte) error {
		if n := min(int64(len(b)), int64(gap.From-at)); n > 0 {
			if err := agree(compare, b[:n]); err != nil {
				return err
			}
			b = b[n:]
		}
		return fill.Write(b)
	})
}

// read hands the bytes [from, to) of the log at addr to take, in order.
func (p *puller) read(ctx context.Context, addr string, from, to offset.Physical, take func(offset.Physical, []byte) error) error {
	conn, hangUp, err := p.connect(ctx, addr)
	if err != nil {
		return err
	}
	defer hangUp()
	f, err := p.request(conn, from)
	if err != nil {
		return err
	}
	next := from
	if from == 0 && !f.own { // see request
		if err := take(0, []byte{0}); err != nil {
			return err
		}
		next = 1
	}
	for next < to {
		if err := conn.SetReadDeadline(time.Now().Add(p.silence)); err != nil {
			return err
		}
		in, err := f.next()
		if err != nil {
			return errors.Join(err, ctx.Err())
		}
		if in.kind != frameLog || in.at != next {
			return fmt.Errorf("%w: kind %d for %d, %d is due", errFrame, in.kind, in.at, next)
		}
		body := in.body
		if n := int64(to - next); int64(len(body)) > n {
			body = body[:n]
		}
		if err := take(next, body); err != nil {
			return err
		}
		if next += offset.Physical(len(body)); len(body) > 0 {
			if err := writeReport(conn, max(next, 1)); err != nil {
				return err
			}
		}
	}
	return nil
}
