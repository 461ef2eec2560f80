// Package message knows what a stored message is: the record that stands in the commit log and, unchanged, in the
// body of a pull answer; its properties, system flags, message id and tag hash. It does no I/O and knows neither the
// frame around a message nor the file that holds it.
package message

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"net/netip"

	"github.com/ratchetmq/ratchet/internal/offset"
)

// Magic codes, the second field of a record. All are results, not the original's expressions.
const (
	MagicV1    uint32 = 0xDAA320A7 // one byte of topic length
	MagicV2    uint32 = 0xDAA320AB // two bytes of topic length: topics over 127 bytes, RocketMQ 5 only
	MagicBlank uint32 = 0xCBD43194 // fills the rest of a commit log file; never sent to anybody
)

// Positions inside a record that do not depend on its content.
const (
	PosMagic          = 4
	PosBodyCRC        = 8
	PosQueueID        = 12
	PosFlag           = 16
	PosQueueOffset    = 20
	PosPhysicalOffset = 28
	PosSysFlag        = 36
	PosBornTimestamp  = 40
	PosBornHost       = 48
)

// BlankSize is the size of a blank record's head (size and magic); at least that much is kept free at a file's end.
const BlankSize = 8

// Limits of the format.
const (
	MaxTopicV1  = 127
	MaxTopic    = 255
	minRecord   = 91 // IPv4 hosts, empty body, topic and properties
	maxRecord   = 128 << 20
	hostV4Size  = 8
	hostV6Size  = 20
	fixedBefore = 48 // up to the born host
)

// Record is a stored message, field by field in the order of its bytes. After Parse, Body, Topic and Properties are
// parts of the parsed bytes and live as long as these.
type Record struct {
	Size                      int32
	Magic                     uint32
	BodyCRC                   uint32
	QueueID                   int32
	Flag                      int32 // the user's own; RocketMQ never looks at it
	QueueOffset               offset.Queue
	PhysicalOffset            offset.Physical
	SysFlag                   int32
	BornTimestamp             int64 // the client's clock, ms
	BornHost                  netip.AddrPort
	StoreTimestamp            int64 // the broker's clock, ms
	StoreHost                 netip.AddrPort
	ReconsumeTimes            int32
	PreparedTransactionOffset int64
	Body                      []byte
	Topic                     []byte
	Properties                []byte
	Keys                      Keys // of Properties; not in the record's bytes
}

// ErrCorrupt is what a record that is none fails with; the text says what is wrong with it.
var ErrCorrupt = errors.New("corrupt record")

// CRC is the checksum of a body as RocketMQ writes it: IEEE, without the sign bit.
func CRC(body []byte) uint32 { return crc32.ChecksumIEEE(body) & 0x7FFFFFFF }

func hostSize(a netip.Addr) int {
	if a.Unmap().Is4() || !a.IsValid() {
		return hostV4Size
	}
	return hostV6Size
}

// EncodedSize is the number of bytes that AppendRecord adds.
func (r *Record) EncodedSize() int {
	return EncodedSize(r.BornHost.Addr(), r.StoreHost.Addr(), len(r.Topic), len(r.Body)+len(r.Properties))
}

// EncodedSize is the size of a record with such hosts, so long a topic, and so many bytes of body and properties.
func EncodedSize(bornHost, storeHost netip.Addr, topic, rest int) int {
	n := minRecord - 2*hostV4Size + hostSize(bornHost) + hostSize(storeHost) + topic + rest
	if topic > MaxTopicV1 {
		n++
	}
	return n
}

// AppendRecord encodes the record after dst. Size, Magic, BodyCRC and the address bits of SysFlag follow from the other
// fields, whatever r holds there. Topic and Properties must be within the limits of the format.
func AppendRecord(dst []byte, r *Record) []byte {
	return AppendRecordTail(append(AppendRecordHead(dst, r), r.Body...), r)
}

// AppendRecordHead adds what AppendRecord does up to the body.
func AppendRecordHead(dst []byte, r *Record) []byte {
	sysFlag := r.SysFlag &^ (FlagBornHostV6 | FlagStoreHostV6)
	if hostSize(r.BornHost.Addr()) == hostV6Size {
		sysFlag |= FlagBornHostV6
	}
	if hostSize(r.StoreHost.Addr()) == hostV6Size {
		sysFlag |= FlagStoreHostV6
	}
	magic := MagicV1
	if len(r.Topic) > MaxTopicV1 {
		magic = MagicV2
	}
	be := binary.BigEndian
	var fixed [fixedBefore]byte
	be.PutUint32(fixed[:], uint32(r.EncodedSize()))
	be.PutUint32(fixed[PosMagic:], magic)
	be.PutUint32(fixed[PosBodyCRC:], CRC(r.Body))
	be.PutUint32(fixed[PosQueueID:], uint32(r.QueueID))
	be.PutUint32(fixed[PosFlag:], uint32(r.Flag))
	be.PutUint64(fixed[PosQueueOffset:], uint64(r.QueueOffset))
	be.PutUint64(fixed[PosPhysicalOffset:], uint64(r.PhysicalOffset))
	be.PutUint32(fixed[PosSysFlag:], uint32(sysFlag))
	be.PutUint64(fixed[PosBornTimestamp:], uint64(r.BornTimestamp))
	dst = append(dst, fixed[:]...)
	dst = appendHost(dst, r.BornHost)
	dst = be.AppendUint64(dst, uint64(r.StoreTimestamp))
	dst = appendHost(dst, r.StoreHost)
	dst = be.AppendUint32(dst, uint32(r.ReconsumeTimes))
	dst = be.AppendUint64(dst, uint64(r.PreparedTransactionOffset))
	return be.AppendUint32(dst, uint32(len(r.Body)))
}

