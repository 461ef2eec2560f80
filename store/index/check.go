package index

import (
	"encoding/binary"
	"fmt"

	"github.com/ratchetmq/ratchet/internal/offset"
)

// checkChunk is how much is read at once while a file is checked.
const checkChunk = 1 << 20

// repair makes a file true to itself again, with nothing of records at or above limit: it keeps the entries up to the
// first that can't be right or is of such a record, makes the slots lead to the newest of those, and says so in the
// header. What it cut off is to be Put again. Reads the whole used part of the file; changed says that it wrote.
//
// It serves after an unclean exit, where after a power cut any page may be missing, and when the log is cut back.
func (f *file) repair(limit offset.Physical) (changed bool, err error) {
	h := f.disk
	if err := h.check(f.entries); err != nil {
		h = header{next: 1} // nothing says what the entries are; all are written anew
	}
	newest := make([]uint32, f.slots)
	kept, err := f.sound(&h, limit, newest)
	if err != nil {
		return false, fmt.Errorf("check index file %s: %w", f.Name(), err)
	}
	h = kept
	h.usedSlots = 0
	for _, number := range newest {
		if number != 0 {
			h.usedSlots++
		}
	}
	fixed, err := f.rewriteSlots(newest)
	if err != nil {
		return false, fmt.Errorf("repair index file %s: %w", f.Name(), err)
	}
	if !fixed && h == f.disk {
		return false, nil
	}
	if err := h.write(f); err != nil {
		return false, fmt.Errorf("repair index file %s: %w", f.Name(), err)
	}
	f.disk = h
	return true, nil
}

// sound reads the entries that h counts up to the first that is not what it must be, and returns the header for those
// before it. It fills newest with the last entry's number per slot.
func (f *file) sound(h *header, limit offset.Physical, newest []uint32) (header, error) {
	if h.empty() {
		return *h, nil // it says at most where the file before it ends
	}
	kept := *h
	kept.next = 1
	var last entry
	buf := make([]byte, checkChunk/entrySize*entrySize)
	for number := uint32(1); number < h.next; {
		n := min(h.next-number, uint32(len(buf)/entrySize))
		if err := readFull(f, buf[:n*entrySize], f.entryAt(number)); err != nil {
			return kept, err
		}
		for i := range n {
			e := decodeEntry(buf[i*entrySize:])
			slot := f.slotOf(e.hash)
			if e.phy < last.phy && e.phy >= h.beginPhy {
				// This one may be right, and the one before it wrong: then End must not be that one's.
				clear(newest)
				return f.sound(h, e.phy, newest)
			}
			if int32(e.hash) < 0 || e.prev != newest[slot] || e.seconds < 0 || e.phy >= limit ||
				e.phy < max(last.phy, h.beginPhy) || e.phy > h.endPhy || (kept.empty() && e.phy != h.beginPhy) {
				return cutHeader(kept, last), nil
			}
			newest[slot] = number + i
			last, kept.next = e, number+i+1
		}
		number += n
	}
	return cutHeader(kept, last), nil
}

// cutHeader ends the header at an entry. The end time of a record in the middle is known to the second.
func cutHeader(h header, last entry) header {
	switch {
	case h.empty():
		return header{next: 1}
	case h.endPhy != last.phy:
		h.endPhy = last.phy
		_, h.endTime = h.entryTime(last.seconds)
	}
	return h
}

// rewriteSlots writes the slots that differ from newest.
func (f *file) rewriteSlots(newest []uint32) (changed bool, err error) {
	return f.eachSlot(func(slot, _ uint32) (uint32, error) { return newest[slot], nil })
}

// settleSlots brings slots that are ahead of the header back below it, as a process leaves them that is killed between the two
// writes. Else they would lead to what is written there next.
func (f *file) settleSlots() error {
	_, err := f.eachSlot(func(slot, number uint32) (uint32, error) { return f.settle(slot, number, f.disk.next) })
	return err
}

// eachSlot writes the slots for which fn wants another number.
func (f *file) eachSlot(fn func(slot, number uint32) (uint32, error)) (changed bool, err error) {
	buf := make([]byte, checkChunk)
	for first := uint32(0); first < f.slots; {
		n := min(f.slots-first, checkChunk/slotSize)
		run := buf[:n*slotSize]
		if err := readFull(f, run, f.slotAt(first)); err != nil {
			return changed, err
		}
		differs := false
		for i := range n {
			at := run[i*slotSize:]
			number := binary.BigEndian.Uint32(at)
			wanted, err := fn(first+i, number)
			if err != nil {
				return changed, err
			}
			if wanted != number {
				binary.BigEndian.PutUint32(at, wanted)
				differs = true
			}
		}
		if differs {
			changed = true
			if _, err := f.WriteAt(run, f.slotAt(first)); err != nil {
				return changed, err
			}
		}
		first += n
	}
	return changed, nil
}
