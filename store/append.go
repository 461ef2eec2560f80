package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"unsafe"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/internal/vfs"
	"github.com/ratchetmq/ratchet/message"
)

// Message is what a producer sends, as the log is to keep it. Append borrows its bytes until it returns.
type Message struct {
	Topic                     string
	QueueID                   int32
	Flag                      int32
	SysFlag                   int32
	BornTimestamp             int64 // ms
	BornHost                  netip.AddrPort
	ReconsumeTimes            int32
	PreparedTransactionOffset int64
	Body                      []byte
	Properties                []byte
	Keys                      message.Keys // of Properties, if they are noted

	At          offset.Physical // set by Append
	QueueOffset offset.Queue    // set by Append
}

// Appended says where an append went.
type Appended struct {
	Physical       offset.Physical // of the first message
	Queue          offset.Queue    // of the first message
	End            offset.Physical // behind the last message; what WhenFlushed takes
	StoreTimestamp int64           // ms, of all
}

// putState is what appends share. mu is the put lock.
type putState struct {
	mu        sync.Mutex
	closed    bool                      // guarded by mu
	held      bool                      // guarded by mu; see Store.Hold
	lastTime  int64                     // guarded by mu; ms; no record is older than one before it
	buf       []byte                    // guarded by mu; the records of one append, without large bodies
	pieces    [][]byte                  // guarded by mu; what is to be written: parts of buf and bodies in turn, or a slave's bytes
	queues    []*queue                  // guarded by mu; of each message of one append
	record    message.Record            // guarded by mu; of the message that is being encoded
	requests  []message.DispatchRequest // guarded by mu; of one append
	prepareAt offset.Physical           // guarded by mu; from here on the next segment should be made
	filled    offset.Physical           // guarded by mu; the end of the part of a segment that was last filled with zeros
}

// keepBuffer is the size of an append above which its buffer is not kept.
const keepBuffer = 1 << 20

// largeBody is the size from which on a body goes to the file from where it is, and not through the buffer. Below, the copy
// costs less than two more pieces.
const largeBody = 8 << 10

var errPanic = errors.New("panic in an append")

// Append writes the messages one after the other, in one file of the log: all of them or none. Those of one queue get
// consecutive queue offsets. Each message is told its place. When it returns without an error the messages are written, not
// flushed: see WhenFlushed.
//
// ErrTopic, ErrProperties and ErrTooLarge are the messages' fault; ErrFull and ErrHeld pass; ErrClosed and ErrBroken do not.
func (s *Store) Append(msgs ...Message) (Appended, error) {
	for i := range msgs {
		if err := s.check(&msgs[i]); err != nil {
			return Appended{}, fmt.Errorf("append to %s/%d: %w", msgs[i].Topic, msgs[i].QueueID, err)
		}
	}
	if len(msgs) == 0 {
		return Appended{}, fmt.Errorf("append nothing: %w", ErrTopic)
	}
	if full := s.tooFull.Load(); full != nil {
		return Appended{}, fmt.Errorf("append to %s/%d: %w", msgs[0].Topic, msgs[0].QueueID, *full)
	}
	for {
		a, wait, err := s.tryAppend(msgs)
		if err != nil {
			return a, fmt.Errorf("append to %s/%d: %w", msgs[0].Topic, msgs[0].QueueID, err)
		}
		if wait == 0 {
			return a, nil
		}
		if err := s.awaitFlushed(wait); err != nil {
			return Appended{}, err
		}
	}
}

func (s *Store) check(m *Message) error {
	switch {
	case m.QueueID < 0 || !storableTopic(unsafe.Slice(unsafe.StringData(m.Topic), len(m.Topic))):
		return ErrTopic
	case len(m.Properties) > message.MaxPropertiesSize:
		return fmt.Errorf("%w: %d bytes with the broker's own, limit %d", ErrProperties, len(m.Properties),
			message.MaxPropertiesSize)
	case len(m.Body) > s.opts.MaxMessageSize:
		return fmt.Errorf("%w: body of %d bytes, limit %d", ErrTooLarge, len(m.Body), s.opts.MaxMessageSize)
	}
	return nil
}

// tryAppend is Append under the put lock. A position in wait says that too much is unflushed: come again when the log
// is flushed up to there.
func (s *Store) tryAppend(msgs []Message) (a Appended, wait offset.Physical, err error) {
	p := &s.put
	p.mu.Lock()
	finished := false
	defer s.endPut(&finished)
	a, wait, err = s.appendLocked(msgs)
	finished = true
	return a, wait, err
}

// endPut gives the put lock back; after a panic nobody knows what is in the log's file.
func (s *Store) endPut(finished *bool) {
	if !*finished {
		s.fail(errPanic)
	}
	s.put.mu.Unlock()
}

