package protocol

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// headersOf has, for each code in the golden frames, the structs of request and answer.
var headersOf = map[RequestCode][2]func() Header{}

func declare[Q, A any, PQ interface {
	*Q
	Header
}, PA interface {
	*A
	Header
}](codes ...RequestCode,
) {
	for _, code := range codes {
		headersOf[code] = [2]func() Header{func() Header { return PQ(new(Q)) }, func() Header { return PA(new(A)) }}
	}
}

// none is the header of a request or answer without fields.
type none struct{}

func (*none) WriteFields(*FieldWriter)      {}
func (*none) SetField(string, []byte) error { return nil }
func (*none) Missing() string               { return "" }

func init() {
	declare[SendMessageRequest, SendMessageResponse](SendMessage, SendReplyMessage)
	declare[SendMessageRequestV2, SendMessageResponse](SendMessageV2, SendBatchMessage, SendReplyMessageV2)
	declare[PushReplyMessageRequest, none](PushReplyMessageToClient)
	declare[RecallMessageRequest, RecallMessageResponse](RecallMessage)
	declare[ConsumerSendMsgBackRequest, none](ConsumerSendMsgBack)
	declare[EndTransactionRequest, none](EndTransaction)
	declare[CheckTransactionStateRequest, none](CheckTransactionState)
	declare[PullMessageRequest, PullMessageResponse](PullMessage, LitePullMessage)
	declare[QueryMessageRequest, QueryMessageResponse](QueryMessage)
	declare[ViewMessageRequest, none](ViewMessageByID)
	declare[QueryConsumerOffsetRequest, QueryConsumerOffsetResponse](QueryConsumerOffset)
	declare[UpdateConsumerOffsetRequest, none](UpdateConsumerOffset)
	declare[SearchOffsetRequest, SearchOffsetResponse](SearchOffsetByTimestamp)
	declare[GetMaxOffsetRequest, GetMaxOffsetResponse](GetMaxOffset)
	declare[GetMinOffsetRequest, GetMinOffsetResponse](GetMinOffset)
	declare[GetEarliestMsgStoreTimeRequest, GetEarliestMsgStoreTimeResponse](GetEarliestMsgStoreTime)
	declare[none, HeartbeatResponse](HeartBeat)
	declare[UnregisterClientRequest, none](UnregisterClient)
	declare[GetConsumerListByGroupRequest, none](GetConsumerListByGroup)
	declare[NotifyConsumerIDsChangedRequest, none](NotifyConsumerIDsChanged)
	declare[ResetOffsetRequest, none](InvokeBrokerToResetOffset)
	declare[GetConsumerStatusRequest, none](GetConsumerStatusFromClient, InvokeBrokerToGetConsumerStatus)
	declare[GetConsumerRunningInfoRequest, none](GetConsumerRunningInfo)
	declare[ConsumeMessageDirectlyRequest, none](ConsumeMessageDirectly)
	declare[PopMessageRequest, PopMessageResponse](PopMessage)
	declare[AckMessageRequest, none](AckMessage)
	declare[PeekMessageRequest, none](PeekMessage)
	declare[ChangeInvisibleTimeRequest, ChangeInvisibleTimeResponse](ChangeMessageInvisibleTime)
	declare[NotificationRequest, NotificationResponse](Notification)
	declare[PollingInfoRequest, PollingInfoResponse](PollingInfo)
	declare[CreateTopicRequest, none](UpdateAndCreateTopic)
	declare[DeleteTopicRequest, none](DeleteTopicInBroker)
	declare[GetAllTopicConfigRequest, GetAllTopicConfigResponse](GetAllTopicConfig)
	declare[GetTopicConfigRequest, none](GetTopicConfig)
	declare[GetAllSubscriptionGroupConfigRequest, GetAllSubscriptionGroupConfigResponse](GetAllSubscriptionGroupConfig)
	declare[DeleteSubscriptionGroupRequest, none](DeleteSubscriptionGroup)
	declare[UpdateGroupForbiddenRequest, none](UpdateAndGetGroupForbidden)
	declare[GetTopicStatsInfoRequest, none](GetTopicStatsInfo)
	declare[GetConsumeStatsRequest, none](GetConsumeStats)
	declare[GetBrokerConsumeStatsRequest, none](GetBrokerConsumeStats)
	declare[GetConsumerConnectionListRequest, none](GetConsumerConnectionList)
	declare[GetProducerConnectionListRequest, none](GetProducerConnectionList)
	declare[QueryTopicConsumeByWhoRequest, none](QueryTopicConsumeByWho)
	declare[QueryTopicsByConsumerRequest, none](QueryTopicsByConsumer)
	declare[QuerySubscriptionByConsumerRequest, none](QuerySubscriptionByConsumer)
	declare[QueryConsumeTimeSpanRequest, none](QueryConsumeTimeSpan)
	declare[CloneGroupOffsetRequest, none](CloneGroupOffset)
	declare[ViewBrokerStatsDataRequest, none](ViewBrokerStatsData)
	declare[QueryConsumeQueueRequest, none](QueryConsumeQueue)
	declare[ResumeCheckHalfMessageRequest, none](ResumeCheckHalfMessage)
	declare[GetRouteInfoRequest, none](GetRouteInfoByTopic)
	declare[RegisterBrokerRequest, RegisterBrokerResponse](RegisterBroker)
	declare[UnregisterBrokerRequest, none](UnregisterBroker)
	declare[PutKVConfigRequest, none](PutKVConfig)
	declare[GetKVConfigRequest, GetKVConfigResponse](GetKVConfig)
	declare[DeleteKVConfigRequest, none](DeleteKVConfig)
	declare[GetKVListByNamespaceRequest, none](GetKVListByNamespace)
	declare[WipeWritePermOfBrokerRequest, WipeWritePermOfBrokerResponse](WipeWritePermOfBroker)
	declare[AddWritePermOfBrokerRequest, AddWritePermOfBrokerResponse](AddWritePermOfBroker)
	declare[GetTopicsByClusterRequest, none](GetTopicsByCluster)
	declare[DeleteTopicFromNamesrvRequest, none](DeleteTopicInNamesrv)
	declare[none, none](GetBrokerClusterInfo, GetAllTopicListFromNameServer, GetSystemTopicListFromNS, GetUnitTopicList,
		CheckClientConfig, LockBatchMQ, UnlockBatchMQ, QueryAssignment, SetMessageRequestMode, BatchAckMessage,
		UpdateAndCreateTopicList, UpdateAndCreateSubscriptionGroup, GetAllProducerInfo, UpdateBrokerConfig,
		CleanExpiredConsumeQueue, CleanUnusedTopic, DeleteExpiredCommitLog, GetBrokerHAStatus, GetColdDataFlowCtrInfo,
		GetAllConsumerOffset, GetAllDelayOffset, GetTimerMetrics, GetTimerCheckPoint, GetSystemTopicListFromBroker, 9999)
}

