package config

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Pair is one key of a .properties text, unescaped, with where it stood.
type Pair struct {
	Key, Value string
	Line       int // of the key, from 1; 0 when it did not come from a file

	keyEnd, valueStart, end int // where key and value end and start as written, in bytes of the parsed text
}

// Properties is a parsed .properties text: every pair in the order written, duplicates too.
type Properties []Pair

// SyntaxError says where a .properties text is malformed.
type SyntaxError struct {
	File   string
	Line   int
	Reason string
}

func (e *SyntaxError) Error() string { return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Reason) }

// Last returns the pair that counts for key: of several, the last one.
func (p Properties) Last(key string) (Pair, bool) {
	for i := len(p) - 1; i >= 0; i-- {
		if p[i].Key == key {
			return p[i], true
		}
	}
	return Pair{}, false
}

// Effective returns the pairs that count, in the order of their last appearance.
func (p Properties) Effective() []Pair {
	last := make(map[string]int, len(p))
	for i, pair := range p {
		last[pair.Key] = i
	}
	out := make([]Pair, 0, len(last))
	for i, pair := range p {
		if last[pair.Key] == i {
			out = append(out, pair)
		}
	}
	return out
}

// ParseProperties reads text by the rules of java.util.Properties: `key=value`, `key:value` or `key value`; lines that
// start with # or ! are comments; a line that ends in an odd number of backslashes goes on, less its leading white
// space, in the next one; \t \n \r \f and \uXXXX are escapes, and a backslash before anything else is dropped.
//
// Text that is not UTF-8 is taken for ISO 8859-1, which is what Java takes all of it for. file is for errors only; a
// malformed \u escape is the one error there is.
func ParseProperties(file string, text []byte) (Properties, error) {
	latin1 := !utf8.Valid(text)
	var out Properties
	for pos, line := 0, 1; pos < len(text); {
		l := logicalLineAt(text, pos)
		if !l.comment && l.start < l.end {
			p, err := parsePair(text, l, latin1)
			if err != "" {
				return nil, &SyntaxError{File: file, Line: line, Reason: err}
			}
			p.Line = line
			if p.Key != "" || p.Value != "" {
				out = append(out, p)
			}
		}
		line += countLines(text[pos:l.next])
		pos = l.next
	}
	return out, nil
}

// logicalLine is one line of the text together with the lines that continue it.
type logicalLine struct {
	start, end int // without leading white space and the last terminator
	next       int // where the following line starts
	comment    bool
}

func logicalLineAt(text []byte, pos int) logicalLine {
	l := logicalLine{start: skipBlank(text, pos)}
	if l.start < len(text) && (text[l.start] == '#' || text[l.start] == '!') {
		l.comment = true
	}
	i := l.start
	for i < len(text) {
		switch c := text[i]; {
		case c == '\r' || c == '\n':
			l.end, l.next = i, afterTerminator(text, i)
			return l
		case c == '\\' && !l.comment && i+1 < len(text):
			if n := text[i+1]; n == '\r' || n == '\n' {
				i = afterTerminator(text, i+1)
				continue
			}
			i += 2
		case c == '\\' && !l.comment: // the text's very last byte: it escapes nothing
			l.end, l.next = i, len(text)
			return l
		default:
			i++
		}
	}
	l.end, l.next = len(text), len(text)
	return l
}

func afterTerminator(text []byte, i int) int {
	if text[i] == '\r' && i+1 < len(text) && text[i+1] == '\n' {
		return i + 2
	}
	return i + 1
}

func skipBlank(text []byte, i int) int {
	for i < len(text) && (text[i] == ' ' || text[i] == '\t' || text[i] == '\f') {
		i++
	}
	return i
}

func countLines(text []byte) int {
	n := 0
	for i := 0; i < len(text); i++ {
		if text[i] == '\n' || text[i] == '\r' && (i+1 == len(text) || text[i+1] != '\n') {
			n++
		}
	}
	return n
}

func parsePair(text []byte, l logicalLine, latin1 bool) (Pair, string) {
	keyEnd := l.start
	for keyEnd < l.end {
		c := text[keyEnd]
		if c == '=' || c == ':' || c == ' ' || c == '\t' || c == '\f' {
			break
		}
		keyEnd++
		if c != '\\' || keyEnd == l.end {
			continue
		}
		if text[keyEnd] == '\r' || text[keyEnd] == '\n' {
			keyEnd = min(skipBlank(text, afterTerminator(text, keyEnd)), l.end)
		} else {
			keyEnd++
		}
	}
	valueStart := skipJoined(text, keyEnd, l.end)
	if valueStart < l.end && (text[valueStart] == '=' || text[valueStart] == ':') {
		valueStart = skipJoined(text, valueStart+1, l.end)
	}
	key, err := unescape(text[l.start:keyEnd], latin1)
	if err != "" {
		return Pair{}, err
	}
	value, err := unescape(text[valueStart:l.end], latin1)
	if err != "" {
		return Pair{}, err
	}
	return Pair{Key: key, Value: value, keyEnd: keyEnd, valueStart: valueStart, end: l.end}, ""
}

