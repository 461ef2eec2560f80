// Package index finds messages by key: RocketMQ's hash index files, byte for byte, so that a Java broker can go on with
// a store that Ratchet wrote and the other way round. It is fed by the store's dispatch and asked by QUERY_MESSAGE.
//
// A file (index/<yyyyMMddHHmmssSSS>, 420,000,040 bytes by default, sparse) holds 20 million entries of the log's order:
//
//	0          header   beginTime 8, endTime 8, beginPhysical 8, endPhysical 8, used slots 4, next entry 4 (1 = empty)
//	40         slots    4 bytes each: the newest entry whose hash falls on that slot, 0 = none
//	40+4*S     entries  20 bytes each: hash 4, physical 8, seconds since beginTime 4, previous entry of the slot 4
//
// All numbers are big-endian; entry 0 is never used. The hash is |String.hashCode| of topic#key, or topic#T#tags for
// tags. The index knows hashes and not keys: what a query finds are candidates, to be checked with Matches against the
// record in the log.
//
// Put only appends to a list in memory. Run, when there is enough in it, Flush, or a Put that finds the list full, writes
// it in groups: entries first, then slots, the header last. A query looks at the list as well, so it sees what was Put
// before. What a killed process had in the list is Put again, from End on. The order of writing makes every prefix of it
// harmless: entries behind the header's count don't count, and a slot that points there is followed through the entries to
// one that does. Chains only lead to lower entry numbers, so no walk can go round in a circle.
//
// The index is never what makes a message safe. When it can't be written, messages go on and it says so in the log.
package index
