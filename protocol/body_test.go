package protocol

import (
	"encoding/json"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// bodiesOf has, for each code whose frames carry JSON, the types of the bodies of request and answer.
var bodiesOf = map[RequestCode][2]func() any{}

func body[T any]() any { return new(T) }

func init() {
	request := func(code RequestCode, fn func() any) { bodiesOf[code] = [2]func() any{fn, bodiesOf[code][1]} }
	answer := func(code RequestCode, fn func() any) { bodiesOf[code] = [2]func() any{bodiesOf[code][0], fn} }
	request(HeartBeat, body[HeartbeatData])
	request(LockBatchMQ, body[LockBatchRequest])
	answer(LockBatchMQ, body[LockBatchResponse])
	request(UnlockBatchMQ, body[UnlockBatchRequest])
	request(CheckClientConfig, body[CheckClientRequest])
	request(RegisterBroker, body[RegisterBrokerBody])
	answer(RegisterBroker, body[KVTable])
	request(UpdateAndCreateTopicList, body[TopicConfigList])
	request(UpdateAndCreateSubscriptionGroup, body[SubscriptionGroupConfig])
	request(QueryAssignment, body[QueryAssignmentRequest])
	answer(QueryAssignment, body[QueryAssignmentResponse])
	request(SetMessageRequestMode, body[SetMessageRequestModeRequest])
	request(BatchAckMessage, body[BatchAckRequest])
	answer(GetRouteInfoByTopic, body[TopicRouteData])
	answer(GetBrokerClusterInfo, body[ClusterInfo])
	answer(GetConsumerListByGroup, body[ConsumerList])
	answer(GetKVListByNamespace, body[KVTable])
	for _, code := range []RequestCode{
		GetAllTopicListFromNameServer, GetTopicsByCluster, GetSystemTopicListFromNS, GetUnitTopicList, GetSystemTopicListFromBroker, QueryTopicsByConsumer,
	} {
		answer(code, body[TopicList])
	}
	answer(QueryTopicConsumeByWho, body[GroupList])
	answer(GetAllTopicConfig, body[TopicConfigSerializeWrapper])
	answer(GetTopicConfig, body[TopicConfig])
	answer(GetAllSubscriptionGroupConfig, body[SubscriptionGroupWrapper])
	answer(UpdateAndGetGroupForbidden, body[GroupForbidden])
	answer(GetAllConsumerOffset, body[ConsumerOffsetTable])
	answer(GetAllDelayOffset, body[DelayOffsetTable])
	answer(GetAllProducerInfo, body[ProducerTableInfo])
	answer(GetBrokerConsumeStats, body[ConsumeStatsList])
	answer(GetConsumeStats, body[ConsumeStats])
	answer(GetTopicStatsInfo, body[TopicStatsTable])
	answer(ViewBrokerStatsData, body[BrokerStatsData])
	answer(GetColdDataFlowCtrInfo, body[ColdDataInfo])
	answer(ConsumeMessageDirectly, body[ConsumeMessageDirectlyResult])
	answer(QueryConsumeTimeSpan, body[QueryConsumeTimeSpanResponse])
	answer(GetConsumerConnectionList, body[ConsumerConnection])
	answer(GetProducerConnectionList, body[ProducerConnection])
	answer(GetConsumerRunningInfo, body[ConsumerRunningInfo])
	answer(GetBrokerHAStatus, body[HARuntimeInfo])
	answer(InvokeBrokerToGetConsumerStatus, body[ConsumerStatusBody])
	answer(GetConsumerStatusFromClient, body[ConsumerStatusBody])
	answer(InvokeBrokerToResetOffset, body[ResetOffsetBody])
	answer(QueryConsumeQueue, body[QueryConsumeQueueResponse])
	answer(QuerySubscriptionByConsumer, body[QuerySubscriptionResponse])
	answer(GetTimerMetrics, body[TimerMetrics])
}

// generic reads JSON, of Java's or of the standard kind, into maps and slices.
func generic(t testing.TB, data []byte) any {
	t.Helper()
	strict, err := strictJSON(data)
	require.NoError(t, err)
	var v any
	require.NoError(t, json.Unmarshal(strict, &v), "%s", strict)
	return v
}

// requireCovers demands that got has everything that want has; it may have more. Lists of Java sets have no order, but
// keep the one they were read in.
func requireCovers(t testing.TB, want, got any, path string) {
	t.Helper()
	switch want := want.(type) {
	case map[string]any:
		object, ok := got.(map[string]any)
		require.True(t, ok, path)
		for key, value := range want {
			if empty, ok := value.(map[string]any); ok && len(empty) == 0 && object[key] == nil {
				continue // static topics, of which there are none
			}
			require.NotNil(t, object[key], "%s.%s is lost", path, key)
			requireCovers(t, value, object[key], path+"."+key)
		}
	case []any:
		list, ok := got.([]any)
		require.True(t, ok, path)
		require.Len(t, list, len(want), path)
		for i := range want {
			requireCovers(t, want[i], list[i], path)
		}
	case string:
		if number, ok := got.(float64); ok { // codeSet of a Go client
			got = strconv.FormatInt(int64(number), 10)
		}
		require.Equal(t, want, got, path)
	default:
		require.Equal(t, want, got, path)
	}
}

// TestGoldenBodiesReadAndWrite reads every JSON body and demands that writing it loses nothing.
func TestGoldenBodiesReadAndWrite(t *testing.T) {
	seen := 0
	for _, g := range goldenFrames(t) {
		code := requestCodeOf(t, g)
		text := g.body()
		newBody := bodiesOf[code][0]
		if g.Side == "response" {
			newBody = bodiesOf[code][1]
		}
		if newBody == nil {
			require.False(t, len(text) > 0 && text[0] == '{', "%s: no type for the body of code %s", g, code)
			continue
		}
		if len(text) == 0 {
			continue
		}
		seen++
		v := newBody()
		require.NoError(t, Unmarshal(text, v), g)
		written, err := Marshal(v)
		require.NoError(t, err, g)
		requireCovers(t, generic(t, text), generic(t, written), g.String())
		second := newBody()
		require.NoError(t, Unmarshal(written, second), g)
		again, err := Marshal(second)
		require.NoError(t, err, g)
		require.Equal(t, string(written), string(again), g)
	}
	require.Greater(t, seen, 50)
}

func TestGoldenRouteInBothForms(t *testing.T) {
	for name, marshal := range map[string]func(any) ([]byte, error){"route-go-client": MarshalBareIDs, "route-found": Marshal, "cluster-info": MarshalBareIDs} {
		g := goldenFrame(t, name, "response")
		v := bodiesOf[requestCodeOf(t, g)][1]()
		require.NoError(t, Unmarshal(g.body(), v))
		got, err := marshal(v)
		require.NoError(t, err)
		require.Equal(t, string(g.body()), string(got), name)
	}
}

func TestGoldenHeartbeatOfAGoClient(t *testing.T) {
	var h HeartbeatData
	require.NoError(t, Unmarshal(goldenFrame(t, "heartbeat-go", "request").body(), &h))
	require.Equal(t, "192.0.2.2@goc", h.ClientID)
	require.Equal(t, SubscriptionData{
		CodeSet: Codes{2598919, 2598920}, ExpressionType: ExpressionTag, SubString: "TagA || TagB", SubVersion: 1795962506692325218,
		TagsSet: []string{"TagA", "TagB"}, Topic: "TGO_g1",
	}, h.ConsumerDataSet[0].SubscriptionDataSet[0])
	require.Equal(t, EnumText(ConsumePassively), h.ConsumerDataSet[0].ConsumeType)
}

func TestGoldenResetOffsetIsWrittenByteForByte(t *testing.T) {
	g := goldenFrame(t, "admin-invoke-reset-offset", "response")
	var body ResetOffsetBody
	require.NoError(t, Unmarshal(g.body(), &body))
	got, err := Marshal(body)
	require.NoError(t, err)
	require.Equal(t, string(g.body()), string(got))
}
