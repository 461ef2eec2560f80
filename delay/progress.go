package delay

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"

	"github.com/ratchetmq/ratchet/internal/atomicfile"
	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/internal/vfs"
	"github.com/ratchetmq/ratchet/protocol"
)

// progress is what delayOffset.json holds.
type progress struct {
	// next is, by level, the first queue offset that was not delivered.
	next map[int]offset.Queue
	// mark is the place in the log below which all deliveries are counted in next, and behind which none is; 0 in a table
	// of Java's, which has none.
	mark offset.Physical
	// passed are, by level, the places before next that were passed over, and may be filled yet.
	passed  map[int][]span
	counter int64 // how often the table was written
}

func (p progress) clone() progress {
	p.next = maps.Clone(p.next)
	if p.passed = maps.Clone(p.passed); p.passed == nil {
		p.passed = map[int][]span{}
	}
	return p
}

func (p *progress) setPassed(level int, list []span) {
	if p.passed[level] = list; len(list) == 0 {
		delete(p.passed, level)
	}
}

// raise lifts p to what other has beyond it. Below the larger of the marks all deliveries are counted in the larger
// numbers, since both are about one log.
func (p *progress) raise(other progress) (changed bool) {
	for level, next := range other.next {
		own, known := p.next[level]
		if !known || next > own {
			p.next[level] = next
			changed = true
		}
		if next >= own && (other.mark >= p.mark || next > own) && !slices.Equal(p.passed[level], other.passed[level]) {
			p.setPassed(level, other.passed[level])
			changed = true
		}
	}
	if other.mark > p.mark {
		p.mark = other.mark
		changed = true
	}
	return changed
}

// fileProgress is the JSON form. Java's broker skips deliveredTo and passedOver.
type fileProgress struct {
	DataVersion protocol.DataVersion  `json:"dataVersion"`
	DeliveredTo int64                 `json:"deliveredTo"`
	PassedOver  map[string][][2]int64 `json:"passedOver"`
	OffsetTable map[string]int64      `json:"offsetTable"`
}

var errTable = errors.New("delay offset table not valid")

// parseProgress reads a table, with bare or quoted keys, as 4.9 or 5.x writes it.
func parseProgress(text []byte) (progress, error) {
	var f fileProgress
	if err := protocol.Unmarshal(text, &f); err != nil {
		return progress{}, fmt.Errorf("%w: %w", errTable, err)
	}
	p := progress{next: map[int]offset.Queue{}, mark: offset.Physical(f.DeliveredTo), counter: f.DataVersion.Counter}
	for key, next := range f.OffsetTable {
		level, err := strconv.ParseInt(key, 10, 32)
		if err != nil || level < 1 || next < 0 {
			return progress{}, fmt.Errorf("%w: offset %d of level %q", errTable, next, key)
		}
		p.next[int(level)] = offset.Queue(next)
	}
	for key, list := range f.PassedOver {
		level, err := strconv.Atoi(key)
		if err != nil || level < 1 || level > maxLevels {
			return progress{}, fmt.Errorf("%w: places of level %q", errTable, key)
		}
		for _, s := range list {
			if p.passed == nil {
				p.passed = map[int][]span{}
			}
			p.passed[level] = append(p.passed[level], span{From: offset.Queue(s[0]), To: offset.Queue(s[1])})
		}
	}
	return p, nil
}

// format writes the table as Java's broker does: tabs, and keys that are bare numbers.
func (p progress) format(now int64) []byte {
	b := []byte("{\n\t\"dataVersion\":{\n\t\t\"counter\":")
	b = strconv.AppendInt(b, p.counter, 10)
	b = append(b, ",\n\t\t\"stateVersion\":0,\n\t\t\"timestamp\":"...)
	b = strconv.AppendInt(b, now, 10)
	b = append(b, "\n\t},\n\t\"deliveredTo\":"...)
	b = strconv.AppendInt(b, int64(p.mark), 10)
	if len(p.passed) > 0 {
		b = append(b, ",\n\t\"passedOver\":{"...)
		for i, level := range slices.Sorted(maps.Keys(p.passed)) {
			if i > 0 {
				b = append(b, ',')
			}
			b = fmt.Appendf(b, "\"%d\":[", level)
			for i, s := range p.passed[level] {
				if i > 0 {
					b = append(b, ',')
				}
				b = fmt.Appendf(b, "[%d,%d]", s.From, s.To)
			}
			b = append(b, ']')
		}
		b = append(b, '}')
	}
	b = append(b, ",\n\t\"offsetTable\":{"...)
	for i, level := range slices.Sorted(maps.Keys(p.next)) {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, "\n\t\t"...)
		b = strconv.AppendInt(b, int64(level), 10)
		b = append(b, ':')
		b = strconv.AppendInt(b, int64(p.next[level]), 10)
	}
	return append(b, "\n\t}\n}"...)
}

// loadProgress reads the file, or its backup. Without either nothing was delivered.
func loadProgress(fsys vfs.FS, path string) (p progress, err error) {
	_, err = atomicfile.Read(fsys, path, func(text []byte) (err error) {
		p, err = parseProgress(text)
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return progress{next: map[int]offset.Queue{}}, nil
	}
	if err != nil {
		return progress{}, fmt.Errorf("delay progress: %w", err)
	}
	return p, nil
}
