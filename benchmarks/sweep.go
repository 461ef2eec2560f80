package main

import (
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ratchetmq/ratchet/protocol"
)

// A sweep is the same work on more and more queues and connections: a few workers, each of which writes a burst of
// requests to the next of its connections, each request to the next of its queues, and waits for the answers. So the
// number of requests in flight does not grow with what it spreads over.
type sweep struct {
	conns  int
	queues []queueName
	burst  int
	limit  int64 // messages; 0: as many as come
}

type queueName struct {
	topic string
	id    int32
}

// topicQueues is how many queues a topic of a sweep has.
const topicQueues = 8

// queuesOfTopics are n queues, topic after topic.
func queuesOfTopics(n int, topic func(int) string) []queueName {
	all := make([]queueName, n)
	for i := range all {
		all[i] = queueName{topic(i / topicQueues), int32(i % topicQueues)}
	}
	return all
}

const sweepers = 4

func (l *sweep) run(addr string, last time.Duration) (*outcome, error) {
	wires, err := dialAll(addr, l.conns)
	if err != nil {
		return nil, err
	}
	defer closeAll(wires)
	templates := make([]*template, len(l.queues))
	for i, q := range l.queues {
		templates[i] = sendTemplate(protocol.JSON, q.topic, q.id, kib, 1, false)
	}
	var stop atomic.Bool
	timer := time.AfterFunc(last, func() { stop.Store(true) })
	defer timer.Stop()
	limit := l.limit
	if limit == 0 {
		limit = 1 << 62
	}
	var next, sent atomic.Int64
	var group errgroup.Group
	begin := time.Now()
	for i := range min(sweepers, l.conns) {
		var mine []*wire
		for n := i; n < l.conns; n += sweepers {
			mine = append(mine, wires[n])
		}
		group.Go(func() error {
			var out []byte
			var press press
			for turn := 0; !stop.Load(); turn++ {
				first := next.Add(int64(l.burst)) - int64(l.burst)
				count := min(int64(l.burst), limit-first)
				if count <= 0 {
					return nil
				}
				out = out[:0]
				for n := range count {
					t := templates[(first+n)%int64(len(templates))]
					out = press.append(out, t, firstOpaque+int32(n), first+n, now())
				}
				if err := exchange(mine[turn%len(mine)], out, count); err != nil {
					return err
				}
				sent.Add(count)
			}
			return nil
		})
	}
	err = group.Wait()
	return &outcome{messages: sent.Load(), elapsed: time.Since(begin)}, err
}

// exchange writes a burst of requests and waits until each is answered with success.
func exchange(w *wire, burst []byte, n int64) error {
	w.within(ioTimeout)
	if _, err := w.Write(burst); err != nil {
		return err
	}
	for range n {
		a, err := w.next()
		if err != nil {
			return err
		}
		if a.code != 0 {
			return fmt.Errorf("send: code %d: %s", a.code, a.header)
		}
	}
	return nil
}
