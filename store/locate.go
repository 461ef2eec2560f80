package store

import "github.com/ratchetmq/ratchet/internal/offset"

// Bounds are the ends of a queue: Low is its first message that the log still has, High the number after the last one.
// They are equal when there is none.
type Bounds struct{ Low, High offset.Queue }

// Status is what reading a queue came to.
type Status uint8

const (
	// Found: there are messages.
	Found Status = iota
	// NoMatch: entries were read, none matched; Next is behind them.
	NoMatch
	// AtEnd: From is High. Next is From.
	AtEnd
	// BeyondEnd: From is above High. Next is High; whether to tell a consumer so is the caller's decision.
	BeyondEnd
	// BelowLow: From is below Low. Next is Low.
	BelowLow
	// NoQueue: there is no such queue.
	NoQueue
	// Hole: the entries read have messages that the log no longer has, or that can't be read; Next is behind them.
	Hole
)

var statusNames = [...]string{"found", "no match", "at end", "beyond end", "below low", "no queue", "hole"}

func (s Status) String() string {
	if int(s) < len(statusNames) {
		return statusNames[s]
	}
	return "unknown"
}

// locate says where a wanted offset lies in a queue and where to go on. Found means: inside, to be read.
func locate(want offset.Queue, b Bounds) (Status, offset.Queue) {
	switch {
	case want < b.Low:
		return BelowLow, b.Low
	case want == b.High:
		return AtEnd, want
	case want > b.High:
		return BeyondEnd, b.High
	}
	return Found, want
}
