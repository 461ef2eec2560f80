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

func decodeBinary(c *Command, h []byte) error {
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
	c.Fields = Fields{raw: fields, codec: Binary, present: true}
	for len(fields) > 0 {
		if _, _, fields, ok = cutField(fields); !ok {
			return fmt.Errorf("%w: fields cut in one of them", ErrFrame)
		}
	}
	return nil
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

func cutField(b []byte) (key, value, rest []byte, ok bool) {
	if len(b) < 2 {
		return nil, nil, nil, false
	}
	n := int16(binary.BigEndian.Uint16(b))
	if n < 0 || int(n) > len(b)-2 {
		return nil, nil, nil, false
	}
	key, b = b[2:2+n:2+n], b[2+n:]
	value, rest, ok = cut32(b)
	return key, value, rest, ok
}
