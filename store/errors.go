package store

import (
	"errors"

	"github.com/ratchetmq/ratchet/internal/vfs"
)

// What the store refuses with. Texts around them name the queue, file or position.
var (
	// ErrLocked: another broker has the folder open.
	ErrLocked = vfs.ErrLocked
	// ErrTooLarge: the body, or the record made of it, is over the limit.
	ErrTooLarge = errors.New("message too large")
	// ErrProperties: the properties text is longer than a record can hold.
	ErrProperties = errors.New("message properties too long")
	// ErrTopic: the topic's name can't be stored, or the queue number is negative.
	ErrTopic = errors.New("topic name or queue not storable")
	// ErrClosed: the store takes no messages any more.
	ErrClosed = errors.New("store closed")
	// ErrFull: the disk has no room for the next file of the log. It passes by itself when there is room again.
	ErrFull = errors.New("disk full")
	// ErrHeld: another broker may be the one that takes messages now, see Hold.
	ErrHeld = errors.New("store takes no messages of its own")
	// ErrBroken: a write or sync of the log has failed. It stays until the store is opened anew: what a failed sync
	// has left on the disk is not known, and trying again would only hide that.
	ErrBroken = errors.New("store broken")
	// ErrNotFound: there is no whole record at that position.
	ErrNotFound = errors.New("record not found")
	// ErrOrder: what was to be appended from another broker's log does not follow on this log's end.
	ErrOrder = errors.New("does not follow on the log's end")
	// ErrLayout: the folder holds files that don't fit the options, or each other.
	ErrLayout = errors.New("store layout not usable")
)
