package inspect

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/message"
)

var javaStores = []string{"java-4.9.7", "java-5.4.0", "java-5.4.0-crc-ext"}

func check(t testing.TB, root string, o Options) (*Report, string) {
	t.Helper()
	var out strings.Builder
	r, err := Check(context.Background(), &out, root, o)
	require.NoError(t, err)
	return r, out.String()
}

func TestJavaStoresAreHealthy(t *testing.T) {
	for _, name := range javaStores {
		r, out := check(t, filepath.Join("../store/testdata", name), Options{})
		require.True(t, r.Healthy(), out)
	}
}

// TestEverySentMessageIsPrinted: SENT.txt has the message ids that the clients were given; the last 16 digits are
// positions.
func TestEverySentMessageIsPrinted(t *testing.T) {
	ids := regexp.MustCompile(`7F000001[0-9A-F]{8}([0-9A-F]{16})`)
	for _, name := range javaStores {
		root := filepath.Join("../store/testdata", name)
		var out strings.Builder
		require.NoError(t, Log(context.Background(), &out, root, LogFilter{}, Options{}))
		require.NotContains(t, out.String(), "DAMAGED")
		printed := map[int64]bool{}
		for line := range strings.Lines(out.String()) {
			f := strings.Fields(line)
			if at, err := strconv.ParseInt(f[0], 10, 64); err == nil && len(f) > 5 {
				require.Equal(t, "ok", f[8], line)
				printed[at] = true
			}
		}
		sent, err := os.ReadFile(filepath.Join(root, "SENT.txt"))
		require.NoError(t, err)
		found := ids.FindAllStringSubmatch(string(sent), -1)
		require.Greater(t, len(found), 30)
		for _, id := range found {
			at, err := strconv.ParseInt(id[1], 16, 64)
			require.NoError(t, err)
			require.True(t, printed[at], "%s: %s", name, id[0])
		}
	}
}

// TestPropertyCRC: in the third store every record ends with a checksum; a header field that nothing else covers is
// enough to break it.
func TestPropertyCRC(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, os.CopyFS(root, os.DirFS("../store/testdata/java-5.4.0-crc-ext")))
	path := filepath.Join(root, "commitlog", "00000000000000000000")
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	data[message.PosFlag] ^= 1
	require.NoError(t, os.Chmod(path, 0o644))
	require.NoError(t, os.WriteFile(path, data, 0o644))
	r, out := check(t, root, Options{})
	require.Equal(t, map[string]int{"record-crc": 1}, r.Kinds, out)
	require.Contains(t, out, "record-crc       commitlog/00000000000000000000:0  ")
}

func TestJavaIndexes(t *testing.T) {
	for version, count := range map[string]int{"4.9.7": 104, "5.4.0": 185, "5.4.0-crc-ext": 196} {
		root := t.TempDir()
		require.NoError(t, os.CopyFS(root, os.DirFS(filepath.Join("../store/testdata", "java-"+version))))
		require.NoError(t, os.CopyFS(filepath.Join(root, "index"), os.DirFS(filepath.Join("../store/index/testdata", version, "index"))))
		r, out := check(t, root, Options{})
		require.True(t, r.Healthy(), out)
		require.Contains(t, out, "index       1 files, "+strconv.Itoa(count)+" entries")
	}
}
