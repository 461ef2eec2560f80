package message

import "encoding/binary"

// Keys are where in the properties of a message those stand by which it is found. Who reads the properties when the message
// is sent notes them, so that they need not be read again for its queue and for the index. They are zero where nobody has.
type Keys struct {
	unique, user, tags span
	noted              bool
	multi              bool // the message is in other queues, too
}

// span is a part of a properties text.
type span struct{ from, to int32 }

func (s span) of(props []byte) []byte { return props[s.from:s.to] }

// Begin makes k those of a text without properties; Note adds one.
func (k *Keys) Begin() { *k = Keys{noted: true} }

// Note takes in a property, as EachProperty gives it: name and value are parts of props. Of several with the same name the
// last counts.
func (k *Keys) Note(props, name, value []byte) {
	var at *span
	switch string(name) {
	case PropertyUniqueKey:
		at = &k.unique
	case PropertyKeys:
		at = &k.user
	case PropertyTags:
		at = &k.tags
	case PropertyMultiQueueOffset:
		k.multi = true
		return
	default:
		return
	}
	from := cap(props) - cap(value)
	*at = span{int32(from), int32(from + len(value))}
}

// Match says whether props differs from text, of which k was noted, in nothing but the values of UNIQ_KEY and KEYS, which are
// as long in both: then k is what would be noted of props, too. It may say no when they do.
func (k *Keys) Match(text, props []byte) bool {
	if len(text) != len(props) {
		return false
	}
	first, second := k.unique, k.user
	if first.from > second.from {
		first, second = second, first
	}
	return string(text[:first.from]) == string(props[:first.from]) &&
		string(text[first.to:second.from]) == string(props[first.to:second.from]) &&
		string(text[second.to:]) == string(props[second.to:]) &&
		isValue(first.of(props)) && isValue(second.of(props))
}

// isValue says that there is no separator in b; it may say no for other control characters. It looks at eight bytes at a
// time.
func isValue(b []byte) bool {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	for ; len(b) >= 8; b = b[8:] {
		if w := binary.LittleEndian.Uint64(b); (w-ones*(propertySeparator+1))&^w&highs != 0 {
			return false
		}
	}
	for _, c := range b {
		if c <= propertySeparator {
			return false
		}
	}
	return true
}

// Unique is the value of UNIQ_KEY in the text that k was noted of, a part of it.
func (k *Keys) Unique(props []byte) []byte { return k.unique.of(props) }

// FindKeys is the values of UNIQ_KEY, KEYS and TAGS, parts of the record's properties, empty where there is none.
func (r *Record) FindKeys() (unique, user, tags []byte) { return r.Keys.find(r.Properties) }

// find is FindKeys. k is of props, or zero.
func (k Keys) find(props []byte) (unique, user, tags []byte) {
	if !k.noted {
		EachProperty(props, func(name, value []byte) bool {
			k.Note(props, name, value)
			return true
		})
	}
	return k.unique.of(props), k.user.of(props), k.tags.of(props)
}

// Tags is the value of TAGS, a part of the record's properties.
func (r *Record) Tags() []byte {
	if r.Keys.noted {
		return r.Keys.tags.of(r.Properties)
	}
	tags, _ := Property(r.Properties, PropertyTags)
	return tags
}
