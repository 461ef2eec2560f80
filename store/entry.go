package store

import (
	"encoding/binary"
	"math"

	"github.com/ratchetmq/ratchet/internal/offset"
)

// entrySize is the size of a consume queue entry: position 8, size 4, tags code 8. Entry i of a queue stands at byte
// i*entrySize of the queue's files laid end to end.
const entrySize = 20

// blankSize is the size field of an entry that stands for no message: RocketMQ fills the beginning of a queue's first
// file with them when the queue does not begin there, and we fill the places of lost messages.
const blankSize = math.MaxInt32

// entry says where a message of a queue is. The zero entry was never written.
type entry struct {
	phy  offset.Physical
	size int32
	tags int64
}

func appendEntry(b []byte, e entry) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(e.phy))
	b = binary.BigEndian.AppendUint32(b, uint32(e.size))
	return binary.BigEndian.AppendUint64(b, uint64(e.tags))
}

func parseEntry(b []byte) entry {
	return entry{
		phy:  offset.Physical(binary.BigEndian.Uint64(b)),
		size: int32(binary.BigEndian.Uint32(b[8:])),
		tags: int64(binary.BigEndian.Uint64(b[12:])),
	}
}

// present says whether there is an entry at all, be it a blank one.
func (e entry) present() bool { return e.phy >= 0 && e.size > 0 }

// blank says whether the entry stands for no message.
func (e entry) blank() bool { return e.phy == 0 && e.size == blankSize }

// extTags says whether tags is no tags code but an address in a consumequeue_ext file, which RocketMQ writes with
// enableConsumeQueueExt.
func (e entry) extTags() bool { return e.tags < math.MinInt32 }

func appendBlanks(b []byte, n int64) []byte {
	for range n {
		b = appendEntry(b, entry{size: blankSize})
	}
	return b
}
