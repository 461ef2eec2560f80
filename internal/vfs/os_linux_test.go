package vfs

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// However much the kernel has taken, what comes next is what it has not.
func TestWhatIsLeftOfPieces(t *testing.T) {
	const text = "abcdef"
	for n := range len(text) + 1 {
		left := behind([][]byte{[]byte("ab"), []byte("c"), []byte("def")}, n)
		require.Equal(t, text[n:], string(slices.Concat(left...)))
		for _, piece := range left {
			require.NotEmpty(t, piece)
		}
	}
}
