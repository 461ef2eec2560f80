// SEND_MESSAGE (10), SEND_MESSAGE_V2 (310), SEND_BATCH_MESSAGE (320).
//
// Kept: order of checks, topic creation on the first send, the properties that a 5.4.0 broker adds, the answer's fields.
// Changed: a topic or broker without write permission refuses the send with NO_PERMISSION; RocketMQ looks at neither
// unless the topic is ordered, so that brokerPermission=4 doesn't drain it (apache/rocketmq#4109).
// Not implemented: half messages and arbitrary delays; they are refused with a sentence that says so.

package processor

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"

	"github.com/ratchetmq/ratchet/message"
	"github.com/ratchetmq/ratchet/protocol"
	"github.com/ratchetmq/ratchet/remoting"
	"github.com/ratchetmq/ratchet/store"
)

// sendScratch is what one send needs beside the request's own bytes. It goes back to sendScratches when the store has
// the message.
type sendScratch struct {
	header     protocol.SendMessageRequest
	properties []byte
	messages   []store.Message
}

var sendScratches = sync.Pool{New: func() any { return new(sendScratch) }}

func (s *sendScratch) release() {
	clear(s.messages)
	s.header, s.properties, s.messages = protocol.SendMessageRequest{}, s.properties[:0], s.messages[:0]
	sendScratches.Put(s)
}

func (p *Processor) sendMessage(_ context.Context, r *remoting.Request) (protocol.Reply, error) {
	s := sendScratches.Get().(*sendScratch)
	defer s.release()
	if err := r.ReadHeader(&s.header); err != nil {
		return p.sendRefused(err)
	}
	topic, err := p.topicForSend(&s.header)
	if err != nil {
		return p.sendRefused(err)
	}
	batch := s.header.Batch || protocol.RequestCode(r.Code) == protocol.SendBatchMessage
	if batch {
		err = p.fillBatch(r, s, topic)
	} else {
		err = p.fillSingle(r, s, topic)
	}
	if err != nil {
		return p.sendRefused(err)
	}
	appended, err := p.put(s.messages...)
	if err != nil {
		return p.sendRefused(err)
	}
	return p.whenSafe(r, s, appended)
}

// sendRefused adds what clients read from every answer to a send, refusals included.
func (p *Processor) sendRefused(err error) (protocol.Reply, error) {
	reply := errorReply(err)
	reply.Extra = p.sendExtra
	return reply, nil
}

// whenSafe answers a stored message: at once, or when the flush that it must wait for is done.
func (p *Processor) whenSafe(r *remoting.Request, s *sendScratch, appended store.Appended) (protocol.Reply, error) {
	unique, _ := message.Property(s.messages[0].Properties, message.PropertyUniqueKey)
	reply := protocol.Reply{
		Header: &protocol.SendMessageResponse{
			MsgID:         p.messageIDs(appended),
			QueueID:       s.header.QueueID,
			QueueOffset:   int64(appended.Queue),
			TransactionID: string(unique),
		},
		Extra: p.sendExtra,
	}
	if wait, ok := message.Property(s.messages[0].Properties, message.PropertyWaitStore); ok && string(wait) == "false" {
		return reply, nil
	}
	return p.whenStored(r, reply, appended)
}

// whenStored gives the answer to a request whose message is written: at once or, with SYNC_FLUSH and SYNC_MASTER, when it
// is flushed and slaves have it, too.
func (p *Processor) whenStored(r *remoting.Request, reply protocol.Reply, appended store.Appended) (protocol.Reply, error) {
	replicate := p.slaves.Sync()
	switch {
	case p.syncFlush:
		p.safe.wait(r, reply, appended.End, replicate)
	case replicate:
		p.safe.replicate(r, reply, appended.End)
	default:
		return reply, nil
	}
	return protocol.Reply{}, errLater
}

