package store

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/internal/vfs/vfstest"
	"github.com/ratchetmq/ratchet/message"
	"github.com/ratchetmq/ratchet/store/index"
)

// sample is a store that was killed, and all that anybody was ever given of it.
type sample struct {
	image *vfstest.Mem
	sent  []message.Record // in the log's order; the bytes are copies
	raw   [][]byte         // each record's bytes
	log   map[string][]byte
	end   offset.Physical
	step  int // every so many of the damages are tried
	tried int

	unindexed int // the record whose key the index may not have
}

const sampleSegment = 8192

func sampleOptions(disk *vfstest.Mem, x **index.Index) Options {
	o := small(disk)
	o.SegmentSize, o.ConsumeQueueUnits = sampleSegment, 8
	o.OpenIndex = func(clean bool, synced int64) (Indexer, error) {
		var err error
		*x, err = index.Open(disk, testRoot+"/index", index.Options{
			Slots: 31, Entries: 40, Unclean: !clean, SyncedTime: synced,
		})
		return *x, err
	}
	return o
}

func key(i int) string { return fmt.Sprint("key", i) }

func newSample(t *testing.T) *sample { return killedSample(t, true) }

// killedSample has all entries in the queues' files, or lacks those that waited in memory.
func killedSample(t *testing.T, written bool) *sample {
	t.Helper()
	disk := vfstest.New()
	var x *index.Index
	s := mustOpen(t, sampleOptions(disk, &x))
	w := &sample{log: map[string][]byte{}, step: 1, unindexed: -1}
	if testing.Short() {
		w.step = 7
	}
	for i := 0; s.Written() < sampleSegment+4500; i++ {
		m := text([]string{"A", "B"}[i%2], int32(i/2%2), fmt.Sprint("body", i, strings.Repeat("b", 17*i%190)))
		m.Properties = message.AppendProperty(nil, message.PropertyKeys, key(i))
		a := put(t, s, m)
		raw, err := s.Record(a.Physical, nil)
		require.NoError(t, err)
		w.raw = append(w.raw, raw)
		w.sent = append(w.sent, records(t, raw)[0])
		if i == 20 {
			require.NoError(t, s.saveCheckpoint())
		}
	}
	w.end = s.Written()
	require.NoError(t, x.Flush())
	require.Positive(t, waiting(s))
	if written {
		require.NoError(t, s.writeTails())
	}
	w.image = kill(disk)
	for _, name := range w.image.Files() {
		if strings.Contains(name, "/commitlog/") {
			data, err := w.image.ReadFile(name)
			require.NoError(t, err)
			w.log[name] = data
		}
	}
	return w
}

// file is the log file of a position, and the place in it.
func (w *sample) file(at offset.Physical) (string, int64) {
	return logFile(int64(at) / sampleSegment * sampleSegment), int64(at) % sampleSegment
}

// damaged lists which records have other bytes in an image than they were written with.
func (w *sample) damaged(t *testing.T, image *vfstest.Mem) map[int]bool {
	t.Helper()
	changed := map[int]bool{}
	logs := map[string][]byte{}
	for i, r := range w.sent {
		name, at := w.file(r.PhysicalOffset)
		if logs[name] == nil {
			logs[name], _ = image.ReadFile(name)
		}
		data := logs[name]
		if end := at + int64(r.Size); int64(len(data)) < end || !bytes.Equal(data[at:end], w.raw[i]) {
			changed[i] = true
		}
	}
	return changed
}

// check opens a damaged image, twice, and wants of it: every record whose bytes are whole is in its queue, at its offset,
// and found by its key; nothing else is served but, where no checksum can tell, what stands at a damaged record's place;
// no byte that was in the log is gone from the disk; the next message gets an offset that nobody had.
func (w *sample) check(t *testing.T, image *vfstest.Mem, what string, args ...any) {
	t.Helper()
	what = fmt.Sprintf(what, args...)
	changed := w.damaged(t, image)
	before := map[string][]byte{}
	for name := range w.log {
		before[name], _ = image.ReadFile(name)
	}
	w.tried++
	for range 1 + (w.tried%8)/7 {
		var x *index.Index
		s, err := Open(sampleOptions(image, &x))
		require.NoError(t, err, what)
		w.checkServed(t, s, changed, before, what)
		for i, r := range w.sent {
			found, err := x.Query(string(r.Topic), key(i), math.MinInt64, math.MaxInt64, 10)
			if err != nil || !changed[i] && i != w.unindexed && !slices.Contains(found, r.PhysicalOffset) {
				t.Fatalf("%s: %s is not found by key, %v", what, key(i), err)
			}
		}
		w.checkKept(t, image, s.Written(), before, what)
		checkZeroBehind(t, s)
		for _, topic := range []string{"A", "B"} {
			for queue := range int32(2) {
				a, err := s.Append(text(topic, queue, "next"))
				require.NoError(t, err)
				for i, r := range w.sent {
					if !changed[i] && string(r.Topic) == topic && r.QueueID == queue && a.Queue <= r.QueueOffset {
						t.Fatalf("%s: offset %d is used twice", what, a.Queue)
					}
				}
			}
		}
		_ = s.log.close()
		_ = x.Close()
		// As it was before these appends, to be opened again.
		image = image.CrashClone(vfstest.KeepAll, 0)
		for name, data := range before {
			image.WriteFile(name, data)
		}
		require.NoError(t, s.lock.Close())
	}
}

