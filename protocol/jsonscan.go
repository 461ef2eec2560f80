package protocol

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"
)

// This file reads JSON as the Java peers' readers do: keys in any order, quoted by ' or " or not at all, a comma before
// the closing bracket, control characters inside strings. It works on positions in the bytes, and copies nothing.

// token is a value inside JSON text. For a string, text is what stands between the quotes, escapes and all.
type token struct {
	text    []byte
	kind    byte // one of the kinds below
	escaped bool // text holds a backslash
}

const (
	kindString  = '"'
	kindNumber  = '0'
	kindLiteral = 't' // true and false
	kindNull    = 'n'
	kindObject  = '{'
	kindArray   = '['
)

// decodeJSON reads a JSON header. Of keys that come twice the last counts; unknown ones are passed over.
func decodeJSON(c *Command, h []byte) error {
	end, err := eachMember(h, skipSpace(h, 0), 0, func(key, value token) error {
		switch string(key.text) {
		case "code":
			return headerInt(&c.Code, key, value)
		case "version":
			return headerInt(&c.Version, key, value)
		case "opaque":
			return headerInt(&c.Opaque, key, value)
		case "flag":
			return headerInt(&c.Flag, key, value)
		case "language":
			if value.kind != kindNull {
				c.Language = languageOf(value.text)
			}
		case "remark":
			return headerText(&c.Remark, value)
		case "extFields":
			c.Fields = Fields{}
			switch value.kind {
			case kindNull:
			case kindObject:
				c.Fields = Fields{raw: value.text, codec: JSON, present: true}
			default:
				return fmt.Errorf("%w: extFields is no object", ErrFrame)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if end = skipSpace(h, end); end != len(h) {
		return fmt.Errorf("%w: JSON header ends at %d of %d", ErrFrame, end, len(h))
	}
	return nil
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

// eachMember reads the object that starts at b[i] and calls fn with each key and value. It returns the position behind
// the object. fn's error ends it.
func eachMember(b []byte, i, depth int, fn func(key, value token) error) (int, error) {
	if i >= len(b) || b[i] != '{' {
		return 0, fmt.Errorf("%w: JSON object expected at %d", ErrFrame, i)
	}
	i++
	for {
		i = skipSpace(b, i)
		if i < len(b) && b[i] == '}' {
			return i + 1, nil
		}
		key, value, next, err := scanMember(b, i, depth)
		if err != nil {
			return 0, err
		}
		if err := fn(key, value); err != nil {
			return 0, err
		}
		if i = skipSpace(b, next); i < len(b) && b[i] == ',' {
			i++
		} else if i >= len(b) || b[i] != '}' {
			return 0, fmt.Errorf("%w: JSON comma or brace expected at %d", ErrFrame, i)
		}
	}
}

// skipMembers is eachMember with nothing to call. What the headers of sends and pulls are full of, texts in double
// quotes without spaces between them, it passes over by looking for quotes alone.
func skipMembers(b []byte, i, depth int) (int, error) {
	if i >= len(b) || b[i] != '{' {
		return 0, fmt.Errorf("%w: JSON object expected at %d", ErrFrame, i)
	}
	i++
	for {
		i = skipSpace(b, i)
		if i < len(b) && b[i] == '}' {
			return i + 1, nil
		}
		next, ok := skipTexts(b, i)
		if !ok {
			var err error
			if _, _, next, err = scanMember(b, i, depth); err != nil {
				return 0, err
			}
		}
		if i = skipSpace(b, next); i < len(b) && b[i] == ',' {
			i++
		} else if i >= len(b) || b[i] != '}' {
			return 0, fmt.Errorf("%w: JSON comma or brace expected at %d", ErrFrame, i)
		}
	}
}

// skipTexts returns the position behind "key":"value"; not ok: what stands at b[i] is something else.
func skipTexts(b []byte, i int) (next int, ok bool) {
	if i >= len(b) || b[i] != '"' {
		return i, false
	}
	if i, _, ok = endOfString(b, i); !ok || i+1 >= len(b) || b[i] != ':' || b[i+1] != '"' {
		return i, false
	}
	i, _, ok = endOfString(b, i+1)
	return i, ok
}

// scanMember reads the key and the value that start at b[i].
func scanMember(b []byte, i, depth int) (key, value token, next int, err error) {
	key, next, ok := scanKey(b, i)
	if i = skipSpace(b, next); !ok || i >= len(b) || b[i] != ':' {
		return key, value, next, fmt.Errorf("%w: JSON key expected at %d", ErrFrame, i)
	}
	if value, next, ok = scanValue(b, skipSpace(b, i+1), depth+1); !ok {
		return key, value, next, fmt.Errorf("%w: JSON value expected at %d", ErrFrame, i+1)
	}
	return key, value, next, nil
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && b[i] <= ' ' && (b[i] == ' ' || b[i] == '\n' || b[i] == '\r' || b[i] == '\t') {
		i++
	}
	return i
}

func scanKey(b []byte, i int) (token, int, bool) {
	if i < len(b) && (b[i] == '"' || b[i] == '\'') {
		return scanString(b, i)
	}
	start := i
	for i < len(b) && isWord(b[i]) {
		i++
	}
	return token{text: b[start:i], kind: kindString}, i, i > start
}

// isWord says whether c may stand in a key without quotes.
func isWord(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || c == '$' || c == '-'
}

// scanValue reads the value at b[i], which is at the given depth, and returns the position behind it.
func scanValue(b []byte, i, depth int) (token, int, bool) {
	if i >= len(b) {
		return token{}, i, false
	}
	switch c := b[i]; {
	case c == '"' || c == '\'':
		return scanString(b, i)
	case c == '{' || c == '[':
		end, ok := skipNested(b, i, depth)
		return token{text: b[i:end], kind: c}, end, ok
	case c == '-' || c == '+' || c >= '0' && c <= '9':
		end := i + 1
		for end < len(b) && (isWord(b[end]) || b[end] == '.' || b[end] == '+') {
			end++
		}
		return token{text: b[i:end], kind: kindNumber}, end, true
	default:
		end := i
		for end < len(b) && b[end] >= 'a' && b[end] <= 'z' {
			end++
		}
		switch string(b[i:end]) {
		case "true", "false":
			return token{text: b[i:end], kind: kindLiteral}, end, true
		case "null":
			return token{text: b[i:end], kind: kindNull}, end, true
		}
		return token{}, i, false
	}
}

// scanString reads the string at b[i], which is a quote.
func scanString(b []byte, i int) (token, int, bool) {
	end, escaped, ok := endOfString(b, i)
	if !ok {
		return token{}, end, false
	}
	return token{text: b[i+1 : end-1], kind: kindString, escaped: escaped}, end, true
}

// endOfString returns the position behind the string whose quote is b[i], and whether it holds a backslash. It looks at
// eight bytes at a time.
func endOfString(b []byte, i int) (end int, escaped, ok bool) {
	const (
		ones    = 0x0101010101010101
		highs   = 0x8080808080808080
		slashes = ones * '\\'
	)
	quote := b[i]
	quotes := ones * uint64(quote)
	for i++; i+8 <= len(b); {
		w := binary.LittleEndian.Uint64(b[i:])
		q, s := w^quotes, w^slashes
		found := ((q-ones)&^q | (s-ones)&^s) & highs // the lowest bit set is that of the first quote or backslash
		if found == 0 {
			i += 8
			continue
		}
		if i += bits.TrailingZeros64(found) / 8; b[i] == quote {
			return i + 1, escaped, true
		}
		escaped = true
		i += 2 // a backslash takes the character behind it away, which may be a quote
	}
	for ; i < len(b); i++ {
		switch b[i] {
		case quote:
			return i + 1, escaped, true
		case '\\':
			escaped = true
			i++
		}
	}
	return i, escaped, false
}

// skipNested returns the position behind the object or array at b[i].
func skipNested(b []byte, i, depth int) (int, bool) {
	if depth > maxHeaderDepth {
		return i, false
	}
	if b[i] == '{' {
		end, err := skipMembers(b, i, depth)
		return max(end, i), err == nil
	}
	i++
	for {
		i = skipSpace(b, i)
		if i < len(b) && b[i] == ']' {
			return i + 1, true
		}
		_, next, ok := scanValue(b, i, depth+1)
		if !ok {
			return i, false
		}
		if i = skipSpace(b, next); i < len(b) && b[i] == ',' {
			i++
		} else if i >= len(b) || b[i] != ']' {
			return i, false
		}
	}
}

// unescape appends what the text of a JSON string stands for. Half a surrogate pair becomes U+FFFD.
func unescape(dst, s []byte) ([]byte, bool) {
	for {
		n := bytes.IndexByte(s, '\\')
		if n < 0 {
			return append(dst, s...), true
		}
		if dst, s = append(dst, s[:n]...), s[n+1:]; len(s) == 0 {
			return dst, false
		}
		c := s[0]
		s = s[1:]
		switch c {
		case 'b':
			c = '\b'
		case 'f':
			c = '\f'
		case 'n':
			c = '\n'
		case 'r':
			c = '\r'
		case 't':
			c = '\t'
		case '"', '\'', '\\', '/':
		case 'u':
			r, ok := hex4(s)
			if !ok {
				return dst, false
			}
			s = s[4:]
			if utf16.IsSurrogate(r) {
				low, ok := rune(0), false
				if len(s) > 2 && s[0] == '\\' && s[1] == 'u' {
					low, ok = hex4(s[2:])
				}
				if r = utf16.DecodeRune(r, low); ok && r != utf8.RuneError {
					s = s[6:]
				}
			}
			dst = utf8.AppendRune(dst, r)
			continue
		default:
			return dst, false
		}
		dst = append(dst, c)
	}
}

func hex4(s []byte) (rune, bool) {
	if len(s) < 4 {
		return 0, false
	}
	var r rune
	for _, c := range s[:4] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// atoi is strconv.ParseInt for bytes, base 10, with Java's optional plus sign.
func atoi(s []byte) (int64, bool) {
	negative := false
	if len(s) > 0 && (s[0] == '-' || s[0] == '+') {
		negative = s[0] == '-'
		s = s[1:]
	}
	if len(s) == 0 || len(s) > 19 {
		return 0, false
	}
	var n uint64
	for _, c := range s {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + uint64(c-'0')
	}
	switch {
	case negative && n <= -math.MinInt64:
		return -int64(n), true
	case !negative && n <= math.MaxInt64:
		return int64(n), true
	}
	return 0, false
}
