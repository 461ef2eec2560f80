// Package atomicfile replaces small files as a whole: after a crash or a power cut at any moment there is either the
// old content or the new one, and the content before it stays beside it as <name>.bak, as RocketMQ's brokers keep it.
//
// Write's steps, each durable before the next: the new content goes to <name>.tmp, the present content is copied to
// <name>.bak (by the same temp-and-rename), <name>.tmp is renamed over the file. So the backup is never half-written,
// and at every moment one of the two names holds a whole content.
package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/ratchetmq/ratchet/internal/vfs"
)

const (
	backupSuffix = ".bak"
	tempSuffix   = ".tmp"
)

// ErrDamaged is what Read fails with when a file is there, and neither it nor its backup holds a valid content. The
// error's text names the file and says what is wrong with both. It is no fs.ErrNotExist: nothing must be started from
// empty where something has been.
var ErrDamaged = errors.New("file damaged, and no valid backup")

// Write replaces the content of the file, which need not exist yet; a missing folder is made. It is durable when Write
// returns nil; after an error the file has its old content. Two Writes of the same path must not overlap.
//
// The present content becomes the backup whatever it is, so whoever can meet a damaged file must Read before the first
// Write: Read puts a valid backup back in the file's place.
func Write(fsys vfs.FS, path string, data []byte) error {
	if err := writeTemp(fsys, path+tempSuffix, data); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	old, err := vfs.ReadFile(fsys, path)
	none := errors.Is(err, fs.ErrNotExist)
	if err == nil {
		err = replace(fsys, path+backupSuffix, old)
	}
	if err != nil && !none {
		return fmt.Errorf("back up %s: %w", path, err)
	}
	if err := fsys.Rename(path+tempSuffix, path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := fsys.SyncDir(filepath.Dir(path)); err != nil {
		return fmt.Errorf("write %s: %w", path, errors.Join(err, takeBack(fsys, path, old, none)))
	}
	return nil
}

// takeBack undoes a replacement that may not be durable: who is told of an error goes on with the old content.
func takeBack(fsys vfs.FS, path string, old []byte, none bool) error {
	if none {
		return fsys.Remove(path)
	}
	if err := writeTemp(fsys, path+tempSuffix, old); err != nil {
		return err
	}
	return fsys.Rename(path+tempSuffix, path)
}

// Read returns the content of the file for which valid returns nil, or else that of its backup. A backup that was
// taken is also put in the file's place. valid must not keep the bytes.
//
// Errors: fs.ErrNotExist when neither is there; ErrDamaged when what is there is not valid; any other error of the
// disk as it is, without a look at the backup, which may be older than a file that can't be read just now.
func Read(fsys vfs.FS, path string, valid func([]byte) error) ([]byte, error) {
	data, mainErr := readValid(fsys, path, valid)
	if mainErr == nil {
		return data, nil
	}
	if !errors.Is(mainErr, fs.ErrNotExist) && !errors.Is(mainErr, errInvalid) {
		return nil, fmt.Errorf("read %s: %w", path, mainErr)
	}
	data, backupErr := readValid(fsys, path+backupSuffix, valid)
	switch {
	case backupErr == nil:
	case errors.Is(mainErr, fs.ErrNotExist) && errors.Is(backupErr, fs.ErrNotExist):
		return nil, fmt.Errorf("read %s: %w", path, fs.ErrNotExist)
	default:
		return nil, fmt.Errorf("%w: %s: %w; %s%s: %w", ErrDamaged, path, hide(mainErr), path, backupSuffix, hide(backupErr))
	}
	// The content is good whether or not it can be put back; a disk that refuses will refuse the next Write as well.
	_ = replace(fsys, path, data)
	return data, nil
}

// errInvalid marks a content that the caller's check refused.
var errInvalid = errors.New("content not valid")

// hide keeps the text of an error and drops its identity, so that ErrDamaged with a missing backup is no
// fs.ErrNotExist.
func hide(err error) error { return errors.New(err.Error()) }

func readValid(fsys vfs.FS, path string, valid func([]byte) error) ([]byte, error) {
	data, err := vfs.ReadFile(fsys, path)
	if err != nil {
		return nil, err
	}
	if err := valid(data); err != nil {
		return nil, fmt.Errorf("%w: %w", errInvalid, hide(err))
	}
	return data, nil
}

func replace(fsys vfs.FS, path string, data []byte) error {
	if err := writeTemp(fsys, path+tempSuffix, data); err != nil {
		return err
	}
	if err := fsys.Rename(path+tempSuffix, path); err != nil {
		return err
	}
	return fsys.SyncDir(filepath.Dir(path))
}

func writeTemp(fsys vfs.FS, temp string, data []byte) error {
	f, err := fsys.Create(temp)
	if errors.Is(err, fs.ErrNotExist) {
		if err := fsys.MkdirAll(filepath.Dir(temp)); err != nil {
			return err
		}
		f, err = fsys.Create(temp)
	}
	if err != nil {
		return err
	}
	if _, err := f.WriteAt(data, 0); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := f.Sync(); err != nil {
		return errors.Join(err, f.Close())
	}
	return f.Close()
}
