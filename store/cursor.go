package store

import (
	"github.com/ratchetmq/ratchet/internal/offset"
)

// chunk is how much of the log is read at once.
const chunk = 1 << 20

// cursor reads the log forward in chunks, from one goroutine at a time.
type cursor struct {
	log   *commitLog
	buf   []byte
	start offset.Physical // position of buf[0]
	small bool            // read records, not chunks
}

// held are the bytes of the buffer from pos on.
func (c *cursor) held(pos offset.Physical) []byte {
	if i := int64(pos - c.start); i >= 0 && i < int64(len(c.buf)) {
		return c.buf[i:]
	}
	return nil
}

// look says what stands at pos. No byte at or behind limit counts. A finding lives until the buffer is filled again,
// by another look.
func (c *cursor) look(pos, limit offset.Physical) (finding, error) {
	seg := c.log.at(pos)
	if seg == nil || pos >= limit {
		return finding{kind: isNoFile}, nil
	}
	f := examine(c.held(pos), pos, seg.span())
	for f.kind == isCut {
		need := f.size
		if need > int64(min(seg.end, limit)-pos) {
			return damaged("record of %d bytes is cut by the log's end", need), nil
		}
		if err := c.fill(seg, pos, limit, need); err != nil {
			return finding{}, err
		}
		f = examine(c.held(pos), pos, seg.span())
	}
	if f.kind == isNothing && seg.readOnly {
		// The log went on in another folder, and there was no writing a blank record here.
		return finding{kind: isBlank, size: int64(seg.end - pos)}, nil
	}
	return f, nil
}

// lookSmall is look for a single record: it reads no more than it must.
func (c *cursor) lookSmall(pos, limit offset.Physical) (finding, error) {
	c.small = true
	return c.look(pos, limit)
}

// peek is look without filling the buffer: isCut when what stands at pos is not wholly in it.
func (c *cursor) peek(pos offset.Physical) finding {
	seg := c.log.at(pos)
	if seg == nil {
		return finding{kind: isNoFile}
	}
	return examine(c.held(pos), pos, seg.span())
}

// fill reads a chunk from pos on, at least need bytes.
func (c *cursor) fill(seg *segment, pos, limit offset.Physical, need int64) error {
	least := int64(chunk)
	if c.small {
		least = 1 << 10
	}
	n := min(max(need, least), int64(min(seg.end, limit)-pos))
	if int64(cap(c.buf)) < n || int64(cap(c.buf)) > 4*max(n, least) {
		c.buf = make([]byte, 0, max(n, min(least, c.log.size)))
	}
	c.buf, c.start = c.buf[:n], pos
	if err := readFull(seg.file, c.buf, int64(pos-seg.start)); err != nil {
		c.buf = c.buf[:0]
		return err
	}
	return nil
}
