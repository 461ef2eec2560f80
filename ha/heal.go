package ha

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/message"
	"github.com/ratchetmq/ratchet/protocol"
	"github.com/ratchetmq/ratchet/store"
)

// healAll fetches what belongs into the gaps of this log, and into its damaged parts, from all slaves that have some of it.
func (l *Leader) healAll(ctx context.Context, peers []Peer) error {
	for i := range peers {
		if peers[i].Err != nil || peers[i].Status.Role != slaveRole {
			continue
		}
		for _, fetch := range []func(context.Context, *Peer) error{l.heal, l.repair} {
			err := fetch(ctx, &peers[i])
			if errors.Is(err, ErrDiverged) || errors.Is(err, message.ErrCorrupt) {
				// It has nothing for that place, and may not be the one that asks: that one is judged by Shares, or by itself.
				l.log.Error("what is missing here is not fetched from a broker whose log is another", "addr", peers[i].Addr, "err", err)
				continue
			}
			if err != nil {
				return fmt.Errorf("heal from %s: %w", peers[i].Addr, err)
			}
		}
	}
	return nil
}

// heal fetches from a slave what belongs into a gap of this log: what this broker had lost, and the slave still has. The
// gap is filled from its beginning, in the very places, and consumers that have not come so far get the messages.
func (l *Leader) heal(ctx context.Context, slave *Peer) error {
	for _, gap := range l.opts.Store.Gaps().Log {
		to := min(slave.end(), endOf(gap, slave.gaps()))
		if to <= gap.From || offset.Physical(slave.Status.Low) > gap.From {
			continue
		}
		l.log.Info("filling a gap", "addr", slave.Addr, "from", int64(gap.From), "to", int64(to))
		before := l.opts.Store.GapChanges()
		if err := l.puller(slave).refill(ctx, slave.Status.HAAddr, gap.From, to, l.opts.Store.RefillStream(gap.From, false, !slave.Java)); err != nil {
			return err
		}
		if l.opts.Store.GapChanges() == before {
			continue // the slave has copied it
		}
		if err := l.opts.Metadata.Merge(ctx, slave.Addr); err != nil {
			return err
		}
		l.log.Info("gap filled", "addr", slave.Addr, "from", int64(gap.From), "to", int64(to))
	}
	return nil
}

// repair fetches from a slave what is damaged here.
func (l *Leader) repair(ctx context.Context, slave *Peer) error {
	has := store.Span{From: offset.Physical(slave.Status.Low), To: slave.end()}
	return l.puller(slave).repair(ctx, slave.Status.HAAddr, slices.Concat(slave.gaps(), slave.damaged(), beyond(has)))
}

// gaps are the places that a broker of ours keeps free in its log: lost, or copied from its master.
func (p *Peer) gaps() []store.Span { return spans(p.Status.Gaps) }

// damaged are the parts of its log that a broker of ours can't read.
func (p *Peer) damaged() []store.Span { return spans(p.Status.Damaged) }

func spans(parts []protocol.LogGap) []store.Span {
	list := make([]store.Span, len(parts))
	for i, p := range parts {
		list[i] = store.Span{From: offset.Physical(p.From), To: offset.Physical(p.To)}
	}
	return list
}

// check compares this log with the one at addr, up to at and as far back as a window, and changes nothing.
func (p *puller) check(ctx context.Context, addr string, low, at offset.Physical) error {
	from, err := p.store.FirstRecord(max(low, p.store.Low(), at-firstWindow))
	if err != nil || from >= at {
		return err
	}
	compare := p.store.Compare(from)
	err = p.read(ctx, addr, from, at, compare, func(_ offset.Physical, b []byte) error { return agree(compare, b) })
	if err == nil && compare.Undecided() {
		err = &Fork{from}
	}
	return err
}

// refill gives the bytes that the broker at addr has in [at, to) to fill, after it has compared what stands before.
func (p *puller) refill(ctx context.Context, addr string, at, to offset.Physical, fill *store.Stream) error {
	from, err := p.store.FirstRecord(max(p.store.Low(), at-firstWindow))
	if err != nil {
		return err
	}
	from = min(from, at)
	compare := p.store.Compare(from)
	return p.read(ctx, addr, from, to, compare, func(next offset.Physical, b []byte) error {
		if n := min(int64(len(b)), int64(at-next)); n > 0 {
			if err := agree(compare, b[:n]); err != nil {
				return err
			}
			b = b[n:]
		}
		return fill.Write(b)
	})
}

// read hands the bytes [from, to) of the log at addr to take, in order, and lets a comparison know of its gaps.
func (p *puller) read(
	ctx context.Context, addr string, from, to offset.Physical, compare *store.Comparison, take func(offset.Physical, []byte) error,
) error {
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
		if in.kind == frameGaps {
			told, err := readPlaces(in.body)
			if err != nil {
				return err
			}
			compare.Pass(told.Gaps, told.Damaged)
			continue
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