// hookFields come from hooks and proxies, beside any header.
var hookFields = map[string]bool{
	"ReqT": true, "bname": true, "MSG_REGION": true, "TRACE_ON": true, "_UNIQUE_KEY_QUERY": true,
}

// requestCodeOf is the code of a frame, or of the request that it answers.
func requestCodeOf(t testing.TB, g *golden) RequestCode {
	if g.Side == "request" {
		return RequestCode(g.Code)
	}
	return RequestCode(goldenFrame(t, g.Name, "request").Code)
}

// TestGoldenHeadersReadAndWrite reads every golden frame into the struct of its code, and demands that what the struct
// writes, in both encodings, is what was read: no field lost, misnamed or of another value.
func TestGoldenHeadersReadAndWrite(t *testing.T) {
	for _, g := range goldenFrames(t) {
		code := requestCodeOf(t, g)
		pair, ok := headersOf[code]
		require.True(t, ok, "%s: no header declared for code %s", g, code)
		c := g.decode(t)
		newHeader := pair[0]
		if c.IsResponse() {
			newHeader = pair[1]
		}
		h := newHeader()
		err := c.ReadHeader(h)
		if g.Name == "bad-send-npe" || err != nil && c.IsResponse() && ResponseCode(c.Code) != Success {
			var field *FieldError
			require.ErrorAs(t, err, &field, g) // an error's answer may come without its fields
			continue
		}
		require.NoError(t, err, g)
		for _, codec := range []Codec{JSON, Binary} {
			again, err := Decode(AppendRequest(nil, codec, 1, 1, false, h, nil, nil))
			require.NoError(t, err, g)
			second := newHeader()
			require.NoError(t, again.ReadHeader(second), g)
			require.Equal(t, h, second, "%s in %s", g, codec)
			written := fieldsOf(t, again)
			for key, value := range g.Fields {
				got, ok := written[key]
				if zero := value == "0" || value == "false" || value == ""; !ok && (zero || hookFields[key]) {
					continue
				}
				require.Equal(t, value, got, "%s: field %s in %s", g, key, codec)
			}
		}
	}
}