func (s *Store) appendLocked(msgs []Message) (a Appended, wait offset.Physical, err error) {
	p := &s.put
	if err := s.appendable(); err != nil {
		return a, 0, err
	}
	if p.held {
		return a, 0, ErrHeld
	}
	end := s.log.written.load()
	size := s.findQueues(msgs)
	defer p.release()
	if size+message.BlankSize > s.log.size {
		return a, 0, fmt.Errorf("%w: records of %d bytes, a segment has %d", ErrTooLarge, size, s.log.size)
	}
	grows := size
	if room := s.log.size - int64(end)%s.log.size; size+message.BlankSize > room {
		grows += room
	}
	if wait := s.tooMuchUnflushed(end, grows, int64(len(msgs))); wait > 0 {
		return a, wait, nil
	}
	seg, pos, err := s.place(end, size)
	if err != nil {
		return a, 0, err
	}
	p.lastTime = max(p.lastTime, s.opts.Now().UnixMilli())
	a = s.encode(msgs, pos)
	if err := s.extend(seg, pos, a.End); err != nil {
		s.takeBack(msgs)
		return Appended{}, 0, err
	}
	s.fresh.add(p.requests)
	s.appended(seg, a.End, int64(len(msgs)))
	return a, 0, nil
}

// Hold refuses what Append is asked for, or no more. When it returns none is under way, not even one that waited for the disk. What
// comes from another broker's log is taken all the same.
func (s *Store) Hold(on bool) {
	s.put.mu.Lock()
	s.put.held = on
	s.put.mu.Unlock()
}

// appendable says why nothing can be appended. The put lock is held.
func (s *Store) appendable() error {
	if err := s.Err(); err != nil {
		return err
	}
	if s.put.closed {
		return ErrClosed
	}
	return nil
}

// tooMuchUnflushed is the position that has to be flushed before so much more is appended, 0 when nothing has to. The bounds
// hold for what is unflushed afterwards, as what a power cut takes is reckoned with them; only what is more by itself is
// appended when nothing else is unflushed. end is the log's. The put lock is held.
func (s *Store) tooMuchUnflushed(end offset.Physical, bytes, messages int64) offset.Physical {
	unflushed := int64(end - s.log.flushed.load())
	if bound := s.opts.MaxUnflushedBytes; bound > 0 && unflushed > 0 && unflushed+bytes > bound {
		return min(end, end+offset.Physical(bytes-bound))
	}
	unflushed = s.unflushedMessages()
	if bound := s.opts.MaxUnflushedMessages; bound > 0 && unflushed > 0 && unflushed+messages > bound {
		return end
	}
	return 0
}

// appended lets everybody know that the log now ends at end, which is in seg. The put lock is held.
func (s *Store) appended(seg *segment, end offset.Physical, messages int64) {
	s.log.written.raise(end)
	s.log.messages.Add(messages) // after written, see commitLog.flush
	if end >= s.put.prepareAt {
		s.put.prepareAt = seg.end + offset.Physical(s.log.size/2)
		s.prepare.ring()
	}
	if s.opts.Flush == AsyncFlush {
		s.dispatcher.wake.ring()
	}
	s.flusher.written()
	s.growth.ring()
}

// findQueues finds the queues of the messages, and returns the size of their records. The put lock is held.
func (s *Store) findQueues(msgs []Message) int64 {
	p, size := &s.put, 0
	p.queues = p.queues[:0]
	for i := range msgs {
		m := &msgs[i]
		q := s.queues.ensure(m.Topic, m.QueueID)
		if q.next == 0 {
			s.begin(q)
		}
		p.queues = append(p.queues, q)
		size += message.EncodedSize(m.BornHost.Addr(), s.opts.StoreHost.Addr(), len(q.name), len(m.Body)+len(m.Properties))
	}
	return int64(size)
}

// release lets go of what one append has used, and of the memory of a large one.
func (p *putState) release() {
	p.record = message.Record{}
	if cap(p.buf) > keepBuffer {
		p.buf, p.pieces, p.queues, p.requests = nil, nil, nil, nil
	}
}

// place finds the room for size bytes at the end of the log, in the next segment when this one is too full. What is
// left of this one is then marked as not used.
func (s *Store) place(end offset.Physical, size int64) (*segment, offset.Physical, error) {
	seg, err := s.log.ensure(end)
	if err != nil {
		return nil, 0, err
	}
	room := int64(seg.end - end)
	if size+message.BlankSize <= room {
		return seg, end, nil
	}
	next, err := s.log.ensure(seg.end)
	if err != nil {
		return nil, 0, err
	}
	return next, next.start, s.writeBlank(seg, end)
}

