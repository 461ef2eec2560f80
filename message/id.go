package message

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"net/netip"
	"strings"

	"github.com/ratchetmq/ratchet/internal/offset"
)

// IDs makes message ids (offsetMsgId) of one broker: address, port and commit log offset in upper-case hex, 32 characters
// for IPv4, 56 for IPv6.
type IDs struct{ prefix string }

// NewIDs makes those of the broker at host.
func NewIDs(host netip.AddrPort) IDs {
	return IDs{strings.ToUpper(hex.EncodeToString(appendHost(nil, host)))}
}

// Append adds the id of the message at phy to dst.
func (ids IDs) Append(dst []byte, phy offset.Physical) []byte {
	dst = append(dst, ids.prefix...)
	dst = binary.BigEndian.AppendUint64(dst, hexDigits(uint32(phy>>32)))
	return binary.BigEndian.AppendUint64(dst, hexDigits(uint32(phy)))
}

// hexDigits is n as eight hex digits, the first one in the highest byte.
func hexDigits(n uint32) uint64 {
	const ones = 0x0101010101010101
	d := uint64(n)
	d = (d | d<<16) & 0x0000FFFF0000FFFF
	d = (d | d<<8) & 0x00FF00FF00FF00FF
	d = (d | d<<4) & 0x0F0F0F0F0F0F0F0F // a digit a byte
	letters := (d + 6*ones) >> 4 & ones // 1 in those from 10 on
	return d + '0'*ones + letters*('A'-'9'-1)
}

// ParseID reads such an id, in either case.
func ParseID(id string) (netip.AddrPort, offset.Physical, error) {
	b, err := hex.DecodeString(strings.TrimSpace(id))
	if err != nil || (len(b) != 16 && len(b) != 28) {
		return netip.AddrPort{}, 0, fmt.Errorf("message id %q is not 32 or 56 hex digits", id)
	}
	addr, _ := netip.AddrFromSlice(b[:len(b)-12])
	port := binary.BigEndian.Uint32(b[len(b)-12:])
	if port > math.MaxUint16 {
		return netip.AddrPort{}, 0, fmt.Errorf("message id %q has port %d", id, port)
	}
	return netip.AddrPortFrom(addr, uint16(port)), offset.Physical(binary.BigEndian.Uint64(b[len(b)-8:])), nil
}
