// Package vfs is the one seam between Ratchet and the disk: every file that holds data is opened, read, written,
// synced and renamed through an FS. The real one is OS; tests use vfstest, which can lose what was not synced and can
// fail any operation.
//
// There is no memory map in it: a failed write is an error here and not a signal, and a model disk can stand in.
package vfs

import (
	"io"
	"io/fs"
	"slices"
)

// File is an open file. ReadAt and WriteAt may be called at the same time from several goroutines.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer

	// Name is the path it was opened with.
	Name() string
	// Size is the present length in bytes.
	Size() (int64, error)
	// Sync makes all that was written durable, its length included (fdatasync).
	Sync() error
	// Truncate sets the length; a longer file is filled with zeros that take no room on disk.
	Truncate(size int64) error
	// Preallocate sets the length and reserves the room for it, where the file system can; so a later WriteAt inside
	// it neither meets a full disk nor changes metadata. Its error for a full disk is syscall.ENOSPC.
	Preallocate(size int64) error
}

// DataSeeker is what a File may have besides: where the next bytes are that may not be zeros. It spares reading a
// gigabyte that was reserved and never written.
type DataSeeker interface {
	// NextData is the first position at or behind off that may hold something else than zeros; io.EOF when there is
	// none up to the end of the file.
	NextData(off int64) (int64, error)
	// NextHole is the first position at or behind off from which on nothing was ever written; the length of the file
	// when there is none, or when the file system can't say.
	NextHole(off int64) (int64, error)
}

// PiecesWriter is what a File may have besides: WriteAt for what is not in one piece of memory.
type PiecesWriter interface {
	WritePiecesAt(pieces [][]byte, off int64) (n int, err error)
}

// WritePiecesAt writes pieces, none of them empty, one behind the other. It may change them, though not their bytes. As with
// WriteAt n bytes are written after an error.
func WritePiecesAt(f File, pieces [][]byte, off int64) (n int, err error) {
	if len(pieces) == 1 {
		return f.WriteAt(pieces[0], off)
	}
	if w, ok := f.(PiecesWriter); ok {
		return w.WritePiecesAt(pieces, off)
	}
	return f.WriteAt(slices.Concat(pieces...), off)
}

// FS is a file system. Errors are those of package os: errors.Is with fs.ErrNotExist and syscall.Errno works.
type FS interface {
	// Open opens an existing file for reading and writing.
	Open(name string) (File, error)
	// OpenReadOnly opens an existing file for reading; WriteAt on it fails.
	OpenReadOnly(name string) (File, error)
	// Create makes a new empty file, or empties the one that is there, for reading and writing.
	Create(name string) (File, error)
	// Make makes a new file that has its name only once fill has returned without an error: who looks into the folder, after
	// a kill, too, finds it whole or not at all. It fails with fs.ErrExist when there is one. A file system that knows no
	// files without names has it named first; fill may then be called a second time, for another file.
	Make(name string, fill func(File) error) (File, error)
	// ReadDir lists a folder, sorted by name.
	ReadDir(name string) ([]fs.DirEntry, error)
	Stat(name string) (fs.FileInfo, error)
	MkdirAll(name string) error
	// Rename replaces newName if it is there. It is durable only after SyncDir of the folder.
	Rename(oldName, newName string) error
	Remove(name string) error
	RemoveAll(name string) error
	// SyncDir makes creations, renames and removals in the folder durable.
	SyncDir(name string) error
	// Lock takes the lock that RocketMQ's broker takes (a POSIX record lock on byte 0 of the file), creating the file
	// when it is missing. It fails with ErrLocked when another process has it. Close gives it back.
	Lock(name string) (io.Closer, error)
	// Usage is the state of the file system that holds name.
	Usage(name string) (Usage, error)
}

// Usage is a file system's room, in bytes.
type Usage struct {
	Total     int64
	Available int64 // to this process; root's reserve is not in it
}

// Ratio is how full it is, 0 to 1.
func (u Usage) Ratio() float64 { return 1 - float64(u.Available)/float64(u.Total) }
