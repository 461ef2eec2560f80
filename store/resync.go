package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/internal/vfs"
	"github.com/ratchetmq/ratchet/message"
)

// magicStart is what the magic codes of both kinds of record begin with.
var magicStart = []byte{0xDA, 0xA3, 0x20}

// search finds the first record at or behind pos that is whole, says itself that it stands there, and is accepted. A
// record inside a body does not pass: it would have to name its own place.
func (l *commitLog) search(pos, limit offset.Physical, accept func(*message.Record) bool) (
	at offset.Physical, found bool, err error,
) {
	c := cursor{log: l}
	buf := make([]byte, min(chunk, l.size))
	for seg := l.from(pos); seg != nil && seg.start < limit; seg = l.from(seg.end) {
		spans, err := seg.extents(pos, limit)
		if err != nil {
			return 0, false, err
		}
		for _, span := range spans {
			// A head may lie across the border of two reads, or begin in front of what is data.
			span.From = max(pos, seg.start, span.From-(headSize-1))
			for from := span.From; from < span.To; {
				b := buf[:min(int64(len(buf)), int64(span.To-from))]
				if err := readFull(seg.file, b, int64(from-seg.start)); err != nil {
					return 0, false, err
				}
				for _, p := range candidates(b, from) {
					f, err := c.look(p, limit)
					if err != nil {
						return 0, false, err
					}
					if f.kind == isRecord && accept(&f.record) {
						return p, true, nil
					}
				}
				if from += offset.Physical(len(b)); from < span.To {
					from -= headSize - 1
				}
			}
		}
	}
	return 0, false, nil
}

// candidates are the positions in b, whose first byte stands at start, of heads that name their own position.
func candidates(b []byte, start offset.Physical) []offset.Physical {
	var list []offset.Physical
	for i := 0; i+headSize <= len(b); i++ {
		n := bytes.Index(b[i+message.PosMagic:], magicStart)
		if n < 0 {
			break
		}
		if i += n; i+headSize > len(b) {
			break
		}
		pos := start + offset.Physical(i)
		if offset.Physical(binary.BigEndian.Uint64(b[i+message.PosPhysicalOffset:])) == pos {
			list = append(list, pos)
		}
	}
	return list
}

// extent is a part of a file.
type extent struct{ from, to int64 }

// extents lists the parts of [from, to) that may hold something else than zeros. All are looked up before any is read:
// what was read counts as data for the kernel, and its read-ahead would make data of a whole file that is reserved.
func extents(f vfs.File, from, to int64) (list []extent, err error) {
	seeker, ok := f.(vfs.DataSeeker)
	if !ok {
		return []extent{{from, to}}, nil
	}
	for from < to {
		from, err = seeker.NextData(from)
		if errors.Is(err, io.EOF) || err == nil && from >= to {
			return list, nil
		}
		var hole int64
		if err == nil {
			hole, err = seeker.NextHole(from)
		}
		if err != nil {
			return nil, err
		}
		list = append(list, extent{from, min(hole, to)})
		from = hole
	}
	return list, nil
}

// extents are those of a segment from pos on.
func (s *segment) extents(pos, limit offset.Physical) ([]Span, error) {
	list, err := extents(s.file, int64(max(pos, s.start)-s.start), int64(min(limit, s.end)-s.start))
	spans := make([]Span, len(list))
	for i, e := range list {
		spans[i] = Span{From: s.start + offset.Physical(e.from), To: s.start + offset.Physical(e.to)}
	}
	return spans, err
}
