package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// A filler fills the memory that is free with the page cache of a file of nothing but holes.
//
// Free memory is not the same for all. The host of a virtual machine takes it back, and giving it out anew costs whoever
// touches it first some 2 µs a KiB, eight times what a write costs otherwise. A bound that removes its file gets the pages
// again that it had; a broker, which keeps what was sent, pays. On a machine that has run for a while next to nothing is
// free: the page cache has it, and gives up for new pages what was not used for the longest time.
type filler struct {
	file *os.File
	size int64
	at   int64 // of what is read next
	buf  []byte
	free func() (int64, error) // bytes
}

func newFiller(dir string) (*filler, error) {
	total, err := memory("MemTotal")
	if err != nil {
		return nil, err
	}
	f, err := os.Create(filepath.Join(dir, "filler"))
	if err != nil {
		return nil, err
	}
	const piece = 1 << 20
	size := 2 * total / piece * piece // going round in it, none of what comes next is in the page cache
	free := func() (int64, error) { return memory("MemFree") }
	return &filler{file: f, size: size, buf: make([]byte, piece), free: free}, f.Truncate(size)
}

func (f *filler) close() { f.file.Close() }

// fill reads until that makes no less free any more: the kernel keeps some.
func (f *filler) fill(ctx context.Context) error {
	const stride = 512 << 20
	for least := int64(math.MaxInt64); ; {
		free, err := f.free()
		if err != nil || ctx.Err() != nil {
			return cmp.Or(err, ctx.Err())
		}
		if free > least-stride/8 {
			return nil
		}
		least = free
		for range stride / len(f.buf) {
			if _, err := f.file.ReadAt(f.buf, f.at); err != nil {
				return err
			}
			f.at = (f.at + int64(len(f.buf))) % f.size
		}
	}
}

// memory is a line of /proc/meminfo, in bytes.
func memory(what string) (int64, error) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		if key, value, _ := strings.Cut(lines.Text(), ":"); key == what {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("/proc/meminfo has no %s", what)
}
