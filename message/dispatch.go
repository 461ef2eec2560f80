package message

import (
	"bytes"

	"github.com/ratchetmq/ratchet/internal/offset"
)

// DispatchRequest is what the consume queues and the index need of a record, which is half as much. Topic and Properties are
// borrowed like those of a Record.
type DispatchRequest struct {
	PhysicalOffset offset.Physical
	QueueOffset    offset.Queue
	StoreTimestamp int64 // ms
	TagsCode       int64 // what entries in consume queues carry for filters
	Size           int32
	QueueID        int32
	SysFlag        int32
	Keys           Keys // of Properties
	Topic          []byte
	Properties     []byte
}

// DispatchRequest is the record's. The tags code is the store's affair; 0 for who does not look at it.
func (r *Record) DispatchRequest(tagsCode int64) (q DispatchRequest) {
	q.Of(r, tagsCode)
	return q
}

// Of makes q the record's where it stands.
func (q *DispatchRequest) Of(r *Record, tagsCode int64) {
	q.PhysicalOffset, q.QueueOffset, q.StoreTimestamp, q.TagsCode = r.PhysicalOffset, r.QueueOffset, r.StoreTimestamp, tagsCode
	q.Size, q.QueueID, q.SysFlag, q.Keys = r.Size, r.QueueID, r.SysFlag, r.Keys
	q.Topic, q.Properties = r.Topic, r.Properties
}

// FindKeys is the values of UNIQ_KEY, KEYS and TAGS, parts of the properties, empty where there is none.
func (q *DispatchRequest) FindKeys() (unique, user, tags []byte) { return q.Keys.find(q.Properties) }

// Multi says whether the message may be in other queues besides its own, as INNER_MULTI_QUEUE_OFFSET says. The names of such
// queues begin with %LMQ%: a text without a percent sign, as nearly all are, need not be searched for the property.
func (q *DispatchRequest) Multi() bool {
	if q.Keys.noted {
		return q.Keys.multi
	}
	return bytes.IndexByte(q.Properties, '%') >= 0 && bytes.Contains(q.Properties, []byte(PropertyMultiQueueOffset))
}