// messageIDs is the answer's msgId: one id, or one per message of a batch joined by commas.
func (p *Processor) messageIDs(appended store.Appended) string {
	if appended.Physicals == nil {
		return string(message.AppendID(make([]byte, 0, 32), p.storeHost, appended.Physical))
	}
	ids := make([]byte, 0, 33*len(appended.Physicals))
	for i, phy := range appended.Physicals {
		if i > 0 {
			ids = append(ids, ',')
		}
		ids = message.AppendID(ids, p.storeHost, phy)
	}
	return string(ids)
}

// topicForSend makes the checks that come before a look at the message, and finds or creates the topic.
func (p *Processor) topicForSend(h *protocol.SendMessageRequest) (*protocol.TopicConfig, error) {
	if err := p.takesMessages(); err != nil {
		return nil, err
	}
	if least := p.settings().MinInSync; least > 1 && p.slaves.Sync() && 1+p.slaves.InSync() < least {
		return nil, refuse(protocol.SystemError, "in-sync replicas not enough: %d, minInSyncReplicas is %d", 1+p.slaves.InSync(), least)
	}
	if protocol.IsClosedTopic(h.Topic) {
		return nil, refuse(protocol.NoPermission, "topic %s is the broker's own: sending to it is not allowed", h.Topic)
	}
	topic, err := p.topics.CreateOnSend(h.Topic, h.DefaultTopic, h.DefaultTopicQueueNums, h.UnitMode)
	if err != nil {
		return nil, err
	}
	if topic.Perm&protocol.PermWrite == 0 {
		return nil, refuse(protocol.NoPermission, "topic %s takes no messages: its perm is %d", h.Topic, topic.Perm)
	}
	if queues := max(topic.ReadQueueNums, topic.WriteQueueNums); h.QueueID >= queues {
		return nil, refuse(protocol.InvalidParameter, "queueId %d of topic %s is illegal: it has %d queues", h.QueueID, h.Topic, queues)
	}
	if h.QueueID < 0 {
		h.QueueID = rand.Int32N(max(1, topic.WriteQueueNums))
	}
	return topic, nil
}

// fillSingle makes the one message of a request that isn't a batch.
func (p *Processor) fillSingle(r *remoting.Request, s *sendScratch, topic *protocol.TopicConfig) error {
	h := &s.header
	var props []byte
	s.properties, props = p.appendSendProperties(s.properties, h.Properties, true)
	if err := refuseLater(props); err != nil {
		return err
	}
	m := p.newMessage(r, h, topic)
	m.Properties, m.Body = props, r.Body
	if group, ok := strings.CutPrefix(h.Topic, protocol.RetryPrefix); ok {
		if err := p.redirectExhausted(r, h, group, &m); err != nil {
			return err
		}
	}
	var err error
	if s.properties, _, err = p.delay.Rewrite(&m, s.properties); err != nil {
		return refuse(protocol.MessageIllegal, "topic %s: %v", h.Topic, err)
	}
	s.messages = append(s.messages, m)
	return nil
}

func (p *Processor) newMessage(r *remoting.Request, h *protocol.SendMessageRequest, topic *protocol.TopicConfig) store.Message {
	m := store.Message{
		Topic:          topic.TopicName,
		QueueID:        h.QueueID,
		Flag:           h.Flag,
		SysFlag:        h.SysFlag,
		BornTimestamp:  h.BornTimestamp,
		BornHost:       r.Conn.RemoteAddr(),
		ReconsumeTimes: h.ReconsumeTimes,
	}
	if topic.TopicFilterType == "MULTI_TAG" {
		m.SysFlag |= message.FlagMultiTags
	}
	return m
}

