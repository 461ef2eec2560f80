package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFillerStopsWhenNoLessIsFree reads on past the end of its file, from the beginning.
func TestFillerStopsWhenNoLessIsFree(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "holes"))
	require.NoError(t, err)
	const size = 300 << 20
	require.NoError(t, file.Truncate(size))
	asked := 0
	f := &filler{file: file, size: size, buf: make([]byte, 1<<20), free: func() (int64, error) {
		asked++
		return max(4-int64(asked), 1) << 30, nil
	}}
	defer f.close()
	require.NoError(t, f.fill(context.Background()))
	require.Equal(t, 4, asked)
	require.EqualValues(t, 3*512<<20%size, f.at)
}

func TestMemory(t *testing.T) {
	total, err := memory("MemTotal")
	require.NoError(t, err)
	free, err := memory("MemFree")
	require.NoError(t, err)
	require.Greater(t, total, free)
	require.Positive(t, free)
	_, err = memory("nothing")
	require.ErrorContains(t, err, "nothing")
}
