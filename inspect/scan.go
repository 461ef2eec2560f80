package inspect

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/ratchetmq/ratchet/internal/vfs"
	"github.com/ratchetmq/ratchet/message"
)

// commitLog is the files of a log.
type commitLog struct {
	open  *openFiles
	files []dataFile
	size  int64 // of a whole file
}

func openLog(fsys vfs.FS, dirs []string) (*commitLog, error) {
	l := &commitLog{open: newOpenFiles(fsys)}
	for _, dir := range dirs {
		files, err := listDataFiles(fsys, dir)
		if err != nil {
			return nil, err
		}
		l.files = append(l.files, files...)
	}
	slices.SortFunc(l.files, func(a, b dataFile) int { return int(min(1, max(-1, a.start-b.start))) })
	l.size = unitSize(l.files)
	return l, nil
}

func (l *commitLog) low() int64 {
	if len(l.files) == 0 {
		return 0
	}
	return l.files[0].start
}

// fileAt is the number of the file that a position belongs to, or else of the next one behind it.
func (l *commitLog) fileAt(pos int64) (i int, inside bool) {
	i, found := slices.BinarySearchFunc(l.files, pos, func(f dataFile, pos int64) int { return int(min(1, max(-1, f.start-pos))) })
	if found {
		return i, true
	}
	if i > 0 && pos < l.files[i-1].start+l.size {
		return i - 1, true
	}
	return i, false
}

// place is a position as a file and an offset in it, for findings.
func (l *commitLog) place(pos int64) (file string, at int64) {
	if i, inside := l.fileAt(pos); inside {
		return l.files[i].path, pos - l.files[i].start
	}
	return logFolder, pos
}

// readAt reads what there is of b at a position, up to the end of its file.
func (l *commitLog) readAt(b []byte, pos int64) (int, error) {
	i, inside := l.fileAt(pos)
	if !inside {
		return 0, nil
	}
	f := l.files[i]
	n := min(int64(len(b)), f.start+min(l.size, f.size)-pos)
	if n <= 0 {
		return 0, nil
	}
	return l.open.readAt(f.path, b[:n], pos-f.start)
}

// maxRecord is more than any record has; what claims to be longer is none.
const maxRecord = 128 << 20

// record reads one record by its position, into buf when that is large enough. The buffer is given back.
func (l *commitLog) record(buf []byte, pos int64) (message.Record, []byte, error) {
	buf = slices.Grow(buf[:0], message.PosBornHost)[:message.PosBornHost]
	n, err := l.readAt(buf, pos)
	if err != nil {
		return message.Record{}, buf, err
	}
	size, magic, _ := message.Peek(buf[:n])
	i, inside := l.fileAt(pos)
	if (magic == message.MagicV1 || magic == message.MagicV2) && inside && size > 0 && size <= maxRecord && int64(size) <= l.files[i].end()-pos {
		buf = slices.Grow(buf[:0], int(size))[:size]
		if n, err = l.readAt(buf, pos); err != nil {
			return message.Record{}, buf, err
		}
	}
	r, err := message.Parse(buf[:n])
	return r, buf, err
}

type itemKind uint8

const (
	itemRecord itemKind = iota
	itemBlank           // the rest of a file, marked as such
	itemDamage          // bytes that are no record; the log goes on behind them
	itemTail            // bytes that are no record, and no record comes behind them
	itemZeros           // nothing was written up to the log's end
)

// item is a piece of the log.
type item struct {
	kind    itemKind
	at, end int64
	why     string         // of damage and tail
	rec     message.Record // of a record; it and raw live until the next item
	raw     []byte
}

// scanner goes through a log from piece to piece.
type scanner struct {
	log   *commitLog
	pos   int64
	buf   []byte
	bufAt int64
	probe []byte
	done  bool
	asked bool  // the disk was asked again
	again int64 // at this position
}

// scanChunk is how much is read at once.
const scanChunk = 1 << 20

func newScanner(l *commitLog, from int64) *scanner { return &scanner{log: l, pos: max(from, l.low())} }

// bytes are up to n bytes at pos, less at the end of the file.
func (sc *scanner) bytes(pos int64, n int) ([]byte, error) {
	if pos >= sc.bufAt && pos+int64(n) <= sc.bufAt+int64(len(sc.buf)) {
		return sc.buf[pos-sc.bufAt:][:n], nil
	}
	want := max(n, scanChunk)
	if cap(sc.buf) < want {
		sc.buf = make([]byte, want)
	}
	got, err := sc.log.readAt(sc.buf[:want], pos)
	sc.buf, sc.bufAt = sc.buf[:got], pos
	return sc.buf[:min(n, got)], err
}

// next is the next piece; ok is false behind the last one. An error is one of reading. Where no record is, the disk is
// asked once more: a running broker may have appended since the window was read.
func (sc *scanner) next() (it item, ok bool, err error) {
	at := sc.pos
	it, ok, err = sc.piece()
	if err != nil || !ok && !sc.done || ok && (it.kind == itemRecord || it.kind == itemBlank) || sc.asked && sc.again == at {
		return it, ok, err
	}
	sc.asked, sc.again, sc.pos, sc.done = true, at, at, false
	sc.buf = sc.buf[:0]
	return sc.piece()
}

