package index

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
)

const (
	// slotGap and slotRun bound what is read and written as one run of slots, in slots: two changed slots that are a
	// page apart are cheaper in one run than in two.
	slotGap = 1024
	slotRun = 64 * 1024
)

// writer writes lists of entries to a file. It holds the buffers for that; one use at a time.
type writer struct {
	order []uint64 // slot<<32 | place in the list: sorted, all of one slot are together, in the order of Put
	spare []uint64 // for sorting
	buf   []byte   // slotRun slots
}

// write adds the entries to the file, the first of them with number base, and h as the header when all else is
// written. It sets their prev. It returns how many slots got their first entry. After an error the same list, and no
// other, must be written again: parts of it are in the file, where nothing counts them yet.
func (w *writer) write(f *file, base uint32, list []entry, h header) (newSlots int32, err error) {
	if w.buf == nil {
		w.buf = make([]byte, slotRun*slotSize)
	}
	w.order = w.order[:0]
	for i := range list {
		w.order = append(w.order, uint64(f.slotOf(list[i].hash))<<32|uint64(i))
	}
	w.sort(f.slots)

	newSlots, err = w.link(f, base, list)
	if err != nil {
		return 0, fmt.Errorf("read slots: %w", err)
	}
	if err := w.writeEntries(f, base, list); err != nil {
		return 0, fmt.Errorf("write entries: %w", err)
	}
	if err := w.writeSlots(f, base); err != nil {
		return 0, fmt.Errorf("write slots: %w", err)
	}
	h.usedSlots = f.disk.usedSlots + newSlots
	if err := h.write(f); err != nil {
		return 0, fmt.Errorf("write header: %w", err)
	}
	return newSlots, nil
}

// sort brings order into order, whose places rise already. A long list is distributed by the digits of the slots, the lowest
// first.
func (w *writer) sort(slots uint32) {
	const digit = 11 // bits
	if len(w.order) < 1<<digit {
		slices.Sort(w.order)
		return
	}
	w.spare = slices.Grow(w.spare[:0], len(w.order))[:len(w.order)]
	for shift := 32; shift < 32+bits.Len32(slots-1); shift += digit {
		var starts [1 << digit]uint32
		for _, v := range w.order {
			starts[v>>shift&(1<<digit-1)]++
		}
		next := uint32(0)
		for i, n := range starts {
			starts[i] = next
			next += n
		}
		for _, v := range w.order {
			to := &starts[v>>shift&(1<<digit-1)]
			w.spare[*to] = v
			*to++
		}
		w.order, w.spare = w.spare, w.order
	}
}

// eachRun calls fn for every run of slots that the list changes: the first and last slot, and the part of order with
// the changes.
func (w *writer) eachRun(fn func(first, last uint32, part []uint64) error) error {
	for rest := w.order; len(rest) > 0; {
		first := uint32(rest[0] >> 32)
		last, n := first, 1
		for ; n < len(rest); n++ {
			slot := uint32(rest[n] >> 32)
			if slot-last > slotGap || slot-first >= slotRun {
				break
			}
			last = slot
		}
		if err := fn(first, last, rest[:n]); err != nil {
			return err
		}
		rest = rest[n:]
	}
	return nil
}

// link sets every entry's prev: the entry that its slot leads to, which may be one of the same list.
func (w *writer) link(f *file, base uint32, list []entry) (newSlots int32, err error) {
	err = w.eachRun(func(first, last uint32, part []uint64) error {
		run := w.buf[:(last-first+1)*slotSize]
		if err := readFull(f, run, f.slotAt(first)); err != nil {
			return err
		}
		for i := 0; i < len(part); {
			slot := uint32(part[i] >> 32)
			prev, err := f.settle(slot, binary.BigEndian.Uint32(run[(slot-first)*slotSize:]), base)
			if err != nil {
				return err
			}
			if prev == 0 {
				newSlots++
			}
			for ; i < len(part) && uint32(part[i]>>32) == slot; i++ {
				place := uint32(part[i])
				list[place].prev, prev = prev, base+place
			}
		}
		return nil
	})
	return newSlots, err
}

func (w *writer) writeEntries(f *file, base uint32, list []entry) error {
	const most = slotRun * slotSize / entrySize
	for len(list) > 0 {
		n := min(len(list), most)
		for i := range list[:n] {
			list[i].encode(w.buf[i*entrySize:])
		}
		if _, err := f.WriteAt(w.buf[:n*entrySize], f.entryAt(base)); err != nil {
			return err
		}
		list, base = list[n:], base+uint32(n)
	}
	return nil
}

// writeSlots makes every changed slot lead to its newest entry.
func (w *writer) writeSlots(f *file, base uint32) error {
	return w.eachRun(func(first, last uint32, part []uint64) error {
		run := w.buf[:(last-first+1)*slotSize]
		if first != last {
			if err := readFull(f, run, f.slotAt(first)); err != nil {
				return err
			}
		}
		for _, change := range part { // in rising order, so the newest entry of a slot stays
			binary.BigEndian.PutUint32(run[(uint32(change>>32)-first)*slotSize:], base+uint32(change))
		}
		_, err := f.WriteAt(run, f.slotAt(first))
		return err
	})
}
