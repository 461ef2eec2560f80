package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestDaemonsSleepCoarsely: all threads do, Go's monitor among them, which was there before main. To be started anew does not
// change the process's name.
func TestDaemonsSleepCoarsely(t *testing.T) {
	dev := ratchet(t, "dev", "-namesrv", freeAddr(t), "-broker", freeAddr(t))
	ready(t, dev)
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", dev.Process.Pid))
	require.NoError(t, err)
	require.Equal(t, fmt.Sprintf("%.15s", filepath.Base(os.Args[0])), strings.TrimSpace(string(name)))
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", dev.Process.Pid))
	require.NoError(t, err)
	if had, err := threadSlack(); err != nil || had < timerSlack {
		require.Contains(t, strings.Split(string(env), "\x00"), fmt.Sprintf("%s=%d", startedAnew, dev.Process.Pid))
	}
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", dev.Process.Pid))
	require.NoError(t, err)
	require.Greater(t, len(threads), 1)
	for _, thread := range threads {
		text, err := os.ReadFile(filepath.Join("/proc", filepath.Base(thread), "timerslack_ns"))
		if os.IsNotExist(err) {
			continue // it has ended
		}
		if os.IsPermission(err) { // it takes root, or CAP_SYS_NICE; without, the start is looked at alone
			break
		}
		require.NoError(t, err)
		ns, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		require.NoError(t, err)
		require.GreaterOrEqual(t, time.Duration(ns), timerSlack)
	}
	terminate(t, dev)
}

// TestSlackIsSetOnce: who has it is not started anew, or it would be so for ever.
func TestSlackIsSetOnce(t *testing.T) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread ends with its slack
		had, err := threadSlack()
		if err != nil {
			t.Error(err)
			return
		}
		if !setSlack(had+time.Microsecond) || setSlack(had+time.Microsecond) || setSlack(had) {
			t.Error("to have it is news once, when there was less")
		}
	}()
	<-done
}
