package protocol

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// endByByte is endOfString, one byte at a time.
func endByByte(b []byte, i int) (end int, escaped, ok bool) {
	quote := b[i]
	for i++; i < len(b); i++ {
		switch b[i] {
		case quote:
			return i + 1, escaped, true
		case '\\':
			escaped = true
			i++
		}
	}
	return i, escaped, false
}

// TestStringsEndWhereTheyEnd: eight bytes at a time find what one byte at a time finds, wherever the string stands and
// whatever is beside quotes and backslashes (their neighbours in the alphabet, and bytes with the high bit, among them).
func TestStringsEndWhereTheyEnd(t *testing.T) {
	alphabet := []byte{'"', '"', '\'', '\\', '\\', '!', '#', '[', ']', 0, 1, 'a', 0x80, 0xA2, 0xDC, 0xFF}
	random := rand.New(rand.NewPCG(1, 2))
	ended, cut := 0, 0
	for range 200_000 {
		b := make([]byte, 1+random.IntN(40))
		for i := range b {
			b[i] = alphabet[3+random.IntN(len(alphabet)-3)]
			if random.IntN(12) == 0 {
				b[i] = alphabet[random.IntN(3)]
			}
		}
		i := random.IntN(len(b))
		b[i] = alphabet[1+random.IntN(2)]
		end, escaped, ok := endOfString(b, i)
		wantEnd, wantEscaped, wantOK := endByByte(b, i)
		require.Equal(t, fmt.Sprint(wantOK, wantEscaped), fmt.Sprint(ok, escaped), "%q at %d", b, i)
		if ok {
			require.Equal(t, wantEnd, end, "%q at %d", b, i)
			ended++
		} else {
			cut++
		}
	}
	require.Greater(t, ended, 1000)
	require.Greater(t, cut, 1000)
}
