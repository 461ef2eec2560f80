package state

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ratchetmq/ratchet/internal/atomicfile"
	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/internal/vfs"
	"github.com/ratchetmq/ratchet/protocol"
)

const (
	offsetsName    = "consumerOffset.json"
	lmqOffsetsName = "lmqConsumerOffset.json" // where a Java broker with LMQ on keeps all offsets
	journalPrefix  = "consumerOffset.journal-"
)

// OffsetOptions says where offsets are kept, and how often they go to the JSON file. The zero values are good.
type OffsetOptions struct {
	Files
	SaveEvery    time.Duration // of a small table, when something changed; 0: 5 s
	SaveLarge    time.Duration // of a large table; 0: 60 s
	Large        int           // positions that make a table large; 0: 5,000
	JournalLimit int64         // bytes of journal at which a large table is saved early; 0: 16 MiB
}

func (o *OffsetOptions) complete() {
	o.Files.complete()
	o.SaveEvery = cmp.Or(o.SaveEvery, 5*time.Second)
	o.SaveLarge = cmp.Or(o.SaveLarge, time.Minute)
	o.Large = cmp.Or(o.Large, 5000)
	o.JournalLimit = cmp.Or(o.JournalLimit, 16<<20)
}

// saver is the state of the snapshots.
type saver struct {
	mu         sync.Mutex           // one snapshot at a time; held during its I/O
	version    protocol.DataVersion // guarded by mu, as all below
	generation uint64               // of the journal that is written
	marker     uint64               // the first journal that completes the present file
	positions  int                  // in the last snapshot
	at         time.Time            // of the last snapshot
}

// offsetFile is consumerOffset.json. The last field is ours; Java brokers skip it, and drop it when they write.
type offsetFile struct {
	DataVersion    *protocol.DataVersion      `json:"dataVersion"`
	OffsetTable    map[string]map[int32]int64 `json:"offsetTable"`
	LMQOffsetTable map[string]int64           `json:"lmqOffsetTable"`
	Ratchet        *offsetFileOwn             `json:"ratchet"`
}

// offsetFileOwn says from which journal on the file needs to be completed, and what an operator has reset.
type offsetFileOwn struct {
	Journal uint64      `json:"journal"`
	Resets  []resetJSON `json:"resets"`
}

type resetJSON struct {
	Epoch   int64  `json:"epoch"`
	Group   string `json:"group"`
	Pending bool   `json:"pending"`
	Prior   int64  `json:"prior"`
	Queue   int32  `json:"queue"`
	Topic   string `json:"topic"`
}

// OpenOffsets loads consumerOffset.json, or its backup, and what the journals say beyond it, and begins a new journal.
// Errors are as for OpenTopics. Run must run, or Sync and Save be called, for the times in OffsetOptions to hold.
func OpenOffsets(opts OffsetOptions) (*Offsets, error) {
	opts.complete()
	o := &Offsets{opts: opts, opened: opts.Now().UnixNano(), seed: maphash.MakeSeed(), journal: &journal{}, index: groupIndex{topics: map[string]map[string]struct{}{}}}
	for i := range o.shards {
		o.shards[i].topics = map[string]*topicOffsets{}
	}
	if err := errors.Join(opts.makeDir(), o.load()); err != nil {
		return nil, fmt.Errorf("load consumer offsets: %w", err)
	}
	if err := o.Save(); err != nil {
		return nil, errors.Join(fmt.Errorf("save consumer offsets: %w", err), o.closeJournal())
	}
	return o, nil
}

func (o *Offsets) path(name string) string { return filepath.Join(o.opts.Dir, name) }

func (o *Offsets) load() error {
	var file offsetFile
	found, err := readJSON(o.opts.Files, o.path(offsetsName), &file, func(f *offsetFile) bool { return f.OffsetTable != nil })
	if err != nil {
		return err
	}
	generations, err := o.journals()
	if err != nil {
		return err
	}
	if len(generations) > 0 {
		o.save.generation = generations[len(generations)-1]
	}
	switch {
	case found:
	case len(generations) > 0:
		// We never have a journal without a JSON file, so somebody took that away: to begin anew.
		o.opts.Logger.Warn("consumer offsets begin anew: the file is gone, journals are not read", "path", o.path(offsetsName))
		generations = nil
	default:
		if _, err := readJSON(o.opts.Files, o.path(lmqOffsetsName), &file, func(f *offsetFile) bool { return f.OffsetTable != nil }); err != nil {
			return err
		}
	}
	o.fill(&file)
	if file.Ratchet == nil {
		return o.readJournals(generations, o.applyMax) // a Java broker wrote the file, not knowing of these journals
	}
	o.save.marker = file.Ratchet.Journal
	o.save.generation = max(o.save.generation, o.save.marker)
	older := func(g uint64) bool { return g < o.save.marker }
	return o.readJournals(slices.DeleteFunc(generations, older), o.apply)
}

