//go:build conformance && linux

package crash

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/conformance/oracle"
)

// A slot is a place in a queue of the story's topic.
type slot struct {
	broker string
	queue  int
	offset int64
}

// A send is what the producer was told about a message.
type send struct {
	key    string
	status string
	at     slot
}

// A delivery is a message that came to a consumer.
type delivery struct {
	at   slot
	when time.Time
}

// A storyClient is a program with a stock client. It is told what to do by lines and answers each with DONE.
type storyClient struct {
	t      *testing.T
	name   string
	cmd    *exec.Cmd
	stdin  io.Writer
	done   chan struct{}
	exited chan struct{}

	mu    sync.Mutex
	sends []send
	got   map[string][]delivery // by key, in order of arrival
	last  time.Time             // when something came
}

// startStoryClient runs the program and returns when the client has started.
func startStoryClient(t *testing.T, name, log string, command []string, args ...string) *storyClient {
	t.Helper()
	c := &storyClient{
		t: t, name: name, cmd: exec.Command(command[0], append(command[1:], args...)...),
		done: make(chan struct{}, 1), exited: make(chan struct{}), got: map[string][]delivery{}, last: time.Now(),
	}
	out, err := c.cmd.StdoutPipe()
	require.NoError(t, err)
	c.stdin, err = c.cmd.StdinPipe()
	require.NoError(t, err)
	file, err := os.Create(log)
	require.NoError(t, err)
	c.cmd.Stderr = file
	require.NoError(t, c.cmd.Start())
	t.Cleanup(func() {
		_ = c.cmd.Process.Kill() // it may be gone already
		<-c.exited
		if t.Failed() {
			t.Logf("%s: end of its log:\n%s", name, oracle.Tail(log))
		}
	})
	go func() {
		defer close(c.exited)
		defer file.Close()
		for lines := bufio.NewScanner(out); lines.Scan(); {
			c.line(lines.Text())
		}
		_ = c.cmd.Wait() // a program that ended early does not say DONE
	}()
	c.await("start", time.Minute)
	return c
}

// line takes one line of the program's output. What is none of ours is the client's own talk.
func (c *storyClient) line(text string) {
	f := strings.Fields(text)
	if len(f) == 1 && f[0] == "DONE" {
		c.done <- struct{}{}
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	number := func(s string) int64 {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			c.t.Errorf("%s says %q", c.name, text)
		}
		return n
	}
	switch {
	case len(f) == 6 && f[0] == "SENT":
		c.sends = append(c.sends, send{f[1], f[2], slot{f[3], int(number(f[4])), number(f[5])}})
	case len(f) == 5 && f[0] == "GOT":
		c.last = time.Now()
		c.got[f[1]] = append(c.got[f[1]], delivery{slot{f[2], int(number(f[3])), number(f[4])}, c.last})
	}
}

// tell gives a command and waits until it is done.
func (c *storyClient) tell(limit time.Duration, command string, args ...any) {
	c.t.Helper()
	line := strings.TrimSpace(command + " " + fmt.Sprintln(args...))
	_, err := fmt.Fprintln(c.stdin, line)
	require.NoError(c.t, err, "%s: %s", c.name, line)
	c.await(line, limit)
}

func (c *storyClient) await(what string, limit time.Duration) {
	c.t.Helper()
	select {
	case <-c.done:
	case <-c.exited:
		c.t.Fatalf("%s ended: %s", c.name, what)
	case <-time.After(limit):
		c.t.Fatalf("%s has not done within %v: %s", c.name, limit, what)
	}
}

// missing is how many of the keys have not come.
func (c *storyClient) missing(keys []string) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, key := range keys {
		if len(c.got[key]) == 0 {
			n++
		}
	}
	return n
}

// quiet is for how long nothing has come.
func (c *storyClient) quiet() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(c.last)
}

// goClientOnce builds the Go program of conformance.
var goClientOnce = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "ratchet-story")
	if err != nil {
		return "", err
	}
	binary := filepath.Join(dir, "goclient")
	build := exec.Command("go", "build", "-o", binary, ".")
	build.Dir = "../conformance/goclient"
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build in goclient: %w\n%s", err, out)
	}
	return binary, nil
})
