package oracle

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// A Server is one process, Java's or another: it can be stopped and started again.
type Server struct {
	Command []string
	Env     []string
	Log     string // where its output goes
	Ready   string // what a line of its output contains once it serves
	Ports   []int  // what must accept connections then

	cmd    *exec.Cmd
	done   chan struct{} // closed when the process has ended
	ending atomic.Bool   // it was asked to end
	down   chan struct{}
}

// NewServer is a server that is not started yet.
func NewServer(command []string, log, ready string, ports ...int) *Server {
	return &Server{Command: command, Log: log, Ready: ready, Ports: ports, down: make(chan struct{})}
}

// Down is closed when the process ends unasked.
func (s *Server) Down() <-chan struct{} { return s.down }

// PID is that of the running process.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// State is how the process has ended.
func (s *Server) State() *os.ProcessState { return s.cmd.ProcessState }

// Start returns when the server serves.
func (s *Server) Start() error {
	log, err := os.OpenFile(s.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	s.cmd = exec.Command(s.Command[0], s.Command[1:]...)
	s.cmd.Env = append(os.Environ(), s.Env...)
	s.cmd.Stderr = log
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := s.cmd.Start(); err != nil {
		log.Close()
		return err
	}
	ready := make(chan struct{})
	s.done = make(chan struct{})
	s.ending.Store(false)
	go func(cmd *exec.Cmd, done chan struct{}) { // owned: by the process, it ends with its output
		defer close(done)
		defer log.Close()
		var once sync.Once
		lines := bufio.NewScanner(io.TeeReader(out, log))
		for lines.Scan() {
			if strings.Contains(lines.Text(), s.Ready) {
				once.Do(func() { close(ready) })
			}
		}
		_, _ = io.Copy(log, out)
		_ = cmd.Wait() // what the process ended with is in State
		if !s.ending.Load() {
			close(s.down)
		}
	}(s.cmd, s.done)

	limit := time.After(90 * time.Second)
	select {
	case <-ready:
	case <-s.done:
		return fmt.Errorf("%s ended before it was ready: %v\n%s", s.Command[0], s.cmd.ProcessState, Tail(s.Log))
	case <-limit:
		_ = s.End(syscall.SIGKILL)
		return fmt.Errorf("%s is not ready after 90 s\n%s", s.Command[0], Tail(s.Log))
	}
	for _, port := range s.Ports {
		for {
			c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
			if err == nil {
				c.Close()
				break
			}
			select {
			case <-limit:
				_ = s.End(syscall.SIGKILL)
				return fmt.Errorf("%s says it is ready, yet: %w", s.Command[0], err)
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
	return nil
}

// Pause keeps the process from doing anything until Resume. A signal reaches the threads one by one: it returns when none
// runs any more.
func (s *Server) Pause() error {
	if err := s.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for limit := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", s.cmd.Process.Pid))
		if err != nil {
			return err
		}
		running := len(stats) == 0
		for _, stat := range stats {
			text, err := os.ReadFile(stat)
			_, state, _ := strings.Cut(string(text), ") ") // behind the thread's name
			running = running || err == nil && !strings.HasPrefix(state, "T")
		}
		if !running {
			return nil
		}
		if time.Now().After(limit) {
			return fmt.Errorf("%s still runs after SIGSTOP", s.Command[0])
		}
	}
}

// Resume lets a paused process go on.
func (s *Server) Resume() error { return s.cmd.Process.Signal(syscall.SIGCONT) }

// End sends the signal and waits for the process; one that ignores it is killed and reported.
func (s *Server) End(signal syscall.Signal) error {
	if s.cmd == nil || s.cmd.Process == nil {
		return nil
	}
	s.ending.Store(true)
	_ = s.cmd.Process.Signal(signal) // it may be gone already
	select {
	case <-s.done:
		return nil
	case <-time.After(60 * time.Second):
		_ = s.cmd.Process.Kill()
		<-s.done
		return fmt.Errorf("%s still runs 60 s after %v", s.Command[0], signal)
	}
}

// Tail returns the end of a log file.
func Tail(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	if len(data) > 2000 {
		data = data[len(data)-2000:]
	}
	return string(data)
}
