// Package freeport finds ports for servers of tests and benchmarks.
package freeport

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// The ports are below those that Linux gives to outgoing connections (32768 and up): nobody has one by chance while a
// server has not started yet, or is down for a moment.
const (
	lowest = 10_000
	blocks = 110
	block  = 200 // ports; the first is the guard
)

// mine is the block that this process gives ports of. It listens on the block's first port, so that no other process
// takes the block.
var mine struct {
	sync.Mutex
	guards []net.Listener // of this block and those used up, whose servers may still run
	next   int
	end    int
}

// Get returns a port p such that p-2, p-1, p and p+1 are free: a Java broker takes three of them. No port is given out twice.
func Get() (int, error) {
	mine.Lock()
	defer mine.Unlock()
	for {
		if mine.next+4 > mine.end {
			if err := another(); err != nil {
				return 0, err
			}
		}
		p := mine.next + 2
		mine.next += 4
		if free(p-2) && free(p-1) && free(p) && free(p+1) {
			return p, nil
		}
	}
}

// Addr is a port of Get on the loopback address, as host:port.
func Addr() (string, error) {
	port, err := Get()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), err
}

// another takes a block that nobody has.
func another() error {
	for _, i := range rand.Perm(blocks) {
		first := lowest + i*block
		guard, err := listen(first)
		if err == nil {
			mine.guards = append(mine.guards, guard)
			mine.next, mine.end = first+1, first+block
			return nil
		}
	}
	return errors.New("no free ports")
}

func free(port int) bool {
	l, err := listen(port)
	return err == nil && l.Close() == nil
}

func listen(port int) (net.Listener, error) {
	return net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
}
