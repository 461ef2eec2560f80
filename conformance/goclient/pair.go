package main

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// The two halves of pair.producer-consumer. Both sides work from one list of messages, computed alike by
// the Java and the Go program: an id decides how a message is sent, its body and its properties.

// systemProperties are added by clients and brokers.
var systemProperties = []string{
	"KEYS", "TAGS", "WAIT", "UNIQ_KEY", "CLUSTER", "MIN_OFFSET", "MAX_OFFSET",
	"MSG_REGION", "TRACE_ON", "CONSUME_START_TIME", "__CRC32#",
}

func pairIDs() []string {
	var ids []string
	for _, kind := range []string{"sync", "async", "oneway", "batch"} {
		for i := range 10 {
			ids = append(ids, fmt.Sprintf("%s-%d", kind, i))
		}
	}
	return append(ids, "big", "zip")
}

func pairBody(id string) []byte {
	switch id {
	case "big":
		return noise(id, bigBody)
	case "zip":
		return text(id, 20_000)
	default:
		return noise(id, 50+37*int(id[len(id)-1]-'0'))
	}
}

func pairKind(id string) string {
	kind, _, _ := strings.Cut(id, "-")
	return kind
}

func pairKeys(id string) []string { return []string{"key-" + id, "second-" + id} }

func pairProperties(id string) map[string]string {
	return map[string]string{
		"id":      id,
		"unicode": "héllo 世界 ✓ " + id,
		"spaces":  " a b ",
		"json":    `{"n":[1,2],"s":"x=y;z"}`,
		"long":    strings.Repeat("0123456789", 100),
	}
}

func pairTopic(run, producer string) string { return "cf-" + run + "-pair-" + producer }

// produce creates the topic, waits for the word and sends every message the way its id asks for.
func produce(namesrv, client, run string) {
	scenario := "pair." + client
	e := newEnv(namesrv, client, scenario, run)
	defer e.close()
	start := time.Now()
	err := try(func() {
		topic := pairTopic(run, client)
		e.createTopic(topic, 4)
		p := e.producer()
		await(client, scenario, "send")
		start = time.Now()
		var batch []*primitive.Message
		results := make(chan error, 10)
		for _, id := range pairIDs() {
			m := primitive.NewMessage(topic, pairBody(id)).WithTag("tag-" + pairKind(id)).WithKeys(pairKeys(id))
			for k, v := range pairProperties(id) {
				m.WithProperty(k, v)
			}
			switch pairKind(id) {
			case "async":
				must("send async", p.SendAsync(background, func(_ context.Context, r *primitive.SendResult, err error) {
					results <- try(func() { sent(r, err) })
				}, m))
			case "oneway":
				must("send one-way", p.SendOneWay(background, m))
			case "batch":
				batch = append(batch, m)
			default:
				sent(p.SendSync(background, m))
			}
		}
		sent(p.SendSync(background, batch...))
		for range 10 {
			select {
			case err := <-results:
				must("async", err)
			case <-time.After(30 * time.Second):
				check(false, "async callbacks missing")
			}
		}
	})
	say(client, scenario, start, err)
}

// consume reads the topic of each producer with a group of its own and compares what comes with the list.
func consume(namesrv, client, run string, limit time.Duration, producers []string) {
	e := newEnv(namesrv, client, "pair", run)
	defer e.close()
	inboxes := map[string]*inbox{}
	start := time.Now()
	err := try(func() {
		for _, from := range producers {
			inboxes[from] = &inbox{}
			e.consume(pairTopic(run, from), e.group("-from-"+from), "*", inboxes[from])
		}
		await(client, "pair", "verify")
		start = time.Now()
	})
	var wg sync.WaitGroup
	for _, from := range producers {
		wg.Go(func() {
			err := err
			if err == nil {
				err = try(func() { verify(inboxes[from], limit) })
			}
			say(client, "pair."+from+"-"+client, start, err)
		})
	}
	wg.Wait()
}

func verify(in *inbox, limit time.Duration) {
	ids := pairIDs()
	in.await(len(ids), limit)
	time.Sleep(time.Second)
	got := map[string]*primitive.MessageExt{}
	for _, m := range in.all() {
		id := m.GetProperty("id")
		check(id != "", "a message without its id property: %v", m.GetProperties())
		check(got[id] == nil, "%s arrived twice", id)
		got[id] = m
	}
	equal("messages", len(got), len(ids))
	for _, id := range ids {
		m := got[id]
		check(m != nil, "%s is missing", id)
		sameBody(id, m.Body, pairBody(id))
		equal(id+": keys", m.GetKeys(), strings.Join(pairKeys(id), " "))
		equal(id+": tags", m.GetTags(), "tag-"+pairKind(id))
		user := m.GetProperties()
		for _, name := range systemProperties {
			delete(user, name)
		}
		check(maps.Equal(user, pairProperties(id)), "%s: properties: got %v, want %v", id, user, pairProperties(id))
		// Java puts its address into the id: 4 bytes or, where it has no other, 16.
		check(len(m.MsgId) == 32 || len(m.MsgId) == 56, "%s: message id %q", id, m.MsgId)
	}
	check(got["zip"].StoreSize < 10_000, "zip was not stored compressed: %d bytes", got["zip"].StoreSize)
}