// skipJoined skips white space, and line continuations between it, as if the lines were one.
func skipJoined(text []byte, i, end int) int {
	for {
		i = min(skipBlank(text, i), end)
		if i+1 >= end || text[i] != '\\' || text[i+1] != '\r' && text[i+1] != '\n' {
			return i
		}
		i = afterTerminator(text, i+1)
	}
}

func unescape(raw []byte, latin1 bool) (text string, malformed string) {
	var b strings.Builder
	b.Grow(len(raw))
	for i := 0; i < len(raw); {
		c := raw[i]
		if c != '\\' {
			if latin1 && c >= utf8.RuneSelf {
				b.WriteRune(rune(c))
			} else {
				b.WriteByte(c)
			}
			i++
			continue
		}
		i++
		if i == len(raw) {
			break // a backslash at the very end of the text stands for nothing
		}
		c = raw[i]
		switch c {
		case '\r', '\n':
			i = skipBlank(raw, afterTerminator(raw, i))
			continue
		case 'u':
			r, n := unicodeEscape(raw[i-1:])
			if n == 0 {
				return "", `\u is not followed by four hex digits`
			}
			b.WriteRune(r)
			i += n - 1
			continue
		}
		if at := strings.IndexByte("tnrf", c); at >= 0 {
			c = "\t\n\r\f"[at]
		}
		if latin1 && c >= utf8.RuneSelf {
			b.WriteRune(rune(c))
		} else {
			b.WriteByte(c)
		}
		i++
	}
	return b.String(), ""
}

// unicodeEscape reads \uXXXX, or two of them that make a surrogate pair, at the start of raw. n = 0: it is malformed.
func unicodeEscape(raw []byte) (r rune, n int) {
	r, ok := hexEscape(raw)
	if !ok {
		return 0, 0
	}
	if utf16.IsSurrogate(r) {
		if low, ok := hexEscape(raw[6:]); ok {
			if both := utf16.DecodeRune(r, low); both != utf8.RuneError {
				return both, 12
			}
		}
		return utf8.RuneError, 6
	}
	return r, 6
}

func hexEscape(raw []byte) (rune, bool) {
	if len(raw) < 6 || raw[0] != '\\' || raw[1] != 'u' {
		return 0, false
	}
	var r rune
	for _, c := range raw[2:6] {
		switch {
		case c >= '0' && c <= '9':
			r = r<<4 | rune(c-'0')
		case c >= 'a' && c <= 'f':
			r = r<<4 | rune(c-'a'+10)
		case c >= 'A' && c <= 'F':
			r = r<<4 | rune(c-'A'+10)
		default:
			return 0, false
		}
	}
	return r, true
}

// escape writes s so that ParseProperties, and Java, read it back; key escapes the separators as well. What is not
// ASCII becomes \uXXXX, since Java reads these files as ISO 8859-1.
func escape(s string, key bool) string {
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == '\\':
			b.WriteString(`\\`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\f':
			b.WriteString(`\f`)
		case strings.ContainsRune(" =:", r) && (key || i == 0):
			b.WriteByte('\\')
			b.WriteRune(r)
		case key && strings.ContainsRune("#!", r):
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < ' ' || r > '~':
			if hi, lo := utf16.EncodeRune(r); hi != utf8.RuneError {
				fmt.Fprintf(&b, `\u%04X\u%04X`, hi, lo)
			} else {
				fmt.Fprintf(&b, `\u%04X`, r)
			}
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// Edit returns text with key set to value. Only the value of the pair that counts is replaced, its continuation lines
// included; a key that is not there is added at the end. Every other byte, comments and line ends too, stays.
func Edit(text []byte, key, value string) ([]byte, error) {
	pairs, err := ParseProperties("", text)
	if err != nil {
		return nil, err
	}
	if old, ok := pairs.Last(key); ok {
		out := make([]byte, 0, len(text)+len(value))
		out = append(out, text[:old.valueStart]...)
		if old.keyEnd == old.valueStart { // a bare key, with no separator after it
			out = append(out, '=')
		}
		out = append(out, escape(value, false)...)
		return append(out, text[old.end:]...), nil
	}
	eol := "\n"
	if strings.Contains(string(text), "\r\n") {
		eol = "\r\n"
	}
	out := append([]byte(nil), text...)
	line := bytes.TrimSuffix(bytes.TrimSuffix(out, []byte("\n")), []byte("\r"))
	if len(line) == len(out) && len(out) > 0 {
		out = append(out, eol...)
	}
	if bytes.HasSuffix(line, []byte(`\`)) { // the last line waits for one that continues it: give it an empty one
		if out[len(out)-1] == '\r' {
			out = append(out, '\n')
		}
		out = append(out, eol...)
	}
	return append(out, escape(key, true)+"="+escape(value, false)+eol...), nil
}
