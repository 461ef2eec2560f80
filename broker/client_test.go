package broker_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/message"
	"github.com/ratchetmq/ratchet/protocol"
	"github.com/ratchetmq/ratchet/ratchettest"
	"github.com/ratchetmq/ratchet/remoting"
)

// peer is a client of a test broker: it sends exactly the requests it is told to.
type peer struct {
	t      *testing.T
	broker *ratchettest.Broker
	client *remoting.Client
	codec  protocol.Codec
}

func newPeer(t *testing.T, settings ...string) *peer {
	t.Helper()
	return join(t, ratchettest.Start(t, settings...))
}

// join is another client of the broker, over a connection of its own.
func join(t *testing.T, b *ratchettest.Broker) *peer {
	t.Helper()
	client, err := remoting.NewClient(remoting.ClientConfig{})
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return &peer{t: t, broker: b, client: client}
}

// call returns whatever the broker answers.
func (p *peer) call(code protocol.RequestCode, h protocol.Header, body []byte) *remoting.Response {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	resp, err := p.client.Call(ctx, p.broker.Addr, code, h, nil, body)
	require.NoError(p.t, err)
	return resp
}

// must demands success.
func (p *peer) must(code protocol.RequestCode, h protocol.Header, body []byte) *remoting.Response {
	p.t.Helper()
	resp := p.call(code, h, body)
	require.Equal(p.t, protocol.Success, protocol.ResponseCode(resp.Code), "%s: %s", code, resp.Remark)
	return resp
}

// refused demands a certain code, and a sentence that holds the words.
func (p *peer) refused(want protocol.ResponseCode, code protocol.RequestCode, h protocol.Header, body []byte, words ...string) {
	p.t.Helper()
	resp := p.call(code, h, body)
	require.Equal(p.t, want, protocol.ResponseCode(resp.Code), "%s: %s", code, resp.Remark)
	for _, w := range words {
		require.Contains(p.t, resp.Remark, w)
	}
}

func (p *peer) createTopic(topic string, queues int32) {
	p.t.Helper()
	p.must(protocol.UpdateAndCreateTopic, &protocol.CreateTopicRequest{
		Topic: topic, DefaultTopic: protocol.TopicDefault, ReadQueueNums: queues, WriteQueueNums: queues, Perm: 6,
		TopicFilterType: "SINGLE_TAG",
	}, nil)
}

func sendHeader(topic string, queue int32, props ...string) *protocol.SendMessageRequest {
	h := &protocol.SendMessageRequest{
		ProducerGroup: "PG", Topic: topic, DefaultTopic: protocol.TopicDefault, DefaultTopicQueueNums: 4, QueueID: queue,
		BornTimestamp: time.Now().UnixMilli(),
	}
	for i := 0; i < len(props); i += 2 {
		h.Properties = message.AppendProperty(h.Properties, props[i], props[i+1])
	}
	return h
}

// send sends one message and returns where it is, when it can be read there.
func (p *peer) send(topic string, queue int32, body string, props ...string) protocol.SendMessageResponse {
	p.t.Helper()
	resp := p.must(protocol.SendMessageV2, sendHeader(topic, queue, props...), []byte(body))
	var h protocol.SendMessageResponse
	require.NoError(p.t, resp.ReadHeader(&h))
	end := p.replica().End
	require.Eventually(p.t, func() bool { return p.replica().Shown >= end }, waitLimit, time.Millisecond)
	return h
}

// sendMany sends n messages, numbered from 0, to one queue, and waits until they can be read.
func (p *peer) sendMany(topic string, queue int32, n int) {
	p.t.Helper()
	var last protocol.SendMessageResponse
	for i := range n {
		last = p.send(topic, queue, fmt.Sprint(i))
	}
	p.arrived(topic, queue, last.QueueOffset)
}

// arrived waits until a message can be read.
func (p *peer) arrived(topic string, queue int32, o int64) {
	p.t.Helper()
	require.Eventually(p.t, func() bool { return p.maxOffset(topic, queue) > o }, waitLimit, waitStep)
}

