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

// AppendID adds a broker's message id (offsetMsgId) to dst: address, port and commit log offset in upper-case hex, 32
// characters for IPv4, 56 for IPv6.
func AppendID(dst []byte, host netip.AddrPort, phy offset.Physical) []byte {
	var raw [16 + 4 + 8]byte
	b := appendHost(raw[:0], host)
	b = binary.BigEndian.AppendUint64(b, uint64(phy))
	const digits = "0123456789ABCDEF"
	for _, c := range b {
		dst = append(dst, digits[c>>4], digits[c&15])
	}
	return dst
}

// ParseID reads what AppendID wrote, in either case.
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
