package inspect

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ratchetmq/ratchet/message"
)

// Range is what part of a list is shown.
type Range struct {
	From int64 // a position in the log, or an index in a queue
	N    int   // lines, 0 for all
}

// LogFilter says what Log shows.
type LogFilter struct {
	Range
	Topic string // only records of this topic, "" for all
	Body  bool   // the bodies too, in a line of their own
}

// shownTime is a time in ms as a text without blanks.
func shownTime(ms int64) string {
	if ms <= 0 || ms > 1<<48 {
		return strconv.FormatInt(ms, 10)
	}
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z")
}

// shown is a text that has no blanks, or is quoted.
func shown(b []byte) string {
	if len(b) == 0 {
		return "-"
	}
	for _, c := range b {
		if c <= ' ' || c == '"' || c == 0x7F {
			return strconv.Quote(string(b))
		}
	}
	if !utf8.Valid(b) {
		return strconv.Quote(string(b))
	}
	return string(b)
}

// flagNames are the system flags that stand for themselves.
var flagNames = []struct {
	mask, value int32
	name        string
}{
	{message.FlagCompressed, message.FlagCompressed, "compressed"},
	{message.FlagCompressionMask, message.FlagLZ4, "lz4"},
	{message.FlagCompressionMask, message.FlagZstd, "zstd"},
	{message.FlagCompressionMask, message.FlagZlib, "zlib"},
	{message.FlagMultiTags, message.FlagMultiTags, "multitags"},
	{message.FlagTransactionMask, message.FlagPrepared, "prepared"},
	{message.FlagTransactionMask, message.FlagCommit, "commit"},
	{message.FlagTransactionMask, message.FlagRollback, "rollback"},
	{message.FlagBornHostV6, message.FlagBornHostV6, "born6"},
	{message.FlagStoreHostV6, message.FlagStoreHostV6, "store6"},
	{message.FlagNeedUnwrap, message.FlagNeedUnwrap, "unwrap"},
	{message.FlagInnerBatch, message.FlagInnerBatch, "batch"},
}

func shownFlags(r *message.Record) string {
	var names []string
	for _, f := range flagNames {
		if r.SysFlag&f.mask == f.value {
			names = append(names, f.name)
		}
	}
	if r.Magic == message.MagicV2 {
		names = append(names, "v2")
	}
	if len(names) == 0 {
		return "-"
	}
	return strings.Join(names, "|")
}

// verdict is "ok" or what is wrong with a record by itself.
func verdict(it *item) string {
	switch {
	case it.rec.CheckBody() != nil:
		return "BODY"
	case checkProperties(it.raw, &it.rec) != "":
		return "PROPS"
	case int64(it.rec.PhysicalOffset) != it.at:
		return "POSITION"
	}
	return "ok"
}

// openPart opens what a path of the log means: one of its files, its folder, or the folder of a store.
func openPart(path string, o Options) (*commitLog, error) {
	info, err := o.FS.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		dirs := o.LogDirs
		if len(dirs) == 0 {
			if dirs = []string{path}; exists(o.FS, filepath.Join(path, logFolder)) {
				dirs = []string{filepath.Join(path, logFolder)}
			}
		}
		l, err := openLog(o.FS, dirs)
		if err == nil && len(l.files) == 0 {
			err = fmt.Errorf("%w: no log file in %s", ErrNoStore, path)
		}
		return l, err
	}
	// What a broker of ours has put aside, in the folders "damaged" and "diverged", is named by position and time.
	name, _, _ := strings.Cut(filepath.Base(path), "-")
	start, ok := parseFileName(name)
	if !ok {
		return nil, fmt.Errorf("%w: the name of %s is no position", ErrNoStore, path)
	}
	return &commitLog{open: newOpenFiles(o.FS), files: []dataFile{{start, path, info.Size()}}, size: info.Size()}, nil
}

