package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

func fromFirst(e *env) {
	topic := e.topic("", 4)
	keys := e.send(topic, "old", 12)
	in := &inbox{}
	e.consume(topic, e.group(""), "*", in)
	in.awaitKeys(keys, time.Minute)
	in.awaitExactly(keys.add(e.send(topic, "new", 8)), 40*time.Second)
}

// fromLast: a new group that asks for the last offset must not see the 12 messages sent before.
func fromLast(e *env) {
	topic := e.topic("", 4)
	e.send(topic, "old", 12)
	in := &inbox{}
	e.consume(topic, e.group(""), "*", in, consumer.WithConsumeFromWhere(consumer.ConsumeFromLastOffset))
	round := 0
	eventually(60*time.Second, "every queue is consumed", func() bool {
		round++
		probe := e.send(topic, fmt.Sprintf("probe%d-", round), 4)
		time.Sleep(time.Second)
		in.awaitKeys(probe, 0)
		return true
	})
	for _, m := range in.all() {
		check(!strings.HasPrefix(m.GetKeys(), "old"), "a group from the last offset was given message %s", m.GetKeys())
	}
}

// fromLastNewTopic: on a queue that still starts at 0 Java gives even such a group the first message.
func fromLastNewTopic(e *env) {
	topic := e.topic("", 4)
	keys := e.send(topic, "old", 12)
	in := &inbox{}
	e.consume(topic, e.group(""), "*", in, consumer.WithConsumeFromWhere(consumer.ConsumeFromLastOffset))
	in.awaitKeys(keys, time.Minute)
	in.awaitExactly(keys.add(e.send(topic, "new", 8)), 40*time.Second)
}

func fromTimestamp(e *env) {
	topic := e.topic("", 2)
	e.send(topic, "old", 6)
	time.Sleep(3 * time.Second)
	when := time.Now().Format("20060102150405")
	time.Sleep(time.Second)
	keys := e.send(topic, "new", 6)
	in := &inbox{}
	e.consume(topic, e.group(""), "*", in, consumer.WithConsumeFromWhere(consumer.ConsumeFromTimestamp),
		consumer.WithConsumeTimestamp(when))
	in.awaitExactly(keys, time.Minute)
}

func offsetPersistRestart(e *env) {
	topic := e.topic("", 4)
	first := &inbox{}
	c := e.consume(topic, e.group(""), "*", first)
	first.awaitExactly(e.send(topic, "a", 20), 40*time.Second)
	must("shut down", c.Shutdown())
	away := e.send(topic, "b", 10)
	second := &inbox{}
	e.consume(topic, e.group(""), "*", second)
	second.awaitExactly(away, time.Minute)
}

// acrossRestart: the broker goes away and comes back while one consumer is at work and another is stopped.
func acrossRestart(e *env) {
	topic := e.topic("", 4)
	live, stopped := &inbox{}, &inbox{}
	e.consume(topic, e.group("-live"), "*", live)
	c := e.consume(topic, e.group("-stopped"), "*", stopped)
	keys := e.send(topic, "before", 40)
	live.awaitExactly(keys, time.Minute)
	stopped.awaitExactly(keys, time.Minute)
	must("shut down", c.Shutdown())

	await(e.client, e.scenario, "restarted")

	var queues []*primitive.MessageQueue
	eventually(time.Minute, "the route is back", func() bool {
		queues = e.queues(topic)
		return len(queues) == 4
	})
	fresh := keySet{}
	ends := map[int]int64{}
	for i := range 40 {
		key := fmt.Sprintf("after%d", i)
		eventually(time.Minute, "a send succeeds again", func() bool {
			m := message(topic, key)
			m.Queue = queues[i%4]
			r := sent(e.producer().SendSync(background, m))
			ends[i%4] = r.QueueOffset
			return true
		})
		fresh[key] = true
	}
	keys.add(fresh)
	live.awaitKeys(keys, 90*time.Second)
	again := &inbox{}
	e.consume(topic, e.group("-stopped"), "*", again)
	again.awaitKeys(fresh, 90*time.Second)
	time.Sleep(3 * time.Second)
	once("the consumer that lived through it", live, keys)
	once("the consumer started afterwards", again, fresh)
	for queue, end := range ends {
		equal(fmt.Sprintf("last offset of queue %d", queue), end, 19)
	}
}

// once checks that every wanted message came, none came twice and no other came.
func once(who string, in *inbox, want keySet) {
	places := map[string]bool{}
	for _, m := range in.all() {
		check(want[m.GetKeys()], "%s was given %s again", who, m.GetKeys())
		place := fmt.Sprintf("%d/%d", m.Queue.QueueId, m.QueueOffset)
		check(!places[place], "%s was given %s twice", who, m.GetKeys())
		places[place] = true
	}
	equal(who+": messages", len(in.counts()), len(want))
}
