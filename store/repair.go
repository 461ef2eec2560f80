package store

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/message"
)

// Damaged are the parts of the log that hold no records, in order: recovery could not read them and skipped them, or another
// broker's log, of which this one is a copy, has none there either. Their messages read as Hole. They are noted with the gaps
// until they are repaired, for a later recovery may begin behind them.
func (s *Store) Damaged() []Span { return offset.Without(s.gaps.now.Load().Damaged, Span{To: s.Low()}) }

// noteDamage notes parts of the log that hold no records. The put lock is held, or nobody else has the store yet.
func (s *Store) noteDamage(list []Span, found ...Span) error {
	for _, d := range found {
		list = offset.With(list, d)
	}
	next := s.gaps.get()
	next.Damaged = offset.Without(list, append(slices.Clone(next.Log), Span{To: s.Low()})...) // nothing is missed in a gap
	if slices.Equal(next.Damaged, s.gaps.now.Load().Damaged) {
		return nil
	}
	return s.gaps.save(next)
}

// piece is whole records of one segment, and whether its rest is unused behind them.
type piece struct {
	pos   offset.Physical
	b     []byte
	blank bool
}

// RepairStream takes what another broker has in a part of this log that is damaged, from its beginning on. When that is there to
// the end, and ends with it, it is put in place, and the part is damaged no more; before, nothing is changed.
func (s *Store) RepairStream(damage Span) *Stream {
	var pieces []piece
	return &Stream{
		size: offset.Physical(s.log.size), next: damage.From,
		take: func(pos offset.Physical, b []byte, _ []message.Record, blank bool) error {
			end := pos + offset.Physical(len(b))
			if blank {
				end = pos - pos%offset.Physical(s.log.size) + offset.Physical(s.log.size)
			}
			if end > damage.To {
				return fmt.Errorf("%w: the damage ends at %d, not at %d", message.ErrCorrupt, damage.To, end)
			}
			if pieces = append(pieces, piece{pos, bytes.Clone(b), blank}); end < damage.To {
				return nil
			}
			if err := s.beside(func() error { return s.repair(damage, pieces) }); err != nil {
				return fmt.Errorf("repair at %d: %w", damage.From, err)
			}
			s.logger.Info("damaged part of the log repaired", "phy", damage.From, "end", damage.To)
			return nil
		},
	}
}

func (s *Store) repair(damage Span, pieces []piece) error {
	s.put.mu.Lock()
	defer s.put.mu.Unlock()
	if err := s.appendable(); err != nil {
		return err
	}
	known := s.gaps.get().Damaged
	if len(offset.Without([]Span{damage}, known...)) > 0 {
		return ErrNotFound
	}
	for _, p := range pieces {
		seg, err := s.log.ensure(p.pos) // the file itself may be gone
		if err != nil {
			return err
		}
		if _, err = s.putBack(seg, p.pos, p.b, p.blank); err == nil {
			s.dispatcher.round.publish(s.files)
		}
		s.dispatcher.round.reset()
		if err != nil {
			return err
		}
	}
	return s.noteDamage(offset.Without(known, damage))
}

// putBack writes records into the midst of the log, and their entries into the queues, durably; with blank the segment's rest
// is not used behind them. Where dispatch has not come to yet it will find them by itself: were their entries there before those
// in front of them, readers would step over these, and recovery would begin behind them. Readers see the others once the round is
// published; the index has the log's order, and takes nothing that stands before its end. It returns what it wrote. The
// dispatcher's and the put lock are held.
func (s *Store) putBack(seg *segment, pos offset.Physical, b []byte, blank bool) (requests []message.DispatchRequest, err error) {
	d := &s.dispatcher
	end := pos + offset.Physical(len(b))
	for at := pos; at < end; {
		f := examine(b[at-pos:], at, seg.span())
		if f.kind != isRecord {
			return nil, fmt.Errorf("no record at %d: %w", at, cmp.Or(f.why, ErrNotFound))
		}
		request := s.requestOf(&f.record)
		if err := s.placeIsFree(&request); err != nil {
			return nil, err
		}
		requests = append(requests, request)
		if at < d.done.load() {
			d.add(&request)
		}
		at += offset.Physical(f.size)
	}
	if err := s.writeBack(seg, pos, b, blank); err != nil {
		return nil, err
	}
	if err := d.round.write(s.files, true); err != nil {
		return nil, err
	}
	// A checkpoint may have passed the records' time: recovery will not look at them again once they are in their place, and may
	// begin there.
	if err := s.files.sync(); err != nil {
		s.fail(err)
		return nil, s.Err()
	}
	for i := range requests {
		eachTarget(&requests[i], func(t target) { s.queues.ensureNamed(t.topic, t.id).given(t.index) })
	}
	return requests, nil
}

// writeBack writes bytes into the midst of the log, durably. The dispatcher's and the put lock are held.
func (s *Store) writeBack(seg *segment, pos offset.Physical, b []byte, blank bool) error {
	if seg.readOnly {
		return fmt.Errorf("%w: it stays so, in a folder that is only read", message.ErrCorrupt)
	}
	c := &s.dispatcher.cursor
	c.buf = c.buf[:0] // it may have what stood there
	if end := pos + offset.Physical(len(b)); blank && end < seg.end {
		if err := s.writeBlank(seg, end); err != nil {
			return err
		}
	}
	if err := s.writeAt(seg, pos, b); err != nil {
		return err
	}
	if err := seg.file.Sync(); err != nil {
		s.fail(err)
		return s.Err()
	}
	return nil
}

// refillDamage puts into a gap what is damaged in the log of a broker that has what belongs there: what stands behind can follow.
func (s *Store) refillDamage(pos offset.Physical, b []byte) error {
	return s.beside(func() error {
		s.put.mu.Lock()
		defer s.put.mu.Unlock()
		if err := s.appendable(); err != nil {
			return err
		}
		seg, err := s.gapAt(pos, len(b))
		if err != nil {
			return err
		}
		part := Span{From: pos, To: pos + offset.Physical(len(b))}
		if err := s.writeBack(seg, pos, b, true); err != nil {
			return err
		}
		next := s.filledUp(s.gaps.get(), part)
		next.Damaged = offset.With(next.Damaged, part)
		return s.gaps.save(next)
	})
}

// placeIsFree says no when a message's place in a queue is another's: then it is one of another history.
func (s *Store) placeIsFree(r *message.DispatchRequest) (err error) {
	s.dispatcher.deleted.eachTarget(r, func(t target) {
		q := s.queues.find(t.topic, t.id)
		if q == nil || t.index >= q.high.Load() || err != nil {
			return
		}
		e, readErr := s.files.entry(q, t.index)
		if err = readErr; err == nil && e.present() && !e.blank() && e.phy != r.PhysicalOffset {
			err = fmt.Errorf("%w: %s/%d has another message at %d, that at %d", message.ErrCorrupt, t.topic, t.id, t.index, e.phy)
		}
	})
	return err
}
