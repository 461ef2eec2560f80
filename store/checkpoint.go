package store

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/ratchetmq/ratchet/internal/vfs"
)

// checkpoint is RocketMQ's file of that name: up to which store timestamps the log, the queues and the index are
// durable. After a crash recovery starts at the segment before the least of them; a checkpoint that is too old costs
// time, one that is too new would cost messages.
type checkpoint struct {
	fs      vfs.FS
	path    string
	raw     []byte // the whole file; fields that are not ours are kept
	phy     int64  // ms
	logic   int64
	index   int64
	refused bool // a sync of queue files has failed: none of their entries may be relied on any more

	indexErr error // of the first Flush of the index that failed: from then on its files are not vouched for
}

const (
	checkpointSize  = 4096
	checkpointSlack = 3000 // ms; RocketMQ's margin between its two clocks
)

// loadCheckpoint reads the file. One that is missing or short counts as zero.
func loadCheckpoint(fsys vfs.FS, path string) (checkpoint, error) {
	c := checkpoint{fs: fsys, path: path, raw: make([]byte, checkpointSize)}
	f, err := fsys.OpenReadOnly(path)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return c, err
	}
	if n, err := f.ReadAt(c.raw, 0); n < checkpointSize {
		if err != nil && !errors.Is(err, io.EOF) {
			return c, errors.Join(err, f.Close())
		}
		clear(c.raw)
	}
	be := binary.BigEndian
	c.phy, c.logic, c.index = int64(be.Uint64(c.raw)), int64(be.Uint64(c.raw[8:])), int64(be.Uint64(c.raw[16:]))
	return c, f.Close()
}

// safeTime is the store timestamp up to which all records are durable in log and queues, 0 when nothing is known.
func (c *checkpoint) safeTime(now int64) int64 {
	t := min(c.phy, c.logic) - checkpointSlack
	if t < 0 || t > now+time.Hour.Milliseconds() {
		return 0 // garbage
	}
	return t
}

// save writes the file, durably.
func (c *checkpoint) save() error {
	be := binary.BigEndian
	be.PutUint64(c.raw, uint64(c.phy))
	be.PutUint64(c.raw[8:], uint64(c.logic))
	be.PutUint64(c.raw[16:], uint64(c.index))
	f, err := c.fs.Open(c.path)
	if errors.Is(err, fs.ErrNotExist) {
		f, err = c.fs.Create(c.path)
	}
	if err != nil {
		return err
	}
	_, err = f.WriteAt(c.raw, 0)
	return errors.Join(err, f.Sync(), f.Close())
}

// saveCheckpoint makes durable what is dispatched by now and then says so in the file. One goroutine at a time.
func (s *Store) saveCheckpoint() error {
	c := &s.checkpoint
	if c.refused {
		return errors.New("queue files have failed to sync")
	}
	t := s.dispatcher.time()
	if err := s.log.flush(); err != nil {
		s.fail(err)
		return s.Err()
	}
	if err := s.writeTails(); err != nil {
		return fmt.Errorf("write queues: %w", err)
	}
	if err := s.files.sync(); err != nil {
		// What they hold now is not known; recovery will rebuild all that came after the last checkpoint.
		c.refused = true
		return fmt.Errorf("sync queues: %w", err)
	}
	c.phy, c.logic = t, t
	if s.opts.Index != nil {
		if err := s.opts.Index.Flush(); err != nil {
			s.logger.Error("index not flushed", "err", err)
			c.indexErr = cmp.Or(c.indexErr, err)
		}
		if c.indexErr == nil {
			c.index = t
		}
	}
	return c.save()
}

// runCheckpointer writes checkpoints while there is something new, and spends no more than a tenth of the time on it.
func (s *Store) runCheckpointer(ctx context.Context) error {
	first, saved := s.opts.CheckpointInterval, s.Dispatched()
	if !s.wasClean {
		first, saved = 0, -1 // what recovery has just gone through need not be gone through again
	}
	timer := time.NewTimer(first)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		pause := s.opts.CheckpointInterval
		if at := s.Dispatched(); at != saved && s.Err() == nil && !s.checkpoint.refused {
			began := time.Now()
			if err := s.saveCheckpoint(); err != nil {
				s.logger.Error("checkpoint not written", "err", err)
			} else {
				saved = at
			}
			pause = max(pause, 9*time.Since(began))
		}
		timer.Reset(pause)
	}
}
