package store

import (
	"bytes"
	"strconv"

	"github.com/ratchetmq/ratchet/message"
)

// multiPrefix is the prefix of the queues that a message may be in besides its own (light message queues).
var multiPrefix = []byte("%LMQ%")

// target is one consume queue that a record has an entry in.
type target struct {
	topic []byte
	id    int32
	index int64
}

// eachTarget calls fn for the queues of a message: its own, and those which INNER_MULTI_DISPATCH names, with the
// offsets that INNER_MULTI_QUEUE_OFFSET gives. Prepared and rolled back messages are in none. Inner batches (topics
// with queue.type=BatchCQ) are in another kind of queue, which this store does not have.
func eachTarget(r *message.DispatchRequest, fn func(target)) {
	if !inQueue(r.SysFlag) || r.SysFlag&message.FlagInnerBatch != 0 {
		return
	}
	fn(target{r.Topic, r.QueueID, int64(r.QueueOffset)})
	if !r.Multi() {
		return
	}
	names, _ := message.Property(r.Properties, message.PropertyMultiDispatch)
	offsets, _ := message.Property(r.Properties, message.PropertyMultiQueueOffset)
	for len(names) > 0 && len(offsets) > 0 {
		var name, off []byte
		name, names, _ = bytes.Cut(names, []byte{','})
		off, offsets, _ = bytes.Cut(offsets, []byte{','})
		index, err := strconv.ParseInt(string(off), 10, 64)
		if err != nil || uint64(index) > maxIndex || !bytes.HasPrefix(name, multiPrefix) || !storableTopic(name) {
			continue
		}
		fn(target{name, 0, index})
	}
}

// belongs says whether a record is one of the queue's.
func belongs(r *message.Record, q *queue) bool {
	if bytes.Equal(r.Topic, q.name) && r.QueueID == q.id {
		return true
	}
	found := false
	if bytes.HasPrefix(q.name, multiPrefix) {
		request := r.DispatchRequest(0)
		eachTarget(&request, func(t target) { found = found || bytes.Equal(t.topic, q.name) && t.id == q.id })
	}
	return found
}
