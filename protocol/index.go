package protocol

import "math"

// FieldIndex remembers where the fields of a frame stand, so that the pass in which Decode checks them is the only one.
// It belongs to whoever owns the frame and lives as long: a Command that was decoded with an index refers to it. The zero
// value is ready, and may be used again for the next frame.
//
// Frames with more fields than it has room for, or a header too large for it, are read twice, as without.
type FieldIndex struct {
	n       int // of fields; more than there is room for: it is not complete
	escaped uint32
	at      [maxIndexed]fieldPlace

	opaque, opaqueEnd uint16 // where it stands in the header; 0: not known, or a binary one

	differs uint16 // has a bit for each field that may have another value than in the model
	model   uint64 // the number of the model that the header is like; 0: none
}

// maxIndexed is more than a send (13) or a pull (14) of a client has.
const maxIndexed = 16

// fieldPlace is where a field's key and value start and end. Keys and values with escapes have a bit in
// FieldIndex.escaped, at twice the field's number and one above.
type fieldPlace struct{ key, keyEnd, value, valueEnd uint16 }

func (x *FieldIndex) reset() {
	if x != nil {
		x.n, x.escaped, x.model = 0, 0, 0
	}
}

// opaqueAt is called when the opaque was read, with where it stands if that is known.
func (x *FieldIndex) opaqueAt(start, end int) {
	if x != nil && end <= math.MaxUint16 {
		x.opaque, x.opaqueEnd = uint16(start), uint16(end)
	}
}

// add is called for each field in the order of the frame.
func (x *FieldIndex) add(key, keyEnd, value, valueEnd int, escaped bool) {
	if x == nil {
		return
	}
	n := x.n
	if n >= maxIndexed || valueEnd > math.MaxUint16 {
		x.n = maxIndexed + 1
		return
	}
	x.at[n] = fieldPlace{uint16(key), uint16(keyEnd), uint16(value), uint16(valueEnd)}
	if escaped {
		x.escaped |= 2 << (2 * n)
	}
	x.n = n + 1
}

// addTokens is add for parts of an object.
func (x *FieldIndex) addTokens(object []byte, key, value token) {
	if x == nil || value.kind == kindNull {
		return
	}
	k, v := offsetIn(object, key.text), offsetIn(object, value.text)
	n := x.n
	x.add(k, k+len(key.text), v, v+len(value.text), value.escaped && value.kind == kindString)
	if key.escaped && x.n <= maxIndexed {
		x.escaped |= 1 << (2 * n)
	}
}

// offsetIn is where part, which is a part of whole, starts in it.
func offsetIn(whole, part []byte) int { return cap(whole) - cap(part) }

// complete says whether all fields are known.
func (x *FieldIndex) complete() bool { return x != nil && x.n <= maxIndexed }

// field is number i of the fields in raw, with its bits of escaped.
func (x *FieldIndex) field(raw []byte, i int) (key, value []byte, escaped uint32) {
	p := &x.at[i]
	return raw[p.key:p.keyEnd:p.keyEnd], raw[p.value:p.valueEnd:p.valueEnd], x.escaped >> (2 * i) & 3
}

// each is Fields.Each, without the first fields.
func (x *FieldIndex) each(raw []byte, first int, fn func(key, value []byte) error) error {
	for i := first; i < x.n; i++ {
		key, value, escaped := x.field(raw, i)
		var err error
		if escaped == 0 {
			err = fn(key, value)
		} else {
			err = eachEscaped(key, value, escaped, fn)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func eachEscaped(key, value []byte, escaped uint32, fn func(key, value []byte) error) error {
	buf := scratch.Get().(*[]byte)
	defer giveScratch(buf)
	return withoutEscapes(buf, token{text: key, kind: kindString, escaped: escaped&1 != 0},
		token{text: value, kind: kindString, escaped: escaped&2 != 0}, fn)
}
