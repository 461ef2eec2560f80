package state

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"sync"
	"sync/atomic"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/internal/vfs"
)

// The journal of offsets, consumerOffset.journal-<generation> beside consumerOffset.json, holds every change since the
// snapshot in the JSON file was begun. A record, all numbers big-endian:
//
//	4  CRC-32C of all that follows
//	4  length of all that follows
//	8  sequence number: grows from record to record, over all generations
//	1  operation
//	8  offset   8 prior offset   8 epoch   4 queue      (zero where the operation has none)
//	2  length of the topic, topic, and the group up to the end
//
// A record that is torn, or whose number does not grow, is the end: the room behind a failed write may hold older
// records. There is no header; an empty file has no records.
type record struct {
	op           operation
	queue        int32
	offset       offset.Queue
	prior        offset.Queue
	epoch        int64
	topic, group string
}

type operation uint8

const (
	opCommit      operation = 1 // position = offset; a pending reset is over
	opReset       operation = 2 // position = offset, by an operator; pending
	opSettle      operation = 3 // a pending reset is over
	opRemovePair  operation = 4 // topic and group
	opRemoveTopic operation = 5
	opAdopt       operation = 6 // a replica's reset that its group follows already
)

const (
	recordHead = 4 + 4
	recordBody = 8 + 1 + 8 + 8 + 8 + 4 + 2
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func appendRecord(dst []byte, seq uint64, r record) []byte {
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	dst = binary.BigEndian.AppendUint32(dst, uint32(recordBody+len(r.topic)+len(r.group)))
	dst = binary.BigEndian.AppendUint64(dst, seq)
	dst = append(dst, byte(r.op))
	dst = binary.BigEndian.AppendUint64(dst, uint64(r.offset))
	dst = binary.BigEndian.AppendUint64(dst, uint64(r.prior))
	dst = binary.BigEndian.AppendUint64(dst, uint64(r.epoch))
	dst = binary.BigEndian.AppendUint32(dst, uint32(r.queue))
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(r.topic)))
	dst = append(append(dst, r.topic...), r.group...)
	binary.BigEndian.PutUint32(dst[start:], crc32.Checksum(dst[start+4:], castagnoli))
	return dst
}

// readRecord takes the first record off b; ok = false: there is none that is whole.
func readRecord(b []byte) (r record, seq uint64, rest []byte, ok bool) {
	if len(b) < recordHead+recordBody {
		return record{}, 0, b, false
	}
	size := int(binary.BigEndian.Uint32(b[4:]))
	if size < recordBody || size > len(b)-recordHead {
		return record{}, 0, b, false
	}
	whole := b[:recordHead+size]
	if crc32.Checksum(whole[4:], castagnoli) != binary.BigEndian.Uint32(whole) {
		return record{}, 0, b, false
	}
	body := whole[recordHead:]
	topicLen := int(binary.BigEndian.Uint16(body[37:]))
	if recordBody+topicLen > size {
		return record{}, 0, b, false
	}
	r = record{
		op:     operation(body[8]),
		offset: offset.Queue(binary.BigEndian.Uint64(body[9:])),
		prior:  offset.Queue(binary.BigEndian.Uint64(body[17:])),
		epoch:  int64(binary.BigEndian.Uint64(body[25:])),
		queue:  int32(binary.BigEndian.Uint32(body[33:])),
		topic:  string(body[recordBody : recordBody+topicLen]),
		group:  string(body[recordBody+topicLen:]),
	}
	return r, binary.BigEndian.Uint64(body), b[recordHead+size:], true
}

// readRecords calls fn for each record of a journal file, in order, and returns the last number and how many bytes it
// could not use. The zeros that a crash may leave behind the last write are not counted.
func readRecords(b []byte, fn func(record)) (last uint64, unused int) {
	for {
		r, seq, rest, ok := readRecord(b)
		if !ok || seq <= last {
			break
		}
		fn(r)
		last, b = seq, rest
	}
	for len(b) > 0 && b[len(b)-1] == 0 {
		b = b[:len(b)-1]
	}
	return last, len(b)
}

