package inspect

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/ratchetmq/ratchet/internal/vfs"
	"github.com/ratchetmq/ratchet/message"
)

// indexHeader is the first 40 bytes of an index file.
type indexHeader struct {
	beginTime, endTime, beginPhy, endPhy int64
	slots, next                          uint32 // slots in use; the entry that is written next, 1 in an empty file
}

type indexEntry struct {
	hash    uint32
	phy     int64
	seconds int32
	prev    uint32
}

const (
	indexHeaderSize = 40
	indexEntrySize  = 20
)

// indexFile is an index file as its size says that it is laid out.
type indexFile struct {
	path    string
	size    int64
	slots   int64
	entries int64
	header  indexHeader
}

func readIndexFile(fsys vfs.FS, open *openFiles, path string, slots int) (*indexFile, error) {
	info, err := fsys.Stat(path)
	if err != nil {
		return nil, err
	}
	x := &indexFile{path: path, size: info.Size(), slots: int64(slots)}
	if slots == 0 {
		x.slots = (x.size - indexHeaderSize) / (4 + 4*indexEntrySize) // RocketMQ's default is four entries for a slot
	}
	x.entries = (x.size - indexHeaderSize - 4*x.slots) / indexEntrySize
	if x.slots < 1 || x.entries < 1 {
		return x, fmt.Errorf("%d bytes are no index", x.size)
	}
	var b [indexHeaderSize]byte
	if _, err := open.readAt(path, b[:], 0); err != nil {
		return x, err
	}
	be := binary.BigEndian
	u := func(at int) int64 { return int64(be.Uint64(b[at:])) }
	x.header = indexHeader{u(0), u(8), u(16), u(24), be.Uint32(b[32:]), max(be.Uint32(b[36:]), 1)}
	return x, nil
}

func (x *indexFile) entryAt(n int64) int64 { return indexHeaderSize + 4*x.slots + indexEntrySize*n }

func (x *indexFile) wrong() string {
	h := &x.header
	switch {
	case int64(h.next) > x.entries:
		return fmt.Sprintf("next entry %d of %d", h.next, x.entries)
	case h.next <= 1:
		return ""
	case h.beginPhy < 0 || h.endPhy < h.beginPhy:
		return fmt.Sprintf("positions %d to %d", h.beginPhy, h.endPhy)
	case h.beginTime <= 0 || h.endTime < 0:
		return fmt.Sprintf("times %d to %d", h.beginTime, h.endTime)
	}
	return ""
}

// indexCheck goes through the index files in step with the log.
type indexCheck struct {
	c       *checker
	open    *openFiles
	files   []*indexFile
	entries int64

	current int
	n       int64 // the entry that is looked at
	e       indexEntry
	ok      bool     // there is one
	heads   []uint32 // newest entry of each slot so far, of the current file
	last    int64    // position of the entry before
	have    []uint32 // hashes of the entries of one record
	buf     []byte
	bufAt   int64
}

func openIndexes(c *checker) (*indexCheck, error) {
	x := &indexCheck{c: c, open: newOpenFiles(c.opts.FS), current: -1, last: -1}
	dir := filepath.Join(c.root, indexFolder)
	list, err := c.opts.FS.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, d := range list {
		if d.IsDir() {
			continue
		}
		path := filepath.Join(dir, d.Name())
		f, err := readIndexFile(c.opts.FS, x.open, path, c.opts.Slots)
		if f == nil {
			return nil, err
		}
		if err != nil {
			c.add("index-header", path, 0, "%v", err)
			continue
		}
		if why := f.wrong(); why != "" {
			c.add("index-header", path, 0, "%s", why)
			continue
		}
		x.files = append(x.files, f)
		x.entries += int64(f.header.next) - 1
	}
	return x, x.nextFile()
}

func (x *indexCheck) close() { x.open.close() }

// nextFile goes to the first entry of the next file that has one.
func (x *indexCheck) nextFile() error {
	for x.current+1 < len(x.files) {
		x.current++
		x.heads = make([]uint32, x.files[x.current].slots)
		x.n, x.buf = 0, nil
		if ok, err := x.advance(); ok || err != nil {
			return err
		}
	}
	x.ok = false
	return nil
}

// advance goes to the next entry of the file; false behind its last.
func (x *indexCheck) advance() (bool, error) {
	f := x.files[x.current]
	if x.n++; x.n >= int64(f.header.next) {
		x.ok = false
		return false, x.checkSlots(f)
	}
	at := f.entryAt(x.n)
	if x.buf == nil || at+indexEntrySize > x.bufAt+int64(len(x.buf)) {
		if cap(x.buf) == 0 {
			x.buf = make([]byte, 3276*indexEntrySize)
		}
		n, err := x.open.readAt(f.path, x.buf[:cap(x.buf)], at)
		if err != nil || n < indexEntrySize {
			x.ok = false
			return false, err
		}
		x.buf, x.bufAt = x.buf[:n], at
	}
	x.e, x.ok = parseIndexEntry(x.buf[at-x.bufAt:]), true
	x.checkChain(f, at)
	return true, nil
}

