package index

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"github.com/ratchetmq/ratchet/internal/offset"
)

const (
	headerSize = 40
	slotSize   = 4
	entrySize  = 20
)

// header is the first 40 bytes of a file. Java keeps the present moment of all of it in memory, as Index does.
type header struct {
	beginTime, endTime int64 // store timestamps of the first and the last record, ms
	beginPhy, endPhy   offset.Physical
	usedSlots          int32
	next               uint32 // number of the entry that is written next; the first is 1
}

func (h *header) encode(b []byte) {
	be := binary.BigEndian
	be.PutUint64(b[0:], uint64(h.beginTime))
	be.PutUint64(b[8:], uint64(h.endTime))
	be.PutUint64(b[16:], uint64(h.beginPhy))
	be.PutUint64(b[24:], uint64(h.endPhy))
	be.PutUint32(b[32:], uint32(h.usedSlots))
	be.PutUint32(b[36:], h.next)
}

// decodeHeader reads a header. A file that Java has made and not yet written to has no entry number: it is empty.
func decodeHeader(b []byte) header {
	be := binary.BigEndian
	return header{
		beginTime: int64(be.Uint64(b[0:])),
		endTime:   int64(be.Uint64(b[8:])),
		beginPhy:  offset.Physical(be.Uint64(b[16:])),
		endPhy:    offset.Physical(be.Uint64(b[24:])),
		usedSlots: int32(be.Uint32(b[32:])),
		next:      max(be.Uint32(b[36:]), 1),
	}
}

// write puts the header into its file.
func (h *header) write(to io.WriterAt) error {
	var b [headerSize]byte
	h.encode(b[:])
	_, err := to.WriteAt(b[:], 0)
	return err
}

func (h *header) empty() bool { return h.next <= 1 }

// startAfter is the header of a new file: it says where the one before it ends. Java's broker takes a last file without
// entries by its word, and would otherwise index again what it reads of the log below that place.
func startAfter(before *header) header {
	return header{
		beginTime: before.endTime, endTime: before.endTime, beginPhy: before.endPhy, endPhy: before.endPhy, next: 1,
	}
}

// check says what is wrong with a header of a file with that many entries.
func (h *header) check(entries uint32) error {
	switch {
	case h.next > entries:
		return fmt.Errorf("next entry %d of %d", h.next, entries)
	case h.empty():
		return nil
	case h.beginTime <= 0:
		return fmt.Errorf("begin time %d", h.beginTime)
	case h.beginPhy < 0 || h.endPhy < h.beginPhy:
		return fmt.Errorf("physical offsets %d to %d", h.beginPhy, h.endPhy)
	}
	return nil
}

// add makes room for the entry of a record and returns its number and its time field.
func (h *header) add(phy offset.Physical, storeTime int64) (number uint32, seconds int32) {
	if h.empty() {
		h.beginPhy, h.beginTime = phy, storeTime
	}
	if diff := (storeTime - h.beginTime) / 1000; h.beginTime > 0 && diff > 0 {
		seconds = int32(min(diff, math.MaxInt32))
	}
	h.endPhy, h.endTime = phy, storeTime
	number = h.next
	h.next++
	return number, seconds
}

// entry is one key of one record.
type entry struct {
	phy     offset.Physical
	hash    uint32
	seconds int32
	prev    uint32 // the entry before it on the same slot, 0 = none
}

func (e *entry) encode(b []byte) {
	be := binary.BigEndian
	be.PutUint32(b[0:], e.hash)
	be.PutUint64(b[4:], uint64(e.phy))
	be.PutUint32(b[12:], uint32(e.seconds))
	be.PutUint32(b[16:], e.prev)
}

func decodeEntry(b []byte) entry {
	be := binary.BigEndian
	return entry{
		hash:    be.Uint32(b[0:]),
		phy:     offset.Physical(be.Uint64(b[4:])),
		seconds: int32(be.Uint32(b[12:])),
		prev:    be.Uint32(b[16:]),
	}
}

// layout says where things are in a file of a configured size.
type layout struct {
	slots   uint32
	entries uint32
}

func (l layout) slotOf(hash uint32) uint32      { return hash % l.slots }
func (l layout) slotAt(slot uint32) int64       { return headerSize + slotSize*int64(slot) }
func (l layout) entryAt(number uint32) int64    { return l.slotAt(l.slots) + entrySize*int64(number) }
func (l layout) size() int64                    { return l.entryAt(l.entries) }
func (l layout) full(h *header) bool            { return h.next >= l.entries }
func (l layout) onSlot(e *entry, s uint32) bool { return int32(e.hash) >= 0 && l.slotOf(e.hash) == s }
