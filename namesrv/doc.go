// Package namesrv is the name server: it remembers which broker has which topic and tells clients.
//
// It has two halves. Table (table.go, register.go, leave.go, route.go, lists.go) is the route table: no network, an
// injected clock, every rule in a function that a test calls. Server (server.go and one file per request code) puts the
// table behind the wire protocol.
//
// Name servers know nothing of each other. Every broker registers with each of them, so each has the whole picture.
//
// # What a registration does
//
// A broker is a name, and under it one address per broker id; id 0 is the master. A registration (code 103) carries all
// topics of the broker, an increment carries the one or few that changed. Both look the same on the wire. Table tells
// them apart by three topics that each broker has from birth and never sends in an increment: SELF_TEST_TOPIC, the
// broker's own name and its cluster's name (see isFull). A full body is the truth about the broker: topics that it
// no longer names lose the broker's queues at once. RocketMQ's name server only adds, so there a topic deleted on one
// of two brokers stays routed to both. Three things keep a full body from deleting too much:
//
//   - Each topic remembers the data version that brought it. Only a body with a newer version deletes it, so a full body
//     that was overtaken by an increment deletes nothing.
//   - A topic that came in an increment is safe from full bodies for incrementGrace: brokers copy their topics first and
//     read the version later, so a body may claim a version whose topic it lacks. Ours take both at once, and say so: what
//     they delete goes at once.
//   - Brokers with enableSplitRegistration send the table in parts, and the part with the three topics looks full. When
//     parts are seen (see sweepSlack), a topic is deleted only after two rounds without it.
//
// A broker without the three topics never has a topic deleted, which is what RocketMQ does.
//
// # Before the first broker
//
// A name server that has just started knows no topics, though they exist. Until the first broker registers, or
// Config.StartGrace is over, a route query is answered with code 1 and a remark that begins "name server not ready"
// instead of code 17: clients of all languages treat both as a failed query and keep the route they have, but only 17
// says that the topic does not exist. RocketMQ answers so too, if needWaitForService is set.
package namesrv