// journals lists the generations of the journals that are there, oldest first.
func (o *Offsets) journals() ([]uint64, error) {
	entries, err := o.opts.FS.ReadDir(o.opts.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var out []uint64
	for _, e := range entries {
		if digits, ok := strings.CutPrefix(e.Name(), journalPrefix); ok {
			if n, err := strconv.ParseUint(digits, 10, 64); err == nil {
				out = append(out, n)
			}
		}
	}
	slices.Sort(out)
	return out, nil
}

func (o *Offsets) journalPath(generation uint64) string {
	return o.path(fmt.Sprintf("%s%06d", journalPrefix, generation))
}

func (o *Offsets) readJournals(generations []uint64, apply func(record)) error {
	for i, generation := range generations {
		path := o.journalPath(generation)
		data, err := vfs.ReadFile(o.opts.FS, path)
		if err != nil {
			return err
		}
		last, unused := readRecords(data, apply)
		o.journal.seq = max(o.journal.seq, last)
		o.journal.written.Store(o.journal.seq)
		if unused > 0 && i == len(generations)-1 {
			o.opts.Logger.Warn("end of the journal of offsets is torn", "path", path, "bytes", unused)
		}
	}
	return nil
}

// fill puts the content of a file into the empty table.
func (o *Offsets) fill(file *offsetFile) {
	if file.DataVersion != nil {
		o.save.version = *file.DataVersion
	}
	put := func(key string, queue int32, off int64) {
		topic, group, ok := strings.Cut(key, "@")
		if !ok || off < 0 || checkNames(group, topic, queue) != nil {
			o.opts.Logger.Warn("consumer offset left out", "key", key, "queue", queue, "qoff", off)
			return
		}
		t, p := o.place(o.shard(topic), group, topic, queue)
		o.replay(t, p, record{op: opCommit, queue: queue, offset: offset.Queue(off)})
	}
	for key, queues := range file.OffsetTable {
		for queue, off := range queues {
			put(key, queue, off)
		}
	}
	for key, off := range file.LMQOffsetTable {
		put(key, 0, off)
	}
	if file.Ratchet == nil {
		return
	}
	for _, r := range file.Ratchet.Resets {
		p := o.shard(r.Topic).at(r.Group, r.Topic, r.Queue)
		if p == nil {
			continue
		}
		p.reset = &reset{epoch: r.Epoch, prior: offset.Queue(r.Prior), pending: r.Pending}
		o.shard(r.Topic).topics[r.Topic].saw(r.Queue, p.reset.prior)
		if r.Pending {
			o.pending.Add(1)
		}
	}
}

// apply carries out a record of a journal.
func (o *Offsets) apply(r record) {
	s := o.shard(r.topic)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch r.op {
	case opRemovePair:
		o.dropPair(s, r.topic, r.group)
	case opRemoveTopic:
		o.dropTopic(s, r.topic)
	case opSettle:
		if p := s.at(r.group, r.topic, r.queue); p != nil {
			o.replay(nil, p, r)
		}
	case opCommit, opReset, opAdopt:
		if r.offset < 0 || checkNames(r.group, r.topic, r.queue) != nil {
			return
		}
		t, p := o.place(s, r.group, r.topic, r.queue)
		o.replay(t, p, r)
	}
}

// applyMax carries out a record of a journal that may be older than the file: progress only.
func (o *Offsets) applyMax(r record) {
	if p, known := o.Query(r.group, r.topic, r.queue); r.op == opCommit && (!known || p < r.offset) {
		o.apply(r)
	}
}

// Save writes a snapshot to consumerOffset.json, and begins a new journal. Commits go on meanwhile.
//
// The new journal is begun first and the table is read after it, so what is read holds at least all that the journals
// before say; what both hold does no harm, since to apply a run of records again ends in the same state. The journals
// that complete the backup of the file stay.
func (o *Offsets) Save() error {
	o.save.mu.Lock()
	defer o.save.mu.Unlock()
	return o.snapshot()
}

func (o *Offsets) snapshot() error {
	before := o.dirty.Load()
	if err := o.beginJournal(); err != nil {
		return err
	}
	through := o.journal.last()
	o.save.version.Counter++
	o.save.version.Timestamp = o.opts.Now().UnixMilli()
	data := o.encode()
	if err := atomicfile.Write(o.opts.FS, o.path(offsetsName), data); err != nil {
		return err
	}
	backup := o.save.marker
	o.save.at, o.save.marker = o.opts.Now(), o.save.generation
	o.dirty.Add(-before)
	o.journal.heal(through)
	return o.removeJournals(backup)
}

// beginJournal begins a new journal, unless the present one is still empty.
func (o *Offsets) beginJournal() error {
	if o.journal.empty() {
		return nil
	}
	generation := o.save.generation + 1
	f, err := o.opts.FS.Create(o.journalPath(generation))
	if err != nil {
		return err
	}
	if err := o.opts.FS.SyncDir(o.opts.Dir); err != nil {
		return errors.Join(err, f.Close())
	}
	o.save.generation = generation
	if old := o.journal.swap(f); old != nil {
		// It matters for the backup only, so its errors don't stop the snapshot that takes its place.
		if err := errors.Join(old.Sync(), old.Close()); err != nil {
			o.opts.Logger.Error("journal of offsets not closed", "err", err)
		}
	}
	return nil
}

// removeJournals removes the generations below keep.
func (o *Offsets) removeJournals(keep uint64) error {
	generations, err := o.journals()
	if err != nil {
		return err
	}
	for _, generation := range generations {
		if generation >= keep {
			break
		}
		if err := o.opts.FS.Remove(o.journalPath(generation)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Run makes the journal durable every second, and saves the table when it is time, until ctx is done; then once more.
// Errors of the disk are logged, and tried again.
func (o *Offsets) Run(ctx context.Context) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			if o.dirty.Load() == 0 {
				return nil
			}
			return o.Save()
		case <-tick.C:
			if err := o.Tick(); err != nil {
				o.opts.Logger.Error("consumer offsets not saved", "err", err)
			}
		}
	}
}

// Tick is what Run does every second.
func (o *Offsets) Tick() error {
	o.save.mu.Lock()
	defer o.save.mu.Unlock()
	if err := o.journal.sync(); err != nil {
		return errors.Join(err, o.snapshot())
	}
	if !o.due() {
		return nil
	}
	return o.snapshot()
}

// due tells whether it is time for a snapshot. The caller holds save.mu.
func (o *Offsets) due() bool {
	if o.dirty.Load() == 0 {
		return false
	}
	age := o.opts.Now().Sub(o.save.at)
	switch {
	case o.journal.failing.Load():
		return true
	case o.save.positions < o.opts.Large:
		return age >= o.opts.SaveEvery
	default:
		return age >= o.opts.SaveLarge || o.journal.bytes() >= o.opts.JournalLimit
	}
}

// Close saves the table, to the file and its backup alike, and removes the journals: what a clean stop leaves is just
// what a Java broker would. Nothing must be committed any more.
func (o *Offsets) Close() error {
	o.save.mu.Lock()
	defer o.save.mu.Unlock()
	if err := errors.Join(o.snapshot(), atomicfile.Write(o.opts.FS, o.path(offsetsName), o.encode())); err != nil {
		return errors.Join(err, o.closeJournal())
	}
	return errors.Join(o.closeJournal(), o.removeJournals(o.save.generation+1))
}

func (o *Offsets) closeJournal() error {
	if f := o.journal.swap(nil); f != nil {
		return f.Close()
	}
	return nil
}

// encode writes the table as consumerOffset.json: with bare numbers as keys, as Java brokers write them. No lock is held
// for longer than one group's progress in one topic takes. The caller holds save.mu.
func (o *Offsets) encode() []byte {
	var j jsonFile
	j.buf = make([]byte, 0, 64+24*o.save.positions)
	j.field("dataVersion", o.save.version)
	j.key("offsetTable")
	j.buf = append(j.buf, '{')
	var chunk []Position
	var resets []resetJSON
	topics := map[string][]string{}
	total := 0
	for i := range o.shards {
		for _, ref := range o.shards[i].refs() {
			chunk, resets = o.shards[i].copyOf(ref, chunk[:0], resets)
			if len(chunk) == 0 {
				continue
			}
			total += len(chunk)
			topics[ref.group] = append(topics[ref.group], ref.topic)
			j.key(ref.topic + "@" + ref.group)
			slices.SortFunc(chunk, func(a, b Position) int { return cmp.Compare(a.Queue, b.Queue) })
			j.buf = appendQueues(j.buf, chunk)
		}
	}
	j.buf = append(j.buf, "\n}"...)
	j.field("groupTopicMap", topics)
	j.field("ratchet", offsetFileOwn{Journal: o.save.generation, Resets: resets})
	o.save.positions = total
	data, err := j.end()
	if err != nil {
		// impossible: numbers and strings can always be written.
		panic("state: " + err.Error())
	}
	return data
}

func appendQueues(dst []byte, chunk []Position) []byte {
	dst = append(dst, '{')
	for i, p := range chunk {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendInt(dst, int64(p.Queue), 10)
		dst = append(dst, ':')
		dst = strconv.AppendInt(dst, int64(p.Offset), 10)
	}
	return append(dst, '}')
}

func (s *shard) copyOf(ref pair, dst []Position, resets []resetJSON) ([]Position, []resetJSON) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	t, ok := s.topics[ref.topic]
	if !ok {
		return dst, resets
	}
	for queue, p := range t.groups[ref.group] {
		dst = append(dst, Position{Queue: queue, Offset: p.offset})
		if r := p.reset; r != nil {
			resets = append(resets, resetJSON{Epoch: r.epoch, Group: ref.group, Pending: r.pending, Prior: int64(r.prior), Queue: queue, Topic: ref.topic})
		}
	}
	return dst, resets
}

