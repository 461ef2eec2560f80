package vfs

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// lockFirstByte takes a write lock on byte 0 of the file without waiting, as Java's FileChannel.tryLock(0, 1) does.
func lockFirstByte(f *os.File) error {
	err := unix.FcntlFlock(f.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart, Start: 0, Len: 1})
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EAGAIN) {
		return ErrLocked
	}
	return err
}
