package protocol

import (
	"encoding/binary"
	"math"
	"strconv"
	"sync"
	"unicode/utf8"
	"unsafe"
)

// Reply is what a request is answered with. Extra fields follow those of the header.
type Reply struct {
	Code   ResponseCode
	Remark string
	Header Header
	Extra  []KV
	Body   []byte
}

// AppendRequest encodes a whole frame after dst: a request of the given code, with the fields of h (which may be nil)
// and extra. A code that the binary header has no room for, as those of POP, is sent as JSON whatever the codec. It
// allocates nothing if dst has room. That the frame is no larger than MaxFrame is up to the caller.
func AppendRequest(dst []byte, codec Codec, c RequestCode, opaque int32, oneway bool, h Header, extra []KV,
	body []byte,
) []byte {
	var flag int32
	if oneway {
		flag = FlagOneway
	}
	head := head{codec: codec, code: int32(c), opaque: opaque, flag: flag, fields: h != nil || len(extra) > 0}
	dst = head.append(dst, "", h, extra, len(body))
	return append(dst, body...)
}

// AppendReply encodes a whole frame after dst: the answer to the request with the given opaque. It always has fields,
// if only an empty set, since Java's producers fail without. It allocates nothing if dst has room. That the frame is no
// larger than MaxFrame is up to the caller.
func AppendReply(dst []byte, codec Codec, opaque int32, r *Reply) []byte {
	return append(AppendReplyHead(dst, codec, opaque, r, len(r.Body)), r.Body...)
}

// AppendReplyHead is AppendReply without the body: bodyLen bytes must follow on the connection. r.Body is not looked
// at.
func AppendReplyHead(dst []byte, codec Codec, opaque int32, r *Reply, bodyLen int) []byte {
	if receipt, ok := r.Header.(*SendReceipt); ok && receipt.plain(codec, r) {
		return receipt.append(dst, codec, opaque, bodyLen)
	}
	head := head{codec: codec, code: int32(r.Code), opaque: opaque, flag: FlagResponse, fields: true}
	return head.append(dst, r.Remark, r.Header, r.Extra, bodyLen)
}

// head is what every header has, but the texts.
type head struct {
	codec              Codec
	code, opaque, flag int32
	fields             bool // write a set of fields, if only an empty one
}

var writers = sync.Pool{New: func() any { return new(FieldWriter) }}

func (e *head) append(dst []byte, remark string, h Header, extra []KV, bodyLen int) []byte {
	codec := e.codec
	if codec == Binary && int32(int16(e.code)) != e.code {
		codec = JSON
	}
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0, 0, 0, 0, 0)
	w := writers.Get().(*FieldWriter) // pooled, since what is passed to a Header's method escapes
	w.codec, w.n = codec, 0
	if codec == JSON {
		w.buf = e.openJSON(dst, remark)
	} else {
		w.buf = e.openBinary(dst, remark)
	}
	block := len(w.buf)
	if h != nil {
		h.WriteFields(w)
	}
	for i := range extra {
		w.String(extra[i].Key, extra[i].Value)
	}
	dst, w.buf = w.buf, nil
	writers.Put(w)
	switch {
	case codec == Binary:
		binary.BigEndian.PutUint32(dst[block-4:], uint32(len(dst)-block))
	case e.fields:
		dst = append(dst, '}', '}')
	default:
		dst = append(dst, '}')
	}
	headerLen := len(dst) - start - headSize
	binary.BigEndian.PutUint32(dst[start:], uint32(headSize-lengthSize+headerLen+bodyLen))
	binary.BigEndian.PutUint32(dst[start+lengthSize:], uint32(codec)<<24|uint32(headerLen))
	return dst
}

func (e *head) openJSON(dst []byte, remark string) []byte {
	dst = append(dst, `{"code":`...)
	dst = strconv.AppendInt(dst, int64(e.code), 10)
	dst = append(dst, `,"flag":`...)
	dst = strconv.AppendInt(dst, int64(e.flag), 10)
	dst = append(dst, `,"language":"GO","opaque":`...)
	dst = strconv.AppendInt(dst, int64(e.opaque), 10)
	if remark != "" {
		dst = append(dst, `,"remark":`...)
		dst = appendQuoted(dst, remark)
	}
	dst = append(dst, `,"version":`...)
	dst = strconv.AppendInt(dst, int64(Version), 10)
	if e.fields {
		dst = append(dst, `,"extFields":{`...)
	}
	return dst
}

