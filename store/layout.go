package store

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"

	"github.com/ratchetmq/ratchet/internal/vfs"
)

// Names under the root folder; they are RocketMQ's.
const (
	queueFolder    = "consumequeue"
	checkpointFile = "checkpoint"
	abortFile      = "abort"
	lockFile       = "lock"
	// damagedFolder is ours: bytes that recovery cut off the log's end.
	damagedFolder = "damaged"
	// divergedFolder is ours: bytes that Truncate cut off.
	divergedFolder = "diverged"
	// deletionsFile is ours: which topics were deleted, see deletions.
	deletionsFile = "deletedTopics"
	// gapsFile is ours: places kept free, see Gaps.
	gapsFile = "gaps.json"
	// truncationFile is ours, and there while Truncate is under way.
	truncationFile = "truncation"
)

// minSegment keeps room for a record of some size, so that arithmetic on segments can't go wrong.
const minSegment = 256

// nameDigits is the length of the name of a commit log or consume queue file: the position of its first byte.
const nameDigits = 20

func fileName(start int64) string { return fmt.Sprintf("%0*d", nameDigits, start) }

func parseFileName(name string) (start int64, ok bool) {
	if len(name) != nameDigits {
		return 0, false
	}
	start, err := strconv.ParseInt(name, 10, 64)
	return start, err == nil && start >= 0
}

// dataFile is a file whose name is a position.
type dataFile struct {
	start int64
	path  string
	size  int64

	readOnly bool
}

// listDataFiles lists such files of a folder in order of their position; other names are left alone. A missing folder
// has none.
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
		if err != nil {
			return nil, err
		}
		files = append(files, dataFile{start: start, path: filepath.Join(dir, e.Name()), size: info.Size()})
	}
	return files, nil
}

// makeDirs makes a folder below root and makes durable that it is there.
func makeDirs(fsys vfs.FS, root, dir string) error {
	if _, err := fsys.Stat(dir); err == nil {
		return nil
	}
	if err := fsys.MkdirAll(dir); err != nil {
		return err
	}
	return syncAbove(fsys, root, dir)
}

// syncAbove makes durable that a folder is there.
func syncAbove(fsys vfs.FS, root, dir string) error {
	for dir != root && dir != filepath.Dir(dir) {
		dir = filepath.Dir(dir)
		if err := fsys.SyncDir(dir); err != nil {
			return err
		}
	}
	return nil
}

// syncNames makes durable that the files and folders are there which a store found: a process that was killed while it
// made them may not have come to that, and nobody would do it later. Folders above that can't be read are nobody's to
// sync.
func syncNames(fsys vfs.FS, dirs []string) error {
	for _, dir := range dirs {
		err := fsys.SyncDir(dir)
		if err == nil {
			err = syncAbove(fsys, "", dir)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
			return err
		}
	}
	return nil
}
