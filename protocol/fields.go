package protocol

import (
	"encoding/binary"
	"math/bits"
	"strconv"
	"sync"
	"sync/atomic"
	"unsafe"
)

// Fields are the named texts of a command, its extFields, as they stand in the frame. The zero value has none.
type Fields struct {
	raw     []byte      // JSON: an object, checked by Decode. Binary: the block of fields
	index   *FieldIndex // of raw; nil if there is none
	codec   Codec
	present bool
}

// Present says whether there was a set of fields, empty or not.
func (f Fields) Present() bool { return f.present }

// Each calls fn with every field in the order of the frame, names that come twice included, until fn fails. Numbers and
// booleans come as their text, null values not at all. key and value are valid during the call only.
func (f Fields) Each(fn func(key, value []byte) error) error {
	switch {
	case len(f.raw) == 0:
		return nil
	case f.index.complete():
		return f.index.each(f.raw, 0, fn)
	case f.codec == JSON:
		return f.eachJSON(fn)
	}
	for at := 0; at < len(f.raw); {
		key, value, end := nextField(f.raw, at)
		if end < 0 {
			return ErrFrame
		}
		at = end
		name, text := f.raw[key:value-4:value-4], f.raw[value:end:end]
		if len(name) == 0 || len(text) == 0 {
			continue // both are null to Java
		}
		if err := fn(name, text); err != nil {
			return err
		}
	}
	return nil
}

// scratch holds buffers for texts with escapes: the properties of every JSON send have some.
var scratch = sync.Pool{New: func() any { return new([]byte) }}

const maxScratch = 64 << 10

func (f Fields) eachJSON(fn func(key, value []byte) error) error {
	buf := scratch.Get().(*[]byte)
	defer giveScratch(buf)
	_, err := eachMember(f.raw, 0, 0, func(key, value token) error {
		if value.kind == kindNull {
			return nil
		}
		if !key.escaped && !value.escaped {
			return fn(key.text, value.text)
		}
		return withoutEscapes(buf, key, value, fn)
	})
	return err
}

func giveScratch(buf *[]byte) {
	if cap(*buf) <= maxScratch {
		scratch.Put(buf)
	}
}

// withoutEscapes calls fn with what key and value stand for, which it writes to buf.
func withoutEscapes(buf *[]byte, key, value token, fn func(key, value []byte) error) error {
	b, ok := unescapeToken((*buf)[:0], key)
	n := len(b)
	if ok {
		b, ok = unescapeToken(b, value)
	}
	if *buf = b; !ok {
		return &FieldError{Field: string(key.text), Reason: "is no JSON string: bad escape"}
	}
	return fn(b[:n:n], b[n:])
}

func unescapeToken(dst []byte, t token) ([]byte, bool) {
	if t.kind != kindString || !t.escaped {
		return append(dst, t.text...), true
	}
	return unescape(dst, t.text)
}

// Get is one field's text; of several with the same name the last counts.
func (f Fields) Get(key string) (string, bool) {
	var text string
	found := false
	_ = f.Each(func(k, v []byte) error { // a field that can't be read is as good as none
		if string(k) == key {
			text, found = string(v), true
		}
		return nil
	})
	return text, found
}

// KV is a field of its own, beside those of a header.
type KV struct{ Key, Value string }

// Header is a set of fields with a meaning: the custom header of a request or its answer. headergen implements it for
// every struct marked //rmq:header.
type Header interface {
	// WriteFields adds the fields in the order that the binary header has in Java: required ones always, others unless
	// they are zero (or, of an Opt, not set).
	WriteFields(w *FieldWriter)
	// SetField takes one field. Unknown keys are ignored. It retains neither key nor value. An error is a *FieldError.
	SetField(key string, value []byte) error
	// Missing is the name of the first required field that is zero and that SetField did not get, "" if there is none. What
	// SetField got is forgotten then.
	Missing() string
}

// Opt is a field of which absent and zero mean different things.
type Opt[T any] struct {
	Value T
	Set   bool
}

// Some is a field that is set.
func Some[T any](v T) Opt[T] { return Opt[T]{Value: v, Set: true} }

// Or is the value, or absent if it is not set.
func (o Opt[T]) Or(absent T) T {
	if o.Set {
		return o.Value
	}
	return absent
}

// fieldSet has a bit for each required field of a header that came.
type fieldSet uint32

// FieldError says which field of a header cannot be used. Java peers see its text as remark.
type FieldError struct{ Field, Reason string }

func (e *FieldError) Error() string {
	if e.Reason == isMissing {
		return "field " + e.Field + " " + isMissing
	}
	return "field " + e.Field + ": " + e.Reason
}

const isMissing = "is missing"

// ReadHeader fills h, which should be zero, from the command's fields; texts are copied. It fails with a *FieldError if
// a field is malformed or a required one is missing. Afterwards h equals one that was built by hand.
func (c *Command) ReadHeader(h Header) error {
	err := c.Fields.Each(func(key, value []byte) error { return setField(h, key, value) })
	if err != nil {
		return err
	}
	if name := h.Missing(); name != "" {
		return &FieldError{Field: name, Reason: isMissing}
	}
	return nil
}

