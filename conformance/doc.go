// Package conformance runs real, unmodified RocketMQ clients against a broker and judges what they see.
//
// The tests are behind the build tag "conformance", as they need a JDK, Maven and some minutes:
//
//	go test -tags conformance -count=1 -timeout 30m ./conformance
//
// The programs that use the clients are in java (one source, compiled against several client versions)
// and goclient (a module of its own). Each runs scenarios by name and prints one RESULT line for each.
// What is under test is a [Target]: the ratchet binary, or the Java original as the oracle.
package conformance
