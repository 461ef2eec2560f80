// PULL_MESSAGE (11), LITE_PULL_MESSAGE (361).
//
// Kept: checks and codes, long polling, tag filter, commit of the offset that rides on a pull.
// Changed: what a consumer that is ahead of the queue is told, see locate. Several members of a group with different
// subscriptions each get what they subscribed to (apache/rocketmq#2836): RocketMQ answers SUBSCRIPTION_NOT_EXIST to
// one of them. A held pull is answered when its time is over, not up to 5 s later. maxMsgNums is honoured beyond 32.
// Not implemented: SQL92 filters are refused with SYSTEM_ERROR, the code that a RocketMQ broker uses which has them
// switched off; class filters are gone from RocketMQ too.

package processor

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/message"
	"github.com/ratchetmq/ratchet/protocol"
	"github.com/ratchetmq/ratchet/remoting"
	"github.com/ratchetmq/ratchet/store"
)

// Bits of a pull's sysFlag.
const (
	pullCommits   = 1 // commitOffset is to be committed
	pullSuspends  = 2 // the request may be held
	pullBringsOwn = 4 // subscription is in the request, not in the heartbeat
)

// Limits of one pull's answer. At least one message is always returned.
const (
	pullBytesDefault = 256 << 10 // what RocketMQ hands out; clients before 5.0 can't ask for another amount
	pullBytesMax     = 1 << 20
	pullCountMax     = 1024
)

// pull is one pull request, read and checked. It outlives the request's frame, since it may be held.
type pull struct {
	request *remoting.Request
	group   string
	topic   string
	queue   int32
	from    offset.Queue
	count   int
	bytes   int
	match   func(tagsCode int64) bool // nil: everything
}

func (p *Processor) pullMessage(_ context.Context, r *remoting.Request) (protocol.Reply, error) {
	var h protocol.PullMessageRequest
	if err := r.ReadHeader(&h); err != nil {
		return protocol.Reply{}, err
	}
	q, err := p.readPull(r, &h)
	if err != nil {
		return protocol.Reply{}, err
	}
	if reset, ok := p.offsets.PulledReset(q.group, q.topic, q.queue, q.from); ok {
		return p.resetReply(q, reset), nil
	}
	if h.SysFlag&pullCommits != 0 && h.CommitOffset >= 0 {
		_ = p.commit(r, q.group, q.topic, q.queue, offset.Queue(h.CommitOffset)) // logged; it must not fail the pull
	}
	var suspend time.Duration
	if h.SysFlag&pullSuspends != 0 {
		suspend = time.Duration(h.SuspendTimeoutMillis) * time.Millisecond
		if !p.settings().LongPolling {
			suspend = min(suspend, p.settings().ShortPolling)
		}
	}
	return p.answerPull(q, suspend)
}

// maxSuspend bounds how long a client may ask to be held; a stock client asks for 15 to 30 s.
const maxSuspend = 5 * time.Minute

// readPull checks a pull and finds what the consumer wants to see of the queue.
func (p *Processor) readPull(r *remoting.Request, h *protocol.PullMessageRequest) (*pull, error) {
	if !p.permits(protocol.PermRead) {
		return nil, refuse(protocol.NoPermission, "broker %s gives out no messages: brokerPermission is %d",
			p.brokerName, p.settings().Permission)
	}
	if protocol.RequestCode(r.Code) == protocol.LitePullMessage && !p.settings().LitePull {
		return nil, refuse(protocol.NoPermission, "broker %s has litePullMessageEnable switched off", p.brokerName)
	}
	group, err := p.groupForPull(h.ConsumerGroup)
	if err != nil {
		return nil, err
	}
	if err := p.queueForRead(h.Topic, h.QueueID); err != nil {
		return nil, err
	}
	q := &pull{
		request: r,
		group:   group.GroupName,
		topic:   h.Topic,
		queue:   h.QueueID,
		from:    offset.Queue(h.QueueOffset),
		count:   int(min(max(h.MaxMsgNums, 1), pullCountMax)),
		bytes:   pullBytesDefault,
	}
	if h.MaxMsgBytes > 0 {
		q.bytes = int(min(h.MaxMsgBytes, pullBytesMax))
	}
	q.match, err = p.subscribed(r, h)
	return q, err
}

