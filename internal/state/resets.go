package state

import (
	"errors"
	"fmt"
	"time"

	"github.com/ratchetmq/ratchet/internal/offset"
)

// toldFor is how long after a pull was told of a reset the group's other words still count as from before it, if it goes on
// pulling. Clients of 4.9 wait 10 s after they were told before they commit the new position, and report the old one meanwhile;
// the answer to the pull may also be lost.
const toldFor = 30 * time.Second

// Reset moves a group to an offset by an operator's order, back or forth. It counts at once: Query answers it. Until
// the group has been seen to follow, by a pull or a commit of just that offset, commits of its clients are ignored and
// their pulls are told (see PulledReset). Errors are as for Commit.
func (o *Offsets) Reset(group, topic string, queue int32, to offset.Queue) error {
	if to < 0 {
		return fmt.Errorf("reset group %s for %s/%d to %d: %w", group, topic, queue, to, ErrNegativeOffset)
	}
	if err := checkNames(group, topic, queue); err != nil {
		return err
	}
	s := o.shard(topic)
	s.mu.Lock()
	t, p := o.place(s, group, topic, queue)
	rec := record{op: opReset, group: group, topic: topic, queue: queue, offset: to, prior: p.offset, epoch: o.opts.Now().UnixMilli()}
	if p.reset != nil {
		rec.epoch = max(rec.epoch, p.reset.epoch+1)
		if p.reset.pending {
			rec.prior = max(rec.prior, p.reset.prior)
		}
	}
	o.replay(t, p, rec)
	o.dirty.Add(1)
	o.counts.resets.Add(1)
	ticket := o.journal.put(rec)
	s.mu.Unlock()
	o.opts.Logger.Info("consumer offset reset", "group", group, "topic", topic, "queue", queue, "before", int64(rec.prior), "qoff", int64(to))
	return o.durable(ticket)
}

// durable returns when a record is on the disk: what an operator was told is done must not go with the last second.
func (o *Offsets) durable(ticket uint64) error {
	return errors.Join(o.journal.wait(ticket, ticket), o.Tick())
}

// PulledReset tells what a pull at from by the group must be answered: with ok, that its offset moved to the one
// returned. A pull at the reset's own offset shows that the group has followed, and ends the reset; so does time, when
// pulls are told and told and do not follow. Without pending resets it costs one atomic load.
func (o *Offsets) PulledReset(group, topic string, queue int32, from offset.Queue) (to offset.Queue, ok bool) {
	if o.pending.Load() == 0 {
		return 0, false
	}
	s := o.shard(topic)
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.at(group, topic, queue)
	if p == nil || p.reset == nil || !p.reset.pending {
		return 0, false
	}
	if from == p.offset || o.expired(p.reset) {
		o.settle(p, group, topic, queue)
		return 0, false
	}
	now := o.opts.Now().UnixMilli()
	if p.reset.toldAt == 0 || o.silent(p.reset) {
		p.reset.toldAt = now
	}
	p.reset.toldNow = now
	return p.offset, true
}

// follows tells whether a commit may end the pending reset of p, and ends it then: it is the reset's own offset, or the
// client was told long ago. The caller holds the shard's lock.
func (o *Offsets) follows(p *position, c *Commit) bool {
	if c.Offset != p.offset && !o.expired(p.reset) {
		return false
	}
	o.settle(p, c.Group, c.Topic, c.Queue)
	return true
}

// expired says that the group has been told again and again, and does not follow.
func (o *Offsets) expired(r *reset) bool {
	return r.toldAt != 0 && o.opts.Now().UnixMilli()-r.toldAt > toldFor.Milliseconds() && !o.silent(r)
}

// silent says that nobody has pulled since a pull was told: that answer may be lost.
func (o *Offsets) silent(r *reset) bool {
	return o.opts.Now().UnixMilli()-r.toldNow > toldFor.Milliseconds()
}

// settle ends a pending reset. The caller holds the shard's lock. Nobody waits for the record: lost with the process,
// the group is told once more.
func (o *Offsets) settle(p *position, group, topic string, queue int32) {
	p.reset.pending = false
	o.pending.Add(-1)
	o.dirty.Add(1)
	o.journal.put(record{op: opSettle, group: group, topic: topic, queue: queue})
}

// replay applies a record to a position, at run time and when the journal is read. The caller holds the shard's lock.
func (o *Offsets) replay(t *topicOffsets, p *position, r record) {
	switch r.op { //nolint:exhaustive // removals are of more than a position
	case opCommit:
		p.offset = r.offset
		t.saw(r.queue, r.offset)
		if p.reset != nil && p.reset.pending {
			p.reset.pending = false
			o.pending.Add(-1)
		}
	case opReset, opAdopt:
		if p.reset != nil && p.reset.pending {
			o.pending.Add(-1)
		}
		p.offset = r.offset
		p.reset = &reset{epoch: r.epoch, prior: r.prior, pending: r.op == opReset}
		t.saw(r.queue, r.offset)
		if p.reset.pending {
			o.pending.Add(1)
		}
	case opSettle:
		if p.reset != nil && p.reset.pending {
			p.reset.pending = false
			o.pending.Add(-1)
		}
	}
}
