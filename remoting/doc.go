// Package remoting carries protocol frames over TCP: a Server on gnet's event loops and a Client. It knows no request
// code; what to do with a request is its Handler's business.
//
// # The way of a request
//
// The event loop cuts the input into frames and decodes their envelopes where they stand. The Requests of one read go to
// their lanes together; the bytes of those for one lane are copied once, into a pooled buffer that they share (bundle.go).
// A lane is a bounded class of work with some workers. There a
// request lines up behind the earlier ones of the same connection in that lane (a strand); strands with work wait
// for a worker, and one worker at a time has a strand. So the requests of one connection in one lane are handled in
// their order, and nothing else waits for anything. The Handler answers with Request.Reply, at once or minutes later
// from any goroutine; the encoded reply is written at once or joins the connection's outgoing line, and one task on
// the event loop writes all that has gathered there.
//
// # What bounds memory
//
//   - An unfinished frame holds at most twice the bytes that have come, whatever length was announced.
//   - A request that waits keeps at most 64 KiB of others alive: those of its connection and lane that came
//     before it. One that is held lets go of its bytes.
//   - A full lane refuses requests at once with SYSTEM_BUSY. A one-way request can't be told: its connection is not read
//     until there is room. Nothing is dropped; if the connection ends meanwhile, what was read is still handled.
//   - A peer that does not read its replies is choked: with MaxOutbound unsent bytes its requests are neither read nor
//     handled, those already in a lane give their room to others, and all goes on when half has been read. Requests that
//     are held elsewhere can still be answered meanwhile; beyond 8 times the limit the connection is closed.
//   - Not reading means that the socket leaves the loop's interest set, so that TCP holds the peer back. gnet has no call
//     for that; see interest_linux.go. Where it can't be done, gnet goes on buffering input, and the connection is closed
//     when that passes the same limit.
//
// # Why these uses of gnet
//
// The server accepts with package net and enrolls the sockets in a gnet client engine (which only means one without
// listeners). gnet's own acceptor ends the whole engine when accept fails, as it does when a process is out of
// descriptors, and it can't stop accepting without ending all. A connection is used only between OnOpen and OnClose,
// under serverLink.mu: calls to a stopped engine write eight bytes to a descriptor number that may be another file by
// then. For the same reason nothing is written on after a write error.
//
// The client is plain package net, two goroutines per connection: a process has a handful of outgoing connections, they
// need deadlines and dialling, and event loops would buy nothing.
//
// # Goroutines
//
// Server.Run owns all of the server's: acceptors, lane workers, the sweeper (idle and choked connections) and the closer
// (OnClose callbacks); they end before it returns. A connection has none. Client.Close ends the client's.
//
// Remoting must not import store or anything above it.
package remoting
