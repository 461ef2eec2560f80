package protocol

import (
	"fmt"
	"math"
)

// This file reads the JSON header of a frame, by what jsonscan.go finds.

// decodeJSON reads a JSON header. Of keys that come twice the last counts; unknown ones are passed over.
func decodeJSON(c *Command, x *FieldIndex, h []byte) error {
	x.opaqueAt(0, 0)
	i, err := openObject(h, skipSpace(h, 0))
	if err != nil {
		return err
	}
	for {
		if i = skipSpace(h, i); i < len(h) && h[i] == '}' {
			break
		}
		if next, err := decodeUsual(c, x, h, i); err != nil {
			return err
		} else if next > 0 {
			i = next
			continue
		}
		key, next, err := scanName(h, i)
		if err != nil {
			return err
		}
		if string(key.text) == "extFields" {
			next, err = decodeFields(c, x, h, next)
		} else {
			next, err = decodeMember(c, x, key, h, next)
		}
		if err != nil {
			return err
		}
		if i, err = endMember(h, next); err != nil {
			return err
		}
	}
	if i = skipSpace(h, i+1); i != len(h) {
		return fmt.Errorf("%w: JSON header ends at %d of %d", ErrFrame, i, len(h))
	}
	return nil
}

// decodeUsual reads a member with the comma behind it as Java, Go and our own clients write them. It returns 0 when there is
// something else.
func decodeUsual(c *Command, x *FieldIndex, h []byte, i int) (next int, err error) {
	const language, fields, encoding = `"language":"`, `"extFields":`, `"serializeTypeCurrentRPC":"JSON"`
	if i+len(encoding) > len(h) { // the longest; a header is longer behind all but the last
		return decodeNumber(c, x, h, i), nil
	}
	switch h[i+1] {
	case 'e':
		if string(h[i:i+len(fields)]) != fields {
			return 0, nil
		}
		if next, err = decodeFields(c, x, h, i+len(fields)); err != nil {
			return 0, err
		}
		return endMember(h, next)
	case 'l':
		if string(h[i:i+len(language)]) != language {
			return 0, nil
		}
		start := i + len(language)
		if next = skipShortText(h, start); next > 0 && h[next] == ',' {
			c.Language = languageOf(h[start : next-1])
			return next + 1, nil
		}
		return 0, nil
	case 's':
		if next = i + len(encoding); next < len(h) && h[next] == ',' && string(h[i:next]) == encoding {
			return next + 1, nil
		}
		return 0, nil
	default:
		return decodeNumber(c, x, h, i), nil
	}
}

// decodeNumber is decodeUsual for numbers.
func decodeNumber(c *Command, x *FieldIndex, h []byte, i int) (next int) {
	if i+2 >= len(h) {
		return 0
	}
	var key string
	var p *int32
	switch h[i+1] {
	case 'c':
		key, p = `"code":`, &c.Code
	case 'f':
		key, p = `"flag":`, &c.Flag
	case 'o':
		key, p = `"opaque":`, &c.Opaque
	case 'v':
		key, p = `"version":`, &c.Version
	default:
		return 0
	}
	if len(h)-i < len(key) || string(h[i:i+len(key)]) != key {
		return 0
	}
	start := i + len(key)
	n := uint64(0)
	for i = start; i < len(h) && h[i]-'0' <= 9; i++ {
		n = n*10 + uint64(h[i]-'0')
	}
	if i == start || i-start > 10 || n > math.MaxInt32 || i >= len(h) {
		return 0
	}
	end := i
	if h[i] == ',' {
		i++
	} else if h[i] != '}' {
		return 0
	}
	*p = int32(n)
	if p == &c.Opaque {
		x.opaqueAt(start, end)
	}
	return i
}

// decodeMember reads the value at h[i] of any key but extFields.
func decodeMember(c *Command, x *FieldIndex, key token, h []byte, i int) (next int, err error) {
	value, next, ok := scanValue(h, i, 1)
	if !ok {
		return 0, valueExpected(i)
	}
	switch string(key.text) {
	case "code":
		err = headerInt(&c.Code, key, value)
	case "version":
		err = headerInt(&c.Version, key, value)
	case "opaque":
		x.opaqueAt(0, 0)
		err = headerInt(&c.Opaque, key, value)
	case "flag":
		err = headerInt(&c.Flag, key, value)
	case "language":
		if value.kind != kindNull {
			c.Language = languageOf(value.text)
		}
	case "remark":
		err = headerText(&c.Remark, value)
	}
	return next, err
}

// decodeFields reads the value at h[i] of extFields.
func decodeFields(c *Command, x *FieldIndex, h []byte, i int) (next int, err error) {
	c.Fields = Fields{}
	if i >= len(h) || h[i] != '{' {
		value, next, ok := scanValue(h, i, 1)
		switch {
		case !ok:
			return 0, valueExpected(i)
		case value.kind != kindNull:
			return 0, fmt.Errorf("%w: extFields is no object", ErrFrame)
		}
		return next, nil
	}
	x.reset()
	if next, err = skipMembers(h, i, 1, x); err == nil {
		c.Fields = Fields{raw: h[i:next], index: x, codec: JSON, present: true}
	}
	return next, err
}

func headerInt(p *int32, key, value token) error {
	if value.kind == kindNull {
		return nil
	}
	n, ok := atoi(value.text)
	if !ok || n < math.MinInt32 || n > math.MaxInt32 || value.kind != kindNumber && value.kind != kindString {
		return fmt.Errorf("%w: %s in the JSON header is no number", ErrFrame, key.text)
	}
	*p = int32(n)
	return nil
}

func headerText(p *string, value token) error {
	*p = ""
	if value.kind == kindNull {
		return nil
	}
	if !value.escaped {
		*p = string(value.text)
		return nil
	}
	text, ok := unescape(nil, value.text)
	if !ok {
		return fmt.Errorf("%w: remark holds a bad escape", ErrFrame)
	}
	*p = string(text)
	return nil
}

func valueExpected(at int) error { return fmt.Errorf("%w: JSON value expected at %d", ErrFrame, at) }
