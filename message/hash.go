package message

import "unicode/utf8"

// HashCode is Java's String.hashCode of the text: 31-based over UTF-16 code units, wrapping at 32 bits. Bytes that are
// not UTF-8 count as U+FFFD, as in Java after decoding.
func HashCode(s []byte) int32 {
	var h int32
	for i := 0; i < len(s); {
		if s[i] < utf8.RuneSelf {
			h = 31*h + int32(s[i])
			i++
			continue
		}
		r, size := utf8.DecodeRune(s[i:])
		i += size
		if r < 0x10000 {
			h = 31*h + r
			continue
		}
		r -= 0x10000
		h = 31*h + 0xD800 + r>>10
		h = 31*h + 0xDC00 + r&0x3FF
	}
	return h
}

// TagsCode is what a consume queue entry holds for a message's TAGS: its hash code, 0 without tags.
func TagsCode(tags []byte) int64 { return int64(HashCode(tags)) }
