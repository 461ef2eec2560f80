package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/ratchetmq/ratchet/message"
	"github.com/ratchetmq/ratchet/protocol"
)

// killedLogs fills logs of several sizes over the wire, kills the broker, and looks how it starts again. Java's goes
// through the first of them only.
func killedLogs(ctx context.Context, r *run, name string) ([]fact, error) {
	var all []fact
	for i, size := range r.scale.killed {
		if i > 0 && name != ratchet {
			break
		}
		found, err := r.killedLog(ctx, name, size, i == 0)
		all = append(all, found...)
		if err != nil {
			return all, err
		}
	}
	return all, nil
}

const startQueues = 4

func (r *run) killedLog(ctx context.Context, name string, size int64, first bool) ([]fact, error) {
	t, err := r.stand.start(ctx, name)
	if err != nil {
		return nil, err
	}
	defer r.stand.end(t)
	topic := "bench-killed"
	if err := r.ready(t, topic, startQueues); err != nil {
		return nil, err
	}
	n, err := fillLog(t, topic, size, kib)
	if err != nil {
		return nil, err
	}
	goals := startGoals{cpu: 2}
	if !first {
		goals = startGoals{ready: 5}
	}
	what := fmt.Sprintf("%.1f GiB of log", float64(size)/(1<<30))
	return r.afterKillOf(ctx, t, what, goals, topic, n)
}

// afterKillOf is afterKill of a broker that has n messages of a topic.
func (r *run) afterKillOf(ctx context.Context, t *target, what string, goals startGoals, topic string, n int64) ([]fact, error) {
	return r.afterKill(ctx, t, what, goals, func() error {
		got, err := stored(t.addr, topic, startQueues)
		if err == nil && got != n {
			err = fmt.Errorf("%d messages were acknowledged, %d are there", n, got)
		}
		return err
	}, func(w *wire) (answer, error) { return pullLast(w, topic, 0) })
}

// fillLog sends batches of messages with bodies of so many bytes to a topic, until they take so many bytes of log, and waits until
// the queues have them all.
func fillLog(t *target, topic string, size int64, body int) (int64, error) {
	load := &sendLoad{codec: protocol.Binary, conns: startQueues, window: 8, size: body, batch: 32}
	load.maxMessages = max(size/recordSize(topic, body), startQueues*32)
	o, ledgers, err := load.run(t.addr, topic, time.Hour)
	if err != nil {
		return 0, err
	}
	for _, l := range ledgers {
		if l.refused.count() > 0 {
			return 0, fmt.Errorf("the log can't be filled: answers %v", l.codes)
		}
	}
	return o.messages, dispatched(t.addr, topic, startQueues, o.messages)
}

// recordSize is how many bytes of log a message takes.
func recordSize(topic string, body int) int64 {
	r := message.Record{Topic: []byte(topic), Body: make([]byte, body), Properties: stampedProperties()}
	return int64(r.EncodedSize())
}

// pullLast pulls a queue's last message.
func pullLast(w *wire, topic string, queue int32) (answer, error) {
	end, err := queueEnd(w, topic, queue)
	if err != nil {
		return answer{}, err
	}
	w.opaque++
	if _, err := w.Write(pullRequest(nil, protocol.JSON, w.opaque, "benchmark_verifier", topic, queue, max(end-1, 0), 0)); err != nil {
		return answer{}, err
	}
	return w.next()
}

type startGoals struct{ cpu, ready float64 }

// afterKill kills a broker and starts it again, twice: with what the killed one has left, and with everything but the
// checkpoint, which is the worst that a kill may leave. complete looks whether all messages are there, pull gets one.
func (r *run) afterKill(
	ctx context.Context, t *target, what string, goals startGoals, complete func() error, pull func(*wire) (answer, error),
) ([]fact, error) {
	var all []fact
	for _, left := range []string{"", ", checkpoint removed"} {
		t.kill()
		if left != "" {
			err := os.Remove(filepath.Join(t.store(), "checkpoint"))
			if err != nil && !errors.Is(err, fs.ErrNotExist) { // it was killed before its first
				return all, err
			}
		}
		begin := time.Now()
		if err := t.again(ctx, t.addr); err != nil {
			return all, err
		}
		ready := time.Since(begin)
		used, err := t.usage()
		if err != nil {
			return all, err
		}
		if err := untilPulled(t.addr, pull); err != nil {
			return all, err
		}
		pulled := time.Since(begin)
		used2, err := t.usage()
		if err != nil {
			return all, err
		}
		name := what + ", kill -9" + left + ": "
		all = append(
			all,
			atMost(name+"start to ready", ready.Seconds(), "s", goals.ready),
			atMost(name+"CPU to ready", used.cpu.Seconds(), "s", goals.cpu),
			atMost(name+"start to the first pull that is answered", pulled.Seconds(), "s", 0),
			atMost(name+"CPU to the first pull that is answered", used2.cpu.Seconds(), "s", goals.cpu),
		)
		if err := complete(); err != nil {
			return all, err
		}
	}
	return all, nil
}

// untilPulled pulls until a message comes.
func untilPulled(addr string, pull func(*wire) (answer, error)) error {
	var a answer
	var err error
	for limit := time.Now().Add(time.Minute); time.Now().Before(limit); time.Sleep(2 * time.Millisecond) {
		var w *wire
		if w, err = dial(addr); err != nil {
			continue
		}
		w.within(ioTimeout)
		a, err = pull(w)
		w.Close()
		if err == nil && a.code == 0 && bytes.Contains(a.body, []byte(keyMark)) {
			return nil
		}
	}
	return fmt.Errorf("no pull is answered after a minute: code %d: %s: %w", a.code, a.header, err)
}

// killedQueues is a broker of many queues with ten messages each. Only ours: with 20,000 queues 5.4.0 runs out of file
// handles where there are as many, since it keeps each queue's file open, and 4.9.7 is not ready after a minute and a half.
func killedQueues(ctx context.Context, r *run, name string) ([]fact, error) {
	topics, each := r.scale.killedTopics, 10
	topic := func(i int) string { return fmt.Sprintf("bench-queue-%d", i) }
	t, err := r.stand.startOn(ctx, name, func(store string) error { return writeTopics(store, topics, topicQueues, topic) })
	if err != nil {
		return nil, err
	}
	defer r.stand.end(t)
	if err := sendOne(t.addr, "bench-open"); err != nil {
		return nil, err
	}
	list := queuesOfTopics(topics*topicQueues, topic)
	load := &sweep{conns: 4, burst: 32, queues: list, limit: int64(len(list) * each)}
	if _, err := load.run(t.addr, time.Hour); err != nil {
		return nil, err
	}
	last := list[len(list)-1]
	if err := dispatched(t.addr, last.topic, topicQueues, int64(topicQueues*each)); err != nil {
		return nil, err
	}
	return r.afterKill(ctx, t, grouped(len(list))+" queues", startGoals{ready: 5}, func() error {
		for i := range topics {
			if got, err := stored(t.addr, topic(i), topicQueues); err != nil || got != int64(topicQueues*each) {
				return fmt.Errorf("%s has %d messages: %w", topic(i), got, err)
			}
		}
		return nil
	}, func(w *wire) (answer, error) { return pullLast(w, last.topic, last.id) })
}
