package inspect

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
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
