package store

import (
	"encoding/binary"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/message"
)

// SearchByTime finds a place in a queue by store time, in ms. The lower bound is the first message that is not older,
// High when all are; the upper bound is the last message that is not younger, Low when all are. Without the queue it
// is 0.
func (s *Store) SearchByTime(topic string, queue int32, ms int64, upper bool) offset.Queue {
	q := s.queues.get(topic, queue)
	if q == nil {
		return 0
	}
	b, err := s.bounds(q)
	if err == nil {
		var at int64
		at, err = s.searchEntries(q, int64(b.Low), int64(b.High), func(e entry) answer {
			t, ok := s.storeTime(q, e)
			switch {
			case !ok:
				return silent
			case upper:
				return answerOf(t > ms)
			}
			return answerOf(t >= ms)
		})
		if err == nil && upper {
			return max(b.Low, offset.Queue(at-1))
		}
		if err == nil {
			return offset.Queue(at)
		}
	}
	s.logger.Error("search by time not possible", "topic", topic, "queue", queue, "err", err)
	return b.Low
}

// EarliestStoreTime is the store time in ms of the first message of a queue that can be read; ok is false when there
// is none.
func (s *Store) EarliestStoreTime(topic string, queue int32) (ms int64, ok bool) {
	q := s.queues.get(topic, queue)
	if q == nil {
		return 0, false
	}
	b, err := s.bounds(q)
	if err != nil {
		return 0, false
	}
	high := int64(b.High)
	w := entryWindow{files: s.files, queue: q, limit: high}
	for at := s.files.present(q, int64(b.Low), high); at < high; at = s.files.present(q, at+1, high) {
		e, err := w.entry(at)
		if err != nil {
			return 0, false
		}
		if e.blank() || !e.present() {
			continue
		}
		if ms, ok = s.storeTime(q, e); ok {
			return ms, true
		}
	}
	return 0, false
}

// storeTime reads the store timestamp of an entry's record; not ok when no such record stands there.
func (s *Store) storeTime(q *queue, e entry) (ms int64, ok bool) {
	const needed = message.PosBornHost + 20 + 8 // with an IPv6 host
	var b [needed]byte
	if int64(e.size) < needed {
		return 0, false
	}
	if _, err := s.log.read(b[:], e.phy); err != nil {
		return 0, false
	}
	be := binary.BigEndian
	size, magic, _ := message.Peek(b[:])
	if size != e.size || magic != message.MagicV1 && magic != message.MagicV2 ||
		be.Uint64(b[message.PosPhysicalOffset:]) != uint64(e.phy) ||
		int32(be.Uint32(b[message.PosQueueID:])) != q.id && q.id != 0 {
		return 0, false
	}
	at := message.PosBornHost + 8
	if int32(be.Uint32(b[message.PosSysFlag:]))&message.FlagBornHostV6 != 0 {
		at = message.PosBornHost + 20
	}
	return int64(be.Uint64(b[at:])), true
}
