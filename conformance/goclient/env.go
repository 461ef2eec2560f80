package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

var instances atomic.Int64

// An env is one run of one scenario: names that nothing else shares, and all that it opened.
type env struct {
	namesrv, client, scenario, run string

	mu     sync.Mutex
	opened []func() error
	closed bool
	prod   rocketmq.Producer
}

func newEnv(namesrv, client, scenario, run string) *env {
	return &env{namesrv: namesrv, client: client, scenario: scenario, run: run}
}

func (e *env) name(suffix string) string {
	return strings.ReplaceAll("cf-"+e.run+"-"+e.client+"-"+e.scenario+suffix, ".", "_")
}

func (e *env) group(suffix string) string { return e.name("-g" + suffix) }

// instance names a client of its own: with its own connections and client id.
func (e *env) instance() string {
	return fmt.Sprintf("%s-%s-%d", e.client, e.scenario, instances.Add(1))
}

func (e *env) resolver() primitive.NsResolver {
	return primitive.NewPassthroughResolver([]string{e.namesrv})
}

func (e *env) onClose(f func() error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	check(!e.closed, "scenario is over")
	e.opened = append(e.opened, f)
}

func (e *env) close() {
	e.mu.Lock()
	e.closed = true
	opened := e.opened
	e.mu.Unlock()
	for i := len(opened) - 1; i >= 0; i-- {
		opened[i]()
	}
}

// choose sends a message to the queue it names, or lets the queues take turns.
type choose struct{ producer.QueueSelector }

func (c choose) Select(m *primitive.Message, queues []*primitive.MessageQueue, last string) *primitive.MessageQueue {
	if m.Queue != nil {
		return m.Queue
	}
	return c.QueueSelector.Select(m, queues, last)
}

func (e *env) newProducer(options ...producer.Option) rocketmq.Producer {
	p, err := rocketmq.NewProducer(append([]producer.Option{
		producer.WithNsResolver(e.resolver()),
		producer.WithGroupName(e.group("-producer")),
		producer.WithInstanceName(e.instance()),
		producer.WithSendMsgTimeout(10 * time.Second),
		producer.WithQueueSelector(choose{producer.NewRoundRobinQueueSelector()}),
	}, options...)...)
	must("new producer", err)
	must("start producer", p.Start())
	e.onClose(p.Shutdown)
	return p
}

func (e *env) producer() rocketmq.Producer {
	if e.prod == nil {
		e.prod = e.newProducer()
	}
	return e.prod
}

type handler = func(context.Context, ...*primitive.MessageExt) (consumer.ConsumeResult, error)

// push returns a consumer of a group that starts at the first message.
func (e *env) push(group string, options ...consumer.Option) rocketmq.PushConsumer {
	c, err := rocketmq.NewPushConsumer(append([]consumer.Option{
		consumer.WithNsResolver(e.resolver()),
		consumer.WithGroupName(group),
		consumer.WithInstance(e.instance()),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithConsumeGoroutineNums(4),
	}, options...)...)
	must("new consumer", err)
	return c
}

func (e *env) start(c rocketmq.PushConsumer) rocketmq.PushConsumer {
	must("start consumer", c.Start())
	e.onClose(c.Shutdown)
	return c
}

// consume starts a push consumer that takes the expression's messages to the inbox.
func (e *env) consume(topic, group, expression string, in *inbox, options ...consumer.Option) rocketmq.PushConsumer {
	c := e.push(group, options...)
	must("subscribe", c.Subscribe(topic, tag(expression), in.handler()))
	return e.start(c)
}

func tag(expression string) consumer.MessageSelector {
	return consumer.MessageSelector{Type: consumer.TAG, Expression: expression}
}

// pull returns a pull consumer, not yet started.
func (e *env) pull(group string) rocketmq.PullConsumer {
	c, err := rocketmq.NewPullConsumer(
		consumer.WithNsResolver(e.resolver()),
		consumer.WithGroupName(group),
		consumer.WithInstance(e.instance()),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	)
	must("new pull consumer", err)
	e.onClose(c.Shutdown)
	return c
}

// office is the admin client and the address of the broker, found once for the whole program.
var office struct {
	sync.Once
	admin.Admin
	broker string
	err    error
}

// openOffice learns the broker's address from the id of a message: the admin client wants to be told.
func (e *env) openOffice() {
	office.Do(func() {
		office.err = try(func() {
			a, err := admin.NewAdmin(admin.WithResolver(e.resolver()))
			must("new admin", err)
			office.Admin = a
			probe := newEnv(e.namesrv, e.client, "probe", e.run)
			defer probe.close()
			var r *primitive.SendResult
			eventually(60*time.Second, "a message to a new topic", func() bool {
				r, err = probe.producer().SendSync(context.Background(), message(probe.name(""), "probe"))
				return err == nil
			})
			raw, err := hex.DecodeString(r.OffsetMsgID)
			check(err == nil && len(raw) == 16, "offset message id %q", r.OffsetMsgID)
			port := int(raw[4])<<24 | int(raw[5])<<16 | int(raw[6])<<8 | int(raw[7])
			office.broker = net.JoinHostPort(net.IP(raw[:4]).String(), strconv.Itoa(port))
		})
	})
	must("admin", office.err)
}

// createTopic creates the topic and waits until the name server routes to it.
func (e *env) createTopic(topic string, queues int) {
	e.openOffice()
	eventually(30*time.Second, "topic "+topic+" created", func() bool {
		must("create topic", office.CreateTopic(context.Background(), admin.WithTopicCreate(topic),
			admin.WithBrokerAddrCreate(office.broker), admin.WithReadQueueNums(queues),
			admin.WithWriteQueueNums(queues)))
		return true
	})
	eventually(30*time.Second, "a route to "+topic, func() bool { return len(e.queues(topic)) == queues })
}

func (e *env) topic(suffix string, queues int) string {
	topic := e.name(suffix)
	e.createTopic(topic, queues)
	return topic
}

// queues returns the topic's queues in the order of their ids.
func (e *env) queues(topic string) []*primitive.MessageQueue {
	e.openOffice()
	qs, err := office.FetchPublishMessageQueues(context.Background(), topic)
	must("queues of "+topic, err)
	sorted := make([]*primitive.MessageQueue, len(qs))
	for _, q := range qs {
		check(q.QueueId < len(qs) && sorted[q.QueueId] == nil, "queue ids of %s: %v", topic, qs)
		sorted[q.QueueId] = q
	}
	return sorted
}

func message(topic, key string) *primitive.Message {
	return primitive.NewMessage(topic, []byte("body of "+key)).WithTag("tag").WithKeys([]string{key})
}

func sent(r *primitive.SendResult, err error) *primitive.SendResult {
	must("send", err)
	equal("send status", r.Status, primitive.SendOK)
	return r
}

// send sends n messages with keys prefix0, prefix1, ... round robin over the queues and returns the keys.
func (e *env) send(topic, prefix string, n int) keySet {
	keys := keySet{}
	queues := e.queues(topic)
	for i := range n {
		key := prefix + strconv.Itoa(i)
		m := message(topic, key)
		m.Queue = queues[i%len(queues)]
		sent(e.producer().SendSync(context.Background(), m))
		keys[key] = true
	}
	return keys
}
