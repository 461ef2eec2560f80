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
	"slices"
	"strings"
	"sync"
	"unsafe"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/message"
	"github.com/ratchetmq/ratchet/protocol"
	"github.com/ratchetmq/ratchet/remoting"
	"github.com/ratchetmq/ratchet/store"
)

// sends are requests that are served together, and what they need beside their own bytes. It goes back to sendPool when
// they are answered.
type sends struct {
	each       []send
	replies    []*protocol.Reply           // those of each; nil for one that is answered elsewhere
	messages   []store.Message             // of all
	header     protocol.SendMessageRequest // of the one that is being read
	last       *remoting.Request           // that header was read from, if it could be
	topic      *protocol.TopicConfig       // of the last one that was read and may be sent to
	properties []byte                      // texts that messages have, one after the other
	ids        []byte                      // texts that answers have
	found      traits                      // of the message that was read last
}

// send is one request: it has count of the messages, from first on.
type send struct {
	first, count int // none: it is refused, and reply says why
	queue        int32
	unique       []byte // of the first message
	hasty        bool   // the answer waits for nothing but the append
	end          offset.Physical
	header       protocol.SendReceipt
	reply        protocol.Reply
}

var sendPool = sync.Pool{New: func() any { return new(sends) }}

// keepSends bounds the texts of one kind that a pooled sends keeps room for.
const keepSends = 64 << 10

func (s *sends) release() {
	clear(s.each)
	clear(s.replies)
	clear(s.messages)
	s.topic, s.last = nil, nil
	s.each, s.replies, s.messages = s.each[:0], s.replies[:0], s.messages[:0]
	s.header = protocol.SendMessageRequest{Properties: emptied(s.header.Properties)}
	s.properties, s.ids = emptied(s.properties), emptied(s.ids)
	s.found = traits{}
	sendPool.Put(s)
}

func emptied(b []byte) []byte {
	if cap(b) > keepSends {
		return nil
	}
	return b[:0]
}

// groupBytes bounds the bodies that are stored together.
const groupBytes = 256 << 10

// Joins says that sends may be stored together. It is remoting's GroupHandler, as ServeGroup.
func (p *Processor) Joins(r *remoting.Request) bool { return isSend(protocol.RequestCode(r.Code)) }

// ServeGroup stores sends that have waited together with one append.
func (p *Processor) ServeGroup(ctx context.Context, group []*remoting.Request) {
	for len(group) > 0 {
		n := 1
		if p.allows(leading) == nil {
			n = joinable(group)
		}
		if n == 1 {
			p.Serve(ctx, group[0])
		} else {
			p.send(group[:n])
		}
		group = group[n:]
	}
}

// joinable is how many of the first sends are not too large to be stored together, one at least.
func joinable(group []*remoting.Request) int {
	size := 0
	for n, r := range group {
		if size += len(r.Body); n > 0 && size > groupBytes {
			return n
		}
	}
	return len(group)
}

func (p *Processor) sendMessage(_ context.Context, r *remoting.Request) (protocol.Reply, error) {
	p.send([]*remoting.Request{r})
	return protocol.Reply{}, errLater
}

// send stores the messages of requests, in their order, and answers each.
func (p *Processor) send(group []*remoting.Request) {
	s := sendPool.Get().(*sends)
	defer s.release()
	s.each = slices.Grow(s.each, len(group))[:len(group)] // grown no more: replies and headers are pointed to
	s.replies = slices.Grow(s.replies, len(group))[:len(group)]
	for i, r := range group {
		if err := p.readSend(r, s, &s.each[i]); err != nil {
			p.refuseSend(&s.each[i], err)
		}
	}
	if len(s.messages) > 0 {
		p.storeSends(s)
	}
	for i, r := range group {
		s.replies[i] = p.whenSafe(r, s, &s.each[i])
	}
	remoting.ReplyGroup(group, s.replies)
}

// readSend makes the messages of one request.
func (p *Processor) readSend(r *remoting.Request, s *sends, one *send) error {
	if err := s.readHeader(r); err != nil {
		return err
	}
	topic, queue, err := p.topicForSend(&s.header, s.topic)
	if err != nil {
		return err
	}
	s.topic = topic
	one.queue, one.first = queue, len(s.messages)
	if s.header.Batch || protocol.RequestCode(r.Code) == protocol.SendBatchMessage {
		err = p.fillBatch(r, s, one, topic)
	} else {
		err = p.fillSingle(r, s, one, topic)
	}
	if err != nil {
		s.forget(one.first)
		return err
	}
	one.count = len(s.messages) - one.first
	return nil
}