func TestOneHeaderForBothFormsOfASend(t *testing.T) {
	for _, name := range []string{"send-v2", "send-v2-rocketmq", "send-batch", "send-batch-go", "reply-message-v2"} {
		c := goldenFrame(t, name, "request").decode(t)
		var v2 SendMessageRequestV2
		var plain SendMessageRequest
		require.NoError(t, c.ReadHeader(&v2), name)
		require.NoError(t, c.ReadHeader(&plain), name)
		require.NotEmpty(t, plain.Topic, name)
		require.Equal(t, v2.Plain(), plain, name)
		require.Equal(t, v2, *plain.V2(), name)
	}
	c := goldenFrame(t, "send-v2", "request").decode(t)
	var h SendMessageRequest
	require.NoError(t, c.ReadHeader(&h))
	require.Equal(t, SendMessageRequest{
		ProducerGroup: "PG_j54", Topic: "T_j54", DefaultTopic: "TBW102", DefaultTopicQueueNums: 2, QueueID: 1, BornTimestamp: 1795961496617,
		Properties: []byte("KEYS\x01k1\x02UNIQ_KEY\x01FD00000000000000000000000000000279735FFD2B27933DBC290000\x02WAIT\x01true\x02TAGS\x01TagA\x02"),
		BrokerName: "wire-a",
	}, h)
}

func command(t testing.TB, codec Codec, fields map[string]string) Command {
	t.Helper()
	c, err := Decode(AppendRequest(nil, codec, 1, 1, false, raw(fields), nil, nil))
	require.NoError(t, err)
	return c
}

func TestReadHeaderNamesTheFieldAtFault(t *testing.T) {
	good := map[string]string{"consumerGroup": "g", "topic": "t", "queueId": "1", "commitOffset": "-1"}
	with := func(key, value string) map[string]string {
		m := map[string]string{}
		for k, v := range good {
			m[k] = v
		}
		if m[key] = value; value == "-" {
			delete(m, key)
		}
		return m
	}
	for _, codec := range []Codec{JSON, Binary} {
		c := command(t, codec, good)
		var h UpdateConsumerOffsetRequest
		require.NoError(t, c.ReadHeader(&h))
		require.Equal(t, UpdateConsumerOffsetRequest{ConsumerGroup: "g", Topic: "t", QueueID: 1, CommitOffset: -1}, h)
		for _, test := range []struct{ key, value, message string }{
			{"queueId", "-", "field queueId is missing"},
			{"consumerGroup", "-", "field consumerGroup is missing"},
			{"queueId", "x", `field queueId: "x" is not a number`},
			{"queueId", "2147483648", `field queueId: "2147483648" is not a number`},
			{"queueId", "1.5", `field queueId: "1.5" is not a number`},
			{"queueId", " 1", `field queueId: " 1" is not a number`},
			{"commitOffset", "9223372036854775808", `field commitOffset: "9223372036854775808" is not a number`},
			{"commitOffset", strings.Repeat("9", 40), `field commitOffset: "` + strings.Repeat("9", 32) + `"… is not a number`},
		} {
			c := command(t, codec, with(test.key, test.value))
			err := c.ReadHeader(new(UpdateConsumerOffsetRequest))
			var field *FieldError
			require.ErrorAs(t, err, &field, test)
			require.Equal(t, test.key, field.Field)
			require.Equal(t, test.message, err.Error())
		}
	}
	c, err := Decode(frame(JSON, `{"code":15}`, ""))
	require.NoError(t, err)
	require.EqualError(t, c.ReadHeader(new(UpdateConsumerOffsetRequest)), "field consumerGroup is missing")
	require.NoError(t, c.ReadHeader(new(HeartbeatResponse)), "nothing is required")
	c, err = Decode(frame(JSON, `{"extFields":{"topic":"\q"}}`, ""))
	require.NoError(t, err)
	require.EqualError(t, c.ReadHeader(new(GetRouteInfoRequest)), "field topic: is no JSON string: bad escape")
}

