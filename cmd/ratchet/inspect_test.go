package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// javaStore is a copy of a store that RocketMQ has written.
func javaStore(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS("../../store/testdata/java-5.4.0")))
	return dir
}

func TestInspectExitCodes(t *testing.T) {
	good, bad := javaStore(t), javaStore(t)
	file := filepath.Join(bad, "commitlog", "00000000000000000000")
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	data[90] ^= 1 // in the first body
	require.NoError(t, os.Chmod(file, 0o644))
	require.NoError(t, os.WriteFile(file, data, 0o644))
	for _, test := range []struct {
		args []string
		code int
		out  string
	}{
		{[]string{good}, 0, "log        0 .. 74865, 59 records"},
		{[]string{"check", good}, 0, "healthy"},
		{[]string{"check", bad}, 1, "record-body      commitlog/00000000000000000000:0  FxNormal/0@0"},
		{[]string{"diff", good, good}, 0, "equal"},
		{[]string{"diff", good, bad}, 1, "1 bytes differ, the first at 90"},
		{[]string{"log", good, "-n", "1", "-topic", "FxBatch"}, 0, "FxBatch"},
		{[]string{"log", "-body", file, "-n=1"}, 0, "BODY"},
		{[]string{"queue", good, "FxNormal", "0", "-from", "3", "-n", "1"}, 0, " ok"},
		{[]string{"checkpoint", filepath.Join(good, "checkpoint")}, 0, "1795963987014"},
		{[]string{"check", good, "-levels", "1s 5s 99d"}, 1, "entry-tags       consumequeue/SCHEDULE_TOPIC_XXXX/17"},
		{[]string{"check", filepath.Join(good, "none")}, 2, ""},
		{[]string{"queue", good, "FxNormal", "x"}, 2, ""},
		{[]string{"frob", good}, 2, ""},
		{[]string{}, 2, ""},
		{[]string{"-frob"}, 2, ""},
		{[]string{"-h"}, 0, ""},
	} {
		cmd := ratchet(t, append([]string{"inspect"}, test.args...)...)
		out, err := cmd.Output()
		code := 0
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			code = exit.ExitCode()
		} else {
			require.NoError(t, err)
		}
		require.Equal(t, test.code, code, "%v: %s", test.args, out)
		require.Contains(t, string(out), test.out, "%v", test.args)
	}
}
