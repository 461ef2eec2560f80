package freeport

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// More ports than a block has, none twice, each with room for the listeners around it.
func TestGet(t *testing.T) {
	given := map[int]bool{}
	for range block / 2 {
		port, err := Get()
		require.NoError(t, err)
		for p := port - 2; p <= port+1; p++ {
			require.False(t, given[p], p)
			given[p] = true
		}
	}
	require.Greater(t, len(mine.guards), 1)
	_, err := net.Listen("tcp", mine.guards[0].Addr().String())
	require.Error(t, err, "no other process gets the block")
}