// writeBlank marks the segment's rest from pos on as not used.
func (s *Store) writeBlank(seg *segment, pos offset.Physical) error {
	if seg.end-pos < message.BlankSize {
		return nil // so little says it by itself
	}
	var blank [message.BlankSize]byte
	binary.BigEndian.PutUint32(blank[:], uint32(seg.end-pos))
	binary.BigEndian.PutUint32(blank[message.PosMagic:], message.MagicBlank)
	return s.writeAt(seg, pos, blank[:])
}

// encode gives each message its place, in the queue that was found for it, and makes the pieces of which the records
// consist, and what dispatch is to have of them.
func (s *Store) encode(msgs []Message, pos offset.Physical) Appended {
	p := &s.put
	p.buf, p.pieces, p.requests = p.buf[:0], p.pieces[:0], slices.Grow(p.requests[:0], len(msgs))[:len(msgs)]
	a := Appended{Physical: pos, StoreTimestamp: p.lastTime, End: pos}
	cut := 0 // what of buf is in pieces
	r := &p.record
	r.StoreTimestamp, r.StoreHost = p.lastTime, s.opts.StoreHost
	for i := range msgs {
		m, q := &msgs[i], p.queues[i]
		m.At, m.QueueOffset = a.End, 0
		if inQueue(m.SysFlag) {
			m.QueueOffset = q.next
			q.next++
		}
		if i == 0 {
			a.Queue = m.QueueOffset
		}
		r.PhysicalOffset, r.QueueOffset, r.QueueID, r.Flag, r.SysFlag = m.At, m.QueueOffset, m.QueueID, m.Flag, m.SysFlag
		r.BornTimestamp, r.BornHost = m.BornTimestamp, m.BornHost
		r.ReconsumeTimes, r.PreparedTransactionOffset = m.ReconsumeTimes, m.PreparedTransactionOffset
		r.Body, r.Topic, r.Properties, r.Keys = m.Body, q.name, m.Properties, m.Keys
		r.Size = int32(r.EncodedSize())
		a.End += offset.Physical(r.Size)
		p.buf = message.AppendRecordHead(p.buf, r)
		if len(r.Body) < largeBody {
			p.buf = append(p.buf, r.Body...)
		} else {
			p.pieces = append(p.pieces, p.buf[cut:], r.Body)
			cut = len(p.buf)
		}
		p.buf = message.AppendRecordTail(p.buf, r)
		p.requests[i].Of(r, s.opts.TagsCode(r))
	}
	p.pieces = append(p.pieces, p.buf[cut:])
	return a
}

// takeBack undoes the numbering of encode.
func (s *Store) takeBack(msgs []Message) {
	for i := range msgs {
		if inQueue(msgs[i].SysFlag) {
			s.put.queues[i].next--
		}
	}
}

// inQueue says whether messages of that kind are in their queue: prepared and rolled back ones are not.
func inQueue(sysFlag int32) bool {
	t := sysFlag & message.FlagTransactionMask
	return t != message.FlagPrepared && t != message.FlagRollback
}

// fillSize is the size of the parts of a segment that are filled with zeros.
const fillSize = 64 << 10

var zeros [fillSize]byte

// extend writes put.pieces, one behind the other, up to end, which is the log's next. When they come into another part of the
// segment, zeros follow up to that part's end. These are what stands there already, but the kernel then keeps the part in
// one piece of memory, and not in one for each page or each append: writing to it costs a third less, syncing it half. Its blocks,
// which were only reserved, become data by one sync, and not one after the other by many. The put lock is held.
func (s *Store) extend(seg *segment, pos, end offset.Physical) error {
	p := &s.put
	if end > p.filled {
		part := (end - seg.start + fillSize - 1) / fillSize
		p.filled = min(seg.start+part*fillSize, seg.end)
		if p.filled > end {
			p.pieces = append(p.pieces, zeros[:p.filled-end])
		}
	}
	defer clear(p.pieces)
	return s.writeAt(seg, pos, p.pieces...)
}

// writeAt writes pieces, one behind the other, into a segment behind the log's end. A failed write breaks the store, except when
// the disk is full (which a file system without reservation finds out only now) and all traces can be wiped off.
func (s *Store) writeAt(seg *segment, pos offset.Physical, pieces ...[]byte) error {
	at := int64(pos - seg.start)
	n, err := vfs.WritePiecesAt(seg.file, pieces, at)
	if err == nil {
		return nil
	}
	if errors.Is(err, syscall.ENOSPC) {
		_, wipe := seg.file.WriteAt(make([]byte, n), at)
		if wipe == nil {
			return fmt.Errorf("%w: %w", ErrFull, err)
		}
		err = errors.Join(err, wipe)
	}
	s.fail(err)
	return s.Err()
}
