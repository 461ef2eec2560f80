package protocol

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// golden is a captured frame and what its capturer, a different program, read in its header.
type golden struct {
	Name, Side, Client, Server, Codec string
	Code                              int32
	Language                          json.RawMessage // the name, or the number of a binary header
	Version, Opaque, Flag             int32
	Remark                            string
	Fields                            map[string]string
	BodyLen                           int
	Hex                               string

	bytes []byte
}

func (g *golden) String() string { return g.Name + "/" + g.Side }

func (g *golden) body() []byte { return g.bytes[len(g.bytes)-g.BodyLen:] }

var readGolden = sync.OnceValues(func() ([]*golden, error) {
	file, err := os.Open("testdata/frames/golden.jsonl")
	if err != nil {
		return nil, err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	var all []*golden
	for lines.Scan() {
		g := new(golden)
		if err := json.Unmarshal(lines.Bytes(), g); err != nil {
			return nil, err
		}
		if g.bytes, err = hex.DecodeString(g.Hex); err != nil {
			return nil, err
		}
		all = append(all, g)
	}
	return all, lines.Err()
})

func goldenFrames(t testing.TB) []*golden {
	t.Helper()
	all, err := readGolden()
	require.NoError(t, err)
	require.Greater(t, len(all), 300)
	return all
}

func goldenFrame(t testing.TB, name, side string) *golden {
	t.Helper()
	for _, g := range goldenFrames(t) {
		if g.Name == name && g.Side == side {
			return g
		}
	}
	require.Failf(t, "no golden frame", "%s/%s", name, side)
	return nil
}

func (g *golden) decode(t testing.TB) Command {
	t.Helper()
	c, err := Decode(g.bytes)
	require.NoError(t, err, g)
	return c
}
