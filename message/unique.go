package message

import (
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"time"
)

// UniqueIDs makes unique keys of the form that RocketMQ's clients make, for messages that come without one: address,
// process, a mark of this generator, milliseconds since the month began, and a counter.
type UniqueIDs struct {
	prefix  []byte
	counter atomic.Uint32
	now     func() time.Time
}

// NewUniqueIDs makes a generator for the process at host.
func NewUniqueIDs(host netip.Addr, mark uint32, now func() time.Time) *UniqueIDs {
	prefix := append([]byte(nil), host.Unmap().AsSlice()...)
	prefix = binary.BigEndian.AppendUint16(prefix, uint16(os.Getpid()))
	prefix = binary.BigEndian.AppendUint32(prefix, mark)
	return &UniqueIDs{prefix: prefix, now: now}
}

// Next is a new key, in upper-case hex.
func (u *UniqueIDs) Next() string {
	t := u.now()
	month := time.Date(t.Year(), t.Month(), 1, 0, 0, 0, 0, t.Location())
	b := append(make([]byte, 0, 28), u.prefix...)
	b = binary.BigEndian.AppendUint32(b, uint32(t.Sub(month).Milliseconds()))
	b = binary.BigEndian.AppendUint16(b, uint16(u.counter.Add(1)))
	return strings.ToUpper(hex.EncodeToString(b))
}
