// Command benchmarks measures a broker beside the Java brokers and beside the machine's own bounds: see README.md.
//
// It starts each of them as a process, lets them take turns in short rounds, loads them over raw connections with a
// generator of its own, verifies every message, and reports what each message cost its broker.
package main
