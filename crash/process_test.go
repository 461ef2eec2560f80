//go:build conformance

package crash

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/internal/freeport"
)

var buildOnce = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "ratchet-crash")
	if err != nil {
		return "", err
	}
	binary := filepath.Join(dir, "ratchet")
	out, err := exec.Command("go", "build", "-o", binary, "../cmd/ratchet").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return binary, nil
})

// server is `ratchet dev` as a process on fixed ports, so that it comes back where clients look for it.
type server struct {
	t       *testing.T
	dir     string // where its log is
	data    string // what it is given as -data
	namesrv string
	broker  string
	args    []string
	cmd     *exec.Cmd
	ready   chan struct{} // closed when the process says that it is ready
	exited  chan struct{} // closed when the process is gone
}

func newServer(t *testing.T, args ...string) *server {
	s := prepareServer(t, args...)
	s.start()
	return s
}

// prepareServer is newServer without the start.
func prepareServer(t *testing.T, args ...string) *server {
	s := &server{t: t, dir: t.TempDir(), namesrv: freeAddr(t), broker: freeAddr(t), args: args}
	s.data = s.dir
	t.Cleanup(func() {
		if s.cmd != nil {
			s.kill9()
		}
	})
	return s
}

func freeAddr(t *testing.T) string {
	t.Helper()
	addr, err := freeport.Addr()
	require.NoError(t, err)
	return addr
}

// start runs the server and returns when it says that it is ready.
func (s *server) start() {
	s.launch()
	select {
	case <-s.ready:
	case <-s.exited:
		s.t.Fatalf("the server ended while starting:\n%s", s.log())
	case <-time.After(time.Minute):
		s.t.Fatal("the server is not ready after a minute")
	}
}

// log is what the server has written to it so far.
func (s *server) log() string {
	text, _ := os.ReadFile(filepath.Join(s.dir, "test.log"))
	return string(text)
}

// launch runs the server and does not wait for it.
func (s *server) launch() {
	binary, err := buildOnce()
	require.NoError(s.t, err)
	args := append([]string{"dev", "-data", s.data, "-namesrv", s.namesrv, "-broker", s.broker}, s.args...)
	s.cmd = exec.Command(binary, args...)
	stdout, err := s.cmd.StdoutPipe()
	require.NoError(s.t, err)
	log, err := os.OpenFile(filepath.Join(s.dir, "test.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	require.NoError(s.t, err)
	s.cmd.Stderr = log
	require.NoError(s.t, s.cmd.Start())
	log.Close()
	ready, exited, cmd := make(chan struct{}), make(chan struct{}), s.cmd
	s.ready, s.exited = ready, exited
	go func() { // owned: by the process, it ends with its output
		defer close(exited)
		said := false
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			if !said && strings.Contains(lines.Text(), "ready") {
				said = true
				close(ready)
			}
		}
		cmd.Wait()
	}()
}

// kill9 ends the process the hard way.
func (s *server) kill9() {
	s.cmd.Process.Kill()
	<-s.exited
	s.cmd = nil
}

// stopLimit is for a busy machine whose disk has much to write.
const stopLimit = 40 * time.Second

// stop ends the process with SIGTERM and demands exit code 0 within stopLimit.
func (s *server) stop() {
	require.NoError(s.t, s.cmd.Process.Signal(syscall.SIGTERM))
	select {
	case <-s.exited:
	case <-time.After(stopLimit):
		s.t.Fatalf("the server has not ended %v after SIGTERM", stopLimit)
	}
	require.Equal(s.t, 0, s.cmd.ProcessState.ExitCode())
	s.cmd = nil
}

// check has `ratchet inspect check`, which shares no code with the store, look at every byte of the stopped server's.
func (s *server) check() {
	binary, err := buildOnce()
	require.NoError(s.t, err)
	out, err := exec.Command(binary, "inspect", "check", filepath.Join(s.data, "store")).CombinedOutput()
	require.NoError(s.t, err, string(out))
}

// rss is the process's resident memory in bytes.
func (s *server) rss() int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	require.NoError(s.t, err)
	for line := range strings.SplitSeq(string(text), "\n") {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			require.NoError(s.t, err)
			return kb << 10
		}
	}
	s.t.Fatal("no VmRSS")
	return 0
}