// readHeader reads the header of r, less the fields that it begins with as the one before: most are the same in all sends of
// a producer.
func (s *sends) readHeader(r *remoting.Request) (err error) {
	known := false
	if s.last != nil {
		known, err = r.ReadHeaderAfter(&s.last.Command, &s.header)
	}
	if s.last = nil; !known {
		s.header = protocol.SendMessageRequest{Properties: s.header.Properties[:0]}
		err = r.ReadHeader(&s.header)
	}
	if err == nil {
		s.last = r
	}
	return err
}

// storeSends appends all messages at once. What can't be appended together, because one of them is at fault or because
// they are too many for what is left of the log's file, is tried request by request.
func (p *Processor) storeSends(s *sends) {
	appended, err := p.put(s.messages...)
	if err == nil {
		for i := range s.each {
			s.each[i].end = appended.End
		}
		return
	}
	alone := 0
	for i := range s.each {
		if s.each[i].count > 0 {
			alone++
		}
	}
	for i := range s.each {
		one := &s.each[i]
		if one.count == 0 {
			continue
		}
		if alone > 1 {
			appended, err = p.put(s.messages[one.first : one.first+one.count]...)
		}
		if err != nil {
			p.refuseSend(one, err)
			continue
		}
		one.end = appended.End
	}
}

// refuseSend makes the answer to a send that is not done. It has what clients read from every answer to a send.
func (p *Processor) refuseSend(one *send, err error) {
	one.count, one.reply = 0, errorReply(err)
	one.reply.Extra = p.sendExtra
}

// whenSafe is the answer to a request, or nil when it will be given elsewhere: by the flush or the slaves that a stored
// message must wait for.
func (p *Processor) whenSafe(r *remoting.Request, s *sends, one *send) *protocol.Reply {
	atOnce := one.hasty || !p.syncFlush && !p.slaves.Sync()
	if one.count == 0 || atOnce && r.IsOneway() { // whose sender is told nothing
		return &one.reply
	}
	h := &one.header
	h.Form = p.receipts
	h.MsgID = s.messageIDs(p.ids, one)
	h.QueueID = one.queue
	h.QueueOffset = int64(s.messages[one.first].QueueOffset)
	h.TransactionID = unsafe.String(unsafe.SliceData(one.unique), len(one.unique))
	one.reply.Header = h
	if atOnce {
		return &one.reply
	}
	later := h.SendMessageResponse // which outlives s, so that its texts can't be parts of it
	later.MsgID, later.TransactionID = strings.Clone(later.MsgID), strings.Clone(later.TransactionID)
	reply, err := p.whenStored(r, protocol.Reply{Header: &later, Extra: p.sendExtra}, one.end)
	if err != nil {
		return nil
	}
	one.reply = reply
	return &one.reply
}

// whenStored gives the answer to a request whose message is written up to end: at once or, with SYNC_FLUSH and
// SYNC_MASTER, when it is flushed and slaves have it, too.
func (p *Processor) whenStored(r *remoting.Request, reply protocol.Reply, end offset.Physical) (protocol.Reply, error) {
	replicate := p.slaves.Sync()
	switch {
	case p.syncFlush:
		p.safe.wait(r, reply, end, replicate)
	case replicate:
		p.safe.replicate(r, reply, end)
	default:
		return reply, nil
	}
	return protocol.Reply{}, errLater
}

// messageIDs is the answer's msgId: one id, or one per message of a batch joined by commas. It is a part of s.
func (s *sends) messageIDs(of message.IDs, one *send) string {
	ids, messages := s.ids, s.messages[one.first:one.first+one.count]
	for i := range messages {
		if i > 0 {
			ids = append(ids, ',')
		}
		ids = of.Append(ids, messages[i].At)
	}
	s.ids, ids = ids, ids[len(s.ids):]
	return unsafe.String(unsafe.SliceData(ids), len(ids))
}

