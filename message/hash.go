package message

import (
	"encoding/binary"
	"unicode/utf8"
)

// Powers of 31, modulo 2³².
const (
	p2 uint32 = 31 * 31
	p3        = 31 * p2
	p4        = 31 * p3
	p8 uint32 = 2487512833
)

// HashCode is Java's String.hashCode of the text: 31-based over UTF-16 code units, wrapping at 32 bits. Bytes that are
// not UTF-8 count as U+FFFD, as in Java after decoding.
func HashCode(s []byte) int32 { return HashOn(0, s) }

// HashOn is the hash code of a text whose first part has the hash code h and whose rest is s. The first part ends where a
// character does.
func HashOn(h int32, s []byte) int32 {
	for i := 0; i < len(s); {
		if i+8 <= len(s) && binary.LittleEndian.Uint64(s[i:])&0x8080808080808080 == 0 {
			// Eight characters of ASCII at once: their products don't wait for each other.
			b := s[i : i+8 : i+8]
			high := uint32(b[0])*p3 + uint32(b[1])*p2 + uint32(b[2])*31 + uint32(b[3])
			low := uint32(b[4])*p3 + uint32(b[5])*p2 + uint32(b[6])*31 + uint32(b[7])
			h = int32(uint32(h)*p8 + high*p4 + low)
			i += 8
			continue
		}
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