// piece is next without a second look.
func (sc *scanner) piece() (it item, ok bool, err error) {
	if sc.done || len(sc.log.files) == 0 {
		return item{}, false, nil
	}
	i, inside := sc.log.fileAt(sc.pos)
	switch {
	case i >= len(sc.log.files):
		return item{}, false, nil
	case !inside:
		it = item{kind: itemDamage, at: sc.pos, end: sc.log.files[i].start, why: "file missing"}
		sc.pos = it.end
		return it, true, nil
	}
	end := sc.log.files[i].start + sc.log.size
	head, err := sc.bytes(sc.pos, message.BlankSize)
	if err != nil {
		return item{}, false, err
	}
	size, magic, whole := message.Peek(head)
	switch {
	case !whole:
		return sc.damage(i, fmt.Sprintf("file ends after %d bytes of %d", sc.log.files[i].size, sc.log.size))
	case size == 0 && magic == 0:
		return sc.damage(i, "")
	case magic == message.MagicBlank && int64(size) == end-sc.pos:
		it = item{kind: itemBlank, at: sc.pos, end: end}
		sc.pos = end
		return it, true, nil
	case magic == message.MagicBlank:
		return sc.damage(i, fmt.Sprintf("blank record of %d bytes, %d are left in the file", size, end-sc.pos))
	case magic != message.MagicV1 && magic != message.MagicV2:
		return sc.damage(i, fmt.Sprintf("magic code %08x", magic))
	case size <= 0 || size > maxRecord || int64(size) > end-sc.pos:
		return sc.damage(i, fmt.Sprintf("size %d, %d are left in the file", size, end-sc.pos))
	}
	raw, err := sc.bytes(sc.pos, int(size))
	if err != nil {
		return item{}, false, err
	}
	r, bad := message.Parse(raw)
	if bad != nil {
		return sc.damage(i, bad.Error())
	}
	it = item{kind: itemRecord, at: sc.pos, end: sc.pos + int64(size), rec: r, raw: raw}
	sc.pos = it.end
	return it, true, nil
}

// damage is the piece from pos to where the log goes on. Without a reason the bytes there are zeros.
func (sc *scanner) damage(i int, why string) (item, bool, error) {
	it := item{kind: itemDamage, at: sc.pos, why: why}
	files := sc.log.files
	for j := i; j < len(files); j++ {
		from := max(sc.pos+1, files[j].start)
		if j > i {
			from = files[j].start
		}
		next, err := sc.resync(files[j], from)
		if err != nil {
			return item{}, false, err
		}
		if next >= 0 {
			if why == "" {
				it.why = "zeros"
			}
			it.end, sc.pos = next, next
			return it, true, nil
		}
	}
	data, err := sc.firstData(i)
	if err != nil {
		return item{}, false, err
	}
	it.kind, it.end, sc.pos = itemZeros, data, data // what comes behind zeros is the next piece
	end := max(files[len(files)-1].end(), it.at)
	if data == it.at {
		it.kind, it.end, sc.done = itemTail, end, true
	}
	sc.done = sc.done || data >= end
	return it, it.end > it.at, nil
}

// firstData is the first position at or behind pos that is no zero, or the log's end.
func (sc *scanner) firstData(i int) (int64, error) {
	files := sc.log.files
	for ; i < len(files); i++ {
		f := files[i]
		from := max(sc.pos, f.start)
		at, err := sc.log.open.nextData(f.path, from-f.start, f.size)
		if err != nil {
			return 0, err
		}
		if at < f.size {
			return f.start + at, nil
		}
	}
	return max(files[len(files)-1].end(), sc.pos), nil
}

// Parts of the magic codes by which resync finds candidates quickly.
var (
	recordMark = []byte{0xDA, 0xA3, 0x20}
	blankMark  = []byte{0xCB, 0xD4, 0x31, 0x94}
)

// resync is the first position at or behind from, in one file, at which a record stands that knows this position, or
// a blank record that fills the file; -1 when there is none.
func (sc *scanner) resync(f dataFile, from int64) (int64, error) {
	limit := f.start + min(f.size, sc.log.size)
	for at := from; at < limit; {
		data, err := sc.log.open.nextData(f.path, at-f.start, limit-f.start)
		if err != nil {
			return -1, err
		}
		if at = max(from, f.start+data-7); f.start+data >= limit { // a head may begin with zeros
			return -1, nil
		}
		window, err := sc.bytes(at, int(min(scanChunk, limit-at)))
		if err != nil {
			return -1, err
		}
		for k := 0; k+message.BlankSize <= len(window); k++ {
			next := nextMark(window[k+message.PosMagic:])
			if next < 0 {
				break
			}
			k += next
			if sc.startsAt(at+int64(k), f) {
				return at + int64(k), nil
			}
		}
		if int64(len(window)) < min(scanChunk, limit-at) || at+int64(len(window)) >= limit {
			return -1, nil
		}
		at += int64(len(window)) - 7
		from = at
	}
	return -1, nil
}

func nextMark(b []byte) int {
	i, j := bytes.Index(b, recordMark), bytes.Index(b, blankMark)
	if i < 0 || (j >= 0 && j < i) {
		return j
	}
	return i
}

// startsAt says whether a record or blank record stands at a position. It leaves the window alone.
func (sc *scanner) startsAt(pos int64, f dataFile) bool {
	sc.probe = slices.Grow(sc.probe[:0], message.PosBornHost)[:message.PosBornHost]
	n, err := sc.log.readAt(sc.probe, pos)
	size, magic, whole := message.Peek(sc.probe[:n])
	if err != nil || !whole {
		return false
	}
	if magic == message.MagicBlank {
		return int64(size) == f.start+sc.log.size-pos
	}
	if n < message.PosBornHost || binary.BigEndian.Uint64(sc.probe[message.PosPhysicalOffset:]) != uint64(pos) {
		return false
	}
	var r message.Record
	r, sc.probe, err = sc.log.record(sc.probe, pos)
	return err == nil && int64(r.PhysicalOffset) == pos
}
