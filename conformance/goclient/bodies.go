package main

import (
	"bytes"
	"fmt"
	"hash/fnv"
)

const bigBody = 7 * 512 * 1024 // 3.5 MiB

// noise returns bytes that do not compress: a 32-bit xorshift seeded with the FNV-1a hash of the name.
// The Java program computes the same.
func noise(name string, size int) []byte {
	h := fnv.New32a()
	h.Write([]byte(name))
	x := max(h.Sum32(), 1)
	out := make([]byte, size)
	for i := range out {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		out[i] = byte(x)
	}
	return out
}

// text returns at least size bytes that compress well, again the same as in Java.
func text(name string, size int) []byte {
	var b bytes.Buffer
	for i := 0; b.Len() < size; i++ {
		fmt.Fprintf(&b, "%s line %d: all work and no play\n", name, i)
	}
	return b.Bytes()
}

func sameBody(what string, got, want []byte) {
	check(bytes.Equal(got, want), "%s: bodies differ (got %d bytes, want %d)", what, len(got), len(want))
}
