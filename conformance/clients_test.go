//go:build conformance

package conformance

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ratchetmq/ratchet/conformance/oracle"
)

// A client is one real client library behind one program.
type client struct {
	name      string
	scenarios []string
	parallel  int // scenarios run at once
	// command returns the program and its first arguments, built on first use.
	command func() ([]string, error)
}

func javaClient(name, version string) *client {
	return &client{
		name:      name,
		scenarios: javaScenarios,
		parallel:  8,
		command: sync.OnceValues(func() ([]string, error) {
			return oracle.Program(version, "conformance.Main", workDir)
		}),
	}
}

func goClient() *client {
	return &client{
		name:      "go",
		scenarios: goScenarios,
		parallel:  12,
		command: sync.OnceValues(func() ([]string, error) {
			binary := filepath.Join(workDir, "goclient")
			cmd := exec.Command("go", "build", "-o", binary, ".")
			cmd.Dir = "goclient"
			if out, err := cmd.CombinedOutput(); err != nil {
				return nil, fmt.Errorf("go build in goclient: %w\n%s", err, out)
			}
			return []string{binary}, nil
		}),
	}
}

// A result is one RESULT line.
type result struct {
	pass   bool
	ms     int
	reason string
}

// A program is a running client program.
type program struct {
	client *client
	stdin  io.WriteCloser
	cancel context.CancelFunc
	ended  chan struct{}
	err    error // why it could not run or how it ended; read after ended

	mu      sync.Mutex
	results map[string]result
	waits   map[string]bool
	changed chan struct{} // closed and replaced at every line
}

// run starts the program of c against the target: mode, address, client, run and the arguments. A failure to
// build or start it shows in its results.
func (c *client) run(tg Target, limit time.Duration, mode string, args ...string) *program {
	args = append([]string{mode, tg.NameServer(), c.name, run}, args...)
	p := &program{
		client: c, ended: make(chan struct{}), results: map[string]result{}, waits: map[string]bool{},
		changed: make(chan struct{}), cancel: func() {},
	}
	if err := p.start(tg, limit, args); err != nil {
		p.err = err
		close(p.ended)
	}
	return p
}

func (p *program) start(tg Target, limit time.Duration, args []string) error {
	command, err := p.client.command()
	if err != nil {
		return err
	}
	command = append(slices.Clone(command), args...)
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	p.cancel = cancel
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	logPath := filepath.Join(workDir, fmt.Sprintf("%s-%s-%d.log", p.client.name, args[0], time.Now().UnixMilli()))
	log, err := os.Create(logPath)
	if err != nil {
		return err
	}
	cmd.Stderr = log
	cmd.Dir = workDir
	if p.stdin, err = cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() {
		select {
		case <-tg.Down(): // There is no point in waiting for every time limit.
			cancel()
		case <-p.ended:
		}
	}()
	go func() {
		defer close(p.ended)
		defer log.Close()
		defer cancel()
		lines := bufio.NewScanner(io.TeeReader(out, log))
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			p.line(lines.Text())
		}
		err := cmd.Wait()
		select {
		case <-tg.Down():
			err = errors.New("the server went down")
		default:
		}
		p.err = fmt.Errorf("the program ended without a result: %w; end of its log:\n%s", err, oracle.Tail(logPath))
	}()
	return nil
}

// line takes one line of output: RESULT and WAIT lines count, others are for the log.
func (p *program) line(text string) {
	f := strings.SplitN(text, " ", 6)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case len(f) >= 5 && f[0] == "RESULT":
		ms, _ := strconv.Atoi(f[4])
		p.results[f[2]] = result{pass: f[3] == "PASS", ms: ms, reason: strings.Join(f[5:], "")}
	case len(f) >= 4 && f[0] == "WAIT":
		p.waits[f[2]+" "+f[3]] = true
	default:
		return
	}
	close(p.changed)
	p.changed = make(chan struct{})
}

// result waits for the scenario's line, or for the end of the program.
func (p *program) result(scenario string) result {
	for {
		p.mu.Lock()
		r, ok := p.results[scenario]
		changed := p.changed
		p.mu.Unlock()
		if ok {
			return r
		}
		select {
		case <-changed:
		case <-p.ended:
			p.mu.Lock()
			r, ok := p.results[scenario]
			p.mu.Unlock()
			if ok {
				return r
			}
			return result{reason: p.err.Error()}
		}
	}
}

// waiting waits until the scenario stands at the word; it is false when the scenario or the program ended first.
func (p *program) waiting(scenario, word string) bool {
	for {
		p.mu.Lock()
		ok := p.waits[scenario+" "+word]
		_, over := p.results[scenario]
		changed := p.changed
		p.mu.Unlock()
		if ok || over {
			return ok && !over
		}
		select {
		case <-changed:
		case <-p.ended:
			return false
		}
	}
}

// goOn lets a waiting program pass the word.
func (p *program) goOn(word string) {
	if p.stdin != nil {
		fmt.Fprintf(p.stdin, "GO %s\n", word)
	}
}

// stop ends the program if it still runs.
func (p *program) stop() {
	p.cancel()
	<-p.ended
}
