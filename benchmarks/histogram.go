package main

import "math/bits"

// A histogram counts durations in classes that are 1/64 of their value wide. It belongs to one goroutine.
type histogram struct {
	counts [64 * 64]uint64
	n      uint64
	top    int64
}

func (h *histogram) add(ns int64) {
	h.counts[class(ns)]++
	h.n++
	h.top = max(h.top, ns)
}

// class is linear up to 64 and then has 64 steps for each power of two.
func class(ns int64) int {
	if ns < 64 {
		return int(max(ns, 0))
	}
	shift := bits.Len64(uint64(ns)) - 7
	return 64*(shift+1) + int(ns>>shift) - 64
}

// lower is the smallest duration of a class.
func lower(class int) int64 {
	if class < 64 {
		return int64(class)
	}
	return int64(class%64+64) << (class/64 - 1)
}

func (h *histogram) merge(o *histogram) {
	for i, c := range o.counts {
		h.counts[i] += c
	}
	h.n += o.n
	h.top = max(h.top, o.top)
}

// quantile is the duration that a share q of all did not exceed, in nanoseconds.
func (h *histogram) quantile(q float64) int64 {
	rank := uint64(q * float64(h.n))
	for i, c := range h.counts {
		if c > rank {
			return lower(i)
		}
		rank -= c
	}
	return h.top
}