// Log writes a line for each piece of a log: its records, and the places where there is none. path is a file of the
// log, its folder, or the store's.
func Log(ctx context.Context, w io.Writer, path string, filter LogFilter, o Options) error {
	l, err := openPart(path, o.withDefaults())
	if err != nil {
		return err
	}
	defer l.open.close()
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, "%12s %8s %-24s %5s %10s %-24s %-21s %-10s %-8s %s\n",
		"phy", "size", "topic", "queue", "qoff", "stored", "born", "flags", "crc", "tags keys")
	var from int64
	if i, inside := l.fileAt(filter.From); inside {
		from = l.files[i].start
	} else if i < len(l.files) {
		from = l.files[i].start
	} else {
		from = filter.From
	}
	lines := 0
	for sc := newScanner(l, from); filter.N == 0 || lines < filter.N; {
		it, ok, err := sc.next()
		if err != nil {
			return err
		}
		if !ok || ctx.Err() != nil {
			break
		}
		if it.at < filter.From && (it.kind == itemRecord || it.end <= filter.From) {
			continue
		}
		if it.kind == itemRecord && filter.Topic != "" && filter.Topic != string(it.rec.Topic) {
			continue
		}
		showItem(out, &it, filter.Body)
		lines++
	}
	return firstOf(out.Flush(), ctx.Err())
}

func showItem(out io.Writer, it *item, body bool) {
	size := it.end - it.at
	switch it.kind {
	case itemBlank:
		fmt.Fprintf(out, "%12d %8d blank\n", it.at, size)
	case itemZeros:
		fmt.Fprintf(out, "%12d %8d zeros\n", it.at, size)
	case itemDamage:
		fmt.Fprintf(out, "%12d %8d DAMAGED up to %d: %s\n", it.at, size, it.end, it.why)
	case itemTail:
		fmt.Fprintf(out, "%12d %8d DAMAGED up to the end: %s\n", it.at, size, it.why)
	case itemRecord:
		r := &it.rec
		tags, _ := message.Property(r.Properties, message.PropertyTags)
		keys, _ := message.Property(r.Properties, message.PropertyKeys)
		fmt.Fprintf(out, "%12d %8d %-24s %5d %10d %-24s %-21s %-10s %-8s %s %s\n", it.at, size, shown(r.Topic), r.QueueID, r.QueueOffset,
			shownTime(r.StoreTimestamp), r.BornHost, shownFlags(r), verdict(it), shown(tags), shown(keys))
		if body {
			fmt.Fprintf(out, "%12s %8d body %q\n", "", len(r.Body), r.Body)
		}
	}
}

// Queue writes a line for each entry of a queue in a store, and whether the log has its record.
func Queue(ctx context.Context, w io.Writer, root, topic string, id int32, part Range, o Options) error {
	o = o.withDefaults()
	q, err := openQueue(o.FS, filepath.Join(root, queueFolder, topic, strconv.Itoa(int(id))), topic, id)
	if err != nil {
		return err
	}
	if len(q.files) == 0 {
		return fmt.Errorf("%w: no queue %s/%d in %s", ErrNoStore, topic, id, root)
	}
	l, err := openLog(o.FS, o.logDirs(root))
	if err != nil {
		return err
	}
	defer l.open.close()
	set := &queueSet{open: newOpenFiles(o.FS)}
	defer set.open.close()
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, "%12s %12s %10s %20s %s\n", "index", "phy", "size", "tags", "record")
	var buf []byte
	lines, next := 0, int64(-1)
	err = set.eachEntry(q, max(part.From, 0), func(index int64, e entry, _ string, _ int64) bool {
		if next >= 0 && index != next {
			fmt.Fprintf(out, "%12d HOLE of %d entries\n", next, index-next)
		}
		next = index + 1
		var state string
		if state, buf = entryState(l, buf, q, index, e, o.Levels); state == "blank" {
			fmt.Fprintf(out, "%12d %12s %10s %20s blank\n", index, "-", "-", "-")
		} else {
			fmt.Fprintf(out, "%12d %12d %10d %20d %s\n", index, e.phy, e.size, e.tags, state)
		}
		lines++
		return (part.N == 0 || lines < part.N) && ctx.Err() == nil
	})
	return firstOf(err, out.Flush(), ctx.Err())
}

func entryState(l *commitLog, buf []byte, q *queue, index int64, e entry, levels []time.Duration) (string, []byte) {
	switch {
	case e.blank():
		return "blank", buf
	case !e.present():
		return "GARBAGE", buf
	case e.phy < l.low():
		return "expired", buf
	}
	r, buf, err := l.record(buf, e.phy)
	if err != nil {
		return "NONE " + err.Error(), buf
	}
	if why := mismatch(&r, q, index, e); why != "" {
		return "WRONG " + why, buf
	}
	if e.extTags() {
		return "ok ext", buf
	}
	if want := tagsCode(&r, levels); want != e.tags {
		return fmt.Sprintf("WRONG tags code, should be %d", want), buf
	}
	return "ok", buf
}
