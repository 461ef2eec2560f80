package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// sides are the processors of what is measured and those of this program. Where both share them, a latency at full speed is
// mostly the kernel's, which lets one wait for the other.
type sides struct{ brokers, own unix.CPUSet }

// halve gives the first processors to the brokers.
func halve(all unix.CPUSet) (*sides, error) {
	s, n := new(sides), all.Count()
	if n < 2 {
		return nil, errors.New("two sides need two processors")
	}
	for cpu, half := 0, n/2; n > 0; cpu++ {
		switch {
		case !all.IsSet(cpu):
			continue
		case n > half:
			s.brokers.Set(cpu)
		default:
			s.own.Set(cpu)
		}
		n--
	}
	return s, nil
}

// takeSides lets this program have only its own half.
func takeSides() (*sides, error) {
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return nil, os.NewSyscallError("sched_getaffinity", err)
	}
	s, err := halve(all)
	if err != nil {
		return nil, err
	}
	tasks, err := filepath.Glob("/proc/self/task/*")
	if err != nil {
		return nil, err
	}
	for _, task := range tasks { // threads that are made later are where their makers are
		id, err := strconv.Atoi(filepath.Base(task))
		if err != nil {
			return nil, err
		}
		if err := unix.SchedSetaffinity(id, &s.own); err != nil {
			return nil, fmt.Errorf("thread %d: %w", id, os.NewSyscallError("sched_setaffinity", err))
		}
	}
	runtime.GOMAXPROCS(s.own.Count())
	return s, nil
}

// start calls fn, which starts a process, where the brokers' processors are.
func (s *sides) start(fn func() error) error {
	if s == nil {
		return fn()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.SchedSetaffinity(0, &s.brokers); err != nil {
		return os.NewSyscallError("sched_setaffinity", err)
	}
	return errors.Join(fn(), os.NewSyscallError("sched_setaffinity", unix.SchedSetaffinity(0, &s.own)))
}
