package vfs

import (
	"errors"
	"io"
)

// ReadFile returns all bytes of a file. One that is cut while it is read is returned as far as it went.
func ReadFile(fsys FS, path string) ([]byte, error) {
	f, err := fsys.OpenReadOnly(path)
	if err != nil {
		return nil, err
	}
	size, err := f.Size()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	data := make([]byte, size)
	n, err := f.ReadAt(data, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, errors.Join(err, f.Close())
	}
	return data[:n], f.Close()
}
