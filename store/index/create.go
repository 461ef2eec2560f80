package index

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/ratchetmq/ratchet/internal/vfs"
)

// create makes the next file. The caller has put.
func (x *Index) create() error {
	now := x.opts.Now()
	if x.put.backoff.waiting(now) {
		return ErrUnavailable
	}
	f, err := x.createFile(now)
	if err != nil {
		x.put.backoff.failed(now)
		return x.fail(now, &x.put.backoff, fmt.Errorf("make index file: %w", err))
	}
	x.put.backoff = backoff{}
	x.mu.Lock()
	x.files = append(x.files, f)
	x.active, x.head = f, f.disk
	x.mu.Unlock()
	x.recovered()
	return nil
}

func (x *Index) createFile(now time.Time) (*file, error) {
	if err := x.fs.MkdirAll(x.dir); err != nil {
		return nil, err
	}
	before := ""
	h := header{next: 1}
	x.mu.Lock()
	if n := len(x.files); n > 0 {
		before, h = x.files[n-1].name, startAfter(&x.files[n-1].disk)
	}
	for _, f := range x.foreign {
		before = max(before, filepath.Base(f.path))
	}
	x.mu.Unlock()
	stamp := now.Format("20060102150405") + fmt.Sprintf("%03d", now.Nanosecond()/int(time.Millisecond))
	name := nextName(stamp, before)
	path := filepath.Join(x.dir, name)
	// Java's broker takes the header of the file whose name sorts last for the truth: it must not find one half made.
	f, err := x.fs.Make(path, func(f vfs.File) error {
		if err := f.Truncate(x.size()); err != nil {
			return err
		}
		if h != (header{next: 1}) {
			if err := h.write(f); err != nil {
				return err
			}
		}
		return f.Sync() // the length: a file that is cut short can't be told from one of another size
	})
	if err != nil {
		return nil, err
	}
	if err := x.fs.SyncDir(x.dir); err != nil {
		return nil, errors.Join(err, f.Close(), x.fs.Remove(path)) // or every retry would leave a file
	}
	file := newFile(f, name, x.layout)
	file.disk = h
	return file, nil
}

// backoff spaces out attempts at what fails.
type backoff struct {
	until  time.Time
	pause  time.Duration
	logged time.Time
}

func (b *backoff) waiting(now time.Time) bool { return b.pause > 0 && now.Before(b.until) }

func (b *backoff) failed(now time.Time) {
	b.pause = min(max(2*b.pause, firstBackoff), lastBackoff)
	b.until = now.Add(b.pause)
}

// fail notes an error that stops the index and logs it, once a minute.
func (x *Index) fail(now time.Time, b *backoff, err error) error {
	x.mu.Lock()
	x.lastErr = err
	skipped := x.skipped
	x.mu.Unlock()
	if b.logged.IsZero() || now.Sub(b.logged) >= logEvery {
		b.logged = now
		x.log.Error("index can't be written, messages go on without", "path", x.dir, "err", err, "skipped", skipped)
	}
	return ErrUnavailable
}

// recovered notes that the index can be written.
func (x *Index) recovered() {
	x.mu.Lock()
	err, skipped := x.lastErr, x.skipped
	x.lastErr = nil
	x.mu.Unlock()
	if err != nil {
		x.log.Info("index can be written again", "path", x.dir, "skipped", skipped)
	}
}
