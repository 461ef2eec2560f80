package store

import (
	"slices"
	"time"
)

// Retention says how long messages are kept. Only whole segments go, from the log's beginning, and never the one that
// is being written.
type Retention struct {
	Reserved time.Duration // a segment goes when its last write is longer ago, in an hour of DeleteWhen [72 h]
	Hours    []int         // of the day, in which segments may go by age alone [4]

	MaxUsed  float64 // of the disk, 0 to 1: above it segments go by age at any hour [0.75]
	Force    float64 // above it they go whatever their age, if Forcibly [0.85]
	Forcibly bool
	Refuse   float64 // above it appends are refused [0.90]

	Batch int // segments that one look may take, so that a long queue of deletions does not hold the disk [10]
}

// reason is why a segment goes.
type reason string

const (
	byAge     reason = "older than fileReservedTime"
	byUse     reason = "older than fileReservedTime, and the disk is fuller than diskMaxUsedSpaceRatio"
	byForce   reason = "the disk is fuller than diskSpaceCleanForciblyRatio"
	byCommand reason = "on command"
)

// holding is what a decision about retention is made of: what there is, without the segment that is being written.
type holding struct {
	now       time.Time
	lastWrite []time.Time // of each segment that may go, oldest segment first
	used      float64     // of the fullest disk that holds segments; negative when that is not known
	command   bool        // somebody asked for it
}

// decide is how many segments go, and why. It has no clock or disk in it.
func (r *Retention) decide(h holding) (n int, why reason) {
	force := r.Forcibly && h.used > r.Force
	switch {
	case force:
		why = byForce
	case h.command:
		why = byCommand
	case h.used > r.MaxUsed:
		why = byUse
	case slices.Contains(r.Hours, h.now.Hour()):
		why = byAge
	default:
		return 0, ""
	}
	for n < len(h.lastWrite) && n < r.Batch && (force || h.now.Sub(h.lastWrite[n]) > r.Reserved) {
		n++
		if force {
			// One at a time: the disk is looked at again before the next one goes.
			break
		}
	}
	if n == 0 {
		return 0, ""
	}
	return n, why
}
