package inspect

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/ratchetmq/ratchet/message"
	"github.com/ratchetmq/ratchet/protocol"
)

const (
	delayTopic = protocol.TopicSchedule
	lmqPrefix  = "%LMQ%"
)

// crcProperty begins the property that RocketMQ 5 ends a record with when enabledAppendPropCRC is on: ten digits, the
// least first, and the separator.
var crcProperty = []byte("__CRC32#\x01")

const crcPropertySize = 20

// checkProperties says what is wrong with the properties' checksum, "" when nothing is or there is none.
func checkProperties(raw []byte, r *message.Record) string {
	if len(r.Properties) < crcPropertySize {
		return ""
	}
	last := raw[len(raw)-crcPropertySize:]
	if !bytes.HasPrefix(last, crcProperty) || last[crcPropertySize-1] != 2 {
		return ""
	}
	want := uint64(0)
	for i := crcPropertySize - 2; i >= len(crcProperty); i-- {
		if last[i] < '0' || last[i] > '9' {
			return "property CRC is no number"
		}
		want = want*10 + uint64(last[i]-'0')
	}
	if crc := crc32.ChecksumIEEE(raw[:len(raw)-crcPropertySize]) & 0x7FFFFFFF; uint64(crc) != want {
		return "property CRC " + strconv.FormatUint(uint64(crc), 16) + ", recorded " + strconv.FormatUint(want, 16)
	}
	return ""
}

// saneTopic says whether a text can be a topic's, and a folder's, name.
func saneTopic(topic []byte) bool {
	if len(topic) == 0 || len(topic) > message.MaxTopic || !utf8.Valid(topic) {
		return false
	}
	for _, c := range topic {
		if c <= ' ' || c == '/' || c == 0x7F {
			return false
		}
	}
	return topic[0] != '.'
}

// place is an entry that a record should have.
type place struct {
	topic []byte
	id    int32
	index int64
}

// eachPlace calls fn for the queues that a record is in: its own, and the light ones that it names. Prepared and
// rolled back messages are in none, inner batches in queues of another kind.
func eachPlace(r *message.Record, fn func(place)) {
	transaction := r.SysFlag & message.FlagTransactionMask
	if transaction == message.FlagPrepared || transaction == message.FlagRollback || r.SysFlag&message.FlagInnerBatch != 0 {
		return
	}
	fn(place{r.Topic, r.QueueID, int64(r.QueueOffset)})
	if !bytes.Contains(r.Properties, []byte(message.PropertyMultiQueueOffset)) {
		return
	}
	names, _ := message.Property(r.Properties, message.PropertyMultiDispatch)
	offsets, _ := message.Property(r.Properties, message.PropertyMultiQueueOffset)
	for len(names) > 0 && len(offsets) > 0 {
		var name, off []byte
		name, names, _ = bytes.Cut(names, []byte{','})
		off, offsets, _ = bytes.Cut(offsets, []byte{','})
		index, err := strconv.ParseInt(string(off), 10, 64)
		if err == nil && index >= 0 && bytes.HasPrefix(name, []byte(lmqPrefix)) && saneTopic(name) {
			fn(place{name, 0, index})
		}
	}
}

// tagsCode is what a record's entry carries: the hash of its tags, or the time at which a delayed message is due.
func tagsCode(r *message.Record, levels []time.Duration) int64 {
	if string(r.Topic) == delayTopic {
		level := int(r.QueueID) + 1
		if text, ok := message.Property(r.Properties, message.PropertyDelayLevel); ok {
			if n, err := strconv.Atoi(string(text)); err == nil && n > 0 {
				level = n
			}
		}
		if level = min(max(level, 0), len(levels)); level == 0 {
			return r.StoreTimestamp
		}
		return r.StoreTimestamp + levels[level-1].Milliseconds()
	}
	tags, _ := message.Property(r.Properties, message.PropertyTags)
	return message.TagsCode(tags)
}

// eachHash calls fn with the hash of every key under which the index may hold a record, until fn returns false.
func eachHash(r *message.Record, fn func(hash uint32) bool) {
	more := true
	eachKeyHash(r, func(h uint32) bool {
		more = fn(h)
		return more
	})
	if tags, ok := message.Property(r.Properties, message.PropertyTags); ok && more {
		fn(hashOf(r, "T#", tags))
	}
}

// eachKeyHash calls fn for the hashes of the record's unique key and its keys, which every version of RocketMQ indexes.
func eachKeyHash(r *message.Record, fn func(hash uint32) bool) {
	message.EachProperty(r.Properties, func(name, value []byte) bool {
		switch string(name) {
		case message.PropertyUniqueKey:
			return fn(hashOf(r, "", value))
		case message.PropertyKeys:
			for key := range bytes.SplitSeq(value, []byte{' '}) {
				if len(key) > 0 && !fn(hashOf(r, "", key)) {
					return false
				}
			}
		}
		return true
	})
}

func hashOf(r *message.Record, mark string, key []byte) uint32 {
	text := append(append(append(slices.Clone(r.Topic), '#'), mark...), key...)
	h := message.HashCode(text)
	if h < 0 {
		h = -h
	}
	return uint32(max(h, 0))
}

// entry is one of a consume queue: position 8, size 4, tags code 8.
type entry struct {
	phy  int64
	size int32
	tags int64
}

const (
	entrySize = 20
	// blankSize marks an entry that stands for no message: in front of a queue that does not begin at a file's start,
	// and in the place of a message that was lost.
	blankSize = 1<<31 - 1
)

func parseEntry(b []byte) entry {
	be := binary.BigEndian
	return entry{int64(be.Uint64(b)), int32(be.Uint32(b[8:])), int64(be.Uint64(b[12:]))}
}

func (e entry) present() bool { return e.phy >= 0 && e.size > 0 }
func (e entry) blank() bool   { return e.phy == 0 && e.size == blankSize }

// extTags says whether tags is an address in a consumequeue_ext file and no tags code.
func (e entry) extTags() bool { return e.tags < -1<<31 }
