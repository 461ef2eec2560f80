package sim

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ratchetmq/ratchet/delay"
	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/message"
	"github.com/ratchetmq/ratchet/protocol"
	"github.com/ratchetmq/ratchet/remoting"
)

const clientTimeout = 4 * time.Second

// ask is a client's request; p is the process that answered.
func (c *cluster) ask(host int, code protocol.RequestCode, h protocol.Header, body []byte) (resp *remoting.Response, p *process, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), clientTimeout)
	defer cancel()
	p = c.nodes[host-1].process()
	resp, err = c.call(ctx, clients, c.nodes[host-1].addr, code, h, nil, body)
	if err == nil && (p == nil || p.dead.Load()) {
		err = errDead
	}
	return resp, p, err
}

// hosts are those in the route, the master first.
func (c *cluster) hosts() (list []int) {
	route := c.names.route()
	for _, id := range sorted(route) {
		for _, n := range c.nodes {
			if n.addr == route[id] {
				list = append(list, n.host)
			}
		}
	}
	return list
}

// send sends messages to a queue; several are a batch. level is of delay, 0: at once.
func (c *cluster) send(at queueName, ids []string, size, level int) {
	hosts := c.hosts()
	if len(hosts) == 0 || c.names.route()[0] == "" {
		return
	}
	body := func(id string) []byte { return []byte(id + " " + strings.Repeat("x", size)) }
	h := &protocol.SendMessageRequest{
		ProducerGroup: "P", Topic: at.topic, DefaultTopic: "TBW102", DefaultTopicQueueNums: 4, QueueID: at.queue,
		BornTimestamp: time.Now().UnixMilli(),
	}
	code, content := protocol.SendMessage, body(ids[0])
	if level > 0 {
		h.Properties = message.AppendProperty(nil, message.PropertyDelayLevel, strconv.Itoa(level))
		at, ids = queueName{delay.Topic, int32(level - 1)}, []string{whileDelayed(ids[0])}
	}
	if len(ids) > 1 {
		code, content = protocol.SendBatchMessage, nil
		for _, id := range ids {
			content = protocol.AppendBatchMessage(content, protocol.BatchMessage{Body: body(id)})
		}
		h.Batch = true
	}
	resp, p, err := c.ask(hosts[0], code, h, content)
	if err != nil {
		c.ledger.note("send of %s to host %d: %v", ids[0], hosts[0], err)
		return
	}
	result := protocol.ResponseCode(resp.Code)
	switch result {
	case protocol.Success, protocol.FlushDiskTimeout, protocol.FlushSlaveTimeout, protocol.SlaveNotAvailable:
		var a protocol.SendMessageResponse
		if err := resp.ReadHeader(&a); err != nil {
			c.ledger.violate("LIVE", "answer to a send: %v", err)
			return
		}
		c.ledger.note("%s…%d at %s/%d:%d from host %d: %s", ids[0], len(ids), at.topic, at.queue, a.QueueOffset, hosts[0], result)
		c.ledger.answered(p, place{at, a.QueueOffset, c.ledger.life(p, at.topic, physicalOf(a.MsgID))}, ids, result)
	default:
		c.ledger.note("send of %s to host %d: %s %s", ids[0], hosts[0], result, resp.Remark)
	}
}

// consumer is one group's reader of one queue. Its fields are the driver's and those of the one request that is under way.
type consumer struct {
	progress
	at        int64            // -1: not known
	busy      bool             // guarded by the ledger's mu
	delivered map[int64]bool   // ever, to the group
	skipped   map[int64]string // passed without a message, by offset; why
	inGap     map[int64]bool   // passed while the broker kept it free, or could not read it
}

// begin asks where the group is, as a client does that starts.
func (c *cluster) begin(k *consumer) {
	h := &protocol.QueryConsumerOffsetRequest{ConsumerGroup: k.group, Topic: k.topic, QueueID: k.queue}
	for _, host := range c.hosts() {
		if c.nodes[host-1].lostAll() {
			continue // what it says is not known to be merged; see settings of a seed
		}
		resp, _, err := c.ask(host, protocol.QueryConsumerOffset, h, nil)
		if err != nil {
			continue
		}
		var a protocol.QueryConsumerOffsetResponse
		switch protocol.ResponseCode(resp.Code) {
		case protocol.Success:
			if resp.ReadHeader(&a) == nil {
				k.at = a.Offset
				k.ordered(c, c.nodes[host-1].process())
				c.ledger.note("%v begins at %d, by host %d", k.progress, k.at, host)
				return
			}
		case protocol.QueryNotFound:
			k.at = 0
			c.ledger.note("%v begins anew, by host %d", k.progress, host)
			return
		default:
		}
	}
}

