package delay

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/ratchetmq/ratchet/message"
	"github.com/ratchetmq/ratchet/store"
)

const (
	// propertyCRC is a checksum over the whole record, in stores that a Java broker has written. A record that is written
	// anew would need another one.
	propertyCRC = "__CRC32#"
	topicHalf   = "RMQ_SYS_TRANS_HALF_TOPIC"
)

// Rewrite makes a message with a delay level one for the delay queues: Topic, QueueID and Properties are changed, and
// the real topic and queue are kept as properties. The new properties are appended to dst, which is returned longer,
// and m borrows them. Messages without a level, and those of a transaction that is not committed, are left alone:
// delayed is false. ErrLevel when DELAY is no number.
func (l Levels) Rewrite(m *store.Message, dst []byte) (buf []byte, delayed bool, err error) {
	switch m.SysFlag & message.FlagTransactionMask {
	case message.FlagPrepared, message.FlagRollback:
		return dst, false, nil
	}
	level, err := l.Of(m.Properties)
	if err != nil || level == 0 || m.Topic == Topic {
		return dst, false, err
	}
	// The timer properties ask for a delay in another way; DELAY wins.
	from := len(dst)
	own := dst[from:] // an empty text, in dst's spare room while that lasts
	message.EachProperty(m.Properties, func(name, value []byte) bool {
		switch string(name) {
		case propertyCRC, message.PropertyTimerDelayMs, message.PropertyTimerDelaySec, message.PropertyTimerDeliverMs,
			message.PropertyRealTopic, message.PropertyRealQueueID:
		case message.PropertyDelayLevel:
			own = message.AppendProperty(own, message.PropertyDelayLevel, strconv.Itoa(level))
		default:
			own = message.AppendProperty(own, string(name), string(value))
		}
		return true
	})
	own = message.AppendProperty(own, message.PropertyRealTopic, m.Topic)
	own = message.AppendProperty(own, message.PropertyRealQueueID, strconv.Itoa(int(m.QueueID)))
	dst = append(dst, own...)
	m.Topic, m.QueueID, m.Properties = Topic, int32(level-1), dst[from:len(dst):len(dst)]
	m.Keys = message.Keys{} // they were noted of the properties before
	return dst, true, nil
}

var errUndeliverable = errors.New("delayed message not deliverable")

// restore makes the message that is delivered of a delayed record; it borrows the record's bytes. Properties stay as
// they are, as RocketMQ leaves them.
func restore(r *message.Record) (store.Message, error) {
	topic, ok := message.Property(r.Properties, message.PropertyRealTopic)
	if !ok {
		return store.Message{}, fmt.Errorf("%w: no %s", errUndeliverable, message.PropertyRealTopic)
	}
	switch string(topic) {
	case Topic, topicHalf: // it would come back for ever, or be a half message that nobody asks about
		return store.Message{}, fmt.Errorf("%w: to %s", errUndeliverable, topic)
	}
	value, _ := message.Property(r.Properties, message.PropertyRealQueueID)
	queue, err := strconv.ParseInt(string(value), 10, 32)
	if err != nil || queue < 0 {
		return store.Message{}, fmt.Errorf("%w: %s %q", errUndeliverable, message.PropertyRealQueueID, value)
	}
	props := r.Properties
	if _, ok := message.Property(props, propertyCRC); ok {
		props = message.AppendWithout(nil, props, propertyCRC)
	}
	return store.Message{
		Topic: string(topic), QueueID: int32(queue), Flag: r.Flag, SysFlag: r.SysFlag,
		BornTimestamp: r.BornTimestamp, BornHost: r.BornHost, ReconsumeTimes: r.ReconsumeTimes,
		PreparedTransactionOffset: r.PreparedTransactionOffset, Body: r.Body, Properties: props,
	}, nil
}