func TestRequiredZeroIsNotMissing(t *testing.T) {
	c := command(t, JSON, map[string]string{"consumerGroup": "", "topic": "t", "queueId": "0", "commitOffset": "0"})
	require.NoError(t, c.ReadHeader(new(UpdateConsumerOffsetRequest)))
}

func TestOptTellsAbsentFromZero(t *testing.T) {
	fields := map[string]string{"consumerGroup": "g", "topic": "t", "queueId": "0"}
	var h QueryConsumerOffsetRequest
	c := command(t, JSON, fields)
	require.NoError(t, c.ReadHeader(&h))
	require.Equal(t, Opt[bool]{}, h.SetZeroIfNotFound)
	require.True(t, h.SetZeroIfNotFound.Or(true))
	fields["setZeroIfNotFound"] = "false"
	c = command(t, JSON, fields)
	require.NoError(t, c.ReadHeader(&h))
	require.Equal(t, Some(false), h.SetZeroIfNotFound)
	require.False(t, h.SetZeroIfNotFound.Or(true))
	require.Equal(t, "false", fieldsOf(t, command2(t, &h))["setZeroIfNotFound"])
}

func command2(t testing.TB, h Header) Command {
	t.Helper()
	c, err := Decode(AppendRequest(nil, JSON, 1, 1, false, h, nil, nil))
	require.NoError(t, err)
	return c
}

func TestBooleansReadAsInJava(t *testing.T) {
	for text, want := range map[string]bool{"true": true, "TRUE": true, "True": true, "false": false, "yes": false, "1": false, "": false, "truex": false} {
		var got bool
		require.NoError(t, setBool(&got, "", []byte(text)))
		require.Equal(t, want, got, text)
	}
}

func TestWhatReadHeaderFillsIsCopied(t *testing.T) {
	for _, name := range []string{"send-v2", "send-v2-rocketmq", "pull-rocketmq"} {
		g := goldenFrame(t, name, "request")
		b := append([]byte{}, g.bytes...)
		c, err := Decode(b)
		require.NoError(t, err)
		var h SendMessageRequest
		var p PullMessageRequest
		_, _ = c.ReadHeader(&h), c.ReadHeader(&p)
		before, pull := h, p
		before.Properties = append([]byte(nil), h.Properties...)
		pull.Topic, before.Topic = strings.Clone(p.Topic), strings.Clone(h.Topic)
		for i := range b {
			b[i] = 'X'
		}
		require.Equal(t, before, h)
		require.Equal(t, pull, p)
	}
}

func TestReadHeaderOfASendAllocatesOnce(t *testing.T) {
	for _, name := range []string{"send-v2", "send-v2-rocketmq"} {
		b := goldenFrame(t, name, "request").bytes
		var h SendMessageRequest
		allocs := testing.AllocsPerRun(1000, func() {
			c, err := Decode(b)
			h = SendMessageRequest{}
			if err != nil || c.ReadHeader(&h) != nil {
				panic("impossible: a golden frame")
			}
		})
		require.LessOrEqual(t, allocs, 1.1+poolAllocs, name) // the properties; the texts that repeat are shared
	}
}

func TestInternedTextsAreRight(t *testing.T) {
	var got string
	for i := range 20000 { // more than there are slots, so that they collide
		want := "topic-" + strings.Repeat("x", i%7) + string(rune('a'+i%26)) + strings.Repeat("y", i%11)
		require.NoError(t, setInterned(&got, "", []byte(want)))
		require.Equal(t, want, got)
	}
	long := strings.Repeat("z", 300)
	require.NoError(t, setInterned(&got, "", []byte(long)))
	require.Equal(t, long, got)
}

func TestFieldsGet(t *testing.T) {
	c, err := Decode(frame(JSON, `{"extFields":{"a":"1","n":null,"a":"2"}}`, ""))
	require.NoError(t, err)
	value, ok := c.Fields.Get("a")
	require.True(t, ok)
	require.Equal(t, "2", value)
	_, ok = c.Fields.Get("n")
	require.False(t, ok)
	_, ok = Fields{}.Get("a")
	require.False(t, ok)
	require.False(t, Fields{}.Present())
}
