package ha

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ratchetmq/ratchet/internal/offset"
)

// Survival is what a restarted broker can say of itself.
type Survival struct {
	End offset.Physical // where its log ends
	Low offset.Physical
	// Suspect: what was not flushed may be gone. A clean stop, the same boot of the kernel, and SYNC_FLUSH each rule it out.
	Suspect bool
	// Untold: the same with SYNC_FLUSH. No sender and no reader here knows of what is gone, but slaves got it before it was flushed.
	Untold bool
	// Exposed: readers may have seen messages that no slave has. With ASYNC_MASTER always.
	Exposed bool
	Epoch   int32 // of its log's end
	// Damaged: parts of its log can't be read, and another broker may have what stood there.
	Damaged bool
	// Doubt: this broker was handing its role over, and does not know what became of it.
	Doubt bool
	// New: its disk was, while others of the group had something. Its role may have been handed over before.
	New bool
}

// Replica is another broker of the group, as far as it could be asked.
type Replica struct {
	Name     string // for people: address
	Answered bool
	Low, End offset.Physical
	Epoch    int32           // of its log's end; 0: it does not know
	Later    offset.Physical // where the first of its epochs began that is later than all of this broker's, if one is
	Leads    bool            // it is an open master
	Master   bool            // it is a master, open or not
	Takes    bool            // it is a slave that is about to take the role over
	Suspect  bool            // it may have lost what it had not flushed, and had shown to readers
	Parted   bool            // its log was found to part from this one
	Forked   offset.Physical // where
}

// Action is what a returning master does next.
type Action uint8

// The actions.
const (
	Wait  Action = iota // ask again in a moment
	Fetch               // what From has and this broker does not, if their logs have not parted
	Cut                 // this log at From.Forked, then as before: From's is the later one
	Open                // serve
	Yield               // From has taken the role over: follow it
)

// Decision is an action with its reasons.
type Decision struct {
	Action Action
	From   int    // index of a replica, for Fetch, Cut and Yield
	Why    string // for the operator
	// What Open is to keep free: the log's positions, the queues' offsets that may have been given out.
	LogGap, QueueGap bool
}

// Decide says what a master that was started does before it serves (P5). waited is how long it has asked already, limit
// how long it does at most; forced is an operator's word to go on with what there is.
//
// Rules, in order: never be a second master; get what a replica has more; take the longer life of the log where two have
// parted, and an operator's word where that can't be told; wait for a silent replica only if something can be missing;
// and keep free whatever may have been given out and could not be got.
func Decide(own Survival, others []Replica, waited, limit time.Duration, forced bool) Decision {
	silent, behind := 0, make([]string, 0, len(others))
	best, later, suspects := -1, -1, false
	for i, r := range others {
		suspects = suspects || r.Suspect
		switch {
		case !r.Answered:
			silent++
			behind = append(behind, r.Name)
		case r.Takes && !forced:
			return Decision{Action: Wait, Why: fmt.Sprintf("%s is about to take the role over", r.Name)}
		case (own.Doubt || own.New && r.Epoch > 0) && r.Master && !forced:
			return Decision{Action: Yield, From: i, Why: fmt.Sprintf("%s has taken the role over", r.Name)}
		case r.Leads && !forced:
			return Decision{Action: Wait, Why: fmt.Sprintf("%s is the master now", r.Name)}
		case r.Parted:
			if forced || r.Epoch < own.Epoch {
				continue // what it has beyond is not this log's
			}
			if r.Epoch > own.Epoch {
				return Decision{Action: Cut, From: i, Why: fmt.Sprintf("%s has gone on in a later epoch, from %d", r.Name, r.Forked)}
			}
			return Decision{Action: Wait, Why: fmt.Sprintf(
				"the log of %s parts from this one at %d, and neither is the later: an operator must say whose counts", r.Name, r.Forked)}
		case r.End > own.End:
			if best < 0 || cmp.Or(cmp.Compare(r.Epoch, others[best].Epoch), cmp.Compare(r.End, others[best].End)) > 0 {
				best = i
			}
		case r.Epoch > own.Epoch && r.Later < r.End: // it has not gone on from where this log ends
			later = i
		}
	}
	if later >= 0 && !forced {
		return Decision{Action: Fetch, From: later, Why: fmt.Sprintf("%s has gone on in a later epoch, from %d", others[later].Name, others[later].Later)}
	}
	if best >= 0 && !forced {
		if r := others[best]; r.Low > own.End && own.Low < own.End {
			return Decision{Action: Wait, Why: fmt.Sprintf("%s begins at %d, behind this log's end %d", r.Name, r.Low, own.End)}
		}
		return Decision{Action: Fetch, From: best, Why: fmt.Sprintf("%s has the log up to %d", others[best].Name, others[best].End)}
	}
	missing := own.Suspect || own.Untold || own.End == 0 && len(others) > 0
	if (missing || own.Damaged) && silent > 0 && waited < limit && !forced {
		slices.Sort(behind)
		return Decision{Action: Wait, Why: fmt.Sprintf("messages may be missing here, and %s did not answer", strings.Join(behind, ", "))}
	}
	unknown := best >= 0 || missing && silent > 0
	return Decision{
		Action: Open, Why: openWhy(missing, silent, forced),
		LogGap:   unknown,
		QueueGap: unknown || own.Suspect && own.Exposed || (own.Suspect || own.Untold) && suspects,
	}
}

func openWhy(missing bool, silent int, forced bool) string {
	switch {
	case forced:
		return "an operator said so"
	case !missing:
		return "nothing is missing"
	case silent > 0:
		return "the time to wait is over"
	}
	return "all replicas have been asked"
}