func (p *Processor) groupForPull(name string) (*protocol.SubscriptionGroupConfig, error) {
	group, err := p.groups.GetOrCreate(name)
	if err != nil {
		return nil, refuse(protocol.SubscriptionGroupNotExist, "%v", err)
	}
	if !group.ConsumeEnable {
		return nil, refuse(protocol.NoPermission, "consumer group %s may not consume: its consumeEnable is false", name)
	}
	return group, nil
}

// queueForRead checks that the topic may be read and has the queue.
func (p *Processor) queueForRead(name string, queue int32) error {
	topic, err := p.topic(name)
	if err != nil {
		return err
	}
	if topic.Perm&protocol.PermRead == 0 {
		return refuse(protocol.NoPermission, "topic %s gives out no messages: its perm is %d", name, topic.Perm)
	}
	if queue < 0 || queue >= topic.ReadQueueNums {
		return refuse(protocol.InvalidParameter, "queueId %d of topic %s is illegal: it has %d queues to read",
			queue, name, topic.ReadQueueNums)
	}
	return nil
}

// subscribed is what of the queue the consumer wants: nil for everything.
func (p *Processor) subscribed(r *remoting.Request, h *protocol.PullMessageRequest) (func(int64) bool, error) {
	if h.SysFlag&pullBringsOwn != 0 {
		if !isTagExpression(h.ExpressionType) {
			return nil, refuseSQL(h.ExpressionType)
		}
		return matchTags(tagCodes(h.Subscription)), nil
	}
	group, ok := p.clients.Group(h.ConsumerGroup)
	if !ok {
		return nil, refuse(protocol.SubscriptionNotExist, "consumer group %s is not online here: no heartbeat came yet", h.ConsumerGroup)
	}
	if group.Broadcasting() {
		if config, ok := p.groups.Get(h.ConsumerGroup); ok && !config.ConsumeBroadcastEnable {
			return nil, refuse(protocol.NoPermission, "consumer group %s may not broadcast: its consumeBroadcastEnable is false", h.ConsumerGroup)
		}
	}
	if !p.groups.Readable(h.ConsumerGroup, h.Topic) {
		return nil, refuse(protocol.NoPermission, "consumer group %s is forbidden to read topic %s", h.ConsumerGroup, h.Topic)
	}
	sub, ok := group.Subscription(h.Topic, r.Conn.ID())
	switch {
	case !ok:
		return nil, refuse(protocol.SubscriptionNotExist, "consumer group %s has not subscribed to topic %s", h.ConsumerGroup, h.Topic)
	case sub.SubVersion < h.SubVersion:
		return nil, refuse(protocol.SubscriptionNotLatest, "the subscription of consumer group %s to topic %s is older here (%d) than the client's (%d)",
			h.ConsumerGroup, h.Topic, sub.SubVersion, h.SubVersion)
	case !isTagExpression(sub.ExpressionType):
		return nil, refuseSQL(sub.ExpressionType)
	}
	return matchTags(sub.CodeSet), nil
}

func isTagExpression(kind string) bool { return kind == "" || kind == "TAG" }

func refuseSQL(kind string) error {
	return refuse(protocol.SystemError, "filter expressions of type %s are not supported by this broker, only TAG is", kind)
}

// tagCodes are the hash codes of the tags in an expression like "A || B"; none for "*" and for an empty one.
func tagCodes(expression string) []int32 {
	if expression = strings.TrimSpace(expression); expression == "" || expression == "*" {
		return nil
	}
	var codes []int32
	for tag := range strings.SplitSeq(expression, "||") {
		if tag = strings.TrimSpace(tag); tag != "" {
			codes = append(codes, message.HashCode([]byte(tag)))
		}
	}
	return codes
}

// matchTags says by its consume queue entry whether a message may have one of the tags. Two tags can share a hash
// code; the client looks at the tag itself.
func matchTags(codes []int32) func(int64) bool {
	if len(codes) == 0 {
		return nil
	}
	return func(tagsCode int64) bool {
		return int64(int32(tagsCode)) == tagsCode && slices.Contains(codes, int32(tagsCode))
	}
}

var pullBuffers = sync.Pool{New: func() any { return new([]byte) }}

