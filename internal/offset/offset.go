// Package offset gives the two kinds of number that the whole project is about a type each, so that they can't be
// mixed up: a byte position in the commit log, and the index of a message in one queue. Both only ever rise.
package offset

// Physical is a byte position in the commit log, counted from the log's very first byte.
type Physical int64

// Queue is the index of a message in one queue, counted from the queue's very first message.
type Queue int64
