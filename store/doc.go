// Package store keeps a broker's messages: one commit log for all of them, a consume queue for each topic and queue
// number, and what recovers both after a crash. The files are RocketMQ's, byte for byte; see FORMAT.md.
//
// Append numbers a message and writes it to the log (append.go). The flusher makes the log durable and tells who waits
// for that (flush.go). The dispatcher reads the log again and gives every message to its queue, to the key index and
// to those who wait for messages (dispatch.go). Read follows a queue's entries into the log (read.go). Open repairs
// what a crash has left (recovery.go, which reads through ahead.go); what it decides, and not how it reads, is in
// examine.go, history.go and witness.go.
//
// What holds, whenever the process ends:
//
//   - The watermarks written, flushed and dispatched only grow, and neither flushed nor dispatched passes written. With
//     SyncFlush dispatched does not pass flushed either.
//   - A message's queue offset is the one in its record. The entry for offset n of a queue stands at place n.
//   - A position of the log and a number of a queue are used once. A message that is lost leaves its number empty.
//   - Behind the ends of the log and of the queues all bytes are zero before anything is appended.
//   - Queues and index hold nothing that can't be made again from the log.
//
// The package knows no network and no broker: it must not import protocol, remoting or anything above these.
package store
