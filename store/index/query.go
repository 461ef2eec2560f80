package index

import (
	"fmt"
	"slices"

	"github.com/ratchetmq/ratchet/internal/offset"
)

// maxSteps bounds how many entries one query looks at, so that a key whose slot it shares with a tag that every message
// has can't hold a worker for long: about a second at worst.
const maxSteps = 1 << 24

// Each calls yield with the position of every record that may have the key and was stored from begin to end (ms, both
// included), newest first, until yield returns false. The caller checks with Matches, and the time to less than a
// second, on the record that the log has there, and so can go on until it has as many real ones as it wants. It sees
// everything that was Put before. An error is one of reading a file.
func (x *Index) Each(topic, key string, kind Kind, begin, end int64, yield func(offset.Physical) bool) error {
	var p prefix
	p.set([]byte(topic))
	before := p.plain
	if kind == TagKey {
		before = p.tags
	}
	return x.each(hashOf(before, []byte(key)), begin, end, yield)
}

// Query returns the first positions that Each finds for AnyKey, at most limit: candidates, not yet matches.
func (x *Index) Query(topic, key string, begin, end int64, limit int) ([]offset.Physical, error) {
	var found []offset.Physical
	if limit <= 0 {
		return nil, nil
	}
	err := x.Each(topic, key, AnyKey, begin, end, func(phy offset.Physical) bool {
		found = append(found, phy)
		return len(found) < limit
	})
	return found, err
}

// view is one file as a query sees it.
type view struct {
	*file
	header header
}

func (x *Index) each(hash uint32, begin, end int64, yield func(offset.Physical) bool) (err error) {
	listed, views := x.look(hash, begin, end)
	defer func() {
		for _, v := range views {
			if closeErr := v.release(); err == nil {
				err = closeErr
			}
		}
	}()
	last := offset.Physical(-1)
	once := func(phy offset.Physical) bool { // a message may have the same key twice
		if phy == last {
			return true
		}
		last = phy
		return yield(phy)
	}
	for _, phy := range listed {
		if !once(phy) {
			return nil
		}
	}
	var c chain
	steps := 0
	for _, v := range slices.Backward(views) {
		if !v.header.covers(begin, end) {
			continue
		}
		if more, err := v.walk(&c, hash, begin, end, &steps, once); err != nil || !more {
			return err
		}
	}
	return nil
}

// look takes what a query needs from under mu: the positions found in memory, newest first, and the files.
func (x *Index) look(hash uint32, begin, end int64) (listed []offset.Physical, views []view) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, list := range [][]entry{x.fresh, x.frozen} {
		for i := len(list) - 1; i >= 0; i-- {
			if e := &list[i]; e.hash == hash {
				if from, to := x.head.entryTime(e.seconds); from <= end && to >= begin {
					listed = append(listed, e.phy)
				}
			}
		}
	}
	views = make([]view, 0, len(x.files))
	for _, f := range x.files {
		views = append(views, view{f.hold(), f.disk})
	}
	return listed, views
}

// walk goes down one file's chain. more is false when yield wants no more, or enough was looked at.
func (v view) walk(c *chain, hash uint32, begin, end int64, steps *int, yield func(offset.Physical) bool) (bool, error) {
	err := c.start(v.file, hash, v.header.next)
	for err == nil && *steps < maxSteps {
		*steps++
		var e entry
		var ok bool
		if e, ok, err = c.next(); err != nil || !ok {
			break
		}
		from, to := v.header.entryTime(e.seconds)
		if to < begin {
			return true, nil // the others are older
		}
		if e.hash == hash && from <= end && !yield(e.phy) {
			return false, nil
		}
	}
	if err != nil {
		return false, fmt.Errorf("query index file %s: %w", v.Name(), err)
	}
	return *steps < maxSteps, nil
}
