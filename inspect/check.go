package inspect

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/ratchetmq/ratchet/message"
)

// checker is one run of Check.
type checker struct {
	*Report
	ctx    context.Context
	opts   Options
	log    *commitLog
	queues *queueSet
	index  *indexCheck
	config configuration

	live     bool // a broker may be running, or was killed: what lies behind the ends is not finished
	deleted  map[string]int64
	end      int64 // of the records
	records  int64
	blanks   int
	lastTime int64 // newest store timestamp
	behind   int64 // lowest position of a record that dispatch has not given to its queue, -1 for none
	check    checkpoint
}

// Check verifies the whole store in a folder and writes a line for each thing that is wrong, and a summary. An error
// means that the store could not be read.
func Check(ctx context.Context, w io.Writer, root string, o Options) (*Report, error) {
	o = o.withDefaults()
	c := &checker{Report: newReport(w, root, o.MaxLines), ctx: ctx, opts: o, behind: -1, deleted: map[string]int64{}}
	if err := c.run(); err != nil {
		return c.Report, err
	}
	c.summary()
	c.Report.end()
	return c.Report, c.err
}

func (o Options) logDirs(root string) []string {
	if len(o.LogDirs) > 0 {
		return o.LogDirs
	}
	return []string{filepath.Join(root, logFolder)}
}

// run reads what others write late before what they write early, so that a running broker is not seen to be ahead of
// itself: offsets and checkpoint before queues, queues before the log.
func (c *checker) run() error {
	fsys := c.opts.FS
	if _, err := fsys.ReadDir(c.root); err != nil {
		return err
	}
	c.live = exists(fsys, filepath.Join(c.root, abortFile))
	c.checkConfig()
	c.loadDeletions()
	c.loadCheckpoint()
	var err error
	if c.index, err = openIndexes(c); err != nil {
		return err
	}
	defer c.index.close()
	if c.queues, err = openQueues(fsys, c.root); err != nil {
		return err
	}
	defer c.queues.open.close()
	if c.log, err = openLog(fsys, c.opts.logDirs(c.root)); err != nil {
		return err
	}
	defer c.log.open.close()
	if len(c.log.files) == 0 && len(c.queues.list) == 0 && !exists(fsys, filepath.Join(c.root, checkpointFile)) {
		return fmt.Errorf("%w: %s", ErrNoStore, c.root)
	}
	c.checkFiles()
	if err := c.scanQueues(); err != nil {
		return err
	}
	if err := c.scanLog(); err != nil {
		return err
	}
	if err := c.matchQueues(); err != nil {
		return err
	}
	if err := c.index.finish(); err != nil {
		return err
	}
	c.checkCheckpoint()
	c.checkOffsets()
	return c.ctx.Err()
}

// checkFiles looks at the sizes of the log's files. A last file may be empty: RocketMQ removes it.
func (c *checker) checkFiles() {
	for i, f := range c.log.files {
		if f.size != c.log.size && (f.size != 0 || i != len(c.log.files)-1) {
			c.add("log-file-size", f.path, 0, "%d bytes, the others have %d", f.size, c.log.size)
		}
		if c.log.size > 0 && f.start%c.log.size != 0 {
			c.note("log-file-unaligned")
		}
	}
}

func (c *checker) scanLog() error {
	sc := newScanner(c.log, 0)
	c.end = c.log.low()
	for n := 0; ; n++ {
		if n%1024 == 0 && c.ctx.Err() != nil {
			return c.ctx.Err()
		}
		it, ok, err := sc.next()
		if err != nil || !ok {
			return err
		}
		file, at := c.log.place(it.at)
		switch it.kind {
		case itemRecord:
			c.end = it.end
			if err := c.record(&it, file, at); err != nil {
				return err
			}
		case itemBlank:
			c.end = it.end
			c.blanks++
		case itemDamage:
			c.end = it.end
			c.add("log-damaged", file, at, "%s; %d bytes up to %d", it.why, it.end-it.at, it.end)
		case itemTail:
			if c.live {
				c.note("log-tail")
			} else {
				c.add("log-tail", file, at, "%s; no record up to the log's end at %d", it.why, it.end)
			}
		case itemZeros:
		}
	}
}

