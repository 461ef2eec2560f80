package store

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/ratchetmq/ratchet/internal/atomicfile"
	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/internal/vfs"
	"github.com/ratchetmq/ratchet/message"
)

// deletions knows which topics were deleted and up to where in the log: their messages below that position stay in the
// log until it is cleaned, but must not come into a queue again when queues are rebuilt after a crash. It is kept in a
// file of Ratchet's own, deletedTopics, which RocketMQ passes over: a line for each, position and topic.
type deletions struct {
	fs      vfs.FS
	path    string
	topics  map[string]offset.Physical // guarded by dispatcher.mu and put.mu once the store is open: who has one of them may read
	changes atomic.Uint64
}

func loadDeletions(fsys vfs.FS, path string) (*deletions, error) {
	d := &deletions{fs: fsys, path: path, topics: map[string]offset.Physical{}}
	_, err := atomicfile.Read(fsys, path, d.parse)
	if errors.Is(err, fs.ErrNotExist) {
		return d, nil
	}
	return d, err
}

func (d *deletions) parse(data []byte) error {
	topics := map[string]offset.Physical{}
	for line := range bytes.Lines(data) {
		at, topic, ok := bytes.Cut(bytes.TrimSuffix(line, []byte("\n")), []byte(" "))
		pos, err := strconv.ParseInt(string(at), 10, 64)
		if err != nil || !ok || len(topic) == 0 || !bytes.HasSuffix(line, []byte("\n")) {
			return fmt.Errorf("%q is not a position and a topic", line)
		}
		topics[string(topic)] = offset.Physical(pos)
	}
	d.topics = topics
	return nil
}

// add notes, durably, that the topic's messages below a position are gone. Notes about what lies below low are dropped:
// the log does not have it any more.
func (d *deletions) add(topic string, below, low offset.Physical) error {
	next := maps.Clone(d.topics)
	maps.DeleteFunc(next, func(_ string, below offset.Physical) bool { return below <= low })
	next[topic] = below
	return d.save(next)
}

// clamp lets no deletion reach behind the log's end: what comes there is of a later life of its topic.
func (d *deletions) clamp(end offset.Physical) error {
	next := maps.Clone(d.topics)
	for topic, below := range next {
		next[topic] = min(below, end)
	}
	if maps.Equal(next, d.topics) {
		return nil
	}
	return d.save(next)
}

// save replaces what is noted, durably, and then here.
func (d *deletions) save(next map[string]offset.Physical) error {
	var data []byte
	for _, name := range slices.Sorted(maps.Keys(next)) {
		data = fmt.Appendf(data, "%d %s\n", next[name], name)
	}
	if err := atomicfile.Write(d.fs, d.path, data); err != nil {
		return err
	}
	d.topics = next
	d.changes.Add(1)
	return nil
}

// has says whether a message at a position belongs to the topic's life before it was deleted.
func (d *deletions) has(topic []byte, at offset.Physical) bool {
	below, ok := d.topics[string(topic)]
	return ok && at < below
}

// eachTarget calls fn for the queues in which a message has an entry, but for those of deleted topics.
func (d *deletions) eachTarget(r *message.DispatchRequest, fn func(target)) {
	eachTarget(r, func(t target) {
		if !d.has(t.topic, r.PhysicalOffset) {
			fn(t)
		}
	})
}
