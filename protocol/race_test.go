//go:build race

package protocol

// Under the race detector a sync.Pool loses some of what is put back, on purpose.
const poolAllocs = 2
