// Package protocol is the wire contract of RocketMQ's remoting protocol: request and response codes, frames with their
// two header encodings (JSON and binary), the headers of each request, the bodies, and the rules for names. It does no
// I/O and starts no goroutine.
//
// A frame is
//
//	int32  length of what follows
//	uint32 header encoding (8 bits: 0 JSON, 1 binary), header length (24 bits)
//	       header
//	       body, up to the end
//
// FrameSize finds a frame's end in a stream, Decode takes it apart into a Command without copying, Command.ReadHeader
// fills the struct of the request. AppendRequest, AppendReply and AppendReplyHead go the other way. Headers are
// declared once, in headers_*.go; headergen writes their methods.
//
// What Decode returns, body and fields, is part of the frame's bytes and lives as long as these. What ReadHeader and
// Unmarshal fill is copied and lives by itself.
package protocol

//go:generate go run ./headergen -dir . -out headers_gen.go
