package inspect

import "github.com/ratchetmq/ratchet/message"

// scanQueues counts each queue's entries and looks for holes, before the log is read.
func (c *checker) scanQueues() error {
	for _, q := range c.queues.list {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		c.queueFiles(q)
		if err := c.queues.count(q, c.log.low(), func(index int64, e entry, file string, at int64, why string) {
			c.add(why, file, at, "%s/%d@%d: %s", q.topic, q.id, index, describe(why))
		}); err != nil {
			return err
		}
		c.Notes["blank-entries"] += int(q.blanks)
	}
	if c.Notes["blank-entries"] == 0 {
		delete(c.Notes, "blank-entries")
	}
	return nil
}

func describe(why string) string {
	switch why {
	case "queue-hole":
		return "entries in front of it are missing"
	case "queue-order":
		return "does not point behind the entry before it"
	}
	return "bytes that are no entry"
}

func (c *checker) queueFiles(q *queue) {
	for i, f := range q.files {
		last := i == len(q.files)-1
		if f.size != q.size && (!last || f.size > q.size || f.size%entrySize != 0) {
			c.add("queue-file-size", f.path, 0, "%d bytes, the others have %d", f.size, q.size)
		}
		if i > 0 && q.files[i-1].start+q.size != f.start {
			c.add("queue-file-gap", f.path, 0, "file missing: the one before it begins at %d", q.files[i-1].start)
		}
	}
}

// count goes through a queue and fills in its numbers. wrong is told of holes and entries out of order.
func (set *queueSet) count(q *queue, logLow int64, wrong func(index int64, e entry, file string, at int64, why string)) error {
	next, begun := int64(-1), false
	q.low = -1
	err := set.eachEntry(q, 0, func(index int64, e entry, file string, at int64) bool {
		if !e.present() {
			wrong(index, e, file, at, "entry-garbage")
			return true
		}
		if next >= 0 && index != next {
			wrong(index, e, file, at, "queue-hole")
		}
		next = index + 1
		if e.blank() {
			if begun {
				q.blanks++
			}
			return true
		}
		if e.phy <= q.lastPhy {
			wrong(index, e, file, at, "queue-order")
		}
		begun, q.lastPhy, q.high = true, e.phy, index+1
		q.entries++
		if e.phy >= logLow {
			if q.low < 0 {
				q.low = index
			}
			q.live++
		}
		return true
	})
	if q.low < 0 {
		q.low = q.high
	}
	return err
}

// matchQueues finds the entries that point at no record of theirs. Only queues in which the log did not account for
// all entries are read again.
func (c *checker) matchQueues() error {
	var buf []byte
	for _, q := range c.queues.list {
		if q.matched >= q.live {
			continue
		}
		err := c.queues.eachEntry(q, q.low, func(index int64, e entry, file string, at int64) bool {
			if index >= q.high || c.ctx.Err() != nil {
				return false
			}
			if !e.present() || e.blank() || e.phy < c.log.low() {
				return true
			}
			if e.phy >= c.end {
				if c.live {
					c.note("entry-ahead")
				} else {
					c.add("entry-ahead", file, at, "%s/%d@%d: points at %d, the log ends at %d", q.topic, q.id, index, e.phy, c.end)
				}
				return true
			}
			var why string
			if why, buf = c.log.verify(buf, q, index, e); why != "" {
				c.add("entry-dangling", file, at, "%s/%d@%d: points at %d: %s", q.topic, q.id, index, e.phy, why)
			}
			return true
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// verify says why an entry does not belong to the record that it points at, "" when it does. buf is scratch space and
// is given back.
func (l *commitLog) verify(buf []byte, q *queue, index int64, e entry) (why string, scratch []byte) {
	r, buf, bad := l.record(buf, e.phy)
	if bad != nil {
		return "no record: " + bad.Error(), buf
	}
	return mismatch(&r, q, index, e), buf
}

func mismatch(r *message.Record, q *queue, index int64, e entry) string {
	found := false
	eachPlace(r, func(p place) {
		found = found || string(p.topic) == q.topic && p.id == q.id && p.index == index
	})
	switch {
	case !found:
		return "record of " + title(r)
	case r.Size != e.size:
		return "record of another size"
	}
	return ""
}
