package protocol

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"
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

// openObject returns the position behind the brace of the object that starts at b[i].
func openObject(b []byte, i int) (int, error) {
	if i >= len(b) || b[i] != '{' {
		return 0, fmt.Errorf("%w: JSON object expected at %d", ErrFrame, i)
	}
	return i + 1, nil
}

// endMember returns where the next member, or the closing brace, may stand when one ends before b[i].
func endMember(b []byte, i int) (int, error) {
	if i = skipSpace(b, i); i < len(b) && b[i] == ',' {
		return i + 1, nil
	}
	if i >= len(b) || b[i] != '}' {
		return 0, fmt.Errorf("%w: JSON comma or brace expected at %d", ErrFrame, i)
	}
	return i, nil
}

// eachMember reads the object that starts at b[i] and calls fn with each key and value. It returns the position behind
// the object. fn's error ends it.
func eachMember(b []byte, i, depth int, fn func(key, value token) error) (int, error) {
	i, err := openObject(b, i)
	if err != nil {
		return 0, err
	}
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
		if i, err = endMember(b, next); err != nil {
			return 0, err
		}
	}
}

// skipMembers is eachMember with nothing to call; x, if not nil, learns where keys and values stand. What the headers of
// sends and pulls are full of, texts in double quotes without spaces between them, it passes over by looking for quotes
// alone.
func skipMembers(b []byte, i, depth int, x *FieldIndex) (int, error) {
	object := i
	i, err := openObject(b, i)
	if err != nil {
		return 0, err
	}
	for {
		i = skipSpace(b, i)
		if i < len(b) && b[i] == '}' {
			return i + 1, nil
		}
		if end := skipShort(b, i); end > 0 {
			x.add(i+1-object, i+2-object, i+5-object, end-1-object, false)
			i = end
		} else if keyEnd, end, escaped := skipTexts(b, i); end > 0 {
			x.add(i+1-object, keyEnd-object, keyEnd+3-object, end-1-object, escaped)
			i = end
		} else {
			key, value, next, err := scanMember(b, i, depth)
			if err != nil {
				return 0, err
			}
			x.addTokens(b[object:], key, value)
			i = next
		}
		if i < len(b) && b[i] == ',' { // as endMember, which is no part of this loop for its speed
			i++
			continue
		}
		if i, err = endMember(b, i); err != nil {
			return 0, err
		}
	}
}

// skipShort returns the position behind a "k":"value" of one letter and less than eight bytes without a backslash, 0 if
// there is something else. That is most of a send.
func skipShort(b []byte, i int) int {
	const colon, others = '"' | '"'<<16 | ':'<<24 | '"'<<32, 0xFFFFFF00FF
	if i+13 > len(b) || binary.LittleEndian.Uint64(b[i:])&others != colon || b[i+1] == '"' || b[i+1] == '\\' {
		return 0
	}
	return skipShortText(b, i+5)
}

// skipShortText returns the position behind the quote that ends the text at b[i], 0 if it is not among the first eight bytes
// or behind a backslash.
func skipShortText(b []byte, i int) int {
	found := marksIn(binary.LittleEndian.Uint64(b[i:]), ones*'"')
	if end := i + bits.TrailingZeros64(found)/8; found != 0 && b[end] == '"' {
		return end + 1
	}
	return 0
}

// skipTexts passes over "key":"value" and returns where the key ends and the position behind it all. end is 0 when what
// stands at b[i] is something else, or a key with a backslash.
func skipTexts(b []byte, i int) (keyEnd, end int, escaped bool) {
	if i >= len(b) || b[i] != '"' {
		return 0, 0, false
	}
	next, escaped, ok := endOfString(b, i)
	if !ok || escaped || next+1 >= len(b) || b[next] != ':' || b[next+1] != '"' {
		return 0, 0, false
	}
	keyEnd = next - 1
	if next, escaped, ok = endOfString(b, next+1); !ok {
		return 0, 0, false
	}
	return keyEnd, next, escaped
}

