package protocol

import (
	"errors"
	"fmt"
)

// ErrJSON is what a body that can't be read fails with.
var ErrJSON = errors.New("JSON body is malformed")

// maxBodyDepth is how deep the brackets of a body may be nested; real ones stay under ten.
const maxBodyDepth = 256

// strictJSON turns JSON as Java peers write it into JSON as the standard has it. Text that is that already, by far the
// most, comes back as it is. An object that is a key becomes a string that holds the object.
func strictJSON(in []byte) ([]byte, error) {
	r := rewriter{in: in}
	if r.space(); !r.value(0) {
		return nil, fmt.Errorf("%w at byte %d of %d", ErrJSON, r.pos, len(in))
	}
	if r.space(); r.pos != len(in) {
		return nil, fmt.Errorf("%w: ends at byte %d of %d", ErrJSON, r.pos, len(in))
	}
	if r.mark == 0 && r.out == nil {
		return in, nil
	}
	return append(r.out, in[r.mark:]...), nil
}

// rewriter walks over text, collecting it with corrections. Its methods return whether the text can be understood.
type rewriter struct {
	in    []byte
	pos   int
	out   []byte // the text before mark, corrected
	mark  int
	inKey bool // an object as key of an object that is a key would be quoted twice, four, eight … times
}

// put replaces in[from:to], which nothing behind has been replaced of yet, by text.
func (r *rewriter) put(from, to int, text ...byte) {
	r.out = append(append(r.out, r.in[r.mark:from]...), text...)
	r.mark = to
}

func (r *rewriter) space() { r.pos = skipSpace(r.in, r.pos) }

// next skips white space and returns the next byte, 0 at the end.
func (r *rewriter) next() byte {
	r.space()
	if r.pos < len(r.in) {
		return r.in[r.pos]
	}
	return 0
}

func (r *rewriter) value(depth int) bool {
	if depth > maxBodyDepth || r.pos >= len(r.in) {
		return false
	}
	switch c := r.in[r.pos]; {
	case c == '"' || c == '\'':
		return r.string(c)
	case c == '{':
		return r.list(depth, '}')
	case c == '[':
		return r.list(depth, ']')
	case c == '-' || c == '+' || c >= '0' && c <= '9':
		return r.number()
	}
	switch string(r.word()) {
	case "true", "false", "null":
		return true
	}
	return false
}

// list reads an object or array up to its closing bracket.
func (r *rewriter) list(depth int, closing byte) bool {
	r.pos++
	comma := -1
	for {
		switch r.next() {
		case closing:
			if comma >= 0 {
				r.put(comma, comma+1)
			}
			r.pos++
			return true
		case 0:
			return false
		}
		if closing == '}' {
			if !r.key(depth) || r.next() != ':' {
				return false
			}
			r.pos++
			r.space()
		}
		if !r.value(depth + 1) {
			return false
		}
		switch r.next() {
		case ',':
			comma = r.pos
			r.pos++
		case closing:
			comma = -1
		default:
			return false
		}
	}
}

func (r *rewriter) key(depth int) bool {
	start := r.pos
	switch c := r.in[start]; c {
	case '"', '\'':
		return r.string(c)
	case '{', '[':
		if r.inKey {
			return false
		}
		inner := rewriter{in: r.in, pos: start, mark: start, inKey: true}
		if !inner.value(depth + 1) {
			r.pos = inner.pos
			return false
		}
		text := append(inner.out, r.in[inner.mark:inner.pos]...)
		r.put(start, inner.pos, appendQuoted(nil, text)...)
		r.pos = inner.pos
		return true
	}
	word := r.word()
	if len(word) == 0 {
		return false
	}
	r.put(start, r.pos, appendQuoted(nil, word)...)
	return true
}

func (r *rewriter) word() []byte {
	start := r.pos
	for r.pos < len(r.in) && isWord(r.in[r.pos]) {
		r.pos++
	}
	return r.in[start:r.pos]
}

// string reads a string in the given quotes and leaves it in double ones.
func (r *rewriter) string(quote byte) bool {
	if quote == '\'' {
		r.put(r.pos, r.pos+1, '"')
	}
	for r.pos++; r.pos < len(r.in); r.pos++ {
		switch c := r.in[r.pos]; {
		case c == quote:
			if quote == '\'' {
				r.put(r.pos, r.pos+1, '"')
			}
			r.pos++
			return true
		case c == '"':
			r.put(r.pos, r.pos+1, '\\', '"')
		case c == '\\':
			if r.pos++; !r.escape() {
				return false
			}
		case c < ' ':
			const hex = "0123456789abcdef"
			r.put(r.pos, r.pos+1, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	return false
}

// escape reads what follows a backslash, all but its last byte.
func (r *rewriter) escape() bool {
	if r.pos >= len(r.in) {
		return false
	}
	switch r.in[r.pos] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return true
	case '\'':
		r.put(r.pos-1, r.pos+1, '\'')
		return true
	case 'u':
		_, ok := hex4(r.in[r.pos+1:])
		r.pos += 4
		return ok
	}
	return false
}

func (r *rewriter) number() bool {
	switch r.in[r.pos] {
	case '+':
		r.put(r.pos, r.pos+1)
		r.pos++
	case '-':
		r.pos++
	}
	start := r.pos
	n := r.digits()
	if n == 0 || n > 1 && r.in[start] == '0' {
		return false
	}
	if r.pos < len(r.in) && r.in[r.pos] == '.' {
		if r.pos++; r.digits() == 0 {
			return false
		}
	}
	if r.pos < len(r.in) && r.in[r.pos]|0x20 == 'e' {
		if r.pos++; r.pos < len(r.in) && (r.in[r.pos] == '+' || r.in[r.pos] == '-') {
			r.pos++
		}
		return r.digits() > 0
	}
	return true
}

func (r *rewriter) digits() int {
	start := r.pos
	for r.pos < len(r.in) && r.in[r.pos] >= '0' && r.in[r.pos] <= '9' {
		r.pos++
	}
	return r.pos - start
}
