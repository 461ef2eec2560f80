package store

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/message"
)

// Damaged are the parts of the log that recovery could not read and skipped; their messages read as Hole.
func (s *Store) Damaged() []Span { return *s.damage.Load() }

// piece is whole records of one segment, and whether its rest is unused behind them.
type piece struct {
	pos   offset.Physical
	b     []byte
	blank bool
}

// RepairStream takes what another broker has in a damaged part of this log, from its beginning on. When that is there to the
// end, and ends with it, it is put in place, and the part is damaged no more; before, nothing is changed.
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
	if !slices.Contains(s.Damaged(), damage) {
		return ErrNotFound
	}
	for _, p := range pieces {
		seg := s.log.at(p.pos)
		if seg == nil {
			return ErrNotFound
		}
		err := s.putBack(seg, p.pos, p.b, p.blank)
		if err == nil {
			s.showPutBack()
		}
		s.dispatcher.round.reset()
		if err != nil {
			return err
		}
	}
	rest := slices.DeleteFunc(slices.Clone(s.Damaged()), func(d Span) bool { return d == damage })
	s.damage.Store(&rest)
	return nil
}
