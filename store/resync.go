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
		end := min(seg.end, limit)
		for pos = max(pos, seg.start); pos < end; {
			if pos, err = nextData(seg, pos); err != nil || pos >= end {
				break
			}
			b := buf[:min(int64(len(buf)), int64(end-pos))]
			if err = readFull(seg.file, b, int64(pos-seg.start)); err != nil {
				return 0, false, err
			}
			for _, p := range candidates(b, pos) {
				f, err := c.look(p, limit)
				if err != nil {
					return 0, false, err
				}
				if f.kind == isRecord && accept(&f.record) {
					return p, true, nil
				}
			}
			if pos += offset.Physical(len(b)); pos < end {
				pos -= headSize - 1 // a head may lie across the border
			}
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, false, err
		}
		pos = seg.end
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

// nextData is the first position of the segment from pos on that may hold something else than zeros; io.EOF when there
// is none.
func nextData(seg *segment, pos offset.Physical) (offset.Physical, error) {
	seeker, ok := seg.file.(vfs.DataSeeker)
	if !ok {
		return pos, nil
	}
	at, err := seeker.NextData(int64(pos - seg.start))
	return seg.start + offset.Physical(at), err
}
