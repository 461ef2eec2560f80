package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestGeneratedHeadersAreUpToDate(t *testing.T) {
	want, err := generate("..", "headers_gen.go")
	require.NoError(t, err)
	got, err := os.ReadFile("../headers_gen.go")
	require.NoError(t, err)
	require.Equal(t, string(want), string(got), "run go generate ./protocol")
}

func TestGeneratorRefuses(t *testing.T) {
	for name, fields := range map[string]string{
		"a type without a function": "A uint8 `rmq:\"a\"`",
		"no name":                   "A int32 `rmq:\"\"`",
		"an unknown option":         "A int32 `rmq:\"a,always\"`",
		"required without a set":    "A int32 `rmq:\"a,required\"`",
		"a set without required":    "A int32 `rmq:\"a\"`; seen fieldSet",
		"two fields under one name": "A, B int32 `rmq:\"a\"`",
	} {
		dir := t.TempDir()
		src := "package p\n\n//rmq:header\ntype H struct { " + fields + " }\n"
		require.NoError(t, os.WriteFile(filepath.Join(dir, "h.go"), []byte(src), 0o600))
		_, err := generate(dir, "headers_gen.go")
		require.ErrorContains(t, err, "H: ", name)
	}
}