// journal appends records in the order of put. Whoever waits writes what has gathered, so that several at once share
// one write.
type journal struct {
	failures atomic.Uint64

	mu      sync.Mutex
	buf     []byte // guarded by mu: records that nobody has begun to write
	seq     uint64 // guarded by mu: number of the last record in buf, or written
	spare   []byte // guarded by mu: the buffer to use next
	written atomic.Uint64

	fileMu   sync.Mutex // one writer at a time; held during its I/O
	file     vfs.File   // guarded by fileMu; nil: closed
	size     int64      // guarded by fileMu: bytes of whole records
	unsynced bool       // guarded by fileMu

	failing    atomic.Bool // a write failed since the last snapshot
	failedFrom uint64      // guarded by fileMu: what failed lies in failedFrom…failedTo
	failedTo   uint64      // guarded by fileMu
	failure    error       // guarded by fileMu
}

// put queues a record. It is called under the lock that ordered the change, and does no I/O.
func (j *journal) put(r record) (ticket uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.seq++
	j.buf = appendRecord(j.buf, j.seq, r)
	return j.seq
}

// last is the ticket of the newest record.
func (j *journal) last() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.seq
}

var errJournalClosed = errors.New("journal of offsets is closed")

// wait returns when the record with a ticket, and all before it, are written. An error is that of one from first on.
func (j *journal) wait(first, ticket uint64) error {
	if j.written.Load() >= ticket && !j.failing.Load() {
		return nil
	}
	j.fileMu.Lock()
	defer j.fileMu.Unlock()
	if j.written.Load() < ticket {
		j.flush()
	}
	if j.failure != nil && ticket >= j.failedFrom && first <= j.failedTo {
		return j.failure
	}
	return nil
}

// flush writes what has gathered. After an error the next write goes to the same place, over what may be torn there.
// The caller holds fileMu.
func (j *journal) flush() {
	j.mu.Lock()
	batch, through := j.buf, j.seq
	j.buf, j.spare = j.spare[:0], nil
	j.mu.Unlock()
	first := j.written.Load() + 1
	if len(batch) > 0 {
		err := errJournalClosed
		if j.file != nil {
			_, err = j.file.WriteAt(batch, j.size)
		}
		if err == nil {
			j.size += int64(len(batch))
			j.unsynced = true
		} else {
			j.fail(first, through, fmt.Errorf("write journal of offsets: %w", err))
		}
	}
	j.written.Store(through)
	const keep = 1 << 20 // a burst's buffer is not kept for ever
	if cap(batch) <= keep {
		j.mu.Lock()
		j.spare = batch[:0]
		j.mu.Unlock()
	}
}

func (j *journal) fail(from, through uint64, err error) {
	j.failures.Add(1)
	if j.failure == nil {
		j.failedFrom = from
	}
	j.failedTo, j.failure = through, err
	j.failing.Store(true)
}

// sync makes all that was written durable. The writers go on meanwhile; swap must not. After an error the file is not
// to be trusted: what a failed sync was about to write may be gone for good.
func (j *journal) sync() error {
	j.fileMu.Lock()
	f, unsynced := j.file, j.unsynced
	j.unsynced = false
	j.fileMu.Unlock()
	if f == nil || !unsynced {
		return nil
	}
	if err := f.Sync(); err != nil {
		j.failures.Add(1)
		return fmt.Errorf("sync journal of offsets: %w", err)
	}
	return nil
}

// swap makes f, which is empty, the file that records go to from now on, and returns the one before.
func (j *journal) swap(f vfs.File) (before vfs.File) {
	j.fileMu.Lock()
	defer j.fileMu.Unlock()
	before, j.file, j.size, j.unsynced = j.file, f, 0, false
	return before
}

// empty tells whether the present file has no records.
func (j *journal) empty() bool {
	j.fileMu.Lock()
	defer j.fileMu.Unlock()
	return j.file != nil && j.size == 0
}

// bytes is the size of the present file.
func (j *journal) bytes() int64 {
	j.fileMu.Lock()
	defer j.fileMu.Unlock()
	return j.size
}

// heal forgets the failure: a snapshot has what the records would have said.
func (j *journal) heal(through uint64) {
	j.fileMu.Lock()
	defer j.fileMu.Unlock()
	if j.failure != nil && j.failedTo <= through {
		j.failure = nil
		j.failing.Store(false)
	}
}
