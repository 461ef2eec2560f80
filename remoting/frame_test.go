package remoting

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/protocol"
)

// cut feeds data to a splitter in pieces of the given sizes (the last one repeats) and returns the frames.
func cut(data []byte, sizes ...int) (frames [][]byte, s *splitter, err error) {
	s = &splitter{}
	for i := 0; len(data) > 0; i++ {
		n := max(1, sizes[min(i, len(sizes)-1)])
		piece := data[:min(n, len(data))]
		data = data[len(piece):]
		for len(piece) > 0 {
			f, own, used, err := s.next(piece)
			if err != nil {
				return frames, s, err
			}
			if f != nil {
				frames = append(frames, append([]byte(nil), f...))
			}
			own.release()
			piece = piece[used:]
		}
	}
	return frames, s, nil
}

func TestSplitterFindsFramesAtEverySplitPoint(t *testing.T) {
	want := [][]byte{frame(echo, 1, false, "a"), frame(echo, 2, false, ""), frame(echo, 3, true, "some longer body")}
	stream := bytes.Join(want, nil)
	for at := 1; at < len(stream); at++ {
		got, s, err := cut(stream, at, len(stream))
		require.NoError(t, err)
		require.Equal(t, want, got, "split at %d", at)
		require.Zero(t, s.partial())
	}
	got, _, err := cut(stream, 1)
	require.NoError(t, err)
	require.Equal(t, want, got, "byte by byte")
}

func TestSplitterGrowsWithWhatIsThere(t *testing.T) {
	var head [8]byte
	binary.BigEndian.PutUint32(head[:], protocol.MaxFrame-4)
	binary.BigEndian.PutUint32(head[4:], 100) // JSON, 100 bytes
	s := &splitter{}
	_, _, _, err := s.next(head[:])
	require.NoError(t, err)
	require.LessOrEqual(t, cap(s.part.B), 512, "announced length is not believed")
	sent := len(head)
	piece := make([]byte, 1000)
	for sent < 3<<20 {
		f, _, used, err := s.next(piece)
		require.NoError(t, err)
		require.Nil(t, f)
		sent += used
		require.LessOrEqual(t, cap(s.part.B), max(512, 2*sent))
	}
	s.drop()
	require.Zero(t, s.partial())
}

func TestSplitterRefusesAsSoonAsItCan(t *testing.T) {
	length := func(n uint32, rest ...byte) []byte { return append(binary.BigEndian.AppendUint32(nil, n), rest...) }
	for name, c := range map[string]struct {
		in []byte
		at int // bytes needed to see it
	}{
		"length 0":                 {length(0), 4},
		"length 3":                 {length(3), 4},
		"length -1":                {length(0xFFFFFFFF), 4},
		"length one too large":     {length(protocol.MaxFrame - 3), 4},
		"http":                     {[]byte("GET / HTTP/1.1\r\n"), 4},
		"encoding 7":               {length(1000, 7, 0, 0, 30), 8},
		"header larger than frame": {length(1000, 0, 0, 4, 0), 8},
		"header empty":             {length(1000, 0, 0, 0, 0), 8},
	} {
		for _, step := range []int{1, 3, len(c.in)} {
			s := &splitter{}
			var err error
			fed := 0
			for fed < len(c.in) && err == nil {
				piece := c.in[fed:min(len(c.in), fed+step)]
				fed += len(piece)
				_, _, _, err = s.next(piece)
			}
			require.ErrorIs(t, err, protocol.ErrFrame, name)
			require.Less(t, fed, c.at+step, "%s in steps of %d", name, step)
			s.drop()
		}
	}
}

func FuzzSplitter(f *testing.F) {
	f.Add(bytes.Join([][]byte{frame(echo, 1, false, "x"), frame(echo, 2, true, "yy")}, nil), uint8(3), uint8(7))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"), uint8(1), uint8(1))
	f.Add([]byte{0, 0, 0, 4, 0, 0, 0, 0}, uint8(2), uint8(9))
	f.Fuzz(func(t *testing.T, data []byte, first, step uint8) {
		whole, _, wholeErr := cut(data, len(data)+1)
		parts, s, partsErr := cut(data, int(first), int(step))
		defer s.drop()
		require.Equal(t, whole, parts, "frames do not depend on how the stream arrives")
		require.Equal(t, wholeErr == nil, partsErr == nil)
		n := 0
		for _, frame := range parts {
			size, err := protocol.FrameSize(frame)
			require.NoError(t, err)
			require.Equal(t, len(frame), size)
			n += size
		}
		if partsErr == nil {
			require.Equal(t, len(data), n+s.partial(), "no byte is lost")
			require.True(t, bytes.HasPrefix(data, bytes.Join(parts, nil)))
		} else {
			require.ErrorIs(t, partsErr, protocol.ErrFrame)
		}
	})
}

func TestStrayTrafficIsNamed(t *testing.T) {
	for in, want := range map[string]string{
		"\x16\x03\x01\x02": "tls", "PROX": "PROXY", "\r\n\r\n": "PROXY", "GET ": "http", "POST": "http", "SSH-": "ssh",
	} {
		require.Contains(t, strayTraffic([]byte(in)), want)
	}
	require.Empty(t, strayTraffic([]byte{0, 0, 0, 9}))
	require.Empty(t, strayTraffic(nil))
}

func TestBufferClasses(t *testing.T) {
	for _, n := range []int{0, 1, 511, 512, 513, 4096, 4097, maxPooled} {
		b := getBuffer(n)
		require.GreaterOrEqual(t, cap(b.B), n)
		require.LessOrEqual(t, cap(b.B), max(512, 2*n))
		require.Empty(t, b.B)
		b.release()
	}
	big := getBuffer(maxPooled + 1)
	require.Equal(t, maxPooled+1, cap(big.B))
	big.release()
	odd := &buffer{B: make([]byte, 0, 3000)} // as append may leave it
	odd.release()
	require.GreaterOrEqual(t, cap(getBuffer(4096).B), 4096, "an odd buffer never serves a class it is too small for")
}

func TestBuffersAreUsedAgainHoweverLittleIsInThem(t *testing.T) {
	use := func() {
		b := getBuffer(100)
		b.B = append(b.B, "a short frame"...)
		b.release()
	}
	for range 100_000 { // the pool has adapted to what it saw, twice
		use()
	}
	require.Less(t, testing.AllocsPerRun(1000, use), 2.0, "one is the debug build's")
}
