package store

import (
	"sync"

	"github.com/ratchetmq/ratchet/message"
)

// Bounds of what is kept of the log's end for dispatch. When it lags by more it reads the log.
const (
	freshRecords    = 8 << 10
	freshProperties = 2 << 20 // bytes
)

// fresh has the records at the end of the log that dispatch has not fetched yet, as far as it needs them: without magic
// code, body, and the body's checksum. To read the log again and to check and parse it costs more than all the rest of
// dispatch.
type fresh struct {
	mu   sync.Mutex
	list freshList // guarded by mu
}

// freshList are records in the order of the log, though not all there are.
type freshList struct {
	records    []message.Record
	properties []byte // of all records, which point into it
}

func (l *freshList) reset() {
	clear(l.records)
	l.records, l.properties = l.records[:0], l.properties[:0]
}

// add takes records that were just written. Their topics must not change, all else is copied. Nobody may see the log's
// new end before.
func (f *fresh) add(records []message.Record) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := &f.list
	size := 0
	for i := range records {
		size += len(records[i].Properties)
	}
	if len(l.records)+len(records) > freshRecords || len(l.properties)+size > freshProperties {
		return // dispatch reads what is missing from the log
	}
	for i := range records {
		l.records = append(l.records, records[i])
		r := &l.records[len(l.records)-1]
		from := len(l.properties)
		l.properties = append(l.properties, r.Properties...)
		r.Properties, r.Body = l.properties[from:len(l.properties):len(l.properties)], nil
	}
}

// fetch gives the list in exchange for an empty one.
func (f *fresh) fetch(empty *freshList) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list, *empty = *empty, f.list
}
