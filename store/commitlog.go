package store

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/internal/vfs"
)

// segment is one file of the commit log, named by the position of its first byte. Its file has full length from the
// start.
type segment struct {
	start offset.Physical
	end   offset.Physical
	file  vfs.File

	readOnly bool // in a folder in which nothing is to be changed
}

func (s *segment) span() Span { return Span{From: s.start, To: s.end} }

// commitLog is the sequence of segments. Bytes below written are there to read, and never change; bytes below flushed
// are on the disk.
//
// There may be segments missing between two others, and segments behind written that wait for their first record.
type commitLog struct {
	fs     vfs.FS
	dirs   []string          // in which segments are made
	full   func(string) bool // whether a folder is to be passed over for new ones
	size   int64             // of every segment
	logger *slog.Logger
	now    func() time.Time

	grow    sync.Mutex      // held while a segment is made
	retryAt time.Time       // guarded by grow; when the disk was full, not to be tried again before
	begin   offset.Physical // guarded by grow; no segment is made below, see Store.Begin

	segments atomic.Pointer[[]*segment] // in order; a change makes a new slice

	written watermark // raised by the appender
	flushed watermark // raised under flushing

	// How many messages were appended since Open, and how many of them are known to be on the disk.
	messages, flushedMessages atomic.Int64

	flushing   sync.Mutex // held while segments are synced
	unsyncable error      // guarded by flushing; of the sync that failed
}

// fullPause is how long a full disk is left alone.
const fullPause = 500 * time.Millisecond

// loadLog opens the segments that are there.
func loadLog(o *Options, logger *slog.Logger) (*commitLog, error) {
	l := &commitLog{
		fs: o.FS, dirs: o.CommitLogDirs, full: o.passedOver, size: o.SegmentSize, logger: logger, now: o.Now,
	}
	l.segments.Store(&[]*segment{})
	files, err := l.list(o.ReadOnlyCommitLogDirs, true)
	if err != nil {
		return nil, err
	}
	others, err := l.list(l.dirs, false)
	if err != nil {
		return nil, err
	}
	files = append(files, others...)
	slices.SortFunc(files, func(a, b dataFile) int { return int(min(max(a.start-b.start, -1), 1)) })
	var list []*segment
	for i, f := range files {
		seg, err := l.load(f, i == len(files)-1)
		if err == nil && i > 0 && files[i-1].start == f.start {
			err = fmt.Errorf("%w: segment %s is there twice", ErrLayout, f.path)
		}
		if err != nil {
			l.close()
			return nil, err
		}
		if seg != nil {
			if n := len(list); n > 0 && list[n-1].end != seg.start {
				l.logger.Error("segments missing from the commit log", "phy", int64(list[n-1].end), "end", f.start)
			}
			list = append(list, seg)
			l.segments.Store(&list)
		}
	}
	return l, nil
}

// list finds the files of segments in several folders.
func (l *commitLog) list(dirs []string, readOnly bool) (files []dataFile, err error) {
	for _, dir := range dirs {
		found, err := listDataFiles(l.fs, dir)
		if err != nil {
			return nil, err
		}
		for i := range found {
			found[i].readOnly = readOnly
		}
		files = append(files, found...)
	}
	return files, nil
}

// load opens one segment. The last may be short: its maker was killed, and nothing was ever written to it behind the
// length that it has.
func (l *commitLog) load(f dataFile, last bool) (*segment, error) {
	switch {
	case f.size == 0 && last && f.readOnly:
		return nil, nil
	case f.size == 0 && last:
		l.logger.Info("empty segment removed", "path", f.path)
		return nil, l.fs.Remove(f.path)
	case f.start%l.size != 0 || f.size > l.size || f.size < l.size && (!last || f.readOnly):
		return nil, fmt.Errorf("%w: segment %s has %d bytes, segments are to have %d", ErrLayout, f.path, f.size, l.size)
	}
	open := l.fs.Open
	if f.readOnly {
		open = l.fs.OpenReadOnly
	}
	file, err := open(f.path)
	if err != nil {
		return nil, err
	}
	if f.size < l.size {
		l.logger.Warn("short segment filled up", "path", f.path, "size", f.size)
		if err := errors.Join(file.Preallocate(l.size), file.Sync()); err != nil {
			return nil, errors.Join(err, file.Close())
		}
	}
	start := offset.Physical(f.start)
	return &segment{start: start, end: start + offset.Physical(l.size), file: file, readOnly: f.readOnly}, nil
}

// writableFrom is the first position at or behind pos from which on no segment is read-only.
func (l *commitLog) writableFrom(pos offset.Physical) offset.Physical {
	for _, seg := range *l.segments.Load() {
		if seg.readOnly {
			pos = max(pos, seg.end)
		}
	}
	return pos
}

func (l *commitLog) close() error {
	var errs []error
	for _, seg := range *l.segments.Swap(&[]*segment{}) {
		errs = append(errs, seg.file.Close())
	}
	return errors.Join(errs...)
}

// low is the position of the first byte that there is; the log's end when there is none.
func (l *commitLog) low() offset.Physical {
	if list := *l.segments.Load(); len(list) > 0 {
		return min(list[0].start, l.written.load())
	}
	return l.written.load()
}

// from is the segment that holds pos or, if none does, the first behind it; nil when there is none of these either.
func (l *commitLog) from(pos offset.Physical) *segment {
	list := *l.segments.Load()
	i := sort.Search(len(list), func(i int) bool { return list[i].end > pos })
	if i == len(list) {
		return nil
	}
	return list[i]
}

