package remoting

import (
	"sync"
	"time"

	"github.com/ratchetmq/ratchet/protocol"
)

// intake makes requests of what one read has brought. Frames are decoded where they stand. Requests that follow each
// other and go to one lane are gathered and leave together: their bytes are copied then, all at once, into a bundle.
type intake struct {
	link *serverLink
	data []byte // what was read
	now  time.Time
	gone bool // the connection is, and only one-way requests are wanted

	line     line    // gathered
	from, to int     // where their frames stand in data; responses may be among them
	own      *buffer // or else what the only one's frame is: the first of data, which had begun before

	// The rest goes on to the next read, of whatever connection.
	models protocol.Models
	places [turn]protocol.FieldIndex // of those in line
	slab   []Request                 // to be used
}

// intakes are in a pool: who has the processor takes over what its forerunner has seen.
var intakes = sync.Pool{New: func() any { return new(intake) }}

// slabSize is how many requests of lanes that group them are allocated together. They are answered together, or nearly so:
// none keeps the others' memory for long.
const slabSize = 16

// cut makes requests of the frames in data and passes them on, until k must wait, and returns how much of data it used.
// gone: the connection is; only one-way requests are wanted, and all of those.
func (k *serverLink) cut(data []byte, now time.Time, gone bool) (used int, err error) {
	in := intakes.Get().(*intake) // not given back after an error: it may have been in the midst of a change
	in.link, in.data, in.now, in.gone = k, data, now, gone
	for used < len(data) && (gone || !k.mustWait()) {
		frame, own, n, err := k.split.next(data[used:])
		if err == nil && frame != nil {
			k.frames++
			err = in.add(frame, own, used)
		}
		if used += n; err != nil {
			in.pass()
			return used, err
		}
	}
	in.pass()
	in.link, in.data = nil, nil
	intakes.Put(in)
	return used, nil
}

// add takes the next frame, which stands at data[at] or else is all of own. It takes over own.
func (in *intake) add(frame []byte, own *buffer, at int) error {
	if len(in.slab) == 0 {
		in.slab = make([]Request, slabSize)
	}
	r, place := &in.slab[0], &in.places[in.line.n]
	err := decode(&in.models, &r.Command, place, frame)
	switch {
	case err != nil:
		own.release()
		return err
	case r.IsResponse():
		f := owned(frame, own)
		r.Move(frame, f.B, nil)
		in.link.conn.response(f, r.Command)
		r.Command = protocol.Command{}
		return nil
	case in.gone && !r.IsOneway():
		own.release()
		r.Command = protocol.Command{}
		return nil
	}
	l := in.link.srv.laneOf(r.Code)
	if l.group != nil {
		in.slab = in.slab[1:]
	} else {
		one := &Request{Command: r.Command}
		r.Command = protocol.Command{}
		r = one
	}
	r.Conn, r.lane, r.Received = &in.link.conn, l, in.now
	if in.line.n > 0 && (l != in.line.tail.lane || in.own != nil || at+len(frame)-in.from > maxBundle) {
		in.pass()
		in.places[0] = *place
	}
	if in.line.n == 0 {
		in.from, in.own = at, own
	}
	in.to = at + len(frame)
	in.line.add(alone(r))
	if in.line.n == turn || in.line.n == 1 && !l.gathers() {
		in.pass()
	}
	return nil
}

// pass gives what was gathered to its lane.
func (in *intake) pass() {
	q := in.line
	if q.n == 0 {
		return
	}
	var from []byte
	if in.own != nil {
		from = in.own.B
	} else {
		from = in.data[in.from:in.to]
	}
	b := owned(from, in.own)
	u := newBundle(b, q.n, in.places[:q.n])
	i := 0
	for r := q.head; r != nil; r = r.next {
		r.bytes = u
		r.Move(from, b.B, &u.places[i])
		i++
	}
	in.line, in.own = line{}, nil
	in.link.conn.take(q.n)
	in.link.push(q, in.gone)
}

// response passes a response on to who waits for it. It takes over f.
func (c *Conn) response(f *buffer, cmd protocol.Command) {
	if !c.expects(cmd.Opaque) {
		c.e.late.Add(1)
		f.release()
		return
	}
	c.answered(cmd) // keeps f's bytes, so f never goes back into its pool
}
