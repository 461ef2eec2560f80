package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

func filterTag(e *env) {
	topic := e.topic("", 2)
	expressions := []string{"A || C", "B", "*", "none"}
	inboxes := map[string]*inbox{}
	want := map[string]keySet{}
	for i, x := range expressions {
		inboxes[x], want[x] = &inbox{}, keySet{}
		e.consume(topic, e.group(strconv.Itoa(i)), x, inboxes[x])
	}
	tags := []string{"A", "B", "C", "AA", ""}
	for i := range 25 {
		key, t := "k"+strconv.Itoa(i), tags[i%len(tags)]
		m := primitive.NewMessage(topic, []byte("body")).WithKeys([]string{key}).WithTag(t)
		sent(e.producer().SendSync(background, m))
		want["*"][key] = true
		switch t {
		case "A", "C":
			want["A || C"][key] = true
		case "B":
			want["B"][key] = true
		}
	}
	for _, x := range expressions {
		inboxes[x].awaitExactly(want[x], 40*time.Second)
	}
}

// queuesSeen returns how many queues brought messages with the prefix.
func queuesSeen(in *inbox, prefix string) int {
	queues := map[int]bool{}
	for _, m := range in.all() {
		if strings.HasPrefix(m.GetKeys(), prefix) {
			queues[m.Queue.QueueId] = true
		}
	}
	return len(queues)
}

func consumeRebalance(e *env) {
	const queues = 8
	topic := e.topic("", queues)
	first, second := &inbox{}, &inbox{}
	together := func(keys keySet) bool {
		one, two := first.counts(), second.counts()
		for key := range keys {
			if one[key]+two[key] == 0 {
				return false
			}
		}
		return true
	}
	a := e.consume(topic, e.group(""), "*", first)
	all := e.send(topic, "alone-", 16)
	first.awaitExactly(all, 40*time.Second)

	e.consume(topic, e.group(""), "*", second)
	round := 0
	eventually(60*time.Second, "both consumers serve 4 of the 8 queues", func() bool {
		round++
		prefix := fmt.Sprintf("round%d-", round)
		keys := e.send(topic, prefix, queues)
		all.add(keys)
		eventually(30*time.Second, "a round is consumed", func() bool { return together(keys) })
		return queuesSeen(first, prefix) == queues/2 && queuesSeen(second, prefix) == queues/2
	})

	must("shut down", a.Shutdown())
	rest := e.send(topic, "left-", 16)
	second.awaitKeys(rest, 60*time.Second)
	check(together(all.add(rest)), "messages were lost")
}

func consumeBroadcast(e *env) {
	topic := e.topic("", 4)
	inboxes := []*inbox{{}, {}}
	for _, in := range inboxes {
		e.consume(topic, e.group(""), "*", in, consumer.WithConsumerModel(consumer.BroadCasting))
	}
	keys := e.send(topic, "k", 20)
	for _, in := range inboxes {
		in.awaitExactly(keys, 40*time.Second)
	}
}

func consumeOrderly(e *env) {
	topic := e.topic("", 4)
	in := &inbox{}
	var inside [4]atomic.Int32
	var overlap atomic.Bool
	c := e.push(e.group(""), consumer.WithConsumerOrder(true))
	must("subscribe", c.Subscribe(topic, tag("*"), func(_ context.Context, msgs ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		n := &inside[msgs[0].Queue.QueueId]
		if n.Add(1) != 1 {
			overlap.Store(true)
		}
		in.add(msgs...)
		n.Add(-1)
		return consumer.ConsumeSuccess, nil
	}))
	e.start(c)
	in.awaitExactly(e.send(topic, "k", 100), time.Minute)
	last := map[int]int64{}
	for _, m := range in.all() {
		next := last[m.Queue.QueueId]
		equal("offset in queue "+strconv.Itoa(m.Queue.QueueId), m.QueueOffset, next)
		last[m.Queue.QueueId] = next + 1
	}
	check(!overlap.Load(), "two calls at once for one queue")
}

func consumeOrderlySuspend(e *env) {
	topic := e.topic("", 1)
	var mu sync.Mutex
	var seen []string
	done := &inbox{}
	c := e.push(e.group(""), consumer.WithConsumerOrder(true))
	must("subscribe", c.Subscribe(topic, tag("*"), func(ctx context.Context, msgs ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		mu.Lock()
		defer mu.Unlock()
		key := msgs[0].GetKeys()
		suspend := key == "k2" && !slices.Contains(seen, "k2")
		seen = append(seen, key)
		if suspend {
			return consumer.SuspendCurrentQueueAMoment, nil
		}
		done.add(msgs...)
		return consumer.ConsumeSuccess, nil
	}))
	e.start(c)
	keys := e.send(topic, "k", 6)
	// The Go client takes up a suspended queue with the next message that arrives in it.
	time.Sleep(2 * time.Second)
	keys.add(e.send(topic, "more", 1))
	done.awaitExactly(keys, time.Minute)
	mu.Lock()
	defer mu.Unlock()
	equal("calls", strings.Join(seen, " "), "k0 k1 k2 k2 k3 k4 k5 more0")
}

