package vfstest

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
)

// Keep says what a power cut leaves of what was not synced.
type Keep uint8

const (
	// KeepNothing leaves what was synced, and nothing else.
	KeepNothing Keep = iota
	// KeepAll leaves everything, as the end of a process does while the kernel lives on. What was not synced still is
	// not: a power cut after that can take it.
	KeepAll
	// KeepSome leaves each page, each name and each length by the throw of a coin.
	KeepSome
)

// CrashClone is the disk as a power cut at this moment would leave it. m itself is not touched, and its users go on.
// The same state, keep and seed give the same clone.
func (m *Mem) CrashClone(keep Keep, seed uint64) *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	rnd := rand.New(rand.NewPCG(seed, 0x5eed))
	coin := func() bool { return keep == KeepAll || keep == KeepSome && rnd.IntN(2) == 0 }

	clone := New()
	clone.limit = m.limit
	done := map[*inode]*inode{}
	paths := slices.Sorted(maps.Keys(m.names))
	for p := range m.durable {
		if m.names[p] == nil {
			paths = append(paths, p)
		}
	}
	slices.Sort(paths)
	for _, p := range paths {
		if p == "/" {
			continue
		}
		node, last := m.durable[p], m.names[p]
		if node != last && coin() {
			node = last
		}
		if node == nil || clone.names[filepath.Dir(p)] == nil {
			continue
		}
		if done[node] == nil {
			done[node] = clone.adopt(node, keep, coin)
		}
		clone.names[p] = done[node]
		clone.durable[p] = done[node]
	}
	if keep == KeepAll {
		clone.durable = map[string]*inode{"/": clone.names["/"]}
		for p, node := range m.durable {
			if p == "/" {
				continue
			}
			if done[node] == nil {
				done[node] = clone.adopt(node, keep, coin)
			}
			clone.durable[p] = done[node]
		}
	}
	return clone
}

// adopt makes a node of the clone out of one of the crashed disk.
func (m *Mem) adopt(node *inode, keep Keep, coin func() bool) *inode {
	fresh := &inode{dir: node.dir, dirty: map[int64]bool{}, held: map[int64]bool{}, modTime: node.modTime}
	if node.dir {
		return fresh
	}
	if keep == KeepAll {
		fresh.data, fresh.synced, fresh.dirty = slices.Clone(node.data), slices.Clone(node.synced), maps.Clone(node.dirty)
		for p := range pages(0, int64(len(node.data))) { // a Sync that failed because the process is to die was never tried
			from, to := int(p*PageSize), int(min((p+1)*PageSize, int64(len(node.data))))
			if to > len(node.synced) || !bytes.Equal(node.data[from:to], node.synced[from:to]) {
				fresh.dirty[p] = true
			}
		}
		m.holdAs(fresh, node)
		return fresh
	}
	fresh.data = slices.Clone(node.synced)
	if size := len(node.data); size != len(fresh.data) && coin() {
		if size < len(fresh.data) {
			fresh.data = fresh.data[:size]
		} else {
			fresh.data = append(fresh.data, make([]byte, size-len(fresh.data))...)
		}
	}
	size := int64(len(fresh.data))
	for _, p := range slices.Sorted(maps.Keys(node.dirty)) {
		from := p * PageSize
		if from >= size || !coin() {
			continue
		}
		to := min(from+PageSize, size)
		clear(fresh.data[from:to])
		if from < int64(len(node.data)) {
			copy(fresh.data[from:to], node.data[from:])
		}
	}
	fresh.synced = slices.Clone(fresh.data)
	m.holdAs(fresh, node)
	return fresh
}

// holdAs gives a node the same room as another.
func (m *Mem) holdAs(node, like *inode) {
	for p := range like.held {
		m.take(node, p)
	}
}
