package inspect

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"

	"github.com/ratchetmq/ratchet/protocol"
)

// side is one of the stores that Diff compares.
type side struct {
	root   string
	log    *commitLog
	queues *queueSet
	config configuration
	end    int64
}

func openSide(ctx context.Context, root string, o Options) (*side, error) {
	v := &side{root: root}
	var err error
	if v.config, _, err = readState(root, o); err != nil {
		return nil, err
	}
	if v.log, err = openLog(o.FS, []string{filepath.Join(root, logFolder)}); err != nil {
		return nil, err
	}
	if v.queues, err = openQueues(o.FS, root); err != nil {
		return nil, err
	}
	if len(v.log.files) == 0 && len(v.queues.list) == 0 {
		return nil, fmt.Errorf("%w: %s", ErrNoStore, root)
	}
	if v.end, _, err = extent(ctx, v.log); err != nil {
		return nil, err
	}
	for _, q := range v.queues.list {
		if err := v.queues.count(q, v.log.low(), func(int64, entry, string, int64, string) {}); err != nil {
			return nil, err
		}
	}
	return v, nil
}

func (v *side) close() {
	v.log.open.close()
	v.queues.open.close()
}

// differ writes the differences and counts them.
type differ struct {
	out   *bufio.Writer
	count int
	lines map[string]int
	limit int
}

func (d *differ) add(kind, format string, args ...any) {
	d.count++
	if d.lines[kind]++; d.lines[kind] <= d.limit {
		fmt.Fprintf(d.out, "%-8s %s\n", kind, fmt.Sprintf(format, args...))
	}
}

// Diff compares two stores and writes a line for each difference; it returns how many there are. The logs are compared
// byte for byte where both have records.
func Diff(ctx context.Context, w io.Writer, a, b string, o Options) (int, error) {
	o = o.withDefaults()
	left, err := openSide(ctx, a, o)
	if err != nil {
		return 0, err
	}
	defer left.close()
	right, err := openSide(ctx, b, o)
	if err != nil {
		return 0, err
	}
	defer right.close()
	d := &differ{out: bufio.NewWriter(w), lines: map[string]int{}, limit: o.MaxLines}
	if err := d.logs(ctx, left, right); err != nil {
		return d.count, err
	}
	d.queues(left, right)
	d.offsets(left, right)
	for _, t := range []struct{ kind, file, table string }{
		{"topic", "topics.json", "topicConfigTable"}, {"group", "subscriptionGroup.json", "subscriptionGroupTable"},
	} {
		if err := d.tables(o, t.kind, t.table, filepath.Join(a, configFolder, t.file), filepath.Join(b, configFolder, t.file)); err != nil {
			return d.count, err
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(d.lines)) {
		if more := d.lines[kind] - d.limit; more > 0 {
			fmt.Fprintf(d.out, "count    %s %d, %d not shown\n", kind, d.lines[kind], more)
		}
	}
	if d.count == 0 {
		fmt.Fprintf(d.out, "equal    log %d .. %d, %d queues\n", max(left.log.low(), right.log.low()), min(left.end, right.end), len(left.queues.list))
	}
	return d.count, d.out.Flush()
}

// logs compares the records of the one with the bytes of the other.
func (d *differ) logs(ctx context.Context, a, b *side) error {
	low, end := max(a.log.low(), b.log.low()), min(a.end, b.end)
	d.only("a", a.log.low(), min(low, a.end))
	d.only("b", b.log.low(), min(low, b.end))
	d.only("a", max(end, a.log.low()), a.end)
	d.only("b", max(end, b.log.low()), b.end)
	first, differing := int64(-1), int64(0)
	var other []byte
	for sc := newScanner(a.log, 0); ; {
		it, ok, err := sc.next()
		if err != nil || !ok || it.at >= end || ctx.Err() != nil {
			if differing > 0 {
				d.add("log", "%d bytes differ, the first at %d", differing, first)
			}
			return firstOf(err, ctx.Err())
		}
		if it.kind == itemZeros || it.kind == itemTail {
			continue
		}
		from, to := max(it.at, low), min(it.end, end)
		before := differing
		for at := from; at < to; {
			n := min(to-at, scanChunk)
			mine := it.raw
			if it.kind != itemRecord || at != it.at || n != it.end-it.at {
				mine = make([]byte, n)
				if mine, err = readFull(a.log, mine, at); err != nil {
					return err
				}
			}
			if other, err = readFull(b.log, slices.Grow(other[:0], int(n))[:n], at); err != nil {
				return err
			}
			if k := differs(mine, other); k.count > 0 {
				if first < 0 {
					first = at + k.first
				}
				differing += k.count
			}
			at += n
		}
		if differing > before {
			d.record(b, &it, differing-before)
		}
	}
}

// readFull reads over the borders of files; what is not there reads as zeros.
func readFull(l *commitLog, b []byte, pos int64) ([]byte, error) {
	for done := 0; done < len(b); {
		n, err := l.readAt(b[done:], pos+int64(done))
		if err != nil {
			return b, err
		}
		if done += n; n == 0 {
			clear(b[done:])
			break
		}
	}
	return b, nil
}

type byteDiff struct{ first, count int64 }

func differs(a, b []byte) (d byteDiff) {
	if bytes.Equal(a, b) {
		return d
	}
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			if d.count++; d.count == 1 {
				d.first = int64(i)
			}
		}
	}
	return d
}

