package inspect

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/ratchetmq/ratchet/protocol"
)

// maxConfigFile is more than any file in config has.
const maxConfigFile = 1 << 30

// configuration is what is needed of the files in config.
type configuration struct {
	files       int
	topicsKnown bool
	topics      map[string]bool
	batch       map[string]bool                       // topics whose queues are of another kind
	offsets     map[string]map[string]map[int32]int64 // by file, then "topic@group" (or the delay topic), then queue
}

type topicsFile struct {
	Table map[string]struct {
		Attributes map[string]string `json:"attributes"`
	} `json:"topicConfigTable"`
}

type offsetsFile struct {
	Table map[string]map[int32]int64 `json:"offsetTable"`
	LMQ   map[string]int64           `json:"lmqOffsetTable"`
}

type delayFile struct {
	Table map[int32]int64 `json:"offsetTable"`
}

// checkConfig reads the JSON files in config.
func (c *checker) checkConfig() {
	c.config = configuration{topics: map[string]bool{}, batch: map[string]bool{}, offsets: map[string]map[string]map[int32]int64{}}
	if topics, err := c.opts.FS.ReadDir(filepath.Join(c.root, batchFolder)); err == nil {
		for _, t := range topics {
			c.config.batch[t.Name()] = true
		}
	}
	list, err := c.opts.FS.ReadDir(filepath.Join(c.root, configFolder))
	if err != nil {
		return
	}
	for _, d := range list {
		if !strings.HasSuffix(d.Name(), ".json") || d.IsDir() {
			continue
		}
		path := filepath.Join(c.root, configFolder, d.Name())
		data, err := readSmall(c.opts.FS, path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = c.configFile(d.Name(), data)
		}
		if err != nil {
			c.add("config", path, 0, "%s", strings.ReplaceAll(err.Error(), "\n", " "))
		}
		c.config.files++
	}
}

func (c *checker) configFile(name string, data []byte) error {
	switch name {
	case "topics.json":
		var f topicsFile
		if err := protocol.Unmarshal(data, &f); err != nil {
			return err
		}
		c.config.topicsKnown = true
		for topic, t := range f.Table {
			c.config.topics[topic] = true
			if t.Attributes["queue.type"] == "BatchCQ" {
				c.config.batch[topic] = true
			}
		}
	case "consumerOffset.json", "lmqConsumerOffset.json":
		var f offsetsFile
		if err := protocol.Unmarshal(data, &f); err != nil {
			return err
		}
		c.config.offsets[name] = f.Table
	case "delayOffset.json":
		var f delayFile
		if err := protocol.Unmarshal(data, &f); err != nil {
			return err
		}
		table := map[int32]int64{}
		for level, off := range f.Table {
			table[level-1] = off
		}
		c.config.offsets[name] = map[string]map[int32]int64{delayTopic: table}
	default:
		var any map[string]protocol.Raw
		return protocol.Unmarshal(data, &any)
	}
	return nil
}

// checkOffsets looks for progress in a queue beyond its end.
func (c *checker) checkOffsets() {
	for _, name := range slices.Sorted(maps.Keys(c.config.offsets)) {
		table := c.config.offsets[name]
		path := filepath.Join(c.root, configFolder, name)
		for _, key := range slices.Sorted(maps.Keys(table)) {
			topic, _, _ := strings.Cut(key, "@")
			for _, id := range slices.Sorted(maps.Keys(table[key])) {
				off := table[key][id]
				q := c.queues.get([]byte(topic), id)
				if q != nil && off > max(q.high, q.end) && !c.config.batch[topic] {
					c.add("offset-beyond", path, 0, "%s queue %d: offset %d, the queue ends at %d", key, id, off, max(q.high, q.end))
				}
				if off < -1 {
					c.add("offset-beyond", path, 0, "%s queue %d: offset %d", key, id, off)
				}
			}
		}
	}
}

// loadDeletions reads Ratchet's list of deleted topics.
func (c *checker) loadDeletions() {
	path := filepath.Join(c.root, deletionsFile)
	data, err := readSmall(c.opts.FS, path)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		c.add("deleted-topics", path, 0, "%v", err)
		return
	}
	at := int64(0)
	for line := range bytes.Lines(data) {
		number, topic, ok := strings.Cut(strings.TrimSuffix(string(line), "\n"), " ")
		pos, err := strconv.ParseInt(number, 10, 64)
		if !ok || err != nil || topic == "" {
			c.add("deleted-topics", path, at, "%q is not a position and a topic", line)
		} else {
			c.deleted[topic] = pos
		}
		at += int64(len(line))
	}
}

// checkpoint is the store's file of that name: times in ms, positions in the log.
type checkpoint struct {
	path                     string
	present                  bool
	size                     int
	log, queues, index       int64
	masterFlushed, confirmed int64
}

func parseCheckpoint(path string, data []byte) checkpoint {
	var b [40]byte
	copy(b[:], data)
	u := func(at int) int64 { return int64(binary.BigEndian.Uint64(b[at:])) }
	return checkpoint{path, true, len(data), u(0), u(8), u(16), u(24), u(32)}
}

func (c *checker) loadCheckpoint() {
	path := filepath.Join(c.root, checkpointFile)
	data, err := readSmall(c.opts.FS, path)
	switch {
	case err == nil:
		c.check = parseCheckpoint(path, data)
	case !errors.Is(err, fs.ErrNotExist):
		c.add("checkpoint", path, 0, "%v", err)
	}
}

func (c *checker) checkCheckpoint() {
	p := c.check
	if !p.present {
		return
	}
	if p.size < 40 {
		c.add("checkpoint", p.path, 0, "%d bytes", p.size)
		return
	}
	for i, t := range []int64{p.log, p.queues, p.index} {
		name := []string{"log", "queues", "index"}[i]
		switch {
		case t < 0:
			c.add("checkpoint", p.path, int64(8*i), "%s durable up to time %d", name, t)
		case t > c.lastTime && c.records > 0:
			c.add("checkpoint", p.path, int64(8*i), "%s durable up to time %d, the newest record is of %d", name, t, c.lastTime)
		}
	}
	for i, pos := range []int64{p.masterFlushed, p.confirmed} {
		if pos < -1 || pos > max(c.end, c.log.low()) {
			c.add("checkpoint", p.path, int64(24+8*i), "position %d, the log ends at %d", pos, c.end)
		}
	}
}
