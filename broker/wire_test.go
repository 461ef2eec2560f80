package broker_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/message"
	"github.com/ratchetmq/ratchet/protocol"
	"github.com/ratchetmq/ratchet/remoting"
)

// notified puts a token into told for each NOTIFY_CONSUMER_IDS_CHANGED.
func notified(told chan struct{}) remoting.Handler {
	return remoting.HandlerFunc(func(_ context.Context, r *remoting.Request) {
		if protocol.RequestCode(r.Code) == protocol.NotifyConsumerIDsChanged {
			told <- struct{}{}
		}
		r.Reply(protocol.Reply{})
	})
}

// Keys that say where files are can't be changed over the network, and nothing outside the store is touched.
func TestScenario6_01(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside")
	p := newPeer(t)
	for _, key := range []string{"brokerConfigPath", "rocketmqHome", "configBlackList"} {
		p.refused(protocol.NoPermission, protocol.UpdateBrokerConfig, nil, []byte(key+"="+outside), key)
	}
	p.refused(protocol.InvalidParameter, protocol.UpdateBrokerConfig, nil, []byte("brokerPermission=abc"), "brokerPermission", "abc")
	_, err := os.Stat(outside)
	require.ErrorIs(t, err, os.ErrNotExist)
}

// Names that would lead out of the store, or that no client may use, are refused wherever they come in.
func TestScenario6_03(t *testing.T) {
	p := newPeer(t)
	for _, name := range []string{"../../../../tmp/x", "a/b", `a\b`, strings.Repeat("x", 128), "Überraschung", ".."} {
		p.refused(protocol.InvalidParameter, protocol.SendMessageV2, sendHeader(name, 0), []byte("x"))
		p.refused(protocol.InvalidParameter, protocol.UpdateAndCreateTopic, &protocol.CreateTopicRequest{
			Topic: name, DefaultTopic: "TBW102", ReadQueueNums: 1, WriteQueueNums: 1, Perm: 6, TopicFilterType: "SINGLE_TAG",
		}, nil)
		p.beat("c", name, subscription{"T", "*", nil, 1})
		resp := p.call(protocol.PullMessage, pullHeader(name, "T", 0, 0), nil)
		require.NotEqual(t, int32(protocol.Success), resp.Code)
	}
	p.send(strings.Repeat("x", 127), 0, "the longest name that there may be")
}

// An unknown language name or number is no reason not to serve.
func TestScenario6_12(t *testing.T) {
	p := newPeer(t)
	p.createTopic("T", 1)
	frame := protocol.AppendRequest(nil, protocol.JSON, protocol.GetMaxOffset, 1, false, &protocol.GetMaxOffsetRequest{Topic: "T"}, nil, nil)
	frame = bytes.Replace(frame, []byte(`"language":"GO"`), []byte(`"language":"XX"`), 1)
	require.Contains(t, string(frame), `"XX"`)
	answer := exchange(t, p.broker.Addr, frame)
	require.Equal(t, int32(protocol.Success), answer.Code)
}