func (w *sample) checkServed(t *testing.T, s *Store, changed map[int]bool, before map[string][]byte, what string) {
	t.Helper()
	served := map[offset.Physical]message.Record{}
	for _, q := range s.queues.all() {
		for _, r := range readQueue(t, s, q.topic, q.id) {
			_, twice := served[r.PhysicalOffset]
			require.False(t, twice, "%s: record at %d is in two queues", what, r.PhysicalOffset)
			served[r.PhysicalOffset] = r
		}
	}
	for i, r := range w.sent {
		got, ok := served[r.PhysicalOffset]
		delete(served, r.PhysicalOffset)
		if !changed[i] {
			raw, err := s.Record(r.PhysicalOffset, nil)
			if !ok || r.QueueOffset != got.QueueOffset || err != nil || !bytes.Equal(w.raw[i], raw) {
				t.Fatalf("%s: record %d at %d is gone or another one, %v", what, i, r.PhysicalOffset, err)
			}
		} else if ok {
			// No checksum covers what was changed. What one covers is as it was.
			require.Equal(t, r.Body, got.Body, what)
			name, at := w.file(r.PhysicalOffset)
			raw, err := s.Record(r.PhysicalOffset, nil)
			require.NoError(t, err, what)
			require.Equal(t, before[name][at:at+int64(r.Size)], raw, what)
		}
	}
	require.Empty(t, served, "%s: never sent", what)
}

// checkKept wants each byte that the damaged log had to be in the log still, or aside.
func (w *sample) checkKept(t *testing.T, image *vfstest.Mem, end offset.Physical, before map[string][]byte, what string) {
	t.Helper()
	aside := map[offset.Physical]byte{}
	for _, name := range image.Files() {
		if path.Dir(name) != testRoot+"/"+damagedFolder {
			continue
		}
		base, ok := parseFileName(strings.SplitN(path.Base(name), "-", 2)[0])
		require.True(t, ok, name)
		data, err := image.ReadFile(name)
		require.NoError(t, err)
		for i, c := range data {
			if c != 0 {
				aside[offset.Physical(base)+offset.Physical(i)] = c
			}
		}
	}
	for name, data := range before {
		now, err := image.ReadFile(name)
		require.NoError(t, err)
		start, _ := parseFileName(path.Base(name))
		for i, c := range data {
			pos := offset.Physical(start) + offset.Physical(i)
			if c != 0 && now[i] != c {
				if pos < end || c != aside[pos] {
					t.Fatalf("%s: byte at %d is lost", what, pos)
				}
			}
		}
	}
}

// files are the files of a folder of the store.
func (w *sample) files(folder string) (names []string) {
	for _, name := range w.image.Files() {
		if strings.HasPrefix(name, testRoot+"/"+folder) {
			names = append(names, name)
		}
	}
	return names
}

// cut shortens a file to n bytes, or makes zeros of what is behind them.
func (w *sample) cut(t *testing.T, name string, n int64, shorten bool) *vfstest.Mem {
	t.Helper()
	image := kill(w.image)
	data, err := image.ReadFile(name)
	require.NoError(t, err)
	data = slices.Clone(data)
	if shorten {
		data = data[:n]
	} else {
		clear(data[n:])
	}
	image.WriteFile(name, data)
	return image
}

// used is how many bytes of a file have something in them.
func (w *sample) used(t *testing.T, name string) int64 {
	t.Helper()
	data, err := w.image.ReadFile(name)
	require.NoError(t, err)
	return int64(trimZeros(data))
}

