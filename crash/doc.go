// Package crash holds tests that run the real binary and are hard on it: kill -9 under load, a million messages at
// once, hostile clients. They are behind the build tag conformance because they take minutes.
package crash
