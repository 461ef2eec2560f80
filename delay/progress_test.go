package delay

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/internal/vfs"
)

func TestParsesJavasTables(t *testing.T) {
	for text, want := range map[string]map[int]offset.Queue{
		"{\n\t\"offsetTable\":{3:2\n\t}\n}": {3: 2}, // 4.9.7
		"{\n\t\"dataVersion\":{\n\t\t\"counter\":3,\n\t\t\"stateVersion\":0,\n\t\t\"timestamp\":1795964010847\n\t}," +
			"\n\t\"offsetTable\":{\n\t\t3:2,\n\t\t18:0\n\t}\n}": {3: 2, 18: 0}, // 5.4.0
		"{\n\t\"dataVersion\":{\n\t\t\"counter\":0,\n\t\t\"stateVersion\":0,\n\t\t\"timestamp\":1795965957591\n\t},\n\t" +
			"\"offsetTable\":{\n\t\t\n\t}\n}": {},
		`{"offsetTable":{"1":5,"2":9223372036854775807}}`: {1: 5, 2: 1<<63 - 1},
		`{"offsetTable":{}}`:                              {},
	} {
		p, err := parseProgress([]byte(text))
		require.NoError(t, err, text)
		require.Equal(t, want, p.next, text)
		require.Zero(t, p.mark)
	}
	for _, bad := range []string{
		"", "{", "\x00\x00\x00", `{"offsetTable":{1:`, `{"offsetTable":{"x":1}}`, `{"offsetTable":{0:1}}`,
		`{"offsetTable":{1:-1}}`, `{"offsetTable":{1:"a"}}`, `[]`, "null garbage",
	} {
		_, err := parseProgress([]byte(bad))
		require.ErrorIs(t, err, errTable, "%q", bad)
	}
}

func TestTableGolden(t *testing.T) {
	p := progress{next: map[int]offset.Queue{18: 0, 3: 2}, mark: 77, counter: 3}
	text := p.format(1795964010847)
	require.Equal(t, "{\n\t\"dataVersion\":{\n\t\t\"counter\":3,\n\t\t\"stateVersion\":0,\n\t\t\"timestamp\":1795964010847"+
		"\n\t},\n\t\"deliveredTo\":77,\n\t\"offsetTable\":{\n\t\t3:2,\n\t\t18:0\n\t}\n}", string(text))
	again, err := parseProgress(text)
	require.NoError(t, err)
	require.Equal(t, p, again)
}

// Scenario 2-05 for delayOffset.json.
func TestDamagedProgress(t *testing.T) {
	good := progress{next: map[int]offset.Queue{3: 2}, counter: 1}
	for name, bad := range map[string]string{
		"empty": "", "half": string(good.format(1)[:40]), "NULs": string(make([]byte, 500)),
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "config", "delayOffset.json")
			_, err := loadProgress(vfs.OS{}, path)
			require.NoError(t, err, "neither is there: a new store")

			require.NoError(t, os.Mkdir(filepath.Dir(path), 0o700))
			require.NoError(t, os.WriteFile(path, []byte(bad), 0o600))
			_, err = loadProgress(vfs.OS{}, path)
			require.ErrorContains(t, err, path)
			require.NotErrorIs(t, err, fs.ErrNotExist)

			require.NoError(t, os.WriteFile(path+".bak", good.format(1), 0o600))
			p, err := loadProgress(vfs.OS{}, path)
			require.NoError(t, err)
			require.Equal(t, good, p)

			require.NoError(t, os.WriteFile(path, []byte(bad), 0o600))
			require.NoError(t, os.WriteFile(path+".bak", []byte(bad), 0o600))
			_, err = Open(Options{Path: path})
			require.ErrorContains(t, err, path)
		})
	}
}

func FuzzParseProgress(f *testing.F) {
	f.Add([]byte("{\n\t\"offsetTable\":{3:2\n\t}\n}"))
	f.Add([]byte(`{"offsetTable":{"1":5},"deliveredTo":9,"dataVersion":{"counter":1}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := parseProgress(text)
		if err != nil {
			return
		}
		again, err := parseProgress(p.format(1))
		require.NoError(t, err)
		require.Equal(t, p, again)
	})
}
