package inspect

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// Index writes an index file's header, and its entries from part.From on.
func Index(ctx context.Context, w io.Writer, path string, part Range, o Options) error {
	o = o.withDefaults()
	open := newOpenFiles(o.FS)
	defer open.close()
	x, err := readIndexFile(o.FS, open, path, o.Slots)
	if err != nil {
		return err
	}
	h := &x.header
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, "begin    %s phy %d\nend      %s phy %d\n", shownTime(h.beginTime), h.beginPhy, shownTime(h.endTime), h.endPhy)
	fmt.Fprintf(out, "slots    %d, %d in use\nentries  %d, %d in use\n", x.slots, h.slots, x.entries-1, h.next-1)
	if why := x.wrong(); why != "" {
		fmt.Fprintf(out, "DAMAGED  %s\n", why)
	}
	if part.N > 0 {
		fmt.Fprintf(out, "%12s %8s %12s %8s %12s\n", "entry", "hash", "phy", "seconds", "before")
	}
	var b [indexEntrySize]byte
	first := max(part.From, 1)
	last := min(int64(h.next), x.entries, first+int64(part.N))
	for n := first; n < last && ctx.Err() == nil; n++ {
		got, err := open.readAt(path, b[:], x.entryAt(n))
		if err != nil || got < len(b) {
			return firstOf(out.Flush(), err)
		}
		e := parseIndexEntry(b[:])
		fmt.Fprintf(out, "%12d %08x %12d %8d %12d\n", n, e.hash, e.phy, e.seconds, e.prev)
	}
	return firstOf(out.Flush(), ctx.Err())
}

// Checkpoint writes what a checkpoint file says.
func Checkpoint(w io.Writer, path string, o Options) error {
	data, err := readSmall(o.withDefaults().FS, path)
	if err != nil {
		return err
	}
	p := parseCheckpoint(path, data)
	_, err = fmt.Fprintf(w, "size            %d\nlog             %d %s\nqueues          %d %s\nindex           %d %s\nmaster-flushed  %d\nconfirmed       %d\n",
		p.size, p.log, shownTime(p.log), p.queues, shownTime(p.queues), p.index, shownTime(p.index), p.masterFlushed, p.confirmed)
	return err
}

// readState reads the files in config, and counts those that can't be read.
func readState(root string, o Options) (configuration, *Report, error) {
	if _, err := o.FS.ReadDir(root); err != nil {
		return configuration{}, nil, err
	}
	c := &checker{Report: newReport(io.Discard, root, 0), opts: o, deleted: map[string]int64{}}
	c.checkConfig()
	return c.config, c.Report, nil
}

// Offsets writes how far each group is in each queue, and each delay level.
func Offsets(w io.Writer, root string, o Options) error {
	o = o.withDefaults()
	config, bad, err := readState(root, o)
	if err != nil {
		return err
	}
	if bad.Kinds["config"] > 0 {
		return fmt.Errorf("%d files in %s can't be read; see check", bad.Kinds["config"], filepath.Join(root, configFolder))
	}
	out := bufio.NewWriter(w)
	for _, line := range offsetLines(config) {
		fmt.Fprintf(out, "%-22s %-40s %5d %12d\n", line.file, line.key, line.queue, line.offset)
	}
	return out.Flush()
}

type offsetLine struct {
	file, key string
	queue     int32
	offset    int64
}

// offsetLines are the offsets in order. For the delay topic queue is the level.
func offsetLines(config configuration) (lines []offsetLine) {
	for _, name := range slices.Sorted(maps.Keys(config.offsets)) {
		table := config.offsets[name]
		for _, key := range slices.Sorted(maps.Keys(table)) {
			for _, id := range slices.Sorted(maps.Keys(table[key])) {
				queue, shownKey := id, key
				if key == delayTopic {
					queue, shownKey = id+1, "level"
				}
				lines = append(lines, offsetLine{strings.TrimSuffix(name, ".json"), shownKey, queue, table[key][id]})
			}
		}
	}
	return lines
}

// Summary writes what a store's folder holds.
func Summary(ctx context.Context, w io.Writer, root string, o Options) error {
	o = o.withDefaults()
	config, _, err := readState(root, o)
	if err != nil {
		return err
	}
	l, err := openLog(o.FS, o.logDirs(root))
	if err != nil {
		return err
	}
	defer l.open.close()
	set, err := openQueues(o.FS, root)
	if err != nil {
		return err
	}
	defer set.open.close()
	if len(l.files) == 0 && len(set.list) == 0 && !exists(o.FS, filepath.Join(root, checkpointFile)) {
		return fmt.Errorf("%w: %s", ErrNoStore, root)
	}
	end, records, err := extent(ctx, l)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, "log        %d .. %d, %d records, %d files of %d bytes\n", l.low(), end, records, len(l.files), l.size)
	for _, name := range []string{abortFile, checkpointFile, deletionsFile} {
		fmt.Fprintf(out, "%-10s %s\n", strings.TrimSuffix(name, "Topics"), presence(o, filepath.Join(root, name)))
	}
	fmt.Fprintf(out, "topics     %d\n", len(config.topics))
	for _, dir := range []string{logFolder, indexFolder, configFolder, batchFolder, "consumequeue_ext", "timerlog", "damaged"} {
		showFiles(out, o, root, dir)
	}
	for _, q := range set.list {
		if err := set.count(q, l.low(), func(int64, entry, string, int64, string) {}); err != nil {
			return err
		}
		fmt.Fprintf(out, "queue      %-40s %5d %12d .. %d\n", q.topic, q.id, q.low, q.high)
	}
	deleted := &checker{Report: newReport(io.Discard, root, 0), opts: o, deleted: map[string]int64{}}
	deleted.loadDeletions()
	for _, topic := range slices.Sorted(maps.Keys(deleted.deleted)) {
		fmt.Fprintf(out, "deleted    %-40s below %d\n", topic, deleted.deleted[topic])
	}
	return firstOf(out.Flush(), ctx.Err())
}

func presence(o Options, path string) string {
	info, err := o.FS.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "absent"
	case err != nil:
		return err.Error()
	}
	return fmt.Sprintf("present, %d bytes", info.Size())
}

// showFiles lists the files of a folder that stand in it directly.
func showFiles(out io.Writer, o Options, root, dir string) {
	entries, err := o.FS.ReadDir(filepath.Join(root, dir))
	if err != nil {
		return
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && !e.IsDir() {
			fmt.Fprintf(out, "file       %-40s %12d\n", filepath.Join(dir, e.Name()), info.Size())
		}
	}
}

// extent is where a log's records end, and how many there are.
func extent(ctx context.Context, l *commitLog) (end int64, records int, err error) {
	end = l.low()
	for sc := newScanner(l, 0); ctx.Err() == nil; {
		it, ok, err := sc.next()
		if err != nil || !ok {
			return end, records, err
		}
		if it.kind == itemRecord {
			records++
		}
		if it.kind != itemZeros && it.kind != itemTail {
			end = it.end
		}
	}
	return end, records, ctx.Err()
}