// pull asks for messages: the master, and when it does not answer a slave.
func (c *cluster) pull(k *consumer, suspend time.Duration, count int32) {
	if k.at < 0 {
		if c.begin(k); k.at < 0 {
			return
		}
	}
	h := &protocol.PullMessageRequest{
		ConsumerGroup: k.group, Topic: k.topic, QueueID: k.queue, QueueOffset: k.at, MaxMsgNums: count, SysFlag: 2 | 4,
		SuspendTimeoutMillis: suspend.Milliseconds(), Subscription: "*", ExpressionType: "TAG",
	}
	for _, host := range c.hosts() {
		resp, p, err := c.ask(host, protocol.PullMessage, h, nil)
		if err != nil {
			continue
		}
		switch code := protocol.ResponseCode(resp.Code); code {
		case protocol.Success, protocol.PullNotFound, protocol.PullRetryImmediately, protocol.PullOffsetMoved:
			var a protocol.PullMessageResponse
			if err := resp.ReadHeader(&a); err != nil {
				c.ledger.violate("LIVE", "answer to a pull: %v", err)
				return
			}
			if c.set.weak == overflowToMax && code == protocol.PullNotFound && a.NextBeginOffset > a.MaxOffset {
				a.NextBeginOffset = a.MaxOffset // as RocketMQ does
			}
			c.pulled(k, p, code, &a, resp.Body)
			return
		default: // not open, no such topic yet
		}
	}
}

// pulled is a consumer that got an answer.
func (c *cluster) pulled(k *consumer, p *process, code protocol.ResponseCode, a *protocol.PullMessageResponse, body []byte) {
	l, got := c.ledger, map[int64]bool{}
	if p.open() {
		l.ahead(p)
	}
	var ids []string
	if code == protocol.Success {
		for len(body) > 0 {
			r, err := message.Parse(body)
			if err != nil {
				l.violate("LIVE", "message in a pull's answer: %v", err)
				return
			}
			body = body[r.Size:]
			at, id := int64(r.QueueOffset), idOf(r.Body)
			l.give(place{k.queueName, at, l.life(p, k.topic, r.PhysicalOffset)}, id, fmt.Sprintf("delivered to %s by host %d", k.group, p.n.host))
			if at < k.at {
				l.violate("P1", "%v asked host %d for %d and got %s at %d", k.progress, p.n.host, k.at, id, at)
			}
			got[at] = true
			ids = append(ids, id)
		}
	}
	l.note("%v at %d: host %d says %s, next %d (has %d…%d) %v", k.progress, k.at, p.n.host, code, a.NextBeginOffset, a.MinOffset, a.MaxOffset, ids)
	l.mu.Lock()
	highest := l.highest[k.queueName]
	if l.ended(k.progress) {
		highest = -1
	}
	l.mu.Unlock()
	k.ordered(c, p) // to where it is, perhaps
	reset := code == protocol.PullOffsetMoved && l.hasReset(k.progress, a.NextBeginOffset)
	if a.NextBeginOffset < k.at && k.at <= highest && !reset {
		l.violate("P1", "%v asked host %d for %d and is sent back to %d", k.progress, p.n.host, k.at, a.NextBeginOffset)
	}
	if reset {
		k.at = a.NextBeginOffset
		k.ordered(c, p)
		return
	}
	for o := k.at; o < a.NextBeginOffset; o++ {
		switch {
		case got[o]:
			k.delivered[o] = true
			delete(k.skipped, o)
		case p.store.Missing(k.topic, k.queue, offset.Queue(o), offset.Queue(o+1)) > 0, l.unreadable(p, place{k.queueName, o, 0}):
			k.inGap[o] = true
		default:
			k.skipped[o] = fmt.Sprintf("host %d answered %s to %d with %d at %s", p.n.host, code, k.at, a.NextBeginOffset, l.now())
		}
	}
	k.at = a.NextBeginOffset
}

// commit tells how far a group has come, and says whether that was taken.
func (c *cluster) commit(k *consumer) bool {
	if k.at < 0 {
		return false
	}
	c.ledger.goesBack(k)
	h := &protocol.UpdateConsumerOffsetRequest{ConsumerGroup: k.group, Topic: k.topic, QueueID: k.queue, CommitOffset: k.at}
	for _, host := range c.hosts() {
		resp, p, err := c.ask(host, protocol.UpdateConsumerOffset, h, nil)
		if err != nil {
			continue
		}
		code := protocol.ResponseCode(resp.Code)
		c.ledger.note("%v commits %d on host %d: %s", k.progress, k.at, host, code)
		if code == protocol.Success {
			c.ledger.commits(p, k.progress, k.at)
			return true
		}
		// A commit that the disk did not take is refused, and the client knows.
		if later := []protocol.ResponseCode{protocol.ServiceNotAvailable, protocol.TopicNotExist, protocol.SubscriptionGroupNotExist}; !slices.Contains(later, code) &&
			!p.dead.Load() && p.store.Err() == nil && !p.disk.failedLately() && p.open() && !c.ledger.hasEnded(k.progress) { // a slave may not know of it yet
			c.ledger.violate("P4", "%v commits %d, where it has come to, and host %d says %s: %s", k.progress, k.at, host, code, resp.Remark)
		}
	}
	return false
}
