// Command ratchet is a message broker and name server that speaks RocketMQ's remoting protocol.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

const usage = `ratchet - a message broker and name server for RocketMQ's clients

  ratchet dev                  name server and broker in one process, data in ./ratchet-data
  ratchet demo                 send and receive a few messages through a running broker
  ratchet namesrv              a name server        [-c namesrv.conf]
  ratchet broker               a broker             [-c broker.conf] [-n host:port;host:port]
  ratchet inspect              look into a store's folder, verify it, compare two: see ratchet inspect -h
  ratchet admin                replication as a broker sees it, and orders: see ratchet admin -h
  ratchet version

Each takes -h for its flags.
`

// command is one word after "ratchet". run gets a context that ends with SIGINT or SIGTERM.
type command struct {
	name string
	run  func(ctx context.Context, args []string) error
	long bool // it runs until it is stopped
}

var commands = []command{
	{"dev", runDev, true},
	{"demo", runDemo, false},
	{"namesrv", runNamesrv, true},
	{"broker", runBroker, true},
	{"inspect", runInspect, false},
	{"admin", runAdmin, false},
	{"version", runVersion, false},
}

func main() {
	os.Exit(run(os.Args[1:]))
}

func run(args []string) int {
	if len(args) == 0 || args[0] == "help" || args[0] == "-h" || args[0] == "--help" {
		fmt.Print(usage)
		return 0
	}
	for _, c := range commands {
		if c.name == args[0] {
			return c.do(args[1:])
		}
	}
	fmt.Fprintf(os.Stderr, "ratchet: no command %q\n\n%s", args[0], usage)
	return 2
}

// do runs the command and says with which code the process is to end.
func (c *command) do(args []string) int {
	if c.long {
		coarsen()
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var coded exitError
	switch err := c.run(ctx, args); {
	case err == nil || errors.Is(err, flag.ErrHelp):
		return 0
	case c.long && ctx.Err() != nil && errors.Is(err, context.Canceled): // stopped before it was ready
		return 0
	case errors.As(err, &coded):
		if coded.err != nil {
			fmt.Fprintf(os.Stderr, "ratchet %s: %v\n", c.name, err)
		}
		return coded.code
	default:
		fmt.Fprintf(os.Stderr, "ratchet %s: %v\n", c.name, err)
		return 1
	}
}
