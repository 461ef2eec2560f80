package store

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/message"
)

// kind says what stands at a position of the log.
type kind uint8

const (
	isRecord  kind = iota // a whole record, its lengths, body and position agree
	isBlank               // the rest of the file is not used
	isNothing             // never written
	isDamaged             // neither of these
	isCut                 // can't be said yet: more bytes are needed
	isNoFile              // no segment holds that position
)

// finding is what stands at one position of the log.
type finding struct {
	kind   kind
	size   int64          // of a record or blank; of isCut: how many bytes are needed
	record message.Record // of a record; its slices are parts of the examined bytes
	why    error          // of damage
}

const (
	// headSize is where a record's own position ends: enough to know that it is no record of this place.
	headSize = message.PosPhysicalOffset + 8
	// sector is the smallest part of a file that a disk loses on its own.
	sector = 512
	// maxIndex is above any queue offset that there can be, and low enough to count bytes with.
	maxIndex = 1 << 56
)

// storableTopic says whether a name can be that of a folder. No checksum covers it in a record.
func storableTopic(name []byte) bool {
	switch {
	case len(name) == 0 || len(name) > message.MaxTopic:
		return false
	case name[0] == '.' && (len(name) == 1 || len(name) == 2 && name[1] == '.'):
		return false
	}
	return bytes.IndexByte(name, '/') < 0 && bytes.IndexByte(name, 0) < 0
}

// examine says what stands at position pos; b are the bytes from there on, seg is the segment's place in the log. It is
// pure: recovery, dispatch and reads by position all decide by it.
func examine(b []byte, pos offset.Physical, seg Span) finding {
	room := int64(seg.To - pos)
	if room < message.BlankSize {
		return finding{kind: isBlank, size: room}
	}
	size32, magic, ok := message.Peek(b)
	if !ok {
		return finding{kind: isCut, size: message.BlankSize}
	}
	size := int64(size32)
	switch {
	case magic == message.MagicBlank && size == room:
		return finding{kind: isBlank, size: room}
	case magic == 0 && size == 0:
		return finding{kind: isNothing}
	case magic != message.MagicV1 && magic != message.MagicV2:
		return damaged("%w: magic code %08x", message.ErrCorrupt, magic)
	case size <= headSize || size > room:
		return damaged("%w: size %d, room for %d", message.ErrCorrupt, size, room)
	case len(b) < headSize:
		return finding{kind: isCut, size: headSize}
	}
	if own := offset.Physical(binary.BigEndian.Uint64(b[message.PosPhysicalOffset:])); own != pos {
		return damaged("%w: says that it stands at %d", message.ErrCorrupt, own)
	}
	if int64(len(b)) < size {
		return finding{kind: isCut, size: size}
	}
	r, err := message.Parse(b[:size])
	if err == nil {
		err = r.CheckBody()
	}
	if err == nil && (r.QueueID < 0 || uint64(r.QueueOffset) > maxIndex || !storableTopic(r.Topic)) {
		err = fmt.Errorf("%w: topic %q, queue %d, offset %d", message.ErrCorrupt, r.Topic, r.QueueID, r.QueueOffset)
	}
	if err == nil {
		props := int(size) - len(r.Properties)
		topic := props - 2 - len(r.Topic)
		at := int(pos - seg.From) // in the file
		if torn(b[topic:props-2], at+topic) || torn(b[props:size], at+props) {
			err = fmt.Errorf("%w: zeros in topic or properties", message.ErrCorrupt)
		}
	}
	if err != nil {
		return finding{kind: isDamaged, why: err}
	}
	return finding{kind: isRecord, size: size, record: r}
}

func damaged(format string, args ...any) finding {
	return finding{kind: isDamaged, why: fmt.Errorf(format, args...)}
}

// torn says whether a part of a text, which no checksum covers, never came to the disk: the end of it, when the process
// was killed in the midst of writing, or what is in one sector, when the power was cut. Texts don't hold zero bytes;
// one within a sector is let pass all the same. at is the text's place in the file.
func torn(text []byte, at int) bool {
	if n := len(text); n > 0 && text[n-1] == 0 {
		return true
	}
	for len(text) > 0 {
		n := min(len(text), sector-at%sector)
		if allZero(text[:n]) {
			return true
		}
		text, at = text[n:], at+n
	}
	return false
}

func allZero(b []byte) bool {
	for len(b) >= 8 {
		if b[0]|b[1]|b[2]|b[3]|b[4]|b[5]|b[6]|b[7] != 0 {
			return false
		}
		b = b[8:]
	}
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
