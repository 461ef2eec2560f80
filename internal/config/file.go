package config

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/ratchetmq/ratchet/internal/atomicfile"
	"github.com/ratchetmq/ratchet/internal/vfs"
)

// UpdateFile changes keys in a .properties file: only the lines of those keys change, comments and everything else
// stay, and after a crash at any moment the file is the old or the new one. The old one is kept as <path>.bak. RocketMQ
// writes all its settings instead, 200 defaults among them, and drops the comments. A missing file is made.
//
// Two calls for the same path must not overlap.
func UpdateFile(fsys vfs.FS, path string, pairs ...Pair) error {
	text, err := vfs.ReadFile(fsys, path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read %s: %w", path, err)
	}
	for _, p := range pairs {
		if text, err = Edit(text, p.Key, p.Value); err != nil {
			return fmt.Errorf("edit %s: %w", path, err)
		}
	}
	return atomicfile.Write(fsys, path, text)
}