func consumeTwoGroups(e *env) {
	topic := e.topic("", 4)
	one, two := &inbox{}, &inbox{}
	e.consume(topic, e.group("1"), "*", one)
	e.consume(topic, e.group("2"), "*", two)
	keys := e.send(topic, "k", 20)
	one.awaitExactly(keys, 40*time.Second)
	two.awaitExactly(keys, 40*time.Second)
}

// later asks for the messages again after a second, as often as wanted says.
func later(in *inbox, wanted func(m *primitive.MessageExt) bool) handler {
	return func(ctx context.Context, msgs ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		in.add(msgs...)
		if c, ok := primitive.GetConcurrentlyCtx(ctx); ok {
			c.DelayLevelWhenNextConsume = 1
		}
		if wanted(msgs[0]) {
			return consumer.ConsumeRetryLater, nil
		}
		return consumer.ConsumeSuccess, nil
	}
}

func consumeRetry(e *env) {
	topic := e.topic("", 1)
	in := &inbox{}
	c := e.push(e.group(""))
	must("subscribe", c.Subscribe(topic, tag("*"), later(in, func(m *primitive.MessageExt) bool {
		return m.GetKeys() == "again" && m.ReconsumeTimes == 0
	})))
	e.start(c)
	m := message(topic, "again")
	m.WithProperty("p", "v")
	id := sent(e.producer().SendSync(background, m)).MsgID
	sent(e.producer().SendSync(background, message(topic, "once")))
	// The client learns of the retry topic at its next poll of the route, up to 30 s later.
	got := in.await(3, 100*time.Second)
	time.Sleep(1500 * time.Millisecond)
	counts := in.counts()
	check(counts["again"] == 2 && counts["once"] == 1, "deliveries: %v", counts)
	again := got[len(got)-1]
	equal("redelivered", again.GetKeys(), "again")
	equal("reconsume times", again.ReconsumeTimes, 1)
	equal("topic", again.Topic, topic)
	equal("user property", again.GetProperty("p"), "v")
	equal("tags", again.GetTags(), "tag")
	equal("message id", again.MsgId, id)
	sameBody("redelivered", again.Body, []byte("body of again"))
}

// consumeDLQ gives up at once: with no retries the first refusal is the last.
func consumeDLQ(e *env) {
	topic := e.topic("", 1)
	group := e.group("")
	in := &inbox{}
	c := e.push(group, consumer.WithMaxReconsumeTimes(0))
	must("subscribe", c.Subscribe(topic, tag("*"), later(in, func(*primitive.MessageExt) bool { return true })))
	e.start(c)
	m := message(topic, "poison")
	m.WithProperty("p", "v")
	sent(e.producer().SendSync(background, m))
	dead := &inbox{}
	eventually(60*time.Second, "a dead letter topic", func() bool { return len(e.queues("%DLQ%"+group)) == 1 })
	e.consume("%DLQ%"+group, e.group("-dead"), "*", dead)
	d := dead.await(1, 60*time.Second)[0]
	time.Sleep(time.Second)
	equal("deliveries", in.size(), 1)
	equal("dead letters", dead.size(), 1)
	equal("keys", d.GetKeys(), "poison")
	equal("user property", d.GetProperty("p"), "v")
	sameBody("dead letter", d.Body, []byte("body of poison"))
}

func consumeSuspendResume(e *env) {
	topic := e.topic("", 2)
	in := &inbox{}
	c := e.consume(topic, e.group(""), "*", in)
	in.awaitExactly(e.send(topic, "before", 4), 40*time.Second)
	c.Suspend()
	// A pull that the broker already holds may still bring one message for each queue.
	e.send(topic, "flush", 2)
	time.Sleep(2 * time.Second)
	keys := e.send(topic, "later", 10)
	time.Sleep(3 * time.Second)
	for key := range keys {
		check(in.byKey(key) == nil, "message %s was consumed while suspended", key)
	}
	c.Resume()
	in.awaitKeys(keys, 90*time.Second)
	time.Sleep(time.Second)
	for key, n := range in.counts() {
		check(n == 1, "message %s arrived %d times", key, n)
	}
	equal("messages", in.size(), 16)
}

func consumeBatchSize(e *env) {
	topic := e.topic("", 1)
	var batch []*primitive.Message
	keys := keySet{}
	for i := range 40 {
		key := "k" + strconv.Itoa(i)
		batch = append(batch, message(topic, key))
		keys[key] = true
	}
	sent(e.producer().SendSync(background, batch...))
	in := &inbox{}
	var largest atomic.Int64
	c := e.push(e.group(""), consumer.WithConsumeMessageBatchMaxSize(8), consumer.WithPullBatchSize(32))
	must("subscribe", c.Subscribe(topic, tag("*"), func(_ context.Context, msgs ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for n := int64(len(msgs)); ; {
			old := largest.Load()
			if n <= old || largest.CompareAndSwap(old, n) {
				break
			}
		}
		in.add(msgs...)
		return consumer.ConsumeSuccess, nil
	}))
	e.start(c)
	in.awaitExactly(keys, time.Minute)
	equal("largest call", largest.Load(), 8)
}
