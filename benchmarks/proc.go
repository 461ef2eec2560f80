package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// A process is a server of somebody's, running.
type process struct {
	on   *sides
	cmd  *exec.Cmd
	log  string
	done chan struct{} // closed when it has ended
}

// launch starts a program and waits until it accepts connections at addr. Its output goes to a file.
func (s *sides) launch(ctx context.Context, log, addr string, env []string, command ...string) (*process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	p := &process{on: s, cmd: exec.Command(command[0], command[1:]...), log: log, done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...) // what comes later counts
	p.cmd.Stdout, p.cmd.Stderr = out, out
	if err := s.start(p.cmd.Start); err != nil {
		return nil, err
	}
	go func() { // owned: by the process, whose end it waits for
		_ = p.cmd.Wait()
		close(p.done)
	}()
	for limit := time.After(90 * time.Second); ; {
		if c, err := net.DialTimeout("tcp", addr, time.Second); err == nil {
			c.Close()
			return p, nil
		}
		select {
		case <-p.done:
			return nil, fmt.Errorf("%s ended before it was ready:\n%s", command[0], p.tail())
		case <-limit:
			p.kill()
			return nil, fmt.Errorf("%s is not ready after 90 s:\n%s", command[0], p.tail())
		case <-ctx.Done():
			p.kill()
			return nil, ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func (p *process) tail() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-2000):])
}

// again starts a process that was killed.
func (p *process) again(ctx context.Context, addr string) error {
	next, err := p.on.launch(ctx, p.log, addr, p.cmd.Env, p.cmd.Args...)
	if err == nil {
		*p = *next
	}
	return err
}

// kill ends the process at once, as kill -9 does.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// usage is what a process has used since its start.
type usage struct {
	cpu      time.Duration // user and system
	switches int64         // context switches of the threads that live
	rss      int64         // bytes, now
}

// clockTick is the unit of times in /proc, 1/100 s on every Linux that Go runs on.
const clockTick = 10 * time.Millisecond

func (p *process) usage() (u usage, err error) {
	dir := filepath.Join("/proc", strconv.Itoa(p.cmd.Process.Pid))
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return u, err
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 22 {
		return u, fmt.Errorf("%s/stat has %d fields", dir, len(fields))
	}
	for _, f := range fields[11:13] {
		ticks, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return u, err
		}
		u.cpu += time.Duration(ticks) * clockTick
	}
	pages, err := strconv.ParseInt(fields[21], 10, 64)
	if err != nil {
		return u, err
	}
	u.rss = pages * int64(os.Getpagesize())
	threads, err := filepath.Glob(filepath.Join(dir, "task", "*", "status"))
	if err != nil {
		return u, err
	}
	for _, path := range threads {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has ended meanwhile
		}
		for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
			if key, value, _ := strings.Cut(lines.Text(), ":"); strings.HasSuffix(key, "ctxt_switches") {
				n, _ := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
				u.switches += n
			}
		}
	}
	return u, nil
}

// runTool runs a command to its end; what it printed is in the error when it fails.
func runTool(ctx context.Context, dir string, command ...string) error {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir = dir
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(command, " "), err, out.String())
	}
	return nil
}