// topicForSend makes the checks that come before a look at the message, finds or creates the topic, and chooses the queue
// if the sender has not. known, unless nil, is a topic that a moment ago could be sent to.
func (p *Processor) topicForSend(h *protocol.SendMessageRequest, known *protocol.TopicConfig) (
	topic *protocol.TopicConfig, queue int32, err error,
) {
	if err := p.takesMessages(); err != nil {
		return nil, 0, err
	}
	if least := p.settings().MinInSync; least > 1 && p.slaves.Sync() && 1+p.slaves.InSync() < least {
		return nil, 0, refuse(protocol.SystemError, "in-sync replicas not enough: %d, minInSyncReplicas is %d", 1+p.slaves.InSync(), least)
	}
	if topic = known; topic == nil || topic.TopicName != h.Topic {
		if topic, err = p.openTopic(h); err != nil {
			return nil, 0, err
		}
	}
	if queues := max(topic.ReadQueueNums, topic.WriteQueueNums); h.QueueID >= queues {
		return nil, 0, refuse(protocol.InvalidParameter, "queueId %d of topic %s is illegal: it has %d queues", h.QueueID, h.Topic, queues)
	}
	if queue = h.QueueID; queue < 0 {
		queue = rand.Int32N(max(1, topic.WriteQueueNums))
	}
	return topic, queue, nil
}

// openTopic finds or creates a topic that clients may send to.
func (p *Processor) openTopic(h *protocol.SendMessageRequest) (*protocol.TopicConfig, error) {
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
	return topic, nil
}

// fillSingle makes the one message of a request that isn't a batch.
func (p *Processor) fillSingle(r *remoting.Request, s *sends, one *send, topic *protocol.TopicConfig) error {
	h := &s.header
	m := s.newMessage(r, topic, one.queue)
	m.Body = r.Body
	found := &s.found
	s.properties, m.Properties = p.appendSendProperties(s.properties, h.Properties, true, found)
	if found.refused != nil {
		return found.refused
	}
	m.Keys = found.keys
	one.unique, one.hasty = found.unique, found.hasty
	if group, ok := strings.CutPrefix(h.Topic, protocol.RetryPrefix); ok {
		if err := p.redirectExhausted(r, h, group, m); err != nil {
			return err
		}
	}
	if found.delayed {
		var err error
		if s.properties, _, err = p.delay.Rewrite(m, s.properties); err != nil {
			return refuse(protocol.MessageIllegal, "topic %s: %v", h.Topic, err)
		}
	}
	return nil
}

// newMessage adds a message with what the request's header says of it. It is filled in where it stays, and moves when
// another is added.
func (s *sends) newMessage(r *remoting.Request, topic *protocol.TopicConfig, queue int32) *store.Message {
	n := len(s.messages)
	s.messages = slices.Grow(s.messages, 1)[:n+1] // which is zero: see release
	h, m := &s.header, &s.messages[n]
	m.Topic = topic.TopicName
	m.QueueID = queue
	m.Flag, m.SysFlag = h.Flag, h.SysFlag
	m.BornTimestamp = h.BornTimestamp
	m.BornHost = r.Conn.RemoteAddr()
	m.ReconsumeTimes = h.ReconsumeTimes
	if topic.TopicFilterType == "MULTI_TAG" {
		m.SysFlag |= message.FlagMultiTags
	}
	return m
}

// forget drops the messages from n on.
func (s *sends) forget(n int) {
	clear(s.messages[n:])
	s.messages = s.messages[:n]
}

// fillBatch makes one message of each element of a batch body. They are stored one after the other, with consecutive
// queue offsets, or not at all.
func (p *Processor) fillBatch(r *remoting.Request, s *sends, one *send, topic *protocol.TopicConfig) error {
	h := &s.header
	if len(h.Topic) > message.MaxTopicV1 {
		return refuse(protocol.MessageIllegal, "a batch can't go to topic %s: its name has %d bytes, the limit is %d",
			h.Topic, len(h.Topic), message.MaxTopicV1)
	}
	if protocol.IsRetryTopic(h.Topic) {
		return refuse(protocol.MessageIllegal, "a batch can't go to the retry topic %s", h.Topic)
	}
	found := &s.found
	err := protocol.EachBatchMessage(r.Body, func(e protocol.BatchMessage) error {
		m := s.newMessage(r, topic, one.queue)
		m.Flag, m.Body = e.Flag, e.Body
		s.properties, m.Properties = p.appendSendProperties(s.properties, e.Properties, false, found)
		switch {
		case found.refused != nil:
			return found.refused
		case found.delayed:
			return refuse(protocol.MessageIllegal, "a batch can't hold delayed messages")
		}
		m.Keys = found.keys
		if len(s.messages) == one.first+1 {
			one.unique, one.hasty = found.unique, found.hasty
		}
		return nil
	})
	if err != nil {
		if _, ok := err.(*refusal); ok { //nolint:errorlint // EachBatchMessage hands the callback's error on as it is
			return err
		}
		return refuse(protocol.MessageIllegal, "batch to topic %s: %v", h.Topic, err)
	}
	if len(s.messages) == one.first {
		return refuse(protocol.MessageIllegal, "batch to topic %s holds no message", h.Topic)
	}
	return nil
}

