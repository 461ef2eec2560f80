package main

import (
	"slices"
	"time"

	"github.com/apache/rocketmq-client-go/v2/admin"
)

func topicAutoCreate(e *env) {
	topic := e.name("")
	sent(e.producer().SendSync(background, message(topic, "k0")))
	eventually(20*time.Second, "a route to 4 queues", func() bool { return len(e.queues(topic)) == 4 })
	in := &inbox{}
	e.consume(topic, e.group(""), "*", in)
	sent(e.producer().SendSync(background, message(topic, "k1")))
	in.awaitExactly(keySet{"k0": true, "k1": true}, time.Minute)
}

func adminTopic(e *env) {
	topic := e.topic("", 3)
	listed := func() bool {
		list, err := office.FetchAllTopicList(background)
		must("topic list", err)
		return slices.Contains(list.TopicList, topic)
	}
	check(listed(), "the topic is not listed")
	in := &inbox{}
	c := e.consume(topic, e.group(""), "*", in)
	in.awaitExactly(e.send(topic, "k", 6), time.Minute)
	must("shut down", c.Shutdown())

	must("delete topic", office.DeleteTopic(background, admin.WithTopicDelete(topic),
		admin.WithBrokerAddrDelete(office.broker), admin.WithNameSrvAddr([]string{e.namesrv})))
	eventually(20*time.Second, "the topic is no longer listed", func() bool { return !listed() })
	groups, err := office.GetAllSubscriptionGroup(background, office.broker, 5*time.Second)
	must("subscription groups", err)
	_, ok := groups.SubscriptionGroupTable[e.group("")]
	check(ok, "the group is not among the subscription groups")

	// Made again, it starts empty.
	e.createTopic(topic, 3)
	sent(e.producer().SendSync(background, message(topic, "again")))
	again := &inbox{}
	e.consume(topic, e.group("-2"), "*", again)
	again.awaitExactly(keySet{"again": true}, time.Minute)
}
