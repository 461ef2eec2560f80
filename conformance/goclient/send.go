package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

var background = context.Background()

func sendSync(e *env) {
	topic := e.topic("", 4)
	in := &inbox{}
	e.consume(topic, e.group(""), "*", in)
	keys := keySet{}
	next := map[int]int64{}
	for i := range 20 {
		key := "k" + strconv.Itoa(i)
		r := sent(e.producer().SendSync(background, message(topic, key)))
		check(r.MsgID != "" && r.OffsetMsgID != "", "ids missing in %v", r)
		queue := r.MessageQueue.QueueId
		equal("offset in queue", r.QueueOffset, next[queue])
		next[queue]++
		keys[key] = true
	}
	equal("queues used", len(next), 4)
	in.awaitExactly(keys, 40*time.Second)
	for _, m := range in.all() {
		sameBody(m.GetKeys(), m.Body, []byte("body of "+m.GetKeys()))
		equal("topic", m.Topic, topic)
		equal("reconsume times", m.ReconsumeTimes, 0)
	}
}

func sendAsync(e *env) {
	topic := e.topic("", 4)
	in := &inbox{}
	e.consume(topic, e.group(""), "*", in)
	keys := keySet{}
	failures := make(chan error, 20)
	for i := range 20 {
		key := "k" + strconv.Itoa(i)
		keys[key] = true
		must("send async", e.producer().SendAsync(background, func(_ context.Context, r *primitive.SendResult, err error) {
			failures <- try(func() { sent(r, err) })
		}, message(topic, key)))
	}
	for range 20 {
		select {
		case err := <-failures:
			must("callback", err)
		case <-time.After(20 * time.Second):
			check(false, "callbacks missing")
		}
	}
	in.awaitExactly(keys, 40*time.Second)
}

func sendOneway(e *env) {
	topic := e.topic("", 4)
	in := &inbox{}
	e.consume(topic, e.group(""), "*", in)
	keys := keySet{}
	for i := range 20 {
		key := "k" + strconv.Itoa(i)
		keys[key] = true
		must("send one-way", e.producer().SendOneWay(background, message(topic, key)))
	}
	in.awaitExactly(keys, 40*time.Second)
}

func sendBatch(e *env) {
	topic := e.topic("", 4)
	in := &inbox{}
	e.consume(topic, e.group(""), "*", in)
	keys := keySet{}
	var batch []*primitive.Message
	for i := range 16 {
		key := "k" + strconv.Itoa(i)
		m := primitive.NewMessage(topic, noise(key, 100+i)).WithTag("tag" + strconv.Itoa(i%3)).WithKeys([]string{key})
		m.WithProperty("n", strconv.Itoa(i))
		batch = append(batch, m)
		keys[key] = true
	}
	r := sent(e.producer().SendSync(background, batch...))
	equal("offset message ids in the result", len(strings.Split(r.OffsetMsgID, ",")), 16)
	in.awaitExactly(keys, 40*time.Second)
	for i := range 16 {
		key := "k" + strconv.Itoa(i)
		m := in.byKey(key)
		sameBody(key, m.Body, noise(key, 100+i))
		equal("tags", m.GetTags(), "tag"+strconv.Itoa(i%3))
		equal("user property", m.GetProperty("n"), strconv.Itoa(i))
		equal("queue offset", m.QueueOffset, int64(i))
	}
}

