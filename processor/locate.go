package processor

import (
	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/protocol"
	"github.com/ratchetmq/ratchet/store"
)

// verdict is what a pull is answered with when there is nothing to hand over, or what goes beside the messages.
type verdict struct {
	code   protocol.ResponseCode
	remark string // RocketMQ's own words for the situation
	next   offset.Queue
	hold   bool // park the request, if it may be parked, until a message with this offset arrives
}

// known is what beside the queue itself decides about an offset.
type known struct {
	// given is the highest next offset that this queue is known to have ever had: its own end, an offset that was kept
	// free, or one that some group committed.
	given offset.Queue
	// slave: the queue is a copy, and may lack what its master has at its end, and with short at its beginning, too.
	slave, short bool
}

// locate decides what to tell a consumer that asked for offset from, given what the store found there.
//
// The one rule behind the table: next is never less than from, unless from was never given out (promise P1 in
// docs/never-backwards.md). A master that came back with less than it had holds the position of a consumer that is
// ahead, and a slave that is behind does; RocketMQ's master moves it to the queue's end, or to 0.
//
// It has no clock, disk or socket in it.
func locate(b store.Batch, from offset.Queue, k known) verdict {
	switch b.Status {
	case store.Found:
		return verdict{code: protocol.Success, remark: "FOUND", next: b.Next}
	case store.NoMatch:
		return verdict{code: protocol.PullRetryImmediately, remark: "NO_MATCHED_MESSAGE", next: b.Next}
	case store.Hole:
		return verdict{code: protocol.PullRetryImmediately, remark: "MESSAGE_WAS_REMOVING", next: b.Next}
	case store.AtEnd:
		remark := "OFFSET_OVERFLOW_ONE"
		if b.High == 0 {
			remark = "NO_MESSAGE_IN_QUEUE"
		}
		return verdict{code: protocol.PullNotFound, remark: remark, next: from, hold: true}
	case store.BelowLow:
		if k.slave && k.short {
			return verdict{code: protocol.PullNotFound, remark: "OFFSET_TOO_SMALL", next: from, hold: true}
		}
		return verdict{code: protocol.PullOffsetMoved, remark: "OFFSET_TOO_SMALL", next: b.Low}
	case store.BeyondEnd, store.NoQueue:
		switch {
		case k.slave || from <= k.given:
			return verdict{code: protocol.PullNotFound, remark: "OFFSET_OVERFLOW_ONE", next: from, hold: true}
		case b.High == 0:
			return verdict{code: protocol.PullNotFound, remark: "NO_MESSAGE_IN_QUEUE", next: k.given}
		default:
			return verdict{code: protocol.PullOffsetMoved, remark: "OFFSET_OVERFLOW_BADLY", next: max(b.High, k.given)}
		}
	}
	// impossible: the cases above are all that store.Status has; a test walks over them.
	panic("processor: unknown read status")
}