// answerPull reads the queue and answers, or parks the pull for at most suspend.
func (p *Processor) answerPull(q *pull, suspend time.Duration) (protocol.Reply, error) {
	buffer := pullBuffers.Get().(*[]byte)
	body, found, err := p.store.Read(store.Query{
		Topic: q.topic, Queue: q.queue, From: q.from, MaxMessages: q.count, MaxBytes: q.bytes, Match: q.match,
	}, (*buffer)[:0])
	defer func() {
		if cap(body) <= pullBytesMax {
			*buffer = body
			pullBuffers.Put(buffer)
		}
	}()
	if err != nil {
		return protocol.Reply{}, err
	}
	v := locate(found, q.from, p.known(q, found.High))
	if v.hold && suspend > 0 && p.park(q, min(suspend, maxSuspend)) {
		return protocol.Reply{}, errLater
	}
	p.traffic.pulled(found.Count)
	reply := p.pullReply(q, v, found)
	if v.code == protocol.PullOffsetMoved {
		p.log.Warn("pull offset moved", "topic", q.topic, "queue", q.queue, "group", q.group, "qoff", q.from,
			"next", v.next, "client", q.request.Conn.RemoteAddr(), "reason", v.remark)
	}
	if v.code == protocol.Success {
		// Reply is called here, not by the caller, because the body goes back to the pool when this function returns.
		reply.Body = body
		q.request.Reply(reply)
		return protocol.Reply{}, errLater
	}
	return reply, nil
}

// known is what beside the queue, which ends at high, decides about a pull.
func (p *Processor) known(q *pull, high offset.Queue) known {
	s := p.peers.Standing()
	return known{
		given: p.given(q.topic, q.queue, q.from, high),
		slave: s.Follows(), short: p.store.Low() > s.MasterLow,
	}
}

// given is the highest next offset that a queue, which ends at high, is known to have ever had, as far as it matters for
// an offset at: it is not looked for when that is below.
func (p *Processor) given(topic string, queue int32, at, high offset.Queue) offset.Queue {
	if at <= high {
		return high
	}
	committed, _ := p.offsets.Highest(topic, queue)
	if high = max(high, committed); at <= high {
		return high
	}
	return max(high, p.store.Given(topic, queue)) // the end that readers see is a moment behind what was stored
}

// park holds a pull; it says no when the broker stops.
func (p *Processor) park(q *pull, suspend time.Duration) bool {
	q.request.Detach()
	if !p.holds.park(q, time.Now().Add(suspend)) {
		return false
	}
	// A message may have come between the read and the parking; dispatch has then not seen the parked pull.
	if b, ok := p.store.Bounds(q.topic, q.queue); ok && b.High > q.from {
		p.holds.wakeBelow(q.topic, q.queue, b.High)
	}
	return true
}

// answerHeld answers a pull that was parked, with what is there now.
func (p *Processor) answerHeld(q *pull) {
	if q.request.Conn.Closed() {
		q.request.Reply(protocol.Reply{Code: protocol.PullNotFound})
		return
	}
	if reset, ok := p.offsets.PulledReset(q.group, q.topic, q.queue, q.from); ok {
		q.request.Reply(p.resetReply(q, reset))
		return
	}
	p.finish(q.request, func() (protocol.Reply, error) { return p.answerPull(q, 0) })
}

// resetReply tells a consumer the offset that an operator chose for it.
func (p *Processor) resetReply(q *pull, reset offset.Queue) protocol.Reply {
	b, _ := p.store.Bounds(q.topic, q.queue)
	return p.pullReply(q, verdict{code: protocol.PullOffsetMoved, remark: "OFFSET_RESET", next: reset}, store.Batch{Bounds: b})
}

func (p *Processor) pullReply(q *pull, v verdict, found store.Batch) protocol.Reply {
	return protocol.Reply{
		Code:   v.code,
		Remark: v.remark,
		Header: &protocol.PullMessageResponse{
			NextBeginOffset:      int64(v.next),
			MinOffset:            int64(found.Low),
			MaxOffset:            int64(found.High),
			SuggestWhichBrokerID: p.whoIsNext(q, v, found),
		},
	}
}

// whoIsNext is the id of the broker that the consumer is to ask next: the master, or a slave when slaves may be read from
// and the consumer is so far behind that the master would have to read from the disk.
func (p *Processor) whoIsNext(q *pull, v verdict, found store.Batch) int64 {
	s := p.settings()
	if !s.SlaveRead || !p.peers.Standing().Master {
		return 0
	}
	group, ok := p.groups.Get(q.group)
	if !ok {
		return 0
	}
	if behind := int64(p.store.Written() - found.LastPhysical); v.code == protocol.Success &&
		behind > p.memory/100*int64(s.MemoryRatio) && p.slaves.InSync() > 0 {
		return group.WhichBrokerWhenConsumeSlowly
	}
	return group.BrokerID
}