func pullHeader(group, topic string, queue int32, from int64) *protocol.PullMessageRequest {
	return &protocol.PullMessageRequest{
		ConsumerGroup: group, Topic: topic, QueueID: queue, QueueOffset: from, MaxMsgNums: 32,
		SysFlag: 4, Subscription: "*", ExpressionType: "TAG",
	}
}

// pulled is a pull's answer.
type pulled struct {
	code   protocol.ResponseCode
	remark string
	protocol.PullMessageResponse
	messages []message.Record
}

func (p *peer) pull(h *protocol.PullMessageRequest) pulled {
	p.t.Helper()
	resp := p.call(protocol.PullMessage, h, nil)
	out := pulled{code: protocol.ResponseCode(resp.Code), remark: resp.Remark}
	_ = resp.ReadHeader(&out.PullMessageResponse) // a refusal has none
	for body := resp.Body; len(body) > 0; {
		r, err := message.Parse(body)
		require.NoError(p.t, err)
		require.NoError(p.t, r.CheckBody())
		out.messages = append(out.messages, r)
		body = body[r.Size:]
	}
	return out
}

// bodies reads a queue from an offset to its end.
func (p *peer) bodies(topic string, queue int32, from int64) []string {
	p.t.Helper()
	var all []string
	for {
		answer := p.pull(pullHeader("Reader", topic, queue, from))
		if answer.code == protocol.PullNotFound {
			return all
		}
		require.Contains(p.t, []protocol.ResponseCode{protocol.Success, protocol.PullRetryImmediately}, answer.code, answer.remark)
		for _, m := range answer.messages {
			all = append(all, string(m.Body))
		}
		from = answer.NextBeginOffset
	}
}

// query asks for a group's offset; ok is false when the broker knows none.
func (p *peer) query(group, topic string, queue int32) (o int64, ok bool) {
	p.t.Helper()
	return p.queryWith(&protocol.QueryConsumerOffsetRequest{ConsumerGroup: group, Topic: topic, QueueID: queue})
}

func (p *peer) queryWith(h *protocol.QueryConsumerOffsetRequest) (o int64, ok bool) {
	p.t.Helper()
	resp := p.call(protocol.QueryConsumerOffset, h, nil)
	if protocol.ResponseCode(resp.Code) == protocol.QueryNotFound {
		return 0, false
	}
	require.Equal(p.t, protocol.Success, protocol.ResponseCode(resp.Code), resp.Remark)
	var answer protocol.QueryConsumerOffsetResponse
	require.NoError(p.t, resp.ReadHeader(&answer))
	return answer.Offset, true
}

func commitHeader(group, topic string, queue int32, o int64) *protocol.UpdateConsumerOffsetRequest {
	return &protocol.UpdateConsumerOffsetRequest{ConsumerGroup: group, Topic: topic, QueueID: queue, CommitOffset: o}
}

func (p *peer) maxOffset(topic string, queue int32) int64 {
	p.t.Helper()
	resp := p.must(protocol.GetMaxOffset, &protocol.GetMaxOffsetRequest{Topic: topic, QueueID: queue}, nil)
	var h protocol.GetMaxOffsetResponse
	require.NoError(p.t, resp.ReadHeader(&h))
	return h.Offset
}

// subscription is one topic of a heartbeat.
type subscription struct {
	topic, expression string
	codes             []int32
	version           int64
}

// beat sends a consumer's heartbeat.
func (p *peer) beat(client, group string, subs ...subscription) {
	p.t.Helper()
	var set []map[string]any
	for _, s := range subs {
		set = append(set, map[string]any{
			"topic": s.topic, "subString": s.expression, "codeSet": s.codes, "tagsSet": []string{},
			"subVersion": s.version, "expressionType": "TAG", "classFilterMode": false,
		})
	}
	body, err := json.Marshal(map[string]any{
		"clientID": client, "producerDataSet": []any{},
		"consumerDataSet": []any{map[string]any{
			"groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
			"consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "unitMode": false, "subscriptionDataSet": set,
		}},
	})
	require.NoError(p.t, err)
	p.must(protocol.HeartBeat, nil, body)
}