// fillBatch makes one message of each element of a batch body. They are stored one after the other, with consecutive
// queue offsets, or not at all.
func (p *Processor) fillBatch(r *remoting.Request, s *sendScratch, topic *protocol.TopicConfig) error {
	h := &s.header
	if len(h.Topic) > message.MaxTopicV1 {
		return refuse(protocol.MessageIllegal, "a batch can't go to topic %s: its name has %d bytes, the limit is %d",
			h.Topic, len(h.Topic), message.MaxTopicV1)
	}
	if protocol.IsRetryTopic(h.Topic) {
		return refuse(protocol.MessageIllegal, "a batch can't go to the retry topic %s", h.Topic)
	}
	err := protocol.EachBatchMessage(r.Body, func(e protocol.BatchMessage) error {
		var props []byte
		s.properties, props = p.appendSendProperties(s.properties, e.Properties, false)
		if err := refuseLater(props); err != nil {
			return err
		}
		if _, ok := message.Property(props, message.PropertyDelayLevel); ok {
			return refuse(protocol.MessageIllegal, "a batch can't hold delayed messages")
		}
		m := p.newMessage(r, h, topic)
		m.Flag, m.Body, m.Properties = e.Flag, e.Body, props
		s.messages = append(s.messages, m)
		return nil
	})
	if err != nil {
		if _, ok := err.(*refusal); ok { //nolint:errorlint // EachBatchMessage hands the callback's error on as it is
			return err
		}
		return refuse(protocol.MessageIllegal, "batch to topic %s: %v", h.Topic, err)
	}
	if len(s.messages) == 0 {
		return refuse(protocol.MessageIllegal, "batch to topic %s holds no message", h.Topic)
	}
	return nil
}

// appendSendProperties writes to dst the properties that are stored for a message sent with props, and returns dst and
// the part of it that was added: the sender's own, without what only the broker may set, with a unique key if there is
// none, and the broker's marks.
func (p *Processor) appendSendProperties(dst, props []byte, unique bool) (grown, added []byte) {
	start := len(dst)
	if _, ok := message.Property(props, message.PropertyPopCheckPoint); ok {
		dst = message.AppendWithout(dst, props, message.PropertyPopCheckPoint)
	} else if dst = append(dst, props...); len(props) > 0 && props[len(props)-1] != 2 {
		dst = append(dst, 2) // clients before 5.0 leave out the last separator
	}
	if unique {
		if _, ok := message.Property(props, message.PropertyUniqueKey); !ok {
			dst = message.AppendProperty(dst, message.PropertyUniqueKey, p.uniqueIDs.Next())
		}
	}
	dst = append(dst, p.sendMarks...)
	return dst, dst[start:len(dst):len(dst)]
}

// refuseLater refuses the kinds of message that this broker can't handle yet, rather than to store them as what they
// are not.
func refuseLater(props []byte) (err error) {
	message.EachProperty(props, func(name, value []byte) bool {
		switch string(name) {
		case message.PropertyTransaction:
			if string(value) == "true" {
				err = refuse(protocol.NoPermission, "transactional messages are not supported by this broker")
			}
		case message.PropertyTimerDelaySec, message.PropertyTimerDelayMs, message.PropertyTimerDeliverMs:
			err = refuse(protocol.MessageIllegal, "property %s: delivery at any time is not supported by this broker, only delay levels are", name)
		}
		return err == nil
	})
	return err
}

// redirectExhausted sends a message that its consumer could not handle often enough to the group's dead letters. It is
// the way of a client that writes to the retry topic itself.
func (p *Processor) redirectExhausted(r *remoting.Request, h *protocol.SendMessageRequest, group string,
	m *store.Message,
) error {
	config, err := p.group(group)
	if err != nil {
		return err
	}
	limit := retryLimit(r, config, h.MaxReconsumeTimes)
	// An orderly consumer gives a message back only when its own count has reached the limit; the retries of others
	// are counted before they are sent, so the one that equals the limit is still to be delivered.
	if m.ReconsumeTimes > limit || (m.ReconsumeTimes == limit && p.locks.Held(group)) {
		return p.toDeadLetters(group, m)
	}
	return nil
}

// toDeadLetters turns m into a message of its group's dead-letter topic.
func (p *Processor) toDeadLetters(group string, m *store.Message) error {
	topic, err := p.topics.CreateDLQ(group)
	if err != nil {
		return fmt.Errorf("dead-letter topic of group %s: %w", group, err)
	}
	m.Topic, m.QueueID = topic.TopicName, 0
	m.Properties = message.AppendWithout(make([]byte, 0, len(m.Properties)), m.Properties, message.PropertyDelayLevel)
	return nil
}