// appendSendProperties writes to dst the properties that are stored for a message sent with props, and returns dst and
// the part of it that was added: the sender's own, without what only the broker may set, with a unique key if there is
// none, and the broker's marks; of what the broker adds only what there is room for, since nobody needs it to have the message.
// found, which has those of a message before or is zero, gets what the text has.
func (p *Processor) appendSendProperties(dst, props []byte, unique bool, found *traits) (grown, added []byte) {
	start := len(dst)
	fits := func(n int) bool { return len(dst)-start+n <= message.MaxPropertiesSize }
	if dst = append(dst, props...); len(props) > 0 && props[len(props)-1] != 2 {
		dst = append(dst, 2) // clients before 5.0 leave out the last separator
	}
	if found.read(dst[start:]); found.popped {
		dst = message.AppendWithout(dst[:start], props, message.PropertyPopCheckPoint)
		found.text = nil // it was written over
		found.read(dst[start:])
	}
	if unique && found.unique == nil {
		if id := p.uniqueIDs.Next(); fits(len(message.PropertyUniqueKey) + 1 + len(id) + 1) {
			dst = message.AppendProperty(dst, message.PropertyUniqueKey, id)
			found.unique = dst[len(dst)-1-len(id) : len(dst)-1]
			found.keys.Note(dst[start:], []byte(message.PropertyUniqueKey), found.unique)
			found.text = nil // which lacks the key
		}
	}
	if fits(len(p.sendMarks)) {
		dst = append(dst, p.sendMarks...)
	}
	if !fits(0) && len(props) == message.MaxPropertiesSize {
		dst = dst[:start+len(props)] // but for the separator it fits
	}
	return dst, dst[start:len(dst):len(dst)]
}

// traits are what a broker looks for in the properties of a message that is sent. Of several properties with one name
// the last counts.
type traits struct {
	text    []byte       // that was read; nil: these are not the traits of one
	unique  []byte       // the value of UNIQ_KEY, a part of the text
	hasty   bool         // WAIT is false
	delayed bool         // there is a DELAY
	popped  bool         // there is a POP_CK
	refused error        // a kind of message that this broker can't handle yet: not to be stored as what it is not
	keys    message.Keys // of the text
}

// read makes t, which is zero or the traits of another text, those of props. Each send pays for it, so that props are gone
// over once, and only compared when the other text has the same properties with the same values but for the keys, as
// messages of one producer have.
func (t *traits) read(props []byte) {
	if t.text == nil || !t.keys.Match(t.text, props) {
		t.readAll(props)
	} else if t.unique != nil {
		t.unique = t.keys.Unique(props)
	}
	t.text = props
}

func (t *traits) readAll(props []byte) {
	*t = traits{}
	t.keys.Begin()
	message.EachProperty(props, func(name, value []byte) bool {
		t.keys.Note(props, name, value)
		switch string(name) {
		case message.PropertyUniqueKey:
			t.unique = value
		case message.PropertyWaitStore:
			t.hasty = string(value) == "false"
		case message.PropertyDelayLevel:
			t.delayed = true
		case message.PropertyPopCheckPoint:
			t.popped = true
		case message.PropertyTransaction:
			if string(value) == "true" && t.refused == nil {
				t.refused = refuse(protocol.NoPermission, "transactional messages are not supported by this broker")
			}
		case message.PropertyTimerDelaySec, message.PropertyTimerDelayMs, message.PropertyTimerDeliverMs:
			if t.refused == nil {
				t.refused = refuse(protocol.MessageIllegal,
					"property %s: delivery at any time is not supported by this broker, only delay levels are", name)
			}
		}
		return true
	})
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
	m.Keys = message.Keys{} // they were noted of the properties before
	return nil
}