// AppendRecordTail adds what AppendRecord does behind the body.
func AppendRecordTail(dst []byte, r *Record) []byte {
	be := binary.BigEndian
	if len(r.Topic) > MaxTopicV1 {
		dst = be.AppendUint16(dst, uint16(len(r.Topic)))
	} else {
		dst = append(dst, byte(len(r.Topic)))
	}
	dst = append(dst, r.Topic...)
	dst = be.AppendUint16(dst, uint16(len(r.Properties)))
	return append(dst, r.Properties...)
}

func appendHost(dst []byte, host netip.AddrPort) []byte {
	switch addr := host.Addr().Unmap(); {
	case addr.Is4():
		v4 := addr.As4()
		dst = append(dst, v4[:]...)
	case addr.Is6():
		v6 := addr.As16()
		dst = append(dst, v6[:]...)
	default:
		dst = append(dst, 0, 0, 0, 0)
	}
	return binary.BigEndian.AppendUint32(dst, uint32(host.Port()))
}

// Peek reads the first two fields: the size of the record that starts at b, and its magic code.
func Peek(b []byte) (size int32, magic uint32, ok bool) {
	if len(b) < BlankSize {
		return 0, 0, false
	}
	return int32(binary.BigEndian.Uint32(b)), binary.BigEndian.Uint32(b[PosMagic:]), true
}

// Parse reads the record at the start of b. It checks that every length agrees with the record's size, not the CRC:
// see CheckBody. An error is ErrCorrupt with what is wrong.
func Parse(b []byte) (Record, error) {
	var r Record
	size, magic, ok := Peek(b)
	switch {
	case !ok:
		return r, fmt.Errorf("%w: %d bytes are less than a head", ErrCorrupt, len(b))
	case magic != MagicV1 && magic != MagicV2:
		return r, fmt.Errorf("%w: magic code %08x", ErrCorrupt, magic)
	case size < minRecord || size > maxRecord:
		return r, fmt.Errorf("%w: size %d", ErrCorrupt, size)
	case int(size) > len(b):
		return r, fmt.Errorf("%w: size %d, only %d bytes are left", ErrCorrupt, size, len(b))
	}
	be := binary.BigEndian
	r.Size, r.Magic = size, magic
	r.BodyCRC = be.Uint32(b[PosBodyCRC:])
	r.QueueID = int32(be.Uint32(b[PosQueueID:]))
	r.Flag = int32(be.Uint32(b[PosFlag:]))
	r.QueueOffset = offset.Queue(be.Uint64(b[PosQueueOffset:]))
	r.PhysicalOffset = offset.Physical(be.Uint64(b[PosPhysicalOffset:]))
	r.SysFlag = int32(be.Uint32(b[PosSysFlag:]))
	r.BornTimestamp = int64(be.Uint64(b[PosBornTimestamp:]))
	rest := b[fixedBefore:size]
	if rest, ok = parseHost(rest, r.SysFlag&FlagBornHostV6 != 0, &r.BornHost); !ok || len(rest) < 8 {
		return r, fmt.Errorf("%w: cut in the born host", ErrCorrupt)
	}
	r.StoreTimestamp = int64(be.Uint64(rest))
	if rest, ok = parseHost(rest[8:], r.SysFlag&FlagStoreHostV6 != 0, &r.StoreHost); !ok || len(rest) < 16 {
		return r, fmt.Errorf("%w: cut in the store host", ErrCorrupt)
	}
	r.ReconsumeTimes = int32(be.Uint32(rest))
	r.PreparedTransactionOffset = int64(be.Uint64(rest[4:]))
	bodySize := int32(be.Uint32(rest[12:]))
	rest = rest[16:]
	if bodySize < 0 || int(bodySize) > len(rest) {
		return r, fmt.Errorf("%w: body of %d bytes, %d are left", ErrCorrupt, bodySize, len(rest))
	}
	r.Body, rest = rest[:bodySize:bodySize], rest[bodySize:]
	topicSize := 0
	switch {
	case magic == MagicV1 && len(rest) >= 1:
		topicSize, rest = int(int8(rest[0])), rest[1:]
	case magic == MagicV2 && len(rest) >= 2:
		topicSize, rest = int(int16(be.Uint16(rest))), rest[2:]
	default:
		return r, fmt.Errorf("%w: cut before the topic", ErrCorrupt)
	}
	if topicSize < 0 || topicSize+2 > len(rest) {
		return r, fmt.Errorf("%w: topic of %d bytes, %d are left", ErrCorrupt, topicSize, len(rest))
	}
	r.Topic, rest = rest[:topicSize:topicSize], rest[topicSize:]
	propSize := int(int16(be.Uint16(rest)))
	rest = rest[2:]
	if propSize != len(rest) {
		return r, fmt.Errorf("%w: properties of %d bytes, %d are left", ErrCorrupt, propSize, len(rest))
	}
	r.Properties = rest
	return r, nil
}

func parseHost(b []byte, v6 bool, host *netip.AddrPort) (rest []byte, ok bool) {
	size := hostV4Size
	if v6 {
		size = hostV6Size
	}
	if len(b) < size {
		return nil, false
	}
	addr, _ := netip.AddrFromSlice(b[:size-4])
	*host = netip.AddrPortFrom(addr, uint16(binary.BigEndian.Uint32(b[size-4:])))
	return b[size:], true
}

// CheckBody says whether the body is the one that the record's CRC was made of.
func (r *Record) CheckBody() error {
	if crc := CRC(r.Body); crc != r.BodyCRC&0x7FFFFFFF {
		return fmt.Errorf("%w: body CRC %08x, recorded %08x", ErrCorrupt, crc, r.BodyCRC)
	}
	return nil
}
