package index

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
)

// load finds the files and sets the state to their end.
func (x *Index) load() error {
	entries, err := x.fs.ReadDir(x.dir)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			x.log.Error("index folder can't be read", "path", x.dir, "err", err)
		}
		return nil
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		if isName(e.Name()) && !e.IsDir() {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	cut := false
	for i, name := range names {
		path := filepath.Join(x.dir, name)
		if cut {
			// Everything behind a gap is Put again, so that what End says is true.
			if err := x.fs.Remove(path); err != nil {
				return fmt.Errorf("remove index file: %w", err)
			}
			continue
		}
		if cut, err = x.loadFile(path, name, len(names)-1-i); err != nil {
			return err
		}
		x.lost = x.lost || cut
	}
	if err := x.settleLast(); err != nil {
		return err
	}
	x.settleEnd()
	// A file in which nothing is was made for records whose keys a crash has taken.
	x.lost = x.end == 0 && (x.lost || x.opts.Unclean && len(x.files) > 0)
	return nil
}

// settleLast gives a last file without entries the header that its maker, who died before that, was to give it. See startAfter.
func (x *Index) settleLast() error {
	n := len(x.files)
	if n < 2 || !x.files[n-1].disk.empty() {
		return nil
	}
	last, h := x.files[n-1], startAfter(&x.files[n-2].disk)
	if last.disk == h {
		return nil
	}
	if err := h.write(last); err != nil {
		return fmt.Errorf("write index file %s: %w", last.Name(), err)
	}
	last.disk = h
	return nil
}

// loadFile opens one file, which has so many newer ones; cut says that entries at its end were lost.
func (x *Index) loadFile(path, name string, newer int) (cut bool, err error) {
	f, err := x.fs.Open(path)
	if err != nil {
		return false, fmt.Errorf("open index file: %w", err)
	}
	file := newFile(f, name, x.layout)
	size, err := f.Size()
	if err != nil {
		return false, errors.Join(fmt.Errorf("open index file %s: %w", path, err), f.Close())
	}
	if size != x.size() {
		return x.loadForeign(file, path, size, newer)
	}
	if err := file.readHeader(); err != nil {
		return false, errors.Join(fmt.Errorf("read index file %s: %w", path, err), f.Close())
	}
	bad := file.disk.check(x.entries)
	if bad != nil {
		x.log.Error("index file damaged", "path", path, "err", bad)
	}
	suspect := x.suspect(file, newer)
	if kept := x.opts.SameBoot && bad == nil && (newer == 0 || x.full(&file.disk)); suspect && kept {
		if err := file.settleSlots(); err != nil {
			return false, errors.Join(fmt.Errorf("settle index file %s: %w", path, err), f.Close())
		}
	} else if suspect || bad != nil && newer == 0 {
		before := file.disk
		changed, err := file.repair(math.MaxInt64)
		if err != nil {
			return false, errors.Join(err, f.Close())
		}
		cut = bad != nil || file.disk.next < before.next || newer > 0 && !x.full(&file.disk)
		if changed {
			x.log.Warn("index file repaired", "path", path, "before", before.next-1, "after", file.disk.next-1, "phy",
				file.disk.endPhy)
		}
		bad = nil
	}
	if bad != nil || file.disk.empty() && (cut || newer > 0) {
		if err := errors.Join(f.Close(), x.fs.Remove(path)); err != nil {
			return false, fmt.Errorf("remove index file: %w", err)
		}
		return cut, nil
	}
	x.files = append(x.files, file)
	if suspect {
		// What a killed process wrote may be in the kernel only, and the next Flush says that it is safe.
		x.flush.sealed = append(x.flush.sealed, file.hold())
	}
	return cut, nil
}

// suspect says whether a power cut may have taken parts of a file. One that has newer ones was full when they were made:
// if its header does not say so, that header is not the last.
func (x *Index) suspect(f *file, newer int) bool {
	return x.opts.Unclean &&
		(newer == 0 || !x.full(&f.disk) || x.opts.SyncedTime == 0 || f.disk.endTime > x.opts.SyncedTime)
}

// loadForeign deals with a file of another size. One that was just being made is removed, and cut is true, for there
// may have been entries. So is, after an unclean stop, the last one, and one that has not all its entries: it may have been
// cut, and its records are Put again. Others are left.
func (x *Index) loadForeign(f *file, path string, size int64, newer int) (cut bool, err error) {
	if size >= headerSize {
		if err := f.readHeader(); err != nil {
			return false, errors.Join(fmt.Errorf("read index file %s: %w", path, err), f.Close())
		}
	}
	if size < headerSize || x.opts.Unclean && (newer == 0 || x.entryAt(f.disk.next) > size) {
		x.log.Warn("index file of another size removed after an unclean stop", "path", path, "size", size, "want", x.size())
		if err := errors.Join(f.Close(), x.fs.Remove(path)); err != nil {
			return false, fmt.Errorf("remove index file: %w", err)
		}
		return true, nil
	}
	if err := f.Close(); err != nil {
		return false, err
	}
	x.log.Error("index file has another size than configured and is not used", "path", path, "size", size, "want",
		x.size())
	x.foreign = append(x.foreign, foreign{path, f.disk.endPhy})
	return false, nil
}

// settleEnd sets the state after the list of files to what these hold. The caller has all locks or is alone.
func (x *Index) settleEnd() {
	x.active, x.head, x.resume, x.end = nil, header{next: 1}, -1, 0
	for _, f := range x.files {
		if !f.disk.empty() {
			x.end, x.resume = f.disk.endPhy, f.disk.endPhy
		}
	}
	if n := len(x.files); n > 0 {
		if f := x.files[n-1]; !f.full(&f.disk) {
			x.active, x.head = f, f.disk
		}
	}
}