// scanName reads the key that starts at b[i] and returns the position of its value.
func scanName(b []byte, i int) (key token, next int, err error) {
	key, next, ok := scanKey(b, i)
	if next = skipSpace(b, next); !ok || next >= len(b) || b[next] != ':' {
		return key, next, fmt.Errorf("%w: JSON key expected at %d", ErrFrame, next)
	}
	return key, skipSpace(b, next+1), nil
}

// scanMember reads the key and the value that start at b[i].
func scanMember(b []byte, i, depth int) (key, value token, next int, err error) {
	key, i, err = scanName(b, i)
	if err != nil {
		return key, value, i, err
	}
	value, next, ok := scanValue(b, i, depth+1)
	if !ok {
		err = valueExpected(i)
	}
	return key, value, next, err
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

// Bytes that are all the same.
const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// marksIn has the high bit of the first quote or backslash among the eight bytes of w set, and none below it.
func marksIn(w, quotes uint64) uint64 {
	q, s := w^quotes, w^ones*'\\'
	return ((q-ones)&^q | (s-ones)&^s) & highs
}

// endOfString returns the position behind the string whose quote is b[i], and whether it holds a backslash. It looks at
// eight bytes at a time; when there is a backslash there are more, as in properties, and only quotes are looked for.
func endOfString(b []byte, i int) (end int, escaped, ok bool) {
	quote := b[i]
	quotes := ones * uint64(quote)
	for i++; i+8 <= len(b); i += 8 {
		if found := marksIn(binary.LittleEndian.Uint64(b[i:]), quotes); found != 0 {
			i += bits.TrailingZeros64(found) / 8
			break
		}
	}
	for ; i < len(b); i++ {
		switch b[i] {
		case quote:
			return i + 1, false, true
		case '\\':
			end, ok = endOfEscaped(b, i, quote)
			return end, true, ok
		}
	}
	return i, false, false
}

// endOfEscaped is endOfString from the string's first backslash on.
func endOfEscaped(b []byte, first int, quote byte) (end int, ok bool) {
	for at := first; ; {
		n := bytes.IndexByte(b[at:], quote)
		if n < 0 {
			return len(b), false
		}
		at += n + 1
		slashes := at - 2
		for slashes >= first && b[slashes] == '\\' {
			slashes--
		}
		if (at-2-slashes)&1 == 0 { // they take one another away, not the quote
			return at, true
		}
	}
}

// skipNested returns the position behind the object or array at b[i].
func skipNested(b []byte, i, depth int) (int, bool) {
	if depth > maxHeaderDepth {
		return i, false
	}
	if b[i] == '{' {
		end, err := skipMembers(b, i, depth, nil)
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
	dst = slices.Grow(dst, len(s)+8) // it only becomes shorter; eight bytes are copied at a time, the last of which too many
	for {
		for len(s) >= 8 {
			w := binary.LittleEndian.Uint64(s)
			n := len(dst)
			binary.LittleEndian.PutUint64(dst[n:n+8], w)
			x := w ^ ones*'\\'
			if found := (x - ones) &^ x & highs; found != 0 {
				clean := bits.TrailingZeros64(found) / 8
				dst, s = dst[:n+clean], s[clean:]
				break
			}
			dst, s = dst[:n+8], s[8:]
		}
		if len(s) < 8 {
			n := bytes.IndexByte(s, '\\')
			if n < 0 {
				return append(dst, s...), true
			}
			dst, s = append(dst, s[:n]...), s[n:]
		}
		if len(s) < 2 {
			return dst, false
		}
		if len(s) >= 6 && s[1] == 'u' && s[2] == '0' && s[3] == '0' && s[4] == '0' && s[5]-'0' <= 9 {
			dst, s = append(dst, s[5]-'0'), s[6:] // what separates properties
			continue
		}
		var ok bool
		if dst, s, ok = unescapeOne(dst, s[1], s[2:]); !ok {
			return dst, false
		}
	}
}

// unescapeOne appends what a backslash and c stand for. s is what follows them; the rest of it comes back.
func unescapeOne(dst []byte, c byte, s []byte) (grown, rest []byte, ok bool) {
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
			return dst, s, false
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
		return utf8.AppendRune(dst, r), s, true
	default:
		return dst, s, false
	}
	return append(dst, c), s, true
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
