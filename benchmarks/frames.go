package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ratchetmq/ratchet/message"
	"github.com/ratchetmq/ratchet/protocol"
)

// base is the zero of the times in message bodies.
var base = time.Now()

func now() int64 { return int64(time.Since(base)) }

// A body says what it is: its number, when it should have left, and a checksum over all the rest of it.
const (
	bodyNumber = 0
	bodyTime   = 8
	bodySum    = 16
	bodyHead   = 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var errCorrupt = errors.New("corrupt body")

// A stamper makes a filled body that of a message. The checksum of the part that does not change is made once.
type stamper struct {
	rest uint32 // that checksum
	// over is by how much a checksum of what comes before that part changes that of all: for each of its eight groups of four
	// bits, what is to be combined by exclusive or.
	over [8][16]uint32
}

// stampers are those of all sizes of bodies: *stamper by int.
var stampers sync.Map

// stamperOf is that of a filled body of a size.
func stamperOf(size int) *stamper {
	if s, ok := stampers.Load(size); ok {
		return s.(*stamper)
	}
	filled := pattern[:size]
	s := &stamper{rest: crc32.Checksum(filled[bodyHead:], castagnoli)}
	for i := range s.over {
		for bits := range uint32(16) {
			s.over[i][bits] = crc32.Update(bits<<(4*i), castagnoli, filled[bodyHead:]) ^ s.rest
		}
	}
	stampers.Store(size, s)
	return s
}

// stamp makes b, which is filled, the body of message n.
func (s *stamper) stamp(b []byte, n, at int64) {
	binary.LittleEndian.PutUint64(b[bodyNumber:], uint64(n))
	binary.LittleEndian.PutUint64(b[bodyTime:], uint64(at))
	before, sum := crc32.Checksum(b[:bodySum], castagnoli), s.rest
	for i := range s.over {
		sum ^= s.over[i][before>>(4*i)&15]
	}
	binary.LittleEndian.PutUint32(b[bodySum:], sum)
}

func bodyChecksum(b []byte) uint32 {
	return crc32.Update(crc32.Checksum(b[:bodySum], castagnoli), castagnoli, b[bodyHead:])
}

// readBody is the reverse of stamp.
func readBody(b []byte) (n, at int64, err error) {
	if len(b) < bodyHead || binary.LittleEndian.Uint32(b[bodySum:]) != bodyChecksum(b) {
		return 0, 0, errCorrupt
	}
	return int64(binary.LittleEndian.Uint64(b[bodyNumber:])), int64(binary.LittleEndian.Uint64(b[bodyTime:])), nil
}

// pattern is the part of a body that does not change: not all zeros, so that nothing on the way may take a short cut. One for
// all, so that what is sent to many queues takes no more of the processors' caches.
var pattern = func() (b [256 * kib]byte) {
	for i := range b {
		b[i] = byte(i*7 + i>>8)
	}
	return b
}()

// A template is a send request, encoded once. What differs from message to message has a fixed width and is patched.
type template struct {
	codec  protocol.Codec
	head   []byte // the frame, up to the first body
	rest   []byte // what follows, which templates may share
	opaque int    // where it stands
	keys   []int  // where the hex digits of the unique keys stand, one for each message
	bodies []int  // where the bodies start
	size   int    // of a body
	*stamper
}

const (
	firstOpaque = 1_000_000_000 // ten digits, as all that follow
	keyMark     = "7F00000100002A9F"
	keyDigits   = 16
)

// stampedProperties are those of a message, with a unique key that is patched.
func stampedProperties() []byte {
	p := message.AppendProperty(nil, message.PropertyUniqueKey, keyMark+strings.Repeat("0", keyDigits))
	p = message.AppendProperty(p, message.PropertyWaitStore, "true")
	return message.AppendProperty(p, message.PropertyTags, "TagA")
}

// sendTemplate is a send of count messages (more than one: as a batch) with bodies of size bytes.
func sendTemplate(codec protocol.Codec, topic string, queue int32, size, count int, oneway bool) *template {
	body := pattern[:size]
	t := &template{codec: codec, size: size, stamper: stamperOf(size)}
	properties := stampedProperties()
	h := &protocol.SendMessageRequestV2{
		ProducerGroup: "benchmark_producer", Topic: topic, DefaultTopic: "TBW102", DefaultTopicQueueNums: 8, QueueID: queue,
		BornTimestamp: time.Now().UnixMilli(), Properties: properties,
	}
	code := protocol.SendMessageV2
	if count > 1 {
		code, h.Batch, h.Properties = protocol.SendBatchMessage, true, nil
		var all []byte
		for range count {
			all = protocol.AppendBatchMessage(all, protocol.BatchMessage{Body: body, Properties: properties})
		}
		body = all
	}
	frame := protocol.AppendRequest(nil, codec, code, firstOpaque, oneway, h, nil, body)
	start := len(frame) - len(body)
	t.head, t.rest = bytes.Clone(frame[:start]), body
	if codec == protocol.JSON {
		t.opaque = bytes.Index(frame, []byte(strconv.Itoa(firstOpaque)))
	} else {
		t.opaque = 13
	}
	for at := 0; ; {
		i := bytes.Index(frame[at:], []byte(keyMark))
		if i < 0 {
			break
		}
		at += i + len(keyMark)
		t.keys = append(t.keys, at)
	}
	each := len(body) / count
	for i := range count {
		at := start + i*each
		if count > 1 {
			at += 20 // behind size, magic, CRC, flag and length
		}
		t.bodies = append(t.bodies, at)
	}
	return t
}

// A press prints requests one behind the other. Where it has printed one of the same template before, that is patched: the
// generator shares the processors with what it measures.
type press struct {
	prints []imprint // what stands in the slice, and behind its end
	n      int       // those of what is in it
}

type imprint struct {
	template *template
	end      int
}

// append adds the request whose first message is number n, due at the given time. dst is what it returned before, or that
// emptied.
func (p *press) append(dst []byte, t *template, opaque int32, n, at int64) []byte {
	start := len(dst)
	if start == 0 {
		p.n = 0
	}
	this := imprint{t, start + len(t.head) + len(t.rest)}
	if p.n < len(p.prints) && p.prints[p.n] == this {
		dst = dst[:this.end]
	} else {
		p.prints = append(p.prints[:p.n], this)
		dst = append(append(dst, t.head...), t.rest...)
	}
	p.n++
	f := dst[start:]
	if t.codec == protocol.JSON {
		putDecimal(f[t.opaque:t.opaque+10], opaque)
	} else {
		binary.BigEndian.PutUint32(f[t.opaque:], uint32(opaque))
	}
	for i, key := range t.keys {
		putHex(f[key:key+keyDigits], uint64(n+int64(i)))
		body := t.bodies[i]
		t.stamp(f[body:body+t.size], n+int64(i), at)
	}
	return dst
}

func putDecimal(b []byte, n int32) {
	for i := len(b) - 1; i >= 0; i-- {
		b[i] = byte('0' + n%10)
		n /= 10
	}
}

func putHex(b []byte, n uint64) {
	const digits = "0123456789ABCDEF"
	for i := len(b) - 1; i >= 0; i-- {
		b[i] = digits[n&15]
		n >>= 4
	}
}

// An answer is as much of a response as the generator looks at.
type answer struct {
	opaque int32
	code   int32
	header []byte
	codec  protocol.Codec
	body   []byte
}

var errAnswer = errors.New("answer can't be read")

// parseAnswer finds code and opaque without taking the header apart, since the generator shares the processors with
// what it measures.
func parseAnswer(frame []byte) (answer, error) {
	word := binary.BigEndian.Uint32(frame[4:])
	size := int(word & 0xFFFFFF)
	if 8+size > len(frame) {
		return answer{}, errAnswer
	}
	a := answer{codec: protocol.Codec(word >> 24), header: frame[8 : 8+size], body: frame[8+size:]}
	if a.codec == protocol.Binary {
		if size < 9 {
			return answer{}, errAnswer
		}
		a.code = int32(int16(binary.BigEndian.Uint16(a.header)))
		a.opaque = int32(binary.BigEndian.Uint32(a.header[5:]))
		return a, nil
	}
	code, ok1 := jsonNumber(a.header, `"code":`)
	opaque, ok2 := jsonNumber(a.header, `"opaque":`)
	if !ok1 || !ok2 {
		return a, fmt.Errorf("%w: %.200s", errAnswer, a.header)
	}
	a.code, a.opaque = int32(code), int32(opaque)
	return a, nil
}

// jsonNumber reads the number behind a key, quoted or not.
func jsonNumber(b []byte, key string) (int64, bool) {
	i := bytes.Index(b, []byte(key))
	if i < 0 {
		return 0, false
	}
	i += len(key)
	if i < len(b) && b[i] == '"' {
		i++
	}
	negative := i < len(b) && b[i] == '-'
	if negative {
		i++
	}
	start, n := i, int64(0)
	for ; i < len(b) && b[i] >= '0' && b[i] <= '9'; i++ {
		n = n*10 + int64(b[i]-'0')
	}
	if negative {
		n = -n
	}
	return n, i > start
}

// number is the field of an answer.
func (a *answer) number(field string) (int64, bool) {
	if a.codec == protocol.JSON {
		return jsonNumber(a.header, `"`+field+`":`)
	}
	i := bytes.Index(a.header, []byte(field))
	if i < 0 || i+len(field)+4 > len(a.header) {
		return 0, false
	}
	i += len(field)
	n, err := strconv.ParseInt(string(a.header[i+4:i+4+int(binary.BigEndian.Uint32(a.header[i:]))]), 10, 64)
	return n, err == nil
}

// eachRecord calls fn with number, time and queue offset of every message in the body of a pull's answer.
func eachRecord(body []byte, fn func(n, at, qoff int64) error) error {
	for len(body) > 0 {
		size, _, ok := message.Peek(body)
		if !ok || int(size) > len(body) || size < 92 {
			return fmt.Errorf("%w: record of %d bytes, %d are left", errCorrupt, size, len(body))
		}
		const bodyLength = 84 // behind two IPv4 hosts
		length := int(binary.BigEndian.Uint32(body[bodyLength:]))
		if bodyLength+4+length > int(size) {
			return fmt.Errorf("%w: record of %d bytes with a body of %d", errCorrupt, size, length)
		}
		n, at, err := readBody(body[bodyLength+4 : bodyLength+4+length])
		if err != nil {
			return err
		}
		if err := fn(n, at, int64(binary.BigEndian.Uint64(body[message.PosQueueOffset:]))); err != nil {
			return err
		}
		body = body[size:]
	}
	return nil
}
