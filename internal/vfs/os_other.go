//go:build !linux

package vfs

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

func datasync(f *os.File) error { return f.Sync() }

func allocate(*os.File, int64) error { return errors.ErrUnsupported }

func nextData(_ *os.File, off int64) (int64, error) { return off, nil }

func nextHole(*os.File, int64) (int64, bool) { return 0, false }

func makeUnnamed(string, func(File) error) (File, error) { return nil, errors.ErrUnsupported }

func usage(name string) (Usage, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(name, &st); err != nil {
		return Usage{}, &fs.PathError{Op: "statfs", Path: name, Err: err}
	}
	return Usage{Total: int64(st.Blocks) * int64(st.Bsize), Available: int64(st.Bavail) * int64(st.Bsize)}, nil
}
