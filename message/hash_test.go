package message

import (
	"testing"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestHashCodesAreJavas(t *testing.T) {
	for text, want := range map[string]int32{
		"":                   0,
		"a":                  97,
		"TagA":               2598919, // from the subscriptions of clients
		"TagB":               2598920,
		"hello":              99162322,
		"polygenelubricants": -2147483648,
		"é":                  0xE9,
		"中文":                 0x4E2D*31 + 0x6587,
		"😀":                  0xD83D*31 + 0xDE00, // two code units
		"\xff":               0xFFFD,
		"TagA || TagB":       hashOf([]uint16{'T', 'a', 'g', 'A', ' ', '|', '|', ' ', 'T', 'a', 'g', 'B'}),
	} {
		require.Equal(t, want, HashCode([]byte(text)), text)
		require.Equal(t, int64(want), TagsCode([]byte(text)), text)
	}
}

// TestHashCodesOfLongTexts: eight characters at once are the same as one after the other, wherever they begin and end and
// what stands between them.
func TestHashCodesOfLongTexts(t *testing.T) {
	long := "FD00000000000000000000000000000279735FFD2B27933DBC290000#~\x7f é中😀 and more that is ASCII, to the end"
	for from := range long {
		for to := from; to <= len(long); to++ {
			if to < len(long) && !utf8.RuneStart(long[to]) {
				continue
			}
			text := long[from:to]
			require.Equal(t, hashOf(utf16.Encode([]rune(text))), HashCode([]byte(text)), text)
		}
	}
}

// hashOf is the definition, over code units.
func hashOf(units []uint16) int32 {
	var h int32
	for _, u := range units {
		h = h*31 + int32(u)
	}
	return h
}

func TestSystemFlagsArePinned(t *testing.T) {
	require.Equal(t, []int32{1, 2, 4, 8, 12, 16, 32, 64, 128, 256, 512, 768}, []int32{
		FlagCompressed, FlagMultiTags, FlagPrepared, FlagCommit, FlagRollback, FlagBornHostV6, FlagStoreHostV6, FlagNeedUnwrap, FlagInnerBatch,
		FlagLZ4, FlagZstd, FlagZlib,
	})
	require.Equal(t, FlagRollback, FlagTransactionMask)
	require.Equal(t, int32(0x700), FlagCompressionMask)
}