// ReadHeaderAfter is ReadHeader for an h that was filled from the fields of before: it takes those from the first on that
// differs. It says no, and leaves h alone, when not all have the same names in the same order, or when that can't be told
// without reading them.
func (c *Command) ReadHeaderAfter(before *Command, h Header) (ok bool, err error) {
	first := c.Fields.firstOther(&before.Fields)
	if first < 0 {
		return false, nil
	}
	err = c.Fields.index.each(c.Fields.raw, first, func(key, value []byte) error { return setField(h, key, value) })
	h.Missing() // it is not: what came then has come now
	return true, err
}

// firstOther is the first field that may differ from the one in its place in other; -1 if not all have the same names in
// the same order, or if that can't be told.
func (f *Fields) firstOther(other *Fields) int {
	x, y := f.index, other.index
	if !x.complete() || !y.complete() || x.n != y.n || f.codec != other.codec {
		return -1
	}
	if x.model != 0 && x.model == y.model {
		for others := x.differs | y.differs; others != 0; others &= others - 1 {
			i := bits.TrailingZeros16(others)
			p, q := &x.at[i], &y.at[i]
			if string(f.raw[p.value:p.valueEnd]) != string(other.raw[q.value:q.valueEnd]) {
				return i
			}
		}
		return x.n
	}
	n := min(len(f.raw), len(other.raw))
	d, first := firstDifference(f.raw[:n], other.raw[:n], 0), 0
	for first < x.n && int(x.at[first].valueEnd) < d {
		first++
	}
	for i := first; i < x.n; i++ {
		p, q := &x.at[i], &y.at[i]
		if string(f.raw[p.key:p.keyEnd]) != string(other.raw[q.key:q.keyEnd]) {
			return -1
		}
	}
	return first
}

func setField(h Header, key, value []byte) error {
	return h.SetField(unsafe.String(unsafe.SliceData(key), len(key)), value) // SetField does not retain the key
}

func setString(p *string, _ string, value []byte) error {
	*p = string(value)
	return nil
}

func setBytes(p *[]byte, _ string, value []byte) error {
	*p = append((*p)[:0], value...)
	return nil
}

// interned shares the texts of fields that repeat: groups, topics, brokers. A slot holds one text; what hashes to a
// slot that holds another replaces it, so that the memory is bounded whatever peers send.
var interned [4096]atomic.Pointer[string]

const maxInterned = 255

func setInterned(p *string, _ string, value []byte) error {
	if len(value) > maxInterned {
		*p = string(value)
		return nil
	}
	slot := &interned[slotOf(value)]
	if known := slot.Load(); known != nil && *known == string(value) {
		*p = *known
		return nil
	}
	text := string(value)
	slot.Store(&text)
	*p = text
	return nil
}

// slotOf is a hash of the ends of a text and its length: names differ there, and most have no more.
func slotOf(text []byte) uint64 {
	h := uint64(len(text)) * 0x9E3779B97F4A7C15
	if n := len(text); n >= 8 {
		h = (h ^ binary.LittleEndian.Uint64(text)) * 0xFF51AFD7ED558CCD
		h = (h ^ h>>32 ^ binary.LittleEndian.Uint64(text[n-8:])) * 0xC4CEB9FE1A85EC53
	} else {
		for _, c := range text {
			h = (h ^ uint64(c)) * 0xFF51AFD7ED558CCD
		}
	}
	return h >> 52 // 12 bits: 4096 slots
}

func setInt64(p *int64, name string, value []byte) error {
	n, ok := atoi(value)
	if !ok {
		return notNumber(name, value)
	}
	*p = n
	return nil
}

func setInt32(p *int32, name string, value []byte) error {
	n, ok := atoi(value)
	if !ok || int64(int32(n)) != n {
		return notNumber(name, value)
	}
	*p = int32(n)
	return nil
}

// setBool reads as Java does: true in any case is true, all else is false.
func setBool(p *bool, _ string, value []byte) error {
	*p = len(value) == 4 && value[0]|0x20 == 't' && value[1]|0x20 == 'r' && value[2]|0x20 == 'u' && value[3]|0x20 == 'e'
	return nil
}

func notNumber(name string, value []byte) error {
	const shown = 32
	text := strconv.Quote(string(value[:min(len(value), shown)]))
	if len(value) > shown {
		text += "…"
	}
	return &FieldError{Field: name, Reason: text + " is not a number"}
}

func setOptInt32(p *Opt[int32], name string, value []byte) error {
	p.Set = true
	return setInt32(&p.Value, name, value)
}

func setOptInt64(p *Opt[int64], name string, value []byte) error {
	p.Set = true
	return setInt64(&p.Value, name, value)
}

func setOptBool(p *Opt[bool], name string, value []byte) error {
	p.Set = true
	return setBool(&p.Value, name, value)
}