// Properties up to the limit come back as they were sent, with what the broker adds as long as there is room; one byte more is
// refused, in batches too.
func TestScenario6_13(t *testing.T) {
	p := newPeer(t)
	p.createTopic("T", 1)
	broker := len("MSG_REGION\x01DefaultRegion\x02TRACE_ON\x01true\x02CLUSTER\x01DefaultCluster\x02UNIQ_KEY\x01k\x02")
	fill := message.MaxPropertiesSize - broker - len("A\x01\x02")
	for _, codec := range []protocol.Codec{protocol.JSON, protocol.Binary} {
		p.codec = codec
		value := strings.Repeat("v", fill)
		sent := p.send("T", 0, "fits", "UNIQ_KEY", "k", "A", value)
		answer := p.pull(pullHeader("G", "T", 0, sent.QueueOffset))
		require.Len(t, answer.messages, 1)
		got, ok := message.Property(answer.messages[0].Properties, "A")
		require.True(t, ok)
		require.Equal(t, value, string(got))
		require.Len(t, answer.messages[0].Properties, message.MaxPropertiesSize)
		for _, separator := range []string{"", "\x02"} {
			text := "A\x01" + strings.Repeat("v", message.MaxPropertiesSize-len("A\x01"+separator)) + separator
			h := sendHeader("T", 0)
			h.Properties = []byte(text)
			var sent protocol.SendMessageResponse
			resp := p.must(protocol.SendMessageV2, h.V2(), []byte("full"))
			require.NoError(t, resp.ReadHeader(&sent))
			p.arrived("T", 0, sent.QueueOffset)
			answer := p.pull(pullHeader("G", "T", 0, sent.QueueOffset))
			require.Len(t, answer.messages, 1)
			require.Equal(t, text, string(answer.messages[0].Properties))
			batch := protocol.AppendBatchMessage(nil, protocol.BatchMessage{Body: []byte("full"), Properties: []byte(text)})
			resp = p.must(protocol.SendBatchMessage, sendHeader("T", 0), batch)
			require.NoError(t, resp.ReadHeader(&sent))
			p.arrived("T", 0, sent.QueueOffset)
			answer = p.pull(pullHeader("G", "T", 0, sent.QueueOffset))
			require.Len(t, answer.messages, 1)
			require.Equal(t, text, string(answer.messages[0].Properties))
		}
		own := broker - len("MSG_REGION\x01DefaultRegion\x02TRACE_ON\x01true\x02CLUSTER\x01DefaultCluster\x02")
		for _, size := range []int{message.MaxPropertiesSize - own - len("A\x01\x02") + 1, 33_000, 66_000} {
			p.refused(protocol.MessageIllegal, protocol.SendMessageV2,
				sendHeader("T", 0, "UNIQ_KEY", "k", "A", strings.Repeat("v", size)), []byte("x"), "32767")
		}
	}
	batch := protocol.AppendBatchMessage(nil, protocol.BatchMessage{Body: []byte("ok")})
	const many = message.MaxPropertiesSize + 1
	for _, n := range []uint32{4*5 + 1 + 2 + many, 0, 0, 0, 1} { // size, magic, CRC, flag, length of the body
		batch = binary.BigEndian.AppendUint32(batch, n)
	}
	batch = binary.BigEndian.AppendUint16(append(batch, 'x'), many)
	batch = append(batch, "A\x01"+strings.Repeat("v", many-len("A\x01\x02"))+"\x02"...)
	before := p.maxOffset("T", 0)
	p.refused(protocol.MessageIllegal, protocol.SendBatchMessage, sendHeader("T", 0), batch, "properties")
	require.Equal(t, before, p.maxOffset("T", 0), "nothing of a refused batch is stored")
}

// Dead letters are found by their key: where that stands has changed on the way.
func TestDeadLetterIsFoundByItsKey(t *testing.T) {
	p := newPeer(t)
	retry := protocol.RetryPrefix + "G"
	p.createTopic(retry, 1)
	p.must(protocol.UpdateAndCreateSubscriptionGroup, nil, []byte(`{"groupName":"G"}`))
	h := sendHeader(retry, 0, message.PropertyDelayLevel, "3", message.PropertyKeys, "k")
	h.ReconsumeTimes = 17 // more than 16, RocketMQ's limit
	p.must(protocol.SendMessageV2, h, []byte("dead"))
	ask := &protocol.QueryMessageRequest{Topic: protocol.DLQTopic("G"), Key: "k", MaxNum: 32, EndTimestamp: 1 << 60}
	require.Eventually(t, func() bool {
		return p.call(protocol.QueryMessage, ask, nil).Code == int32(protocol.Success)
	}, waitLimit, waitStep)
	r, err := message.Parse(p.must(protocol.QueryMessage, ask, nil).Body)
	require.NoError(t, err)
	require.Equal(t, "dead", string(r.Body))
}

// A query by key returns only messages that have the topic and the key, though the hashes of others are the same.
func TestScenario6_15(t *testing.T) {
	p := newPeer(t)
	p.createTopic("AaTopic", 1)
	p.createTopic("BBTopic", 1)
	p.send("AaTopic", 0, "one", "KEYS", "Aa")
	p.send("BBTopic", 0, "two", "KEYS", "BB")
	ask := func(topic, key string) *protocol.QueryMessageRequest {
		return &protocol.QueryMessageRequest{Topic: topic, Key: key, MaxNum: 32, EndTimestamp: 1 << 60}
	}
	require.Eventually(t, func() bool {
		resp := p.call(protocol.QueryMessage, ask("AaTopic", "Aa"), nil)
		return resp.Code == int32(protocol.Success)
	}, waitLimit, waitStep)
	r, err := message.Parse(p.must(protocol.QueryMessage, ask("AaTopic", "Aa"), nil).Body)
	require.NoError(t, err)
	require.Equal(t, "one", string(r.Body))
	p.refused(protocol.QueryNotFound, protocol.QueryMessage, ask("AaTopic", "BB"), nil)
	p.refused(protocol.QueryNotFound, protocol.QueryMessage, ask("BBTopic", "Aa"), nil)
}

