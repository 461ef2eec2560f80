package inspect

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/ratchetmq/ratchet/internal/vfs"
)

// nameDigits is the length of the name of a log or queue file: the position of its first byte.
const nameDigits = 20

// dataFile is a file whose name is a position.
type dataFile struct {
	start int64
	path  string
	size  int64
}

func (f dataFile) end() int64 { return f.start + f.size }

func parseFileName(name string) (int64, bool) {
	if len(name) != nameDigits {
		return 0, false
	}
	start, err := strconv.ParseInt(name, 10, 64)
	return start, err == nil && start >= 0 && start < 1<<62 // so that sums with sizes stay positive
}

// listDataFiles lists a folder's files in the order of their positions; a missing folder has none.
func listDataFiles(fsys vfs.FS, dir string) ([]dataFile, error) {
	entries, err := fsys.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var files []dataFile
	for _, e := range entries {
		start, ok := parseFileName(e.Name())
		if !ok || e.IsDir() {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // a running broker has removed it
		}
		if err != nil {
			return nil, err
		}
		files = append(files, dataFile{start, filepath.Join(dir, e.Name()), info.Size()})
	}
	return files, nil
}

// unitSize is the size that the files of a folder have when they are whole.
func unitSize(files []dataFile) int64 {
	size := int64(0)
	for _, f := range files {
		size = max(size, f.size)
	}
	for i := 1; i < len(files); i++ {
		if step := files[i].start - files[i-1].start; step > 0 {
			size = min(size, step)
		}
	}
	return size
}

// maxOpenFiles bounds the files that openFiles keeps open.
const maxOpenFiles = 64

// openFiles keeps the files open that were read last.
type openFiles struct {
	fs    vfs.FS
	files map[string]vfs.File
	order []string // the oldest first
}

func newOpenFiles(fsys vfs.FS) *openFiles { return &openFiles{fs: fsys, files: map[string]vfs.File{}} }

func (o *openFiles) get(path string) (vfs.File, error) {
	if f, ok := o.files[path]; ok {
		return f, nil
	}
	f, err := o.fs.OpenReadOnly(path)
	if err != nil {
		return nil, err
	}
	if len(o.order) >= maxOpenFiles {
		oldest := o.order[0]
		_ = o.files[oldest].Close() // it was only read
		delete(o.files, oldest)
		o.order = slices.Delete(o.order, 0, 1)
	}
	o.files[path] = f
	o.order = append(o.order, path)
	return f, nil
}

func (o *openFiles) close() {
	for _, f := range o.files {
		_ = f.Close()
	}
	o.files, o.order = map[string]vfs.File{}, nil
}

// readAt reads what there is of b at a position of a file; less than b at its end is no error.
func (o *openFiles) readAt(path string, b []byte, at int64) (int, error) {
	f, err := o.get(path)
	if err != nil {
		return 0, err
	}
	n, err := f.ReadAt(b, at)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}

// nextData is the first position in [at, end) of a file that holds something else than a zero, or end.
func (o *openFiles) nextData(path string, at, end int64) (int64, error) {
	f, err := o.get(path)
	if err != nil {
		return end, err
	}
	var buf [64 << 10]byte
	for at < end {
		if seeker, ok := f.(vfs.DataSeeker); ok {
			next, err := seeker.NextData(at)
			if errors.Is(err, io.EOF) {
				return end, nil
			}
			if err == nil {
				at = max(at, next)
			}
		}
		n, err := f.ReadAt(buf[:max(0, min(end-at, int64(len(buf))))], at)
		for i, c := range buf[:n] {
			if c != 0 {
				return at + int64(i), nil
			}
		}
		if at += int64(n); n == 0 {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return end, err
		}
	}
	return end, nil
}

// readSmall reads a file whole that is no larger than a configuration file can be.
func readSmall(fsys vfs.FS, path string) ([]byte, error) {
	f, err := fsys.OpenReadOnly(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	if size > maxConfigFile {
		return nil, fmt.Errorf("file of %d bytes: %s", size, path)
	}
	b := make([]byte, size)
	n, err := f.ReadAt(b, 0)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return b[:n], err
}

func exists(fsys vfs.FS, path string) bool {
	_, err := fsys.Stat(path)
	return err == nil
}
