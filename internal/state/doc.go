// Package state is what a broker knows besides its messages: Topics, Groups (of consumers, with their settings), Offsets
// (how far each group has come), Clients (who is connected, and subscribes to what) and Locks (who may consume a queue
// in order).
//
// The first three live in RocketMQ's own JSON files in the store's config folder; a Java broker can take over from us and
// we from it. A topic or group is in its file before it is answered for. A committed offset is in a journal before it is
// answered for, since rewriting a file with all offsets for each would be too slow, and every few seconds would be too
// late: see journal.go. Clients and locks live in memory only.
//
// All types are safe for use by several goroutines. Names that come from outside are checked before they can become the
// name of a file or folder. The package knows no network: a connection is whatever has an ID.
//
// Lock order: shard → group index → journal buffer; the lock of a file is taken with none of them held.
package state
