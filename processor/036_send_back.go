// CONSUMER_SEND_MSG_BACK (36): a consumer could not handle a message and gives it back, to get it again later.
//
// Kept: the message goes to the group's retry topic with a delay that grows with each time, or to its dead letters
// when it has come back often enough.

package processor

import (
	"context"
	"math/rand/v2"
	"strconv"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/message"
	"github.com/ratchetmq/ratchet/protocol"
	"github.com/ratchetmq/ratchet/remoting"
	"github.com/ratchetmq/ratchet/store"
)

// firstRetryLevel is the delay level of a message's first retry: 10 s with the default levels.
const firstRetryLevel = 3

// versionRetryLimit is the first client version (3.4.9) whose maxReconsumeTimes counts.
const versionRetryLimit = 121

func (p *Processor) sendBack(_ context.Context, r *remoting.Request) (protocol.Reply, error) {
	var h protocol.ConsumerSendMsgBackRequest
	if err := r.ReadHeader(&h); err != nil {
		return protocol.Reply{}, err
	}
	group, err := p.group(h.Group)
	if err != nil {
		return protocol.Reply{}, err
	}
	if err := p.takesMessages(); err != nil {
		return protocol.Reply{}, err
	}
	if group.RetryQueueNums <= 0 {
		return protocol.Reply{}, nil // the group wants no retries: the message is dropped, as its owner said
	}
	raw, err := p.store.Record(offset.Physical(h.Offset), nil)
	if err != nil {
		return protocol.Reply{}, refuse(protocol.SystemError, "no message begins at commit log offset %d", h.Offset)
	}
	given, err := message.Parse(raw)
	if err != nil {
		return protocol.Reply{}, refuse(protocol.SystemError, "message at commit log offset %d: %v", h.Offset, err)
	}
	m, err := p.retryMessage(r, &h, group, &given)
	if err != nil {
		return protocol.Reply{}, err
	}
	if _, _, err := p.delay.Rewrite(&m, nil); err != nil {
		return protocol.Reply{}, err
	}
	appended, err := p.put(m)
	if err != nil {
		return protocol.Reply{}, err
	}
	return p.whenStored(r, protocol.Reply{}, appended.End)
}

// retryLimit is how often a message is tried again for a group: the client's own limit counts, if it can name one.
func retryLimit(r *remoting.Request, group *protocol.SubscriptionGroupConfig, own protocol.Opt[int32]) int32 {
	if r.Version >= versionRetryLimit && own.Set {
		return own.Value
	}
	return group.RetryMaxTimes
}

// retryMessage is the message that is stored for one given back: for the retry topic, or for the dead letters.
func (p *Processor) retryMessage(r *remoting.Request, h *protocol.ConsumerSendMsgBackRequest,
	group *protocol.SubscriptionGroupConfig, given *message.Record,
) (store.Message, error) {
	topic, err := p.topics.CreateRetry(group.GroupName, group.RetryQueueNums, h.UnitMode)
	if err != nil {
		return store.Message{}, err
	}
	limit := retryLimit(r, group, h.MaxReconsumeTimes)
	m := store.Message{
		Topic:          topic.TopicName,
		QueueID:        rand.Int32N(max(1, topic.WriteQueueNums)),
		Flag:           given.Flag,
		SysFlag:        given.SysFlag,
		BornTimestamp:  given.BornTimestamp,
		BornHost:       given.BornHost,
		ReconsumeTimes: given.ReconsumeTimes + 1,
		Body:           given.Body,
	}
	props := make([]byte, 0, len(given.Properties)+128)
	props = message.AppendWithout(props, given.Properties, message.PropertyDelayLevel, message.PropertyWaitStore)
	if _, ok := message.Property(props, message.PropertyRetryTopic); !ok {
		props = message.AppendProperty(props, message.PropertyRetryTopic, string(given.Topic))
	}
	if _, ok := message.Property(props, message.PropertyOriginMessageID); !ok {
		props = message.AppendProperty(props, message.PropertyOriginMessageID,
			string(message.NewIDs(given.StoreHost).Append(nil, given.PhysicalOffset)))
	}
	m.Properties = message.AppendProperty(props, message.PropertyWaitStore, "false")
	if given.ReconsumeTimes >= limit || h.DelayLevel < 0 {
		return m, p.toDeadLetters(group.GroupName, &m)
	}
	level := h.DelayLevel
	if level == 0 {
		level = firstRetryLevel + given.ReconsumeTimes
	}
	m.Properties = message.AppendProperty(m.Properties, message.PropertyDelayLevel, strconv.Itoa(int(level)))
	return m, nil
}
