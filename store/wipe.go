package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/internal/vfs"
)

// wipeTail makes zero, durably, whatever stands behind the log's end, after a copy of it was put aside. Otherwise it
// could look like a record when the log has grown up to there.
func (s *Store) wipeTail(end offset.Physical) error {
	spans, err := s.log.dataBehind(end)
	if err != nil || len(spans) == 0 {
		return err
	}
	path, err := s.putAside(damagedFolder, end, spans)
	if err != nil {
		s.logger.Error("bytes behind the log's end not put aside", "phy", end, "err", err)
	}
	last := spans[len(spans)-1].To
	s.logger.Warn("bytes behind the log's end removed", "phy", end, "end", last, "path", path)
	return s.log.wipe(end)
}

// dataBehind lists what is not zero from pos on, each span within a segment and no longer than a chunk.
func (l *commitLog) dataBehind(pos offset.Physical) (spans []Span, err error) {
	buf := make([]byte, min(chunk, l.size))
	for seg := l.from(pos); seg != nil; seg = l.from(seg.end) {
		extents, err := seg.extents(pos, seg.end)
		if err != nil {
			return nil, err
		}
		for _, x := range extents {
			for at := x.From; at < x.To; {
				b := buf[:min(int64(len(buf)), int64(x.To-at))]
				if err := readFull(seg.file, b, int64(at-seg.start)); err != nil {
					return nil, err
				}
				if n := trimZeros(b); n > 0 {
					spans = append(spans, Span{From: at, To: at + offset.Physical(n)})
				}
				at += offset.Physical(len(b))
			}
		}
	}
	return spans, nil
}

// trimZeros is the length of b without the zeros at its end.
func trimZeros(b []byte) int {
	n := len(b)
	for n >= 8 && binary.NativeEndian.Uint64(b[n-8:]) == 0 {
		n -= 8
	}
	for n > 0 && b[n-1] == 0 {
		n--
	}
	return n
}

// putAside copies parts of the log into a file of a folder of its own; its byte 0 is the byte at base.
func (s *Store) putAside(folder string, base offset.Physical, spans []Span) (path string, err error) {
	fsys := s.opts.FS
	dir := filepath.Join(s.opts.Root, folder)
	if err := makeDirs(fsys, "", dir); err != nil {
		return "", err
	}
	path = filepath.Join(dir, fmt.Sprintf("%s-%d", fileName(int64(base)), s.opts.Now().UnixMilli()))
	f, err := fsys.Create(path)
	if err != nil {
		return "", err
	}
	if err := errors.Join(s.copyTo(f, base, spans), f.Sync(), f.Close()); err != nil {
		return "", errors.Join(err, fsys.Remove(path))
	}
	return path, fsys.SyncDir(dir)
}

func (s *Store) copyTo(f vfs.File, base offset.Physical, spans []Span) error {
	for _, span := range spans {
		b := make([]byte, span.To-span.From)
		if _, err := s.log.read(b, span.From); err != nil {
			return err
		}
		if _, err := f.WriteAt(b, int64(span.From-base)); err != nil {
			return err
		}
	}
	return nil
}