func parseIndexEntry(b []byte) indexEntry {
	be := binary.BigEndian
	return indexEntry{be.Uint32(b), int64(be.Uint64(b[4:])), int32(be.Uint32(b[12:])), be.Uint32(b[16:])}
}

// checkChain checks that an entry goes on with the newest one of its slot before it.
func (x *indexCheck) checkChain(f *indexFile, at int64) {
	if int32(x.e.hash) < 0 {
		x.c.add("index-entry", f.path, at, "entry %d: hash %08x", x.n, x.e.hash)
		return
	}
	slot := int64(x.e.hash) % f.slots
	if x.e.prev != x.heads[slot] {
		x.c.add("index-chain", f.path, at, "entry %d: goes on with entry %d, the one before it on slot %d is %d", x.n, x.e.prev, slot, x.heads[slot])
	}
	x.heads[slot] = uint32(x.n)
}

// checkSlots compares the slots with the entries of a file that were gone through. A slot may be ahead of the header.
func (x *indexCheck) checkSlots(f *indexFile) error {
	buf := make([]byte, 64<<10)
	for slot := int64(0); slot < f.slots; {
		at := indexHeaderSize + 4*slot
		n, err := x.open.readAt(f.path, buf[:min(int64(len(buf)), 4*(f.slots-slot))], at)
		if err != nil || n < 4 {
			return err
		}
		for i := 0; i+4 <= n; i += 4 {
			newest := binary.BigEndian.Uint32(buf[i:])
			if newest != x.heads[slot] && newest < f.header.next {
				x.c.add("index-slot", f.path, at+int64(i), "slot %d: newest entry %d, should be %d", slot, newest, x.heads[slot])
			}
			slot++
		}
	}
	return nil
}

// record checks the entries that point at or in front of a record.
func (x *indexCheck) record(at int64, r *message.Record) error {
	x.have = x.have[:0]
	for x.ok && x.e.phy <= at {
		f := x.files[x.current]
		switch {
		case x.e.phy < x.last:
			x.c.add("index-order", f.path, f.entryAt(x.n), "entry %d: points at %d, the one before it at %d", x.n, x.e.phy, x.last)
		case x.e.phy < x.c.log.low(): // the log has been cleaned
		case x.e.phy < at:
			x.c.add("index-dangling", f.path, f.entryAt(x.n), "entry %d: no record at %d", x.n, x.e.phy)
		case !hasHash(r, x.e.hash):
			x.c.add("index-entry", f.path, f.entryAt(x.n), "entry %d: hash %08x is of no key of %s at %d", x.n, x.e.hash, title(r), at)
		default:
			x.have = append(x.have, x.e.hash)
		}
		if err := x.step(); err != nil {
			return err
		}
	}
	x.complete(at, r)
	return nil
}

// complete notes a record that has a key without an entry. It is no finding: RocketMQ drops index files after a crash, and
// both leave out what comes while an index can't be written. Nothing is expected in front of the first entry.
func (x *indexCheck) complete(at int64, r *message.Record) {
	if len(x.files) == 0 || at < x.files[0].header.beginPhy ||
		r.SysFlag&message.FlagTransactionMask == message.FlagRollback {
		return
	}
	eachKeyHash(r, func(hash uint32) bool {
		if slices.Contains(x.have, hash) {
			return true
		}
		if x.c.live && at >= x.files[len(x.files)-1].header.endPhy {
			x.c.note("index-behind")
		} else {
			x.c.note("index-missing")
		}
		return false
	})
}

func (x *indexCheck) step() error {
	x.last = max(x.last, x.e.phy)
	if ok, err := x.advance(); ok || err != nil {
		return err
	}
	return x.nextFile()
}

func hasHash(r *message.Record, hash uint32) (found bool) {
	eachHash(r, func(h uint32) bool {
		found = h == hash
		return !found
	})
	return found
}

// finish looks at the entries behind the last record.
func (x *indexCheck) finish() error {
	for x.ok {
		f := x.files[x.current]
		switch {
		case x.c.live && x.e.phy >= x.c.end:
			x.c.note("index-ahead")
		case x.e.phy >= x.c.log.low():
			x.c.add("index-dangling", f.path, f.entryAt(x.n), "entry %d: no record at %d, the log ends at %d", x.n, x.e.phy, x.c.end)
		}
		if err := x.step(); err != nil {
			return err
		}
	}
	return nil
}
