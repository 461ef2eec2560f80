package main

import (
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// poll polls and acknowledges until the inbox holds n messages.
func poll(c rocketmq.PullConsumer, in *inbox, n int) {
	eventually(60*time.Second, "messages are polled", func() bool {
		r, err := c.Poll(background, time.Second)
		if consumer.IsNoNewMsgError(err) {
			return in.size() >= n
		}
		must("poll", err)
		in.add(r.GetMsgList()...)
		c.ACK(background, r, consumer.ConsumeSuccess)
		return in.size() >= n
	})
}

func pullSubscribePoll(e *env) {
	topic := e.topic("", 4)
	keys := e.send(topic, "k", 20)
	c := e.pull(e.group(""))
	must("subscribe", c.Subscribe(topic, tag("*")))
	must("start", c.Start())
	in := &inbox{}
	poll(c, in, 20)
	in.awaitExactly(keys, time.Second)
	must("persist", c.PersistOffset(background, topic))
	must("shut down", c.Shutdown())

	fresh := e.send(topic, "fresh", 8)
	again := e.pull(e.group(""))
	must("subscribe", again.Subscribe(topic, tag("*")))
	must("start", again.Start())
	second := &inbox{}
	poll(again, second, 8)
	second.awaitExactly(fresh, time.Second)
}

func pullAssignSeek(e *env) {
	topic := e.topic("", 1)
	e.send(topic, "early", 5)
	time.Sleep(300 * time.Millisecond)
	middle := time.Now().UnixMilli()
	time.Sleep(300 * time.Millisecond)
	e.send(topic, "late", 5)
	c := e.pull(e.group(""))
	q := e.queues(topic)[0]
	must("assign", c.Assign(topic, []*primitive.MessageQueue{q}))
	c.SeekOffset(q, 6)
	must("start", c.Start())
	in := &inbox{}
	poll(c, in, 4)
	equal("first offset after the seek", in.all()[0].QueueOffset, 6)
	equal("messages", in.size(), 4)
	at, err := c.OffsetForTimestamp(q, middle)
	must("offset for timestamp", err)
	equal("offset for timestamp", at, 5)
}

func pullOffsetBeyondMax(e *env) {
	topic := e.topic("", 1)
	e.send(topic, "k", 10)
	c := e.pull(e.group(""))
	q := e.queues(topic)[0]
	must("subscribe", c.Subscribe(topic, tag("*")))
	must("start", c.Start())
	r, err := c.PullFrom(background, q, 4, 32)
	must("pull", err)
	equal("status at 4", r.Status, primitive.PullFound)
	equal("next offset", r.NextBeginOffset, 10)
	for _, offset := range []int64{11, 1000, 1 << 40} {
		r, err := c.PullFrom(background, q, offset, 32)
		must("pull", err)
		equal("status", r.Status, primitive.PullOffsetIllegal)
		equal("next offset", r.NextBeginOffset, 10)
		equal("max offset", r.MaxOffset, 10)
	}
}