func TestEveryFileCutAtEveryByte(t *testing.T) {
	w := newSample(t)
	last := w.sent[len(w.sent)-3].PhysicalOffset
	name, from := w.file(last)
	type part struct {
		name     string
		from, to int64
	}
	parts := []part{{name, from, int64(w.end) % sampleSegment}}
	for _, name := range append(w.files(queueFolder), w.files("index")...) {
		used := w.used(t, name)
		back := int64(3 * entrySize)
		parts = append(parts, part{name, max(0, used-back), used})
	}
	parts = append(parts, part{testRoot + "/" + checkpointFile, 0, 48})
	for _, p := range parts {
		for n := p.from; n <= p.to; n += int64(w.step) {
			for _, shorten := range []bool{false, true} {
				image := w.cut(t, p.name, n, shorten)
				if strings.Contains(p.name, "/index/") { // or what it vouches for is not looked at
					require.NoError(t, image.Remove(testRoot+"/"+checkpointFile))
				}
				w.check(t, image, "%s cut at %d, shortened %v", p.name, n, shorten)
			}
		}
	}
}

func TestEveryBitOfARecordFlipped(t *testing.T) { flipRecords(t, newSample(t)) }

func TestEveryBitOfARecordFlippedWithoutTails(t *testing.T) {
	w := killedSample(t, false)
	w.step = 2*w.step + 1
	flipRecords(t, w)
}

func flipRecords(t *testing.T, w *sample) {
	t.Helper()
	for _, i := range []int{len(w.sent) / 2, len(w.sent) - 1} {
		name, at := w.file(w.sent[i].PhysicalOffset)
		body := int64(bytes.Index(w.raw[i], w.sent[i].Body))
		for bit := 0; bit < 8*len(w.raw[i]); bit += w.step {
			image := kill(w.image)
			place := at + int64(bit/8)
			data, err := image.ReadFile(name)
			require.NoError(t, err)
			patch(t, image, name, place, []byte{data[place] ^ 0x80>>(bit%8)})
			n := int64(bit / 8)
			covered := n < 12 || n >= 28 && n < 36 || n >= body-4 && n < body+int64(len(w.sent[i].Body))
			if covered && bit != 8*message.PosBodyCRC { // RocketMQ's checksum has 31 bits
				var x *index.Index
				s, err := Open(sampleOptions(kill(image), &x))
				require.NoError(t, err)
				_, err = s.Record(w.sent[i].PhysicalOffset, nil)
				require.ErrorIs(t, err, ErrNotFound, "byte %d: size, magic code, checksum, position and body are covered", n)
				require.NoError(t, s.Close())
			}
			w.check(t, image, "record %d, byte %d, bit %d", i, bit/8, bit%8)
		}
	}
}

func TestEveryBitOfAnEntryFlipped(t *testing.T) {
	w := newSample(t)
	for _, name := range append(w.files(queueFolder+"/A/0"), w.files("index")...) {
		used := w.used(t, name)
		for _, at := range []int64{used / 2 / entrySize * entrySize, used - entrySize} {
			w.unindexed = -1
			if strings.Contains(name, "/index/") {
				// Nothing covers an entry but the chain that it is part of: its own key may be lost, no other.
				at = 40 + 31*4 + (at-40-31*4)/entrySize*entrySize
				w.unindexed = w.indexed(t, name, at)
			}
			for bit := 0; bit < 8*entrySize; bit += w.step {
				image := kill(w.image)
				place := at + int64(bit/8)
				data, err := image.ReadFile(name)
				require.NoError(t, err)
				patch(t, image, name, place, []byte{data[place] ^ 1<<(bit%8)})
				require.NoError(t, image.Remove(testRoot+"/"+checkpointFile)) // or what it vouches for is not looked at
				w.check(t, image, "%s, byte %d, bit %d", name, place, bit%8)
			}
		}
	}
}

// indexed is the record that an entry of the index is about.
func (w *sample) indexed(t *testing.T, name string, at int64) int {
	t.Helper()
	data, err := w.image.ReadFile(name)
	require.NoError(t, err)
	phy := offset.Physical(binary.BigEndian.Uint64(data[at+4:]))
	i := slices.IndexFunc(w.sent, func(r message.Record) bool { return r.PhysicalOffset == phy })
	require.GreaterOrEqual(t, i, 0)
	return i
}

func TestAnyPageZeroed(t *testing.T) {
	w := newSample(t)
	for _, name := range append(append(w.files("commitlog"), w.files(queueFolder)...), append(w.files("index"), w.files(checkpointFile)...)...) {
		data, err := w.image.ReadFile(name)
		require.NoError(t, err)
		for _, size := range []int{sector, vfstest.PageSize} {
			for at := 0; at < len(data); at += size {
				image := kill(w.image)
				patch(t, image, name, int64(at), make([]byte, min(size, len(data)-at)))
				require.NoError(t, image.Remove(testRoot+"/"+checkpointFile)) // or what it vouches for is not looked at
				w.check(t, image, "%s, %d bytes from %d", name, size, at)
			}
		}
	}
}
