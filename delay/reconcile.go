package delay

import (
	"hash/maphash"
	"net/netip"
	"time"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/message"
	"github.com/ratchetmq/ratchet/store"
)

// clockSlack is how far the clock may have been set back between a message's due time and its delivery without the
// delivery being overlooked.
const clockSlack = time.Minute

// reconcile looks for the deliveries that the log has and the progress on disk has not, after a kill. They are at the
// ends of the queues they went to, behind the mark. They are all there up to some message, and none behind it; only
// where a power cut has torn holes in the log a level has others, which deliver then passes over.
func (d *delivery) reconcile() error {
	written := d.s.opts.Store.Written()
	if d.mark >= written {
		return nil // nothing came behind the mark: the last stop was in order
	}
	seen := deliveries{store: d.s.opts.Store, mark: d.mark, tails: map[tailKey]*tail{}, seed: maphash.MakeSeed()}
	found := map[int]offset.Queue{}
	now := d.now()
	for _, l := range d.levels {
		if _, err := d.eachLate(l, func(w *waiting) error {
			m, err := restore(&w.record)
			if err != nil {
				return nil //nolint:nilerr // it will be dropped
			}
			delivered, err := seen.take(&m, w)
			if delivered {
				d.s.cover(l.number, w.at, 0)
			}
			return err
		}); err != nil {
			return err
		}
		before := l.next
		if err := d.skipDelivered(l, &seen, now); err != nil {
			return err
		}
		if l.next != before || len(l.skip) > 0 {
			found[l.number] = l.next
			d.s.log.Info("deliveries found in the log", "topic", Topic, "queue", l.number-1, "before", before, "after",
				l.next, "apart", len(l.skip))
		}
	}
	d.s.advanceAll(found, written)
	return nil
}

// skipDelivered moves a level to the first message that is due by now and not delivered, and notes those behind it that
// are.
func (d *delivery) skipDelivered(l *level, seen *deliveries, now int64) error {
	missing := false
	for {
		if err := d.fill(l); err != nil {
			return err
		}
		if l.head == len(l.waiting) {
			break
		}
		w := &l.waiting[l.head]
		if l.left(w, now) > 0 {
			break
		}
		found := true
		if m, err := restore(&w.record); err == nil { // else it was dropped, or will be, which makes no difference
			if found, err = seen.take(&m, w); err != nil {
				return err
			}
		}
		switch {
		case !found:
			missing = true
		case missing:
			l.skip[w.at] = struct{}{}
		default:
			l.next = w.after
		}
		l.head++
	}
	if missing { // from there on they are read again
		l.read, l.waiting, l.head = l.next, l.waiting[:0], 0
		d.s.arrived[l.number-1].Store(true)
	}
	return nil
}

// deliveries looks for delivered messages at the ends of queues, each read once.
type deliveries struct {
	store Store
	mark  offset.Physical
	tails map[tailKey]*tail
	seed  maphash.Seed
	buf   []byte
}

type tailKey struct {
	topic string
	queue int32
}

// tail is the end of one queue, from low on.
type tail struct {
	low   offset.Queue
	found map[fingerprint]int // what is there and not yet taken
	// physical and time are those of the first record of the tail.
	physical offset.Physical
	time     int64
}

// fingerprint is what a delayed record and the one that was delivered for it have in common, and no two others: the
// properties, with the unique key and the real queue among them, as a hash.
type fingerprint struct {
	properties uint64
	born       int64
	host       netip.AddrPort
	crc        uint32
	reconsumed int32
	flag       int32
}

// take says whether the log has the message behind the mark, and takes that delivery out: a message that was sent twice
// is delivered twice.
func (v *deliveries) take(m *store.Message, w *waiting) (bool, error) {
	key := tailKey{m.Topic, m.QueueID}
	t := v.tails[key]
	if t == nil {
		bounds, ok := v.store.Bounds(m.Topic, m.QueueID)
		if !ok {
			return false, nil
		}
		t = &tail{low: bounds.High, found: map[fingerprint]int{}, physical: 1<<63 - 1, time: 1<<63 - 1}
		v.tails[key] = t
	}
	if err := v.extend(t, key, w.due-clockSlack.Milliseconds()); err != nil {
		return false, err
	}
	f := fingerprint{
		properties: maphash.Bytes(v.seed, m.Properties), born: m.BornTimestamp, host: m.BornHost, crc: w.record.BodyCRC,
		reconsumed: m.ReconsumeTimes, flag: m.Flag,
	}
	if t.found[f] == 0 {
		return false, nil
	}
	t.found[f]--
	return true, nil
}

// extend reads the tail further back, to a record below the mark or stored before since.
func (v *deliveries) extend(t *tail, key tailKey, since int64) error {
	const step = 512
	for t.physical >= v.mark && t.time >= since {
		bounds, ok := v.store.Bounds(key.topic, key.queue)
		if !ok || t.low <= bounds.Low {
			return nil
		}
		from := max(t.low-step, bounds.Low)
		if err := v.readTail(t, key, from); err != nil {
			return err
		}
		t.low = from
	}
	return nil
}

// readTail adds the records from a queue offset up to the tail.
func (v *deliveries) readTail(t *tail, key tailKey, from offset.Queue) error {
	first := true
	for at := from; at < t.low; {
		buf, batch, err := v.store.Read(store.Query{
			Topic: key.topic, Queue: key.queue, From: at, MaxMessages: int(t.low - at), MaxBytes: 1 << 20,
		}, v.buf[:0])
		if err != nil {
			return err
		}
		v.buf = buf
		for rest := buf; len(rest) > 0; {
			r, err := message.Parse(rest)
			if err != nil {
				return err
			}
			rest = rest[r.Size:]
			if first {
				t.physical, t.time, first = r.PhysicalOffset, r.StoreTimestamp, false
			}
			real, _ := message.Property(r.Properties, message.PropertyRealTopic)
			if r.PhysicalOffset >= v.mark && r.QueueOffset < t.low && string(real) == key.topic {
				t.found[v.fingerprint(&r)]++
			}
		}
		if batch.Next <= at {
			return nil
		}
		at = batch.Next
	}
	return nil
}

func (v *deliveries) fingerprint(r *message.Record) fingerprint {
	props := r.Properties
	if _, ok := message.Property(props, propertyCRC); ok {
		props = message.AppendWithout(nil, props, propertyCRC)
	}
	return fingerprint{
		properties: maphash.Bytes(v.seed, props), born: r.BornTimestamp, host: r.BornHost, crc: r.BodyCRC,
		reconsumed: r.ReconsumeTimes, flag: r.Flag,
	}
}
