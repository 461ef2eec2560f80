//go:build !race

package protocol

const poolAllocs = 0
