// Package config reads the .properties files of RocketMQ's broker and name server into one typed struct for each
// daemon, prints them, and changes them while the daemon runs.
//
// Broker and Namesrv are plain structs; the Java name, the default, the unit and the legal range of each setting stand
// in its tag, and one reflect walker (walk.go) does the rest. Live holds the present settings of a running daemon and
// swaps them as a whole, so that a reader needs no lock and never sees half of a change.
//
// A file that a stock broker runs with is accepted unchanged: a key that Ratchet has no use for is kept, shown again and
// handed to the caller to be reported once. A value that can't be read is an error with its file and line; the daemon
// does not start on a guess.
//
// The package imports nothing of Ratchet but the disk seam and atomic writes, for UpdateFile.
package config
