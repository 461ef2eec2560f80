package ha

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/internal/offset"
)

func TestOwnFrameIsReadBack(t *testing.T) {
	b := append(make([]byte, ownHead), "some bytes of the log"...)
	putOwnHead(b, frameLog, 77, 1000, len(b)-ownHead)
	f := frames{r: bytes.NewReader(b), own: true}
	in, err := f.next()
	require.NoError(t, err)
	require.Equal(t, frame{frameLog, 77, 1000, []byte("some bytes of the log")}, in)
}

// TestOwnFrameThatIsDamagedIsRefused, whichever bit of it is wrong: RocketMQ's own frames have no checksum, and a record's
// covers its body alone.
func TestOwnFrameThatIsDamagedIsRefused(t *testing.T) {
	whole := append(make([]byte, ownHead), "bytes"...)
	putOwnHead(whole, frameLog, 77, 1000, len(whole)-ownHead)
	for bit := range 8 * len(whole) {
		if bit/8 >= 1 && bit/8 < 4 || bit/8 >= ownCRC+4 && bit/8 < ownHead {
			continue // zeros that nobody reads yet
		}
		b := bytes.Clone(whole)
		b[bit/8] ^= 1 << (bit % 8)
		f := frames{r: bytes.NewReader(b), own: true}
		_, err := f.next()
		require.Error(t, err, "bit %d", bit)
	}
}

func FuzzFrames(f *testing.F) {
	own := append(make([]byte, ownHead), "bytes"...)
	putOwnHead(own, frameLog, 77, 1000, len(own)-ownHead)
	f.Add(own, true)
	java := append(make([]byte, headSize), "bytes"...)
	putHead(java, 77, len(java)-headSize)
	f.Add(java, false)
	f.Fuzz(func(t *testing.T, b []byte, own bool) {
		in := frames{r: bytes.NewReader(b), own: own}
		for {
			fr, err := in.next()
			if err != nil {
				return
			}
			require.GreaterOrEqual(t, fr.at, offset.Physical(0))
			require.LessOrEqual(t, len(fr.body), len(b))
		}
	})
}

func FuzzGreeting(f *testing.F) {
	var b bytes.Buffer
	require.NoError(f, writeGreeting(&b, &hello{Name: "g", Addr: "a:1", From: 7}))
	f.Add(b.Bytes()[reportSize:])
	f.Fuzz(func(t *testing.T, b []byte) {
		var h hello
		_ = readGreeting(bytes.NewReader(b), &h)
	})
}