// record checks a record and what points to it.
func (c *checker) record(it *item, file string, at int64) error {
	r := &it.rec
	c.records++
	c.lastTime = max(c.lastTime, r.StoreTimestamp)
	if err := c.body(it); err != nil {
		c.add("record-body", file, at, "%s: %v", title(r), err)
	}
	if why := checkProperties(it.raw, r); why != "" {
		c.add("record-crc", file, at, "%s: %s", title(r), why)
	}
	if int64(r.PhysicalOffset) != it.at {
		c.add("record-position", file, at, "%s: says position %d, stands at %d", title(r), r.PhysicalOffset, it.at)
	}
	if !saneTopic(r.Topic) {
		c.add("record-topic", file, at, "topic %q", r.Topic)
		return nil
	}
	if r.QueueID < 0 || r.QueueOffset < 0 {
		c.add("record-queue", file, at, "%s: queue or offset negative", title(r))
		return nil
	}
	if r.StoreTimestamp <= 0 || r.StoreTimestamp > c.opts.Now().Add(24*time.Hour).UnixMilli() && r.StoreTimestamp > 1<<42 {
		c.add("record-time", file, at, "%s: store time %d", title(r), r.StoreTimestamp)
	}
	if err := c.index.record(it.at, r); err != nil {
		return err
	}
	var failed error
	eachPlace(r, func(p place) {
		if err := c.place(it, p, file, at); err != nil && failed == nil {
			failed = err
		}
	})
	return failed
}

// body checks the body's checksum; in the log of a running broker twice, since the record may have been half there.
func (c *checker) body(it *item) error {
	err := it.rec.CheckBody()
	if err != nil && c.live {
		if again, _, bad := c.log.record(nil, it.at); bad == nil {
			return again.CheckBody()
		}
	}
	return err
}

func title(r *message.Record) string {
	return fmt.Sprintf("%s/%d@%d", r.Topic, r.QueueID, r.QueueOffset)
}

// place checks that a record has the entry p.
func (c *checker) place(it *item, p place, file string, at int64) error {
	if below, ok := c.deleted[string(p.topic)]; ok && it.at < below {
		c.note("deleted-topic")
		return nil
	}
	q := c.queues.get(p.topic, p.id)
	if q == nil {
		switch {
		case c.config.batch[string(p.topic)]:
			c.note("batch-topic")
		case c.config.topicsKnown && !c.config.topics[string(p.topic)] && string(p.topic[:min(len(p.topic), len(lmqPrefix))]) != lmqPrefix:
			c.note("deleted-topic") // RocketMQ notes nowhere which topics it has deleted
		case c.live:
			c.undispatched(it.at)
		default:
			c.add("queue-missing", file, at, "%s/%d@%d: no such queue", p.topic, p.id, p.index)
		}
		return nil
	}
	if p.index < q.next {
		c.add("record-order", file, at, "%s/%d@%d: the queue was at %d already", p.topic, p.id, p.index, q.next)
	}
	q.end = max(q.end, p.index+1)
	if p.index == q.next { // after an offset that may itself be damaged only a matching entry moves it on
		q.next++
	}
	e, entryFile, entryAt, err := c.queues.entryAt(q, p.index, false)
	if err != nil {
		return err
	}
	want := entry{it.at, it.rec.Size, tagsCode(&it.rec, c.opts.Levels)}
	if e != want && c.live {
		if e, _, _, err = c.queues.entryAt(q, p.index, true); err != nil {
			return err
		}
	}
	c.compare(q, p, it, e, want, entryFile, entryAt)
	return nil
}

// compare tells how an entry differs from what its record makes.
func (c *checker) compare(q *queue, p place, it *item, e, want entry, file string, at int64) {
	switch {
	case e.phy == want.phy && e.size == want.size:
		if p.index < q.high {
			q.matched++
		}
		q.next = max(q.next, p.index+1)
		if e.tags != want.tags && !e.extTags() {
			c.add("entry-tags", file, at, "%s/%d@%d: tags code %d, the record at %d makes %d", p.topic, p.id, p.index, e.tags, it.at, want.tags)
		}
	case !e.present() || e.blank():
		if c.live && p.index >= q.high {
			c.undispatched(it.at)
			return
		}
		what := "no entry"
		if e.blank() {
			what = "blank entry"
		}
		c.add("entry-missing", file, at, "%s/%d@%d: %s for the record at %d", p.topic, p.id, p.index, what, it.at)
	default:
		c.add("entry-wrong", file, at, "%s/%d@%d: points at %d with size %d, the record is at %d with size %d",
			p.topic, p.id, p.index, e.phy, e.size, want.phy, want.size)
	}
}

// undispatched counts a record that its queue does not have yet, in a store whose broker runs or was killed.
func (c *checker) undispatched(at int64) {
	c.note("not-dispatched")
	if c.behind < 0 {
		c.behind = at
	}
}

func (c *checker) summary() {
	entries := int64(0)
	for _, q := range c.queues.list {
		entries += q.entries
	}
	c.printf("log         %d .. %d, %d files of %d bytes, %d records, %d blank\n", c.log.low(), c.end, len(c.log.files), c.log.size, c.records, c.blanks)
	c.printf("queues      %d, %d entries\n", len(c.queues.list), entries)
	c.printf("index       %d files, %d entries\n", len(c.index.files), c.index.entries)
	c.printf("config      %d files\n", c.config.files)
	if c.behind >= 0 {
		c.printf("dispatched  not from %d on\n", c.behind)
	}
	if c.live {
		c.printf("abort       present: a broker is running, or was killed\n")
	}
}