// at is the segment that holds pos, nil when none does.
func (l *commitLog) at(pos offset.Physical) *segment {
	if seg := l.from(pos); seg != nil && seg.start <= pos {
		return seg
	}
	return nil
}

// read fills b with the bytes from pos on, which are all in one segment, and says which one.
func (l *commitLog) read(b []byte, pos offset.Physical) (*segment, error) {
	seg := l.at(pos)
	if seg == nil || int64(seg.end-pos) < int64(len(b)) {
		return nil, fmt.Errorf("%w: no segment has %d bytes at %d", ErrNotFound, len(b), pos)
	}
	return seg, readFull(seg.file, b, int64(pos-seg.start))
}

// readFull is ReadAt for bytes that have to be there.
func readFull(f vfs.File, b []byte, at int64) error {
	n, err := f.ReadAt(b, at)
	if n == len(b) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("read %s at %d: %w", f.Name(), at, err)
}

// ensure makes the segment that holds pos unless it is there. The preparer calls it ahead of time; an append that
// comes first makes the segment itself. ErrFull when the disk has no room for it.
func (l *commitLog) ensure(pos offset.Physical) (*segment, error) {
	if seg := l.at(pos); seg != nil {
		return seg, nil
	}
	l.grow.Lock()
	defer l.grow.Unlock()
	if seg := l.at(pos); seg != nil {
		return seg, nil
	}
	if pos < l.begin {
		return nil, fmt.Errorf("%w: the log begins at %d, not at %d", ErrNotFound, l.begin, pos)
	}
	if l.now().Before(l.retryAt) {
		return nil, fmt.Errorf("%w: no room for the next segment", ErrFull)
	}
	seg, err := l.create(pos - pos%offset.Physical(l.size))
	switch {
	case errors.Is(err, syscall.ENOSPC):
		if l.retryAt.IsZero() {
			l.logger.Error("disk full, no room for the next segment", "phy", pos, "err", err)
		}
		l.retryAt = l.now().Add(fullPause)
		return nil, fmt.Errorf("%w: %w", ErrFull, err)
	case err != nil:
		return nil, fmt.Errorf("make segment %d: %w", pos, err)
	}
	if !l.retryAt.IsZero() {
		l.logger.Info("disk has room again", "phy", pos)
		l.retryAt = time.Time{}
	}
	list := append(slices.Clone(*l.segments.Load()), seg)
	slices.SortFunc(list, func(a, b *segment) int { return int(min(max(a.start-b.start, -1), 1)) })
	l.segments.Store(&list)
	return seg, nil
}

// create makes the file of a segment, full length and durable, in the folder whose turn it is. One that is passed over
// or has no room leaves it to the next; when all are passed over, the first with room has to take it.
func (l *commitLog) create(start offset.Physical) (seg *segment, err error) {
	turn := int(int64(start) / l.size % int64(len(l.dirs)))
	dirs := append(slices.Clone(l.dirs[turn:]), l.dirs[:turn]...)
	if len(dirs) > 1 {
		var room, full []string
		for _, dir := range dirs {
			if l.full(dir) {
				full = append(full, dir)
			} else {
				room = append(room, dir)
			}
		}
		dirs = append(room, full...)
	}
	for i, dir := range dirs {
		var file vfs.File
		if file, err = l.createIn(dir, start); err == nil {
			return &segment{start: start, end: start + offset.Physical(l.size), file: file}, nil
		}
		if !errors.Is(err, syscall.ENOSPC) {
			return nil, err
		}
		if i+1 < len(dirs) {
			l.logger.Warn("folder without room passed over", "path", dir, "phy", start, "err", err)
		}
	}
	return nil, err
}

func (l *commitLog) createIn(dir string, start offset.Physical) (vfs.File, error) {
	if err := makeDirs(l.fs, "", dir); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, fileName(int64(start)))
	if _, err := l.fs.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s is in the way (%w)", ErrLayout, path, err)
	}
	file, err := l.fs.Make(path, func(f vfs.File) error {
		if err := f.Preallocate(l.size); err != nil {
			return err
		}
		return f.Sync()
	})
	if err != nil {
		return nil, err
	}
	if err := l.fs.SyncDir(dir); err != nil {
		return nil, errors.Join(err, file.Close(), l.fs.Remove(path))
	}
	return file, nil
}

// flush syncs all that was written before the call, and raises flushed to there. Once it has failed it fails for ever: the
// kernel tells of lost pages only once, so that the flusher's next sync, or the checkpointer's which waited meanwhile,
// would succeed.
func (l *commitLog) flush() error {
	l.flushing.Lock()
	defer l.flushing.Unlock()
	if l.unsyncable != nil {
		return l.unsyncable
	}
	messages := l.messages.Load() // before written, so that none is counted that is not below it
	to := l.written.load()
	if err := l.sync(l.flushed.load(), to); err != nil {
		l.unsyncable = err
		return err
	}
	l.flushed.raise(to)
	l.flushedMessages.Store(messages)
	return nil
}

// sync makes the bytes of [from, to) durable.
func (l *commitLog) sync(from, to offset.Physical) error {
	for seg := l.from(from); seg != nil && seg.start < to; seg = l.from(seg.end) {
		if seg.readOnly {
			continue
		}
		if err := seg.file.Sync(); err != nil {
			return err
		}
	}
	return nil
}
