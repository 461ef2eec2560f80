package main

import (
	"bufio"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/internal/freeport"
)

// TestMain lets the test binary be the command itself, so that it is tested as a process: with its exit code.
func TestMain(m *testing.M) {
	if os.Getenv("RATCHET_TEST_COMMAND") != "" {
		os.Exit(run(os.Args[1:]))
	}
	os.Exit(m.Run())
}

func ratchet(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(os.Environ(), "RATCHET_TEST_COMMAND=1")
	cmd.Dir = t.TempDir()
	return cmd
}

func freeAddr(t *testing.T) string {
	t.Helper()
	addr, err := freeport.Addr()
	require.NoError(t, err)
	return addr
}

// ready starts a command and waits until it says that it is.
func ready(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	var log strings.Builder
	cmd.Stderr = &log
	require.NoError(t, cmd.Start())
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if strings.Contains(lines.Text(), "ready") {
			return
		}
	}
	_ = cmd.Wait()
	t.Fatalf("%s ended: %s", cmd, log.String())
}

// terminate demands that SIGTERM ends the command soon, with exit code 0.
func terminate(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	start := time.Now()
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	_ = cmd.Wait() // its output was not read to the end, which is an error of its own
	require.Equal(t, 0, cmd.ProcessState.ExitCode())
	require.Less(t, time.Since(start), time.Minute)
}

func TestDevAndDemo(t *testing.T) {
	names, addr := freeAddr(t), freeAddr(t)
	dev := ratchet(t, "dev", "-namesrv", names, "-broker", addr)
	ready(t, dev)
	out, err := ratchet(t, "demo", "-n", names).CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, string(out), `received  "hello 5"`)
	terminate(t, dev)
	require.NoFileExists(t, filepath.Join(dev.Dir, "ratchet-data", "store", "abort"), "the stop was clean")
}

func TestDemoWithoutBrokerSaysWhatToDo(t *testing.T) {
	out, err := ratchet(t, "demo", "-n", freeAddr(t)).CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "ratchet dev")
}

func TestDaemonsWithFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		return path
	}
	names, addr := freeAddr(t), freeAddr(t)
	_, namesPort, _ := net.SplitHostPort(names)
	_, port, _ := net.SplitHostPort(addr)
	namesrv := ratchet(t, "namesrv", "-c", write("namesrv.conf", "listenPort="+namesPort))
	ready(t, namesrv)
	conf := write("broker.conf", strings.Join([]string{
		"# a stock file", "brokerClusterName = DefaultCluster", "brokerName: broker-a", "brokerId=0", "deleteWhen=04",
		"fileReservedTime=48", "brokerRole=ASYNC_MASTER", "flushDiskType=ASYNC_FLUSH", "listenPort=" + port,
		"brokerIP1=127.0.0.1", "vipPortEnable=false", "mappedFileSizeCommitLog=1048576", "someKeyOfTheFuture=1",
	}, "\n"))
	broker := ratchet(t, "broker", "-c", conf, "-n", names)
	ready(t, broker)
	out, err := ratchet(t, "demo", "-n", names).CombinedOutput()
	require.NoError(t, err, string(out))

	second := ratchet(t, "broker", "-c", conf, "-n", names)
	second.Dir = broker.Dir
	out, err = second.CombinedOutput()
	require.Error(t, err, "a second broker on the same folder is refused")
	require.Contains(t, string(out), "lock")
	terminate(t, broker)
	terminate(t, namesrv)
}

// A broker that is told to stop before it is ready stops like any other.
func TestTerminatedWhileItStarts(t *testing.T) {
	conf := filepath.Join(t.TempDir(), "broker.conf")
	require.NoError(t, syscall.Mkfifo(conf, 0o600))
	broker := ratchet(t, "broker", "-c", conf)
	var log strings.Builder
	broker.Stderr = &log
	require.NoError(t, broker.Start())
	settings, err := os.OpenFile(conf, os.O_WRONLY, 0) // waits until the broker reads
	require.NoError(t, err)
	require.NoError(t, broker.Process.Signal(syscall.SIGTERM))
	time.Sleep(100 * time.Millisecond) // until it has noticed
	_, err = settings.WriteString("bindAddress=127.0.0.1\nlistenPort=0\nmappedFileSizeCommitLog=1048576\n")
	require.NoError(t, errors.Join(err, settings.Close()))
	err = broker.Wait()
	require.NoError(t, err, log.String())
	require.NoFileExists(t, filepath.Join(broker.Dir, "ratchet-data", "store", "abort"), "the stop was clean")
}

func TestBadSettingsStopTheStart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "broker.conf")
	require.NoError(t, os.WriteFile(path, []byte("brokerName=a\n\nlistenPort=abc\n"), 0o644))
	out, err := ratchet(t, "broker", "-c", path).CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), path+":3")
	require.Contains(t, string(out), "listenPort")
	require.Contains(t, string(out), "abc")
	out, err = ratchet(t, "broker", "-c", path+".missing").CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), path+".missing")
}

func TestPrintAndUsage(t *testing.T) {
	out, err := ratchet(t, "broker", "-p").CombinedOutput()
	require.NoError(t, err)
	require.Contains(t, string(out), "brokerRole=ASYNC_MASTER\n")
	out, err = ratchet(t, "nonsense").CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "nonsense")
	require.NoError(t, ratchet(t, "version").Run())
	require.NoError(t, ratchet(t).Run())
}

// Listening everywhere is no address that a client on another machine could use.
func TestDevTellsClientsAnAddress(t *testing.T) {
	names, addr := freeAddr(t), freeAddr(t)
	_, port, _ := net.SplitHostPort(addr)
	dev := ratchet(t, "dev", "-namesrv", names, "-broker", "0.0.0.0:"+port)
	ready(t, dev)
	out, err := ratchet(t, "demo", "-n", names).CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, string(out), "ask broker ")
	require.NotContains(t, string(out), "0.0.0.0")
	terminate(t, dev)
}
