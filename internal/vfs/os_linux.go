package vfs

import (
	"errors"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

func datasync(f *os.File) error { return again(func() error { return unix.Fdatasync(int(f.Fd())) }) }

func allocate(f *os.File, size int64) error {
	err := again(func() error { return unix.Fallocate(int(f.Fd()), 0, 0, size) })
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return errors.ErrUnsupported
	}
	return err
}

func nextData(f *os.File, off int64) (int64, error) {
	// The handle's own position moves; nobody uses it, all I/O here is positioned.
	next, err := unix.Seek(int(f.Fd()), off, unix.SEEK_DATA)
	switch {
	case errors.Is(err, unix.ENXIO):
		return 0, io.EOF
	case err != nil:
		return off, nil //nolint:nilerr // a file system that can't say where data is: it may be anywhere
	}
	return next, nil
}

func nextHole(f *os.File, off int64) (int64, bool) {
	next, err := unix.Seek(int(f.Fd()), off, unix.SEEK_HOLE)
	return next, err == nil && next > off
}

func usage(name string) (Usage, error) {
	var st unix.Statfs_t
	if err := again(func() error { return unix.Statfs(name, &st) }); err != nil {
		return Usage{}, &fs.PathError{Op: "statfs", Path: name, Err: err}
	}
	return Usage{Total: int64(st.Blocks) * st.Bsize, Available: int64(st.Bavail) * st.Bsize}, nil
}

// again repeats a system call that a signal has interrupted.
func again(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