// Table is the whole table as GET_ALL_CONSUMER_OFFSET hands it out, with what an operator has reset.
func (o *Offsets) Table() *protocol.ConsumerOffsetTable {
	out := tableOf(o.Each)
	o.save.mu.Lock()
	version := o.save.version
	o.save.mu.Unlock()
	out.DataVersion = &version
	return out
}

func tableOf(each func(func(Position) bool)) *protocol.ConsumerOffsetTable {
	out := &protocol.ConsumerOffsetTable{OffsetTable: map[string]map[int32]int64{}}
	var resets []protocol.OffsetReset
	each(func(p Position) bool {
		key := p.Topic + "@" + p.Group
		if out.OffsetTable[key] == nil {
			out.OffsetTable[key] = map[int32]int64{}
		}
		out.OffsetTable[key][p.Queue] = int64(p.Offset)
		if p.Epoch != 0 {
			resets = append(resets, protocol.OffsetReset{Epoch: p.Epoch, Key: key, Pending: p.Pending, Queue: p.Queue})
		}
		return true
	})
	out.Ratchet = &protocol.OffsetTableOwn{Resets: resets} // without any, too: who reads it then knows that there are none
	return out
}

// Positions reads another broker's table; a Java broker's has no epochs.
func Positions(table *protocol.ConsumerOffsetTable) []Position {
	type place struct {
		key   string
		queue int32
	}
	resets := map[place]protocol.OffsetReset{}
	if table.Ratchet != nil {
		for _, r := range table.Ratchet.Resets {
			resets[place{r.Key, r.Queue}] = r
		}
	}
	var out []Position
	for _, key := range slices.Sorted(maps.Keys(table.OffsetTable)) {
		topic, group, ok := strings.Cut(key, "@")
		if !ok {
			continue
		}
		for queue, off := range table.OffsetTable[key] {
			r := resets[place{key, queue}]
			out = append(out, Position{
				Group: group, Topic: topic, Queue: queue, Offset: offset.Queue(off), Epoch: r.Epoch, Pending: r.Pending, Plain: table.Ratchet == nil,
			})
		}
	}
	return out
}

// Mark names the present state of the table: as long as it stays the same nothing has changed. What is read after it is
// at least as new. It is good for one run of the process.
func (o *Offsets) Mark() string {
	return strconv.FormatInt(o.opened, 36) + "-" + strconv.FormatUint(o.journal.last(), 36)
}
