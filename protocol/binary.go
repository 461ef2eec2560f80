package protocol

import (
	"encoding/binary"
	"fmt"
)

// The binary header:
//
//	int16 code, int8 language, int16 version, int32 opaque, int32 flag,
//	int32 length and remark,
//	int32 length of the fields: each int16 length and key, int32 length and value
//
// A length of 0 stands for null.

func decodeBinary(c *Command, x *FieldIndex, h []byte) error {
	be := binary.BigEndian
	c.Code = int32(int16(be.Uint16(h)))
	c.Language = languageNumber(int64(int8(h[2])))
	c.Version = int32(int16(be.Uint16(h[3:])))
	c.Opaque = int32(be.Uint32(h[5:]))
	c.Flag = int32(be.Uint32(h[9:]))
	remark, rest, ok := cut32(h[13:])
	if !ok {
		return fmt.Errorf("%w: cut in the remark", ErrFrame)
	}
	c.Remark = string(remark)
	fields, _, ok := cut32(rest)
	if !ok {
		return fmt.Errorf("%w: cut in the fields", ErrFrame)
	}
	if len(fields) == 0 {
		return nil
	}
	x.reset()
	c.Fields = Fields{raw: fields, index: x, codec: Binary, present: true}
	for at := 0; at < len(fields); {
		key, value, end := nextField(fields, at)
		if end < 0 {
			return fmt.Errorf("%w: fields cut in one of them", ErrFrame)
		}
		if at = end; value-key > 4 && end > value { // the length of either is not 0
			x.add(key, value-4, value, end, false)
		}
	}
	return nil
}

// nextField finds the field at b[at]: where its key starts, its value, which is behind the key and four more bytes, and
// the field behind it, -1 if it is cut off. What is read is cut at both ends: a slice without an end costs more to make.
func nextField(b []byte, at int) (key, value, end int) {
	if key = at + 2; key > len(b) {
		return 0, 0, -1
	}
	if value = key + int(int16(binary.BigEndian.Uint16(b[at:key:key]))) + 4; value < key+4 || value > len(b) {
		return 0, 0, -1
	}
	if end = value + int(int32(binary.BigEndian.Uint32(b[value-4:value:value]))); end < value || end > len(b) {
		return 0, 0, -1
	}
	return key, value, end
}

// cut32 splits b behind an int32 length and the bytes that it counts.
func cut32(b []byte) (part, rest []byte, ok bool) {
	if len(b) < 4 {
		return nil, nil, false
	}
	n := int32(binary.BigEndian.Uint32(b))
	if n < 0 || int(n) > len(b)-4 {
		return nil, nil, false
	}
	return b[4 : 4+n : 4+n], b[4+n:], true
}
