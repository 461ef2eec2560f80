package main

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

type keySet map[string]bool

func (k keySet) add(other keySet) keySet {
	maps.Copy(k, other)
	return k
}

// An inbox is everything a consumer was handed, in order. Messages are told apart by their keys.
type inbox struct {
	mu  sync.Mutex
	got []*primitive.MessageExt
}

func (in *inbox) handler() handler {
	return func(_ context.Context, msgs ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		in.add(msgs...)
		return consumer.ConsumeSuccess, nil
	}
}

func (in *inbox) add(msgs ...*primitive.MessageExt) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.got = append(in.got, msgs...)
}

func (in *inbox) all() []*primitive.MessageExt {
	in.mu.Lock()
	defer in.mu.Unlock()
	return slices.Clone(in.got)
}

func (in *inbox) size() int { return len(in.all()) }

func (in *inbox) counts() map[string]int {
	counts := map[string]int{}
	for _, m := range in.all() {
		counts[m.GetKeys()]++
	}
	return counts
}

// byKey returns the first message with the key, or nil.
func (in *inbox) byKey(key string) *primitive.MessageExt {
	for _, m := range in.all() {
		if m.GetKeys() == key {
			return m
		}
	}
	return nil
}

// await waits for at least n messages.
func (in *inbox) await(n int, limit time.Duration) []*primitive.MessageExt {
	for end := time.Now().Add(limit); in.size() < n; time.Sleep(20 * time.Millisecond) {
		check(time.Now().Before(end), "got %d of %d messages within %v", in.size(), n, limit)
	}
	return in.all()
}

// awaitKeys waits until every key has arrived at least once.
func (in *inbox) awaitKeys(keys keySet, limit time.Duration) {
	end := time.Now().Add(limit)
	for {
		counts := in.counts()
		var missing []string
		for key := range keys {
			if counts[key] == 0 {
				missing = append(missing, key)
			}
		}
		if len(missing) == 0 {
			return
		}
		slices.Sort(missing)
		check(time.Now().Before(end), "%d of %d messages missing after %v: %v", len(missing), len(keys), limit,
			missing[:min(len(missing), 10)])
		time.Sleep(20 * time.Millisecond)
	}
}

// awaitExactly waits for every key and a moment more: each once and nothing else.
func (in *inbox) awaitExactly(keys keySet, limit time.Duration) {
	in.awaitKeys(keys, limit)
	time.Sleep(500 * time.Millisecond)
	for key, n := range in.counts() {
		check(keys[key], "unexpected message %s", key)
		check(n == 1, "message %s arrived %d times", key, n)
	}
}
