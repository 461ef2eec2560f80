package main

import (
	"os"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// timerSlack is how late the system may let a daemon's threads wake from a sleep. It is 50 µs by default. Go's monitor
// thread asks for 20 µs when it has taken a processor back from a system call, and with event loops that wait in epoll_wait
// between two messages there is one to be taken back all the time: so it wakes some 9,000 times a second, and each time
// leaves the next message to find a processor anew. With this much it mostly finds that the loop has been at work meanwhile. Timers
// of the broker, the shortest of which is 1 ms, are later by as much at most. benchmarks/NOTES.md has what it is worth.
const timerSlack = 200 * time.Microsecond

// coarsen gives the process timerSlack. A thread has it from the one that made it, and the monitor is made before main:
// so the program is started anew in its own place, with the same pid. Whoever has set as much (TimerSlackNSec= of systemd)
// spares it that. Where it can't be had (threads with real-time priority have none), all stays as it is.
func coarsen() {
	pid := strconv.Itoa(os.Getpid())
	if os.Getenv(startedAnew) == pid {
		return // whatever has become of it
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	path, err := os.Executable() // not /proc/self/exe: the process would be called "exe"
	if err == nil && setSlack(timerSlack) {
		_ = syscall.Exec(path, os.Args, append(os.Environ(), startedAnew+"="+pid)) // returns only if it failed
	}
}

// startedAnew is in the environment of a process that coarsen has started anew: its pid.
const startedAnew = "RATCHET_STARTED_ANEW"

// setSlack gives it to the calling thread, and says whether that is news.
func setSlack(slack time.Duration) bool {
	if had, err := threadSlack(); err != nil || had >= slack {
		return false
	}
	if unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(slack), 0, 0, 0) != nil {
		return false
	}
	has, err := threadSlack()
	return err == nil && has >= slack
}

func threadSlack() (time.Duration, error) {
	ns, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	return time.Duration(ns), err
}
