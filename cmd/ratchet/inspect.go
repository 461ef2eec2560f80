package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/ratchetmq/ratchet/inspect"
)

const inspectUsage = `ratchet inspect - what is in a store's folder, and what is wrong with it. Reads only, and takes no lock.

  ratchet inspect DIR                        what there is
  ratchet inspect check DIR                  verify everything; exit code 1 when something is wrong
  ratchet inspect diff A B                   compare two stores; exit code 1 when they differ
  ratchet inspect log FILE|DIR               records of the commit log   [-from N] [-n N] [-topic T] [-body]
  ratchet inspect queue DIR TOPIC QUEUE      entries of a consume queue  [-from N] [-n N]
  ratchet inspect index FILE                 an index file               [-n N]
  ratchet inspect checkpoint FILE
  ratchet inspect offsets DIR                consumers' and delay levels' progress

Exit code 2 when something can't be read. Flags may come in front of or behind what they are about.
`

// exitError is an error with an exit code of its own; without an error the output has said it all.
type exitError struct {
	code int
	err  error
}

func (e exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e exitError) Unwrap() error { return e.err }

// inspectFlags are the flags of all of them; each takes those it knows what to do with.
type inspectFlags struct {
	inspect.LogFilter
	inspect.Options
	logs   string
	levels string
}

func parseInspect(args []string) (words []string, f inspectFlags, err error) {
	set := flag.NewFlagSet("inspect", flag.ContinueOnError)
	set.Usage = func() { fmt.Fprint(set.Output(), inspectUsage, "\nFlags:\n"); set.PrintDefaults() }
	set.Int64Var(&f.From, "from", 0, "first `position` of the log, or index of the queue")
	set.IntVar(&f.N, "n", 0, "number of `lines`, 0 for all")
	set.StringVar(&f.Topic, "topic", "", "only records of this `topic`")
	set.BoolVar(&f.Body, "body", false, "bodies too")
	set.StringVar(&f.logs, "commitlog", "", "`folders` of the commit log, with commas (default DIR/commitlog)")
	set.IntVar(&f.Slots, "slots", 0, "`slots` of an index file (default by its size)")
	set.StringVar(&f.levels, "levels", "", "messageDelayLevel of the broker, like \"1s 5m 2h\" (default RocketMQ's)")
	set.IntVar(&f.MaxLines, "max", 1000, "`findings` of each kind that are shown; all are counted")
	for len(args) > 0 {
		if err := set.Parse(args); err != nil {
			return nil, f, err
		}
		if args = set.Args(); len(args) > 0 {
			words, args = append(words, args[0]), args[1:]
		}
	}
	if f.logs != "" {
		f.LogDirs = strings.Split(f.logs, ",")
	}
	for _, level := range strings.Fields(f.levels) {
		delay, err := parseLevel(level)
		if err != nil {
			return nil, f, err
		}
		f.Levels = append(f.Levels, delay)
	}
	return words, f, nil
}

// parseLevel reads one of RocketMQ's delays; they may be in days, too.
func parseLevel(text string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseInt(days, 10, 16)
		return time.Duration(n) * 24 * time.Hour, err
	}
	return time.ParseDuration(text)
}

func runInspect(ctx context.Context, args []string) error {
	words, f, err := parseInspect(args)
	if errors.Is(err, flag.ErrHelp) {
		return err
	}
	if err == nil {
		var wrong int
		if wrong, err = inspectWords(ctx, os.Stdout, words, f); err == nil && wrong > 0 {
			return exitError{code: 1}
		}
	}
	if err != nil {
		return exitError{2, err}
	}
	return nil
}

// inspectWords does what the words say; wrong is how many findings or differences there are.
func inspectWords(ctx context.Context, w io.Writer, words []string, f inspectFlags) (wrong int, err error) {
	what, rest := "", words
	if len(words) > 1 {
		what, rest = words[0], words[1:]
	}
	needs := map[string]int{"": 1, "check": 1, "diff": 2, "log": 1, "queue": 3, "index": 1, "checkpoint": 1, "offsets": 1}
	if n, known := needs[what]; !known || n != len(rest) {
		return 0, fmt.Errorf("what to inspect is not clear\n\n%s", inspectUsage)
	}
	switch what {
	case "check":
		r, err := inspect.Check(ctx, w, rest[0], f.Options)
		return r.Findings, err
	case "diff":
		return inspect.Diff(ctx, w, rest[0], rest[1], f.Options)
	case "log":
		return 0, inspect.Log(ctx, w, rest[0], f.LogFilter, f.Options)
	case "queue":
		id, err := strconv.ParseInt(rest[2], 10, 32)
		if err != nil {
			return 0, fmt.Errorf("queue %q is not a number", rest[2])
		}
		return 0, inspect.Queue(ctx, w, rest[0], rest[1], int32(id), f.Range, f.Options)
	case "index":
		return 0, inspect.Index(ctx, w, rest[0], f.Range, f.Options)
	case "checkpoint":
		return 0, inspect.Checkpoint(w, rest[0], f.Options)
	case "offsets":
		return 0, inspect.Offsets(w, rest[0], f.Options)
	default:
		return 0, inspect.Summary(ctx, w, rest[0], f.Options)
	}
}