func (d *differ) record(b *side, it *item, n int64) {
	mine, theirs := "no record", "no record"
	if it.kind == itemRecord {
		mine = title(&it.rec)
	} else if it.kind == itemBlank {
		mine = "blank"
	}
	if r, _, err := b.log.record(nil, it.at); err == nil {
		theirs = title(&r)
	}
	d.add("record", "%d: %d bytes differ; a has %s, b has %s", it.at, n, mine, theirs)
}

func (d *differ) only(who string, from, to int64) {
	if from < to {
		d.add("only-"+who, "log %d .. %d, %d bytes", from, to, to-from)
	}
}

func (d *differ) queues(a, b *side) {
	for _, q := range a.queues.list {
		other := b.queues.get([]byte(q.topic), q.id)
		switch {
		case other == nil:
			d.add("queue", "%s/%d: only a has it, %d .. %d", q.topic, q.id, q.low, q.high)
		case other.low != q.low || other.high != q.high:
			d.add("queue", "%s/%d: a has %d .. %d, b has %d .. %d", q.topic, q.id, q.low, q.high, other.low, other.high)
		}
	}
	for _, q := range b.queues.list {
		if a.queues.get([]byte(q.topic), q.id) == nil {
			d.add("queue", "%s/%d: only b has it, %d .. %d", q.topic, q.id, q.low, q.high)
		}
	}
}

func (d *differ) offsets(a, b *side) {
	type place struct {
		file, key string
		queue     int32
	}
	table := func(v *side) map[place]string {
		m := map[place]string{}
		for _, l := range offsetLines(v.config) {
			m[place{l.file, l.key, l.queue}] = fmt.Sprint(l.offset)
		}
		return m
	}
	inA, inB := table(a), table(b)
	names := func(p place) string { return fmt.Sprintf("%s %s %d", p.file, p.key, p.queue) }
	left, right := map[string]string{}, map[string]string{}
	for p, v := range inA {
		left[names(p)] = v
	}
	for p, v := range inB {
		right[names(p)] = v
	}
	d.maps("offset", left, right)
}

// maps tells where two tables differ, in order of their keys.
func (d *differ) maps(kind string, a, b map[string]string) {
	keys := map[string]bool{}
	for k := range a {
		keys[k] = true
	}
	for k := range b {
		keys[k] = true
	}
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		left, inA := a[k]
		right, inB := b[k]
		switch {
		case !inB:
			d.add(kind, "%s: only a has it, %s", k, left)
		case !inA:
			d.add(kind, "%s: only b has it, %s", k, right)
		case left != right:
			d.add(kind, "%s: a has %s, b has %s", k, left, right)
		}
	}
}

// tables compares one table of two JSON files, entry by entry.
func (d *differ) tables(o Options, kind, table, a, b string) error {
	var sides [2]map[string]string
	for i, path := range []string{a, b} {
		sides[i] = map[string]string{}
		if !exists(o.FS, path) {
			continue
		}
		data, err := readSmall(o.FS, path)
		if err != nil {
			return err
		}
		var file map[string]any
		if err := protocol.Unmarshal(data, &file); err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}
		entries, _ := file[table].(map[string]any)
		for name, v := range entries {
			text, err := protocol.Marshal(v)
			if err != nil {
				return err
			}
			sides[i][name] = string(text)
		}
	}
	d.maps(kind, sides[0], sides[1])
	return nil
}
