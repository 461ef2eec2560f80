// Package vfstest is a model of a disk for tests. Mem is a file system in memory that knows, page by page and name by
// name, what a power cut would leave: CrashClone returns it. It can fail any operation, write less than it was asked
// to, run out of room, and count.
//
// The model is stricter than most real file systems. What was written is durable after Sync of the file; that a file
// exists, has another name, or is gone is durable after SyncDir of its folder, and so is the folder itself.
package vfstest
