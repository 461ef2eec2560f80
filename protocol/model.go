package protocol

import (
	"encoding/binary"
	"math/bits"
	"sync/atomic"
)

// Models decodes frames of peers that send much the same again and again: a send differs from the one before in its
// opaque, time and properties. It keeps JSON headers that were decoded in full. Of one that is as long as a kept one it
// looks only at what differs, as long as that is the opaque or within the texts of fields.
//
// The zero value is ready. It is for one goroutine at a time.
type Models struct{ kept [16]model }

// maxModel bounds the headers that are kept.
const maxModel = 2 << 10

// model is a header, a copy, and what it was decoded to.
type model struct {
	header  []byte
	number  uint64  // none has had it before
	command Command // without fields and body
	index   FieldIndex
	from    int // where the fields stand in the header
	to      int
}

// Decode is Command.Decode.
func (m *Models) Decode(c *Command, frame []byte, x *FieldIndex) error { return c.decode(frame, x, m) }

// decodeJSON is the function of that name.
func (m *Models) decodeJSON(c *Command, x *FieldIndex, h []byte) error {
	if m == nil || x == nil || len(h) > maxModel {
		return decodeJSON(c, x, h)
	}
	one := &m.kept[len(h)%len(m.kept)]
	if one.fill(c, x, h) {
		return nil
	}
	err := decodeJSON(c, x, h)
	if err == nil && c.Fields.index == x && x.complete() {
		one.keep(c, x, h)
	}
	return err
}

var modelNumbers atomic.Uint64

// keep makes h, which was decoded to c and x, the model.
func (one *model) keep(c *Command, x *FieldIndex, h []byte) {
	one.header = append(one.header[:0], h...)
	one.number = modelNumbers.Add(1)
	x.model, x.differs = one.number, 0
	one.index = *x
	one.from = offsetIn(h, c.Fields.raw)
	one.to = one.from + len(c.Fields.raw)
	one.command = *c
	one.command.Fields = Fields{}
}

// fill decodes h if it would be decoded as the model was but for its opaque and for what is in the texts of its fields.
func (one *model) fill(c *Command, x *FieldIndex, h []byte) bool {
	opaque, differs, ok := one.compare(h)
	if !ok {
		return false
	}
	n := one.index.n
	x.n, x.escaped, x.opaque, x.opaqueEnd = n, one.index.escaped, one.index.opaque, one.index.opaqueEnd
	x.model, x.differs = one.number, differs
	copy(x.at[:n], one.index.at[:n])
	*c = one.command
	c.Opaque = opaque
	c.Fields = Fields{raw: h[one.from:one.to], index: x, codec: JSON, present: true}
	return true
}

// compare returns the opaque of a header like the model, and which fields differ. What is equal up to a text, and is again
// behind it, is read in the same way if the text ends where that of the model does.
func (one *model) compare(h []byte) (opaque int32, differs uint16, ok bool) {
	if len(h) != len(one.header) {
		return 0, 0, false
	}
	opaque = one.command.Opaque
	x, number := &one.index, 0
	for i := firstDifference(h, one.header, 0); i < len(h); {
		if i >= int(x.opaque) && i < int(x.opaqueEnd) {
			n, ok := atoi(h[x.opaque:x.opaqueEnd])
			if opaque = int32(n); !ok || n < 0 || int64(opaque) != n || h[x.opaque] == '+' {
				return 0, 0, false
			}
			i = firstDifference(h, one.header, int(x.opaqueEnd))
			continue
		}
		for number < x.n && one.from+int(x.at[number].valueEnd) <= i {
			number++
		}
		if number == x.n {
			return 0, 0, false
		}
		start, end := one.from+int(x.at[number].value), one.from+int(x.at[number].valueEnd)
		if i < start || h[start-1] != '"' {
			return 0, 0, false
		}
		behind, escaped, ok := endOfString(h, start-1)
		if !ok || behind != end+1 || escaped != (x.escaped&(2<<(2*number)) != 0) {
			return 0, 0, false
		}
		differs |= 1 << number
		i = firstDifference(h, one.header, end)
	}
	return opaque, differs, true
}

// firstDifference is the first place from i on where a and b, which are equally long, differ; their length if there is
// none.
func firstDifference(a, b []byte, i int) int {
	const piece = 64
	for len(a)-i >= piece && string(a[i:i+piece]) == string(b[i:i+piece]) {
		i += piece
	}
	for ; len(a)-i >= 8; i += 8 {
		if x := binary.LittleEndian.Uint64(a[i:]) ^ binary.LittleEndian.Uint64(b[i:]); x != 0 {
			return i + bits.TrailingZeros64(x)/8
		}
	}
	for i < len(a) && a[i] == b[i] {
		i++
	}
	return i
}
