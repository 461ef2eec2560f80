package remoting

import "sync/atomic"

// counters belong to one server or client.
type counters struct {
	accepted   atomic.Uint64
	requests   atomic.Uint64
	replies    atomic.Uint64
	malformed  atomic.Uint64
	late       atomic.Uint64
	duplicates atomic.Uint64
	oversized  atomic.Uint64
	idle       atomic.Uint64
	overflowed atomic.Uint64
}

// Stats is a snapshot of a server's or client's counters. Those that end in a plain count of events only grow.
type Stats struct {
	Connections int // open now
	Choked      int // open, and not read now, since their peer does not read or a lane is full of their one-way requests
	InFlight    int // requests taken and not answered, held ones included. Those of closed connections count until handled

	Accepted         uint64 // connections ever opened
	Requests         uint64 // requests taken
	Replies          uint64 // replies handed to the network
	Malformed        uint64 // connections closed for bytes that are no frame
	LateResponses    uint64 // responses that nobody waited for (any more); dropped
	DuplicateReplies uint64 // second replies to a request; dropped
	OversizedReplies uint64 // replies beyond the frame limit; the client got SYSTEM_ERROR instead
	IdleClosed       uint64 // connections closed for silence
	OverflowClosed   uint64 // connections closed since their peer let too much pile up

	Lanes []LaneStats // in the order of the configuration
}

// LaneStats describes one lane.
type LaneStats struct {
	Name    string
	Waiting int    // requests that wait for a worker
	Running int    // requests in a handler
	Parked  int    // requests set aside since their connection's peer does not read its replies
	Handled uint64 // requests given to the handler
	Refused uint64 // requests answered SYSTEM_BUSY since the lane was full
	Expired uint64 // requests answered SYSTEM_BUSY since they had waited too long
	Panics  uint64 // handler panics
}

func (c *counters) snapshot() Stats {
	return Stats{
		Accepted:         c.accepted.Load(),
		Requests:         c.requests.Load(),
		Replies:          c.replies.Load(),
		Malformed:        c.malformed.Load(),
		LateResponses:    c.late.Load(),
		DuplicateReplies: c.duplicates.Load(),
		OversizedReplies: c.oversized.Load(),
		IdleClosed:       c.idle.Load(),
		OverflowClosed:   c.overflowed.Load(),
	}
}
