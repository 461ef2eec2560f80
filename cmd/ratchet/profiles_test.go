package main

import (
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestProfilesAreServedWhereAsked(t *testing.T) {
	addr := freeAddr(t)
	dev := ratchet(t, "dev", "-namesrv", freeAddr(t), "-broker", freeAddr(t), "-pprof", addr)
	ready(t, dev)
	client := http.Client{Timeout: 10 * time.Second}
	answer, err := client.Get("http://" + addr + "/debug/pprof/goroutine?debug=1")
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.Contains(t, string(text), "remoting.(*lane).work")
	terminate(t, dev)

	out, err := ratchet(t, "dev", "-pprof", "nonsense").CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "-pprof")
}