func (e *head) openBinary(dst []byte, remark string) []byte {
	be := binary.BigEndian
	dst = be.AppendUint16(dst, uint16(e.code))
	dst = append(dst, byte(LanguageGo))
	dst = be.AppendUint16(dst, uint16(Version))
	dst = be.AppendUint32(dst, uint32(e.opaque))
	dst = be.AppendUint32(dst, uint32(e.flag))
	dst = be.AppendUint32(dst, uint32(len(remark)))
	dst = append(dst, remark...)
	return append(dst, 0, 0, 0, 0) // length of the fields, known later
}

// FieldWriter takes the fields of a header in the encoding of its frame. Every value is text: Go clients read nothing
// else.
type FieldWriter struct {
	buf   []byte
	codec Codec
	n     int
}

// String adds a text.
func (w *FieldWriter) String(key, value string) {
	if !w.key(key) {
		return
	}
	if w.codec == JSON {
		w.buf = appendQuoted(w.buf, value)
		return
	}
	w.buf = appendText(w.buf, value)
}

// Bytes adds a text that is in a byte slice.
func (w *FieldWriter) Bytes(key string, value []byte) {
	if !w.key(key) {
		return
	}
	if w.codec == JSON {
		w.buf = appendQuoted(w.buf, value)
		return
	}
	w.buf = appendText(w.buf, value)
}

// Int adds a number.
func (w *FieldWriter) Int(key string, value int64) {
	if !w.key(key) {
		return
	}
	if w.codec == JSON {
		w.buf = append(w.buf, '"')
		w.buf = strconv.AppendInt(w.buf, value, 10)
		w.buf = append(w.buf, '"')
		return
	}
	w.buf = appendDecimal(w.buf, value)
}

// appendText adds the value of a field to a binary header.
func appendText[T string | []byte](dst []byte, value T) []byte {
	return append(binary.BigEndian.AppendUint32(dst, uint32(len(value))), value...)
}

func appendDecimal(dst []byte, value int64) []byte {
	at := len(dst)
	dst = strconv.AppendInt(append(dst, 0, 0, 0, 0), value, 10)
	binary.BigEndian.PutUint32(dst[at:], uint32(len(dst)-at-4))
	return dst
}

// Bool adds true or false.
func (w *FieldWriter) Bool(key string, value bool) {
	if value {
		w.String(key, "true")
	} else {
		w.String(key, "false")
	}
}

// key starts a field. A name that the binary header has no room for can't be sent.
func (w *FieldWriter) key(key string) bool {
	if w.codec == Binary {
		if len(key) > math.MaxInt16 {
			return false
		}
		w.buf = binary.BigEndian.AppendUint16(w.buf, uint16(len(key)))
		w.buf = append(w.buf, key...)
		return true
	}
	if w.n++; w.n > 1 {
		w.buf = append(w.buf, ',')
	}
	w.buf = appendQuoted(w.buf, key)
	w.buf = append(w.buf, ':')
	return true
}

// appendQuoted adds s as a JSON string that the strictest reader takes: what is no UTF-8 becomes U+FFFD.
func appendQuoted[T string | []byte](dst []byte, s T) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	if plain(bytesOf(s)) {
		dst = append(dst, s...)
		return append(dst, '"')
	}
	done := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			if r, size := utf8.DecodeRuneInString(string(s[i:min(len(s), i+utf8.UTFMax)])); r != utf8.RuneError || size > 1 {
				i += size
				continue
			}
		}
		dst = append(dst, s[done:i]...)
		switch {
		case c >= utf8.RuneSelf:
			dst = append(dst, "\uFFFD"...)
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c == '\n':
			dst = append(dst, '\\', 'n')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
		i++
		done = i
	}
	dst = append(dst, s[done:]...)
	return append(dst, '"')
}

// bytesOf are the bytes of a text, to be read only.
func bytesOf[T string | []byte](s T) []byte {
	if b, ok := any(s).([]byte); ok {
		return b
	}
	text := string(s)
	return unsafe.Slice(unsafe.StringData(text), len(text))
}

// plain says whether s can stand between quotes as it is, looking at eight bytes at a time. Nearly all texts can.
func plain(s []byte) bool {
	const (
		ones  = 0x0101010101010101
		highs = 0x8080808080808080
	)
	for ; len(s) >= 8; s = s[8:] {
		w := binary.LittleEndian.Uint64(s)
		quotes, slashes := w^ones*'"', w^ones*'\\'
		// A byte below blank, a quote or a backslash borrows from its high bit; a byte beyond ASCII has it.
		if (w|(w-ones*' ')|(quotes-ones)|(slashes-ones))&highs != 0 {
			return false
		}
	}
	for _, c := range s {
		if c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}
