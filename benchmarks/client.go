package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// clientLoad is a stock Java client that sends asynchronously.
type clientLoad struct {
	version string
	window  int
	size    int
	warm    time.Duration // of the client itself, a new process each time
}

// asyncSendGoals build the client program.
var asyncSendGoals = []string{"compile", "dependency:copy-dependencies"}

func (l *clientLoad) run(t *target, topic string, last time.Duration) (*outcome, error) {
	ctx := context.Background()
	lib, err := t.stand.jars(ctx, "benchmarks/java", l.version, asyncSendGoals...)
	if err != nil {
		return nil, err
	}
	command := append([]string{"-Xms512m", "-Xmx512m", "-XX:+UseSerialGC"}, javaFlags(t.dir)...)
	command = append(command, "-cp", filepath.Join(filepath.Dir(lib), "classes")+":"+filepath.Join(lib, "*"), "benchmark.AsyncSend",
		t.stand.namesrv, topic, fmt.Sprint(l.size), fmt.Sprint(l.window), fmt.Sprint(l.warm.Milliseconds()), fmt.Sprint(last.Milliseconds()))
	out, err := exec.Command("java", command...).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("the Java client: %w\n%s", err, out)
	}
	_, result, _ := strings.Cut(string(out), "RESULT ")
	var measured, failed, took, all int64
	if _, err := fmt.Sscan(result, &measured, &failed, &took, &all); err != nil {
		return nil, fmt.Errorf("the Java client: %w\n%s", err, out)
	}
	o := &outcome{messages: all, elapsed: time.Duration(float64(took) * float64(all) / float64(max(measured, 1)))}
	o.Refused = failed
	o.verify = func() (findings, error) {
		stored, err := stored(t.addr, topic, 8)
		return findings{Lost: max(0, all-stored), Duplicated: max(0, stored-all-failed)}, err
	}
	return o, err
}

// stored is how many messages a topic has.
func stored(addr, topic string, queues int32) (total int64, err error) {
	w, err := dial(addr)
	if err != nil {
		return 0, err
	}
	defer w.Close()
	for queue := range queues {
		end, err := queueEnd(w, topic, queue)
		if err != nil {
			return 0, err
		}
		total += end
	}
	return total, nil
}
