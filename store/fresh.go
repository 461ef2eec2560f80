package store

import (
	"sync"

	"github.com/ratchetmq/ratchet/message"
)

// Bounds of what is kept of the log's end for dispatch. When it lags by more it reads the log.
const (
	freshRequests   = 8 << 10
	freshProperties = 2 << 20 // bytes
)

// fresh has what dispatch needs of the records at the end of the log, and has not fetched yet. To read the log again and to
// check and parse it costs more than all the rest of dispatch.
type fresh struct {
	mu   sync.Mutex
	list freshList // guarded by mu
}

// freshList is in the order of the log, though not all there is.
type freshList struct {
	requests   []message.DispatchRequest
	properties []byte // of all requests, which point into it
}

// reset empties the list. What it pointed to are its own bytes and the names of queues: it may go on pointing there.
func (l *freshList) reset() { l.requests, l.properties = l.requests[:0], l.properties[:0] }

// add takes requests of records that were just written. Their topics must not change, all else is copied. Nobody may see
// the log's new end before.
func (f *fresh) add(requests []message.DispatchRequest) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := &f.list
	size := 0
	for i := range requests {
		size += len(requests[i].Properties)
	}
	if len(l.requests)+len(requests) > freshRequests || len(l.properties)+size > freshProperties {
		return // dispatch reads what is missing from the log
	}
	from := len(l.requests)
	l.requests = append(l.requests, requests...)
	for i := range l.requests[from:] {
		q := &l.requests[from+i]
		at := len(l.properties)
		l.properties = append(l.properties, q.Properties...)
		q.Properties = l.properties[at:len(l.properties):len(l.properties)]
	}
}

// fetch gives the list in exchange for an empty one.
func (f *fresh) fetch(empty *freshList) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list, *empty = *empty, f.list
}
