package broker

import (
	"github.com/ratchetmq/ratchet/internal/vfs"
	"github.com/ratchetmq/ratchet/processor"
)

// roomOf tells how full the disks are.
func roomOf(fsys vfs.FS) func(dir string) (processor.Room, error) {
	return func(dir string) (processor.Room, error) {
		u, err := fsys.Usage(dir)
		return processor.Room{Total: u.Total, Free: u.Available}, err
	}
}
