// Command goclient runs conformance scenarios with the Apache RocketMQ Go client.
//
//	goclient list
//	goclient run NAMESRV CLIENT RUN PARALLEL LIMIT_SECONDS SCENARIO...
//	goclient produce NAMESRV CLIENT RUN
//	goclient consume NAMESRV CLIENT RUN LIMIT_SECONDS PRODUCER...
//	goclient story NAMESRV TOPIC GROUP
//
// Every scenario ends in one line on standard output: RESULT client scenario PASS|FAIL ms reason.
package main

import (
	"bufio"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2/rlog"
)

// scenarios holds every behaviour that can be run by name. A scenario that fails panics with a failure.
var scenarios = map[string]func(e *env){
	"send.sync":            sendSync,
	"send.async":           sendAsync,
	"send.oneway":          sendOneway,
	"send.batch":           sendBatch,
	"send.properties":      sendProperties,
	"send.big-3.5MB":       sendBig,
	"send.compressed":      sendCompressed,
	"send.too-big-refused": sendTooBig,
	"send.delay-level":     sendDelayLevel,

	"topic.auto-create": topicAutoCreate,
	"admin.topic":       adminTopic,

	"filter.tag":              filterTag,
	"consume.rebalance-2":     consumeRebalance,
	"consume.broadcast":       consumeBroadcast,
	"consume.orderly":         consumeOrderly,
	"consume.orderly-suspend": consumeOrderlySuspend,
	"consume.two-groups":      consumeTwoGroups,
	"consume.retry":           consumeRetry,
	"consume.dlq":             consumeDLQ,
	"consume.suspend-resume":  consumeSuspendResume,
	"consume.batch-size":      consumeBatchSize,

	"pull.subscribe-poll":    pullSubscribePoll,
	"pull.assign-seek":       pullAssignSeek,
	"pull.offset-beyond-max": pullOffsetBeyondMax,

	"from.first":             fromFirst,
	"from.last":              fromLast,
	"from.last-new-topic":    fromLastNewTopic,
	"from.timestamp":         fromTimestamp,
	"offset.persist-restart": offsetPersistRestart,

	"offset.broker-restart": acrossRestart,
	"offset.broker-kill":    acrossRestart,
}

func main() {
	rlog.SetLogLevel("warn")
	args := os.Args[1:]
	switch args[0] {
	case "list":
		for _, name := range slices.Sorted(maps.Keys(scenarios)) {
			fmt.Println(name)
		}
	case "run":
		parallel, limit := number(args[4]), number(args[5])
		slots := make(chan struct{}, parallel)
		var wg sync.WaitGroup
		for _, name := range args[6:] {
			slots <- struct{}{}
			wg.Go(func() {
				one(newEnv(args[1], args[2], name, args[3]), time.Duration(limit)*time.Second)
				<-slots
			})
		}
		wg.Wait()
	case "produce":
		produce(args[1], args[2], args[3])
	case "consume":
		consume(args[1], args[2], args[3], time.Duration(number(args[4]))*time.Second, args[5:])
	case "story":
		story(args[1], args[2], args[3])
	default:
		fmt.Fprintln(os.Stderr, "unknown command", args[0])
		os.Exit(2)
	}
}

func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(err)
	}
	return n
}

// one runs a scenario within its time limit and says how it went.
func one(e *env, limit time.Duration) {
	start := time.Now()
	over := make(chan error, 1)
	go func() {
		over <- try(func() {
			scenario, ok := scenarios[e.scenario]
			check(ok, "no such scenario")
			scenario(e)
		})
	}()
	var err error
	select {
	case err = <-over:
	case <-time.After(limit):
		err = fmt.Errorf("time limit of %v", limit)
	}
	say(e.client, e.scenario, start, err)
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		e.close()
	}()
	select {
	case <-closed:
	case <-time.After(20 * time.Second):
	}
}

// A failure is why a scenario does not pass; check and friends panic with it.
type failure string

func (f failure) Error() string { return string(f) }

// try calls f and returns the failure it panics with.
func try(f func()) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case failure:
			err = r
		default:
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	f()
	return nil
}

func check(ok bool, format string, args ...any) {
	if !ok {
		panic(failure(fmt.Sprintf(format, args...)))
	}
}

func must(what string, err error) {
	check(err == nil, "%s: %v", what, err)
}

func equal[T comparable](what string, got, want T) {
	check(got == want, "%s: got %v, want %v", what, got, want)
}

// eventually waits until the condition holds. A failure inside counts as "not yet".
func eventually(limit time.Duration, what string, condition func() bool) {
	end := time.Now().Add(limit)
	for {
		ok := false
		err := try(func() { ok = condition() })
		if ok && err == nil {
			return
		}
		check(time.Now().Before(end), "not within %v: %s (%v)", limit, what, err)
		time.Sleep(100 * time.Millisecond)
	}
}

var (
	outLock sync.Mutex
	inLock  sync.Mutex
	in      = bufio.NewScanner(os.Stdin)
	heard   = map[string]bool{}
)

// say prints the RESULT line.
func say(client, scenario string, start time.Time, err error) {
	verdict, reason := "PASS", "-"
	if err != nil {
		verdict, reason = "FAIL", strings.Join(strings.Fields(err.Error()), " ")
	}
	outLock.Lock()
	defer outLock.Unlock()
	fmt.Println("RESULT", client, scenario, verdict, time.Since(start).Milliseconds(), reason)
}

// await says that the scenario waits for the word and returns when the harness has given it.
func await(client, scenario, word string) {
	outLock.Lock()
	fmt.Println("WAIT", client, scenario, word)
	outLock.Unlock()
	inLock.Lock()
	defer inLock.Unlock()
	for !heard["GO "+word] {
		check(in.Scan(), "the harness is gone")
		heard[in.Text()] = true
	}
}
