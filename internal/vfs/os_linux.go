package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

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

// makeUnnamed is Make. It fails with errors.ErrUnsupported where a file has to be named first, or to be told why it can't be.
func makeUnnamed(name string, fill func(File) error) (File, error) {
	var fd int
	err := again(func() (err error) {
		fd, err = unix.Open(filepath.Dir(name), unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o644)
		return err
	})
	if err != nil {
		return nil, errors.ErrUnsupported
	}
	f := osFile{os.NewFile(uintptr(fd), name)}
	if err := fill(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	err = again(func() error { // fails where there is no /proc, too
		return unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.AT_FDCWD, name, unix.AT_SYMLINK_FOLLOW)
	})
	switch {
	case errors.Is(err, fs.ErrExist):
		return nil, errors.Join(&fs.PathError{Op: "make", Path: name, Err: err}, f.Close())
	case err != nil:
		return nil, errors.Join(errors.ErrUnsupported, f.Close())
	}
	return f, nil
}

func usage(name string) (Usage, error) {
	var st unix.Statfs_t
	if err := again(func() error { return unix.Statfs(name, &st) }); err != nil {
		return Usage{}, &fs.PathError{Op: "statfs", Path: name, Err: err}
	}
	return Usage{Total: int64(st.Blocks) * st.Bsize, Available: int64(st.Bavail) * st.Bsize}, nil
}

// mostPieces is how many a system call takes.
const mostPieces = 1024

// WritePiecesAt implements PiecesWriter.
func (f osFile) WritePiecesAt(pieces [][]byte, off int64) (n int, err error) {
	for len(pieces) > 0 {
		wrote := 0
		err := again(func() (err error) {
			wrote, err = unix.Pwritev(int(f.Fd()), pieces[:min(len(pieces), mostPieces)], off+int64(n))
			return err
		})
		if err == nil && wrote == 0 {
			err = io.ErrUnexpectedEOF // as with WriteAt
		}
		if err != nil {
			return n, &fs.PathError{Op: "pwritev", Path: f.Name(), Err: err}
		}
		n += wrote
		pieces = behind(pieces, wrote)
	}
	return n, nil
}

// behind is what is left of pieces when n bytes are written: the kernel may take a part of one. It changes pieces.
func behind(pieces [][]byte, n int) [][]byte {
	for len(pieces) > 0 && n >= len(pieces[0]) {
		n -= len(pieces[0])
		pieces = pieces[1:]
	}
	if n > 0 {
		pieces[0] = pieces[0][n:]
	}
	return pieces
}

// again repeats a system call that a signal has interrupted.
func again(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