func sendProperties(e *env) {
	topic := e.topic("", 1)
	in := &inbox{}
	e.consume(topic, e.group(""), "*", in)
	want := map[string]string{
		"plain":       "value",
		"with spaces": " a b ",
		"unicode":     "héllo 世界 ✓",
		"json":        `{"a":[1,2],"b":"c=d;e"}`,
		"long":        strings.Repeat("x", 4000),
	}
	m := primitive.NewMessage(topic, []byte("body")).WithTag("TagX").WithKeys([]string{"key1", "key2", "key3"})
	for k, v := range want {
		m.WithProperty(k, v)
	}
	m.Flag = 0x1234
	r := sent(e.producer().SendSync(background, m))
	got := in.await(1, 40*time.Second)[0]
	equal("keys", got.GetKeys(), "key1 key2 key3")
	equal("tags", got.GetTags(), "TagX")
	equal("flag", got.Flag, 0x1234)
	equal("message id", got.MsgId, r.MsgID)
	equal("queue offset", got.QueueOffset, r.QueueOffset)
	age := time.Since(time.UnixMilli(got.StoreTimestamp))
	check(age.Abs() < time.Minute, "store time %d", got.StoreTimestamp)
	for k, v := range want {
		equal("property "+k, got.GetProperty(k), v)
	}
}

func sendBig(e *env) {
	topic := e.topic("", 1)
	in := &inbox{}
	e.consume(topic, e.group(""), "*", in)
	body := noise(topic, bigBody)
	m := message(topic, "big")
	m.Body = body
	sent(e.producer().SendSync(background, m))
	sent(e.producer().SendSync(background, message(topic, "small")))
	in.awaitExactly(keySet{"big": true, "small": true}, time.Minute)
	sameBody("3.5 MiB", in.byKey("big").Body, noise(topic, bigBody))
}

func sendCompressed(e *env) {
	topic := e.topic("", 1)
	in := &inbox{}
	e.consume(topic, e.group(""), "*", in)
	m := message(topic, "zip")
	m.Body = text(topic, 20_000)
	sent(e.producer().SendSync(background, m))
	got := in.await(1, time.Minute)[0]
	sameBody("compressed", got.Body, text(topic, 20_000))
	check(int(got.StoreSize) < 10_000, "stored uncompressed: %d bytes", got.StoreSize)
}

// sendTooBig expects the broker's refusal: the Go client has no limit of its own.
func sendTooBig(e *env) {
	topic := e.topic("", 1)
	p := e.newProducer(producer.WithRetry(0))
	m := message(topic, "too-big")
	m.Body = noise(topic, 5<<20)
	_, err := p.SendSync(background, m)
	check(err != nil && strings.Contains(err.Error(), "CODE: 13"), "5 MiB: want code 13, got %v", err)
	equal("offset of the next send", sent(p.SendSync(background, message(topic, "after"))).QueueOffset, 0)
}

func sendDelayLevel(e *env) {
	topic := e.topic("", 2)
	var mu sync.Mutex
	sentAt := map[string]time.Time{}
	took := map[string]time.Duration{}
	in := &inbox{}
	c := e.push(e.group(""))
	must("subscribe", c.Subscribe(topic, tag("*"), func(_ context.Context, msgs ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		mu.Lock()
		for _, m := range msgs {
			took[m.GetKeys()] = time.Since(sentAt[m.GetKeys()])
		}
		mu.Unlock()
		in.add(msgs...)
		return consumer.ConsumeSuccess, nil
	}))
	e.start(c)
	keys := keySet{"warm-up0": true}
	e.send(topic, "warm-up", 1)
	in.awaitExactly(keys, time.Minute)
	for level := 1; level <= 2; level++ {
		for i := range 3 {
			key := fmt.Sprintf("level%d-%d", level, i)
			m := message(topic, key).WithDelayTimeLevel(level)
			m.WithProperty("p", "v"+strconv.Itoa(i))
			mu.Lock()
			sentAt[key] = time.Now()
			mu.Unlock()
			sent(e.producer().SendSync(background, m))
			keys[key] = true
		}
	}
	in.awaitExactly(keys, time.Minute)
	for _, m := range in.all()[1:] {
		equal("topic", m.Topic, topic)
		check(m.GetProperty("p") != "", "user property lost")
		want := 5 * time.Second
		if strings.HasPrefix(m.GetKeys(), "level1") {
			want = time.Second
		}
		d := took[m.GetKeys()]
		check(d >= want-100*time.Millisecond && d < want+10*time.Second, "%s came after %v, want about %v", m.GetKeys(), d, want)
	}
}
