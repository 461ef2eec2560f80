// Package ha is replication and the return of a broker: RocketMQ's HA protocol on both sides, who has how much, and what a
// master must know before it serves.
//
// A slave connects to its master's HA port, says from where on it wants the log, and gets it as a stream of frames
// (frame.go). A master that comes back does the same to its slaves: they have their HA ports open, too. What is decided is
// decided by the pure functions of decide.go; the rest carries out.
//
//	sender.go     serves this broker's log to whoever connects; master and slave alike
//	replicas.go   what the connected slaves have, and the sends that wait for it
//	pull.go       takes another broker's log: compares what both have, appends what is new
//	follow.go     the slave's loop around it
//	lead.go       what a master does before it opens, and when a replica that has more comes back
//	heal.go       puts what was lost back into its place
//	gaps.go       tells of the places that are kept free, and learns of them
//	peers.go      which other brokers of the group there are, and what they say of themselves
//	memory.go     what must be known after a crash
//	metadata.go   topics, groups, consumer and delay offsets of another broker
package ha