// A message that is in the index twice, as a Java broker may leave it after a kill, is found once.
func TestQueryByKeyFindsAMessageOnce(t *testing.T) {
	root := t.TempDir()
	p := newPeer(t, "storePathRootDir="+root)
	p.createTopic("T", 1)
	p.send("T", 0, "one", "KEYS", "k")
	p.broker.Stop()
	names, err := filepath.Glob(filepath.Join(root, "index", "*"))
	require.NoError(t, err)
	require.Len(t, names, 1)
	file, err := os.ReadFile(names[0])
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(root, "index", "29991231235959999"), file, 0o600))
	p.broker.Restart()
	body := p.must(protocol.QueryMessage,
		&protocol.QueryMessageRequest{Topic: "T", Key: "k", MaxNum: 32, EndTimestamp: 1 << 60}, nil).Body
	r, err := message.Parse(body)
	require.NoError(t, err)
	require.Equal(t, "one", string(r.Body))
	require.Len(t, body, int(r.Size))
}

// A code that nobody knows is answered at once.
func TestScenario6_20(t *testing.T) {
	p := newPeer(t)
	for _, code := range []protocol.RequestCode{70000, -5, 9999, protocol.EndTransaction, protocol.PopMessage, protocol.RecallMessage, protocol.SendReplyMessageV2} {
		resp := p.call(code, nil, nil)
		require.Equal(t, protocol.RequestCodeNotSupported, protocol.ResponseCode(resp.Code), "%s: %s", code, resp.Remark)
	}
}

// What can't be done yet is refused by name, not stored as something else.
func TestUnsupportedMessagesAreRefused(t *testing.T) {
	p := newPeer(t)
	p.createTopic("T", 1)
	p.refused(protocol.NoPermission, protocol.SendMessageV2, sendHeader("T", 0, "TRAN_MSG", "true"), []byte("x"), "transactional")
	for _, name := range []string{"TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"} {
		p.refused(protocol.MessageIllegal, protocol.SendMessageV2, sendHeader("T", 0, name, "5"), []byte("x"), name)
	}
	require.Zero(t, p.maxOffset("T", 0))
	h := pullHeader("G", "T", 0, 0)
	h.ExpressionType = "SQL92"
	p.refused(protocol.SystemError, protocol.PullMessage, h, nil, "SQL92")
}

// A request whose header lacks something is answered with the field's name.
func TestMissingFieldsAreNamed(t *testing.T) {
	p := newPeer(t)
	for code, field := range map[protocol.RequestCode]string{
		protocol.SendMessage: "producerGroup", protocol.SendMessageV2: "producerGroup", protocol.PullMessage: "consumerGroup",
		protocol.QueryConsumerOffset: "consumerGroup", protocol.UpdateConsumerOffset: "consumerGroup",
		protocol.GetMaxOffset: "topic", protocol.GetMinOffset: "topic", protocol.SearchOffsetByTimestamp: "topic",
		protocol.GetEarliestMsgStoreTime: "topic", protocol.QueryMessage: "topic", protocol.ViewMessageByID: "offset",
		protocol.UnregisterClient: "clientID", protocol.ConsumerSendMsgBack: "offset",
		protocol.GetConsumerListByGroup: "consumerGroup", protocol.UpdateAndCreateTopic: "topic",
		protocol.DeleteTopicInBroker: "topic", protocol.InvokeBrokerToResetOffset: "topic",
	} {
		resp := p.call(code, nil, nil)
		require.Equal(t, protocol.SystemError, protocol.ResponseCode(resp.Code), code)
		require.Contains(t, resp.Remark, field, code)
	}
	for _, code := range []protocol.RequestCode{protocol.HeartBeat, protocol.LockBatchMQ, protocol.UnlockBatchMQ, protocol.CheckClientConfig} {
		for _, body := range []string{"", "{", "[]", `"x"`, strings.Repeat("[", 5000)} {
			resp := p.call(code, nil, []byte(body))
			require.NotEqual(t, int32(protocol.Success), resp.Code, "%s with body %.20q", code, body)
			require.NotEmpty(t, resp.Remark)
		}
	}
}

// How far a group is, and so how far behind.
func TestConsumeStats(t *testing.T) {
	p := newPeer(t)
	p.createTopic("T", 2)
	p.sendMany("T", 1, 10)
	p.pull(pullHeader("G", "T", 1, 0))
	p.must(protocol.UpdateConsumerOffset, commitHeader("G", "T", 1, 4), nil)
	resp := p.must(protocol.GetConsumeStats, &protocol.GetConsumeStatsRequest{ConsumerGroup: "G"}, nil)
	var stats protocol.ConsumeStats
	require.NoError(t, protocol.Unmarshal(resp.Body, &stats))
	require.Len(t, stats.OffsetTable, 2)
	for mq, w := range stats.OffsetTable {
		if mq.QueueID == 0 {
			require.Equal(t, protocol.OffsetWrapper{}, w)
			continue
		}
		require.Equal(t, int64(10), w.BrokerOffset)
		require.Equal(t, int64(4), w.ConsumerOffset)
		require.Positive(t, w.LastTimestamp)
	}
}
