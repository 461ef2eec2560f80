package main

import (
	"context"
	"fmt"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// story is the push consumer of the tests in crash/story_test.go. Each message gives a line "GOT key broker queue offset",
// each command (SUSPEND, RESUME, STOP) a line "DONE" when it is done.
func story(namesrv, topic, group string) {
	c, err := rocketmq.NewPushConsumer(
		consumer.WithNsResolver(primitive.NewPassthroughResolver([]string{namesrv})),
		consumer.WithGroupName(group),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	)
	must("new consumer", err)
	must("subscribe", c.Subscribe(topic, tag("*"), func(_ context.Context, msgs ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		outLock.Lock()
		defer outLock.Unlock()
		for _, m := range msgs {
			fmt.Println("GOT", m.GetKeys(), m.Queue.BrokerName, m.Queue.QueueId, m.QueueOffset)
		}
		return consumer.ConsumeSuccess, nil
	}))
	must("start", c.Start())
	done := func() {
		outLock.Lock()
		fmt.Println("DONE")
		outLock.Unlock()
	}
	done()
	for in.Scan() {
		switch in.Text() {
		case "SUSPEND":
			c.Suspend()
		case "RESUME":
			c.Resume()
		case "STOP":
			must("shut down", c.Shutdown())
			done()
			return
		}
		done()
	}
}
