package index

import (
	"encoding/binary"
	"errors"
	"io"
	"sync/atomic"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/internal/vfs"
)

// file is one open index file. Its descriptor is closed when the last of those that use it (the Index's list, running
// queries, the list of files to sync) has let go.
type file struct {
	layout
	vfs.File
	name string // the last element of the path
	refs atomic.Int32
	disk header // as it was last written; guarded by Index.mu
}

func newFile(f vfs.File, name string, l layout) *file {
	file := &file{layout: l, File: f, name: name, disk: header{next: 1}}
	file.refs.Store(1)
	return file
}

func (f *file) hold() *file {
	f.refs.Add(1)
	return f
}

func (f *file) release() error {
	if f.refs.Add(-1) == 0 {
		return f.Close()
	}
	return nil
}

// readFull reads all of b; bytes behind the file's end are an error.
func readFull(r io.ReaderAt, b []byte, at int64) error {
	n, err := r.ReadAt(b, at)
	if n == len(b) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

func (f *file) readHeader() error {
	var b [headerSize]byte
	if err := readFull(f, b[:], 0); err != nil {
		return err
	}
	f.disk = decodeHeader(b[:])
	return nil
}

func (f *file) readSlot(slot uint32) (uint32, error) {
	var b [slotSize]byte
	err := readFull(f, b[:], f.slotAt(slot))
	return binary.BigEndian.Uint32(b[:]), err
}

// settle follows a slot's value down its chain to an entry below next. A slot is ahead of the header when the process
// died between the two writes, or when it is just being written; the entries it leads over are complete then, since
// they were written before. One that isn't of this slot ends the chain: it is left over from before a crash and has
// since got another content.
func (f *file) settle(slot, value, next uint32) (uint32, error) {
	if value < next {
		return value, nil // nearly always, and without what the buffer costs
	}
	var b [entrySize]byte
	for value >= next {
		if value >= f.entries {
			return 0, nil
		}
		if err := readFull(f, b[:], f.entryAt(value)); err != nil {
			return 0, err
		}
		e := decodeEntry(b[:])
		if e.prev >= value || !f.onSlot(&e, slot) {
			return 0, nil
		}
		value = e.prev
	}
	return value, nil
}

// chain reads the entries of one slot, newest first.
type chain struct {
	file *file
	slot uint32
	at   uint32 // the number of the entry that next returns; 0 = the end
	last uint32 // the one it returned before

	low   uint32 // the entries low to high-1 are in block
	high  uint32
	block [nearEntries * entrySize]byte
}

// nearEntries is how many entries are read at once when the chain's steps are so short that this saves reads: the
// chain of a much used tag goes through every third or fourth entry.
const nearEntries = 400

// start sets the chain to the newest entry of the hash's slot below next.
func (c *chain) start(f *file, hash, next uint32) error {
	c.file, c.slot, c.last, c.low, c.high = f, f.slotOf(hash), 0, 0, 0
	value, err := f.readSlot(c.slot)
	if err != nil {
		return err
	}
	c.at, err = f.settle(c.slot, value, next)
	return err
}

// next returns false at the chain's end, or where it is broken.
func (c *chain) next() (e entry, ok bool, err error) {
	number := c.at
	if number == 0 {
		return e, false, nil
	}
	if number < c.low || number >= c.high {
		c.low, c.high = number, number+1
		if c.last != 0 && c.last-number < nearEntries {
			c.low = max(number+1, nearEntries+1) - nearEntries
		}
		if err := readFull(c.file, c.block[:(c.high-c.low)*entrySize], c.file.entryAt(c.low)); err != nil {
			return e, false, err
		}
	}
	e = decodeEntry(c.block[(number-c.low)*entrySize:])
	if e.prev >= number || !c.file.onSlot(&e, c.slot) {
		c.at = 0
		return e, false, nil
	}
	c.last, c.at = number, e.prev
	return e, true, nil
}

// name is a file's name for a moment: the local time as Java's broker writes it. A name that does not sort behind the
// one before, because the clock was set back or two files are made in one millisecond, becomes that one plus one;
// RocketMQ sorts the names and reads nothing else from them.
func nextName(stamp, before string) string {
	if stamp > before {
		return stamp
	}
	b := []byte(before)
	for i := len(b) - 1; i >= 0; i-- {
		if b[i] != '9' {
			b[i]++
			break
		}
		b[i] = '0'
	}
	return string(b)
}

const nameLength = len("20060102150405000")

func isName(s string) bool {
	if len(s) != nameLength {
		return false
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}

// entryTime is the range of store timestamps that an entry stands for: the file keeps whole seconds.
func (h *header) entryTime(seconds int32) (from, to int64) {
	from = h.beginTime + int64(seconds)*1000
	return from, from + 999
}

// covers says whether the file may have entries of that time.
func (h *header) covers(begin, end int64) bool {
	return !h.empty() && h.beginTime <= end && max(h.endTime, h.beginTime) >= begin
}

// below says whether every entry is of a record below phy.
func (h *header) below(phy offset.Physical) bool { return h.endPhy < phy }
