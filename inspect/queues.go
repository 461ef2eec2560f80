package inspect

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strconv"

	"github.com/ratchetmq/ratchet/internal/vfs"
)

// queue is one consume queue. Only numbers are kept of its entries, and a window of a few.
type queue struct {
	topic string
	id    int32
	dir   string
	files []dataFile
	size  int64 // of a whole file

	low, high int64 // first index whose entry points into the log, and the one behind the last entry
	live      int64 // entries that point into the log
	entries   int64 // entries that are there, without blank ones
	blanks    int64 // blank entries behind the first that is none
	lastPhy   int64

	matched int64 // live entries whose record has been met
	next    int64 // index that the next record must have at least; -1 before the first
	end     int64 // one more than the highest index of any record
	window  []byte
	winAt   int64 // its position in the queue's files
}

// queueSet is all consume queues of a store.
type queueSet struct {
	open   *openFiles
	byName map[string]map[int32]*queue
	list   []*queue // in order of topic and number
	units  int      // entries that a window holds
}

// windowMemory is how much all windows of a set take together.
const windowMemory = 32 << 20

func openQueues(fsys vfs.FS, root string) (*queueSet, error) {
	set := &queueSet{open: newOpenFiles(fsys), byName: map[string]map[int32]*queue{}}
	base := filepath.Join(root, queueFolder)
	topics, err := fsys.ReadDir(base)
	if errors.Is(err, fs.ErrNotExist) {
		return set, nil
	}
	if err != nil {
		return nil, err
	}
	for _, t := range topics {
		if !t.IsDir() {
			continue
		}
		ids, err := fsys.ReadDir(filepath.Join(base, t.Name()))
		if err != nil {
			return nil, err
		}
		set.byName[t.Name()] = map[int32]*queue{}
		for _, d := range ids {
			id, err := strconv.ParseInt(d.Name(), 10, 32)
			if err != nil || !d.IsDir() {
				continue
			}
			q, err := openQueue(fsys, filepath.Join(base, t.Name(), d.Name()), t.Name(), int32(id))
			if err != nil {
				return nil, err
			}
			set.byName[t.Name()][int32(id)] = q
			set.list = append(set.list, q)
		}
	}
	set.units = min(max(windowMemory/entrySize/max(len(set.list), 1), 10), 400)
	return set, nil
}

func openQueue(fsys vfs.FS, dir, topic string, id int32) (*queue, error) {
	files, err := listDataFiles(fsys, dir)
	return &queue{topic: topic, id: id, dir: dir, files: files, size: unitSize(files), next: -1, lastPhy: -1}, err
}

func (set *queueSet) get(topic []byte, id int32) *queue { return set.byName[string(topic)][id] }

// entryAt is the entry at an index; a place that is in no file reads as zeros. fresh asks the disk again.
func (set *queueSet) entryAt(q *queue, index int64, fresh bool) (e entry, file string, at int64, err error) {
	if index < 0 || index >= 1<<58 { // damaged; its product would go wrong
		return entry{}, q.dir, 0, nil
	}
	pos := index * entrySize
	file, at = q.dir, pos
	for i := len(q.files) - 1; i >= 0; i-- {
		if f := q.files[i]; pos >= f.start && pos-f.start < q.size {
			file, at = f.path, pos-f.start
			break
		}
	}
	if file == q.dir {
		return entry{}, file, at, nil
	}
	if fresh || pos < q.winAt || pos+entrySize > q.winAt+int64(len(q.window)) {
		if q.window == nil {
			q.window = make([]byte, 0, set.units*entrySize)
		}
		want := min(int64(cap(q.window)), q.size-at)
		n, err := set.open.readAt(file, q.window[:want], at)
		q.window, q.winAt = q.window[:n], pos
		if err != nil || n < entrySize {
			q.window = q.window[:0]
			return entry{}, file, at, err
		}
	}
	return parseEntry(q.window[pos-q.winAt:]), file, at, nil
}

// eachEntry calls fn for the entries of a queue in order, from an index on, until it returns false. Stretches of zeros
// are passed over; file and at say where an entry stands.
func (set *queueSet) eachEntry(q *queue, from int64, fn func(index int64, e entry, file string, at int64) bool) error {
	buf := make([]byte, 3276*entrySize)
	for _, f := range q.files {
		size := min(f.size, q.size)
		at := min(max(0, from*entrySize-f.start), size)
		for at < size {
			data, err := set.open.nextData(f.path, at, size)
			if err != nil {
				return err
			}
			at = max(at, data-data%entrySize)
			n, err := set.open.readAt(f.path, buf[:min(int64(len(buf)), size-at)], at)
			if err != nil {
				return err
			}
			whole := n - n%entrySize
			for i := 0; i < whole; i += entrySize {
				e := parseEntry(buf[i:])
				if e != (entry{}) && !fn((f.start+at+int64(i))/entrySize, e, f.path, at+int64(i)) {
					return nil
				}
			}
			if whole == 0 {
				break
			}
			at += int64(whole)
		}
	}
	return nil
}
