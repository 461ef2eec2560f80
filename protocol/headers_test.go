package protocol

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// everyHeader has one of each struct that headergen wrote methods for.
func everyHeader() []Header {
	return []Header{
		new(ACLRequest), new(AckMessageRequest), new(AddBrokerRequest), new(AddWritePermOfBrokerRequest),
		new(AddWritePermOfBrokerResponse), new(AlterSyncStateSetRequest), new(AlterSyncStateSetResponse),
		new(ApplyBrokerIDRequest), new(ApplyBrokerIDResponse), new(BrokerHeartbeatRequest),
		new(ChangeInvisibleTimeRequest), new(ChangeInvisibleTimeResponse), new(CheckRocksDBCQWriteProgressRequest),
		new(CheckTransactionStateRequest), new(CleanBrokerDataRequest), new(CloneGroupOffsetRequest),
		new(ConsumeMessageDirectlyRequest), new(ConsumerSendMsgBackRequest), new(CreateAccessConfigRequest),
		new(CreateTopicRequest), new(DeleteAccessConfigRequest), new(DeleteKVConfigRequest),
		new(DeleteSubscriptionGroupRequest), new(DeleteTopicFromNamesrvRequest), new(DeleteTopicRequest),
		new(ElectMasterRequest), new(ElectMasterResponse), new(EndTransactionRequest), new(ExchangeHAInfoRequest),
		new(ExchangeHAInfoResponse), new(ExportRocksDBConfigToJSONRequest),
		new(GetAllSubscriptionGroupConfigRequest), new(GetAllSubscriptionGroupConfigResponse),
		new(GetAllTopicConfigRequest), new(GetAllTopicConfigResponse), new(GetBrokerClusterACLInfoResponse),
		new(GetBrokerConfigResponse), new(GetBrokerConsumeStatsRequest), new(GetBrokerMemberGroupRequest),
		new(GetConsumeStatsRequest), new(GetConsumerConnectionListRequest), new(GetConsumerListByGroupRequest),
		new(GetConsumerRunningInfoRequest), new(GetConsumerStatusRequest), new(GetEarliestMsgStoreTimeRequest),
		new(GetEarliestMsgStoreTimeResponse), new(GetKVConfigRequest), new(GetKVConfigResponse),
		new(GetKVListByNamespaceRequest), new(GetMaxOffsetRequest), new(GetMaxOffsetResponse),
		new(GetMetaDataResponse), new(GetMinOffsetRequest), new(GetMinOffsetResponse), new(GetNextBrokerIDRequest),
		new(GetNextBrokerIDResponse), new(GetProducerConnectionListRequest), new(GetReplicaInfoRequest),
		new(GetReplicaInfoResponse), new(GetRouteInfoRequest), new(GetSubscriptionGroupConfigRequest),
		new(GetTopicConfigRequest), new(GetTopicStatsInfoRequest), new(GetTopicsByClusterRequest),
		new(HeartbeatResponse), new(ListACLRequest), new(ListUsersRequest), new(NotificationRequest),
		new(NotificationResponse), new(NotifyBrokerRoleChangedRequest), new(NotifyConsumerIDsChangedRequest),
		new(NotifyMinBrokerIDChangeRequest), new(PeekMessageRequest), new(PollingInfoRequest),
		new(PollingInfoResponse), new(PopMessageRequest), new(PopMessageResponse), new(PullMessageRequest),
		new(PullMessageResponse), new(PushReplyMessageRequest), new(PutKVConfigRequest),
		new(QueryConsumeQueueRequest), new(QueryConsumeTimeSpanRequest), new(QueryConsumerOffsetRequest),
		new(QueryConsumerOffsetResponse), new(QueryCorrectionOffsetRequest), new(QueryDataVersionRequest),
		new(QueryDataVersionResponse), new(QueryMessageRequest), new(QueryMessageResponse),
		new(QuerySubscriptionByConsumerRequest), new(QueryTopicConsumeByWhoRequest),
		new(QueryTopicsByConsumerRequest), new(RecallMessageRequest), new(RecallMessageResponse),
		new(RegisterBrokerRequest), new(RegisterBrokerResponse), new(RegisterBrokerToControllerRequest),
		new(RegisterBrokerToControllerResponse), new(RegisterTopicRequest), new(RemoveBrokerRequest),
		new(ResetMasterFlushOffsetRequest), new(ResetOffsetRequest), new(ResumeCheckHalfMessageRequest),
		new(SearchOffsetRequest), new(SearchOffsetResponse), new(SendMessageRequest), new(SendMessageRequestV2),
		new(SendMessageResponse), new(UnregisterBrokerRequest), new(UnregisterClientRequest),
		new(UpdateConsumerOffsetRequest), new(UpdateGlobalWhiteAddrsConfigRequest), new(UpdateGroupForbiddenRequest),
		new(UserRequest), new(ViewBrokerStatsDataRequest), new(ViewMessageRequest),
		new(WipeWritePermOfBrokerRequest), new(WipeWritePermOfBrokerResponse),
	}
}

func TestEveryHeaderIsTested(t *testing.T) {
	src, err := os.ReadFile("headers_gen.go")
	require.NoError(t, err)
	require.Len(t, everyHeader(), strings.Count(string(src), ") WriteFields("))
	for _, h := range everyHeader() {
		require.Contains(t, string(src), "func (h "+strings.Replace(fmt.Sprintf("%T", h), "protocol.", "", 1)+") WriteFields(")
	}
}

// fill sets every field of a header to something that is not zero and differs from its neighbours, and returns the names
// on the wire, with those of required fields true.
func fill(t testing.TB, h Header) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	v := reflect.ValueOf(h).Elem()
	for i := range v.NumField() {
		name, options, _ := strings.Cut(v.Type().Field(i).Tag.Get("rmq"), ",")
		if name == "" {
			continue
		}
		name, _, _ = strings.Cut(name, "|")
		_, twice := names[name]
		require.False(t, twice, "%T: two fields %s", h, name)
		names[name] = strings.Contains(options, "required")
		f := v.Field(i)
		if f.Kind() == reflect.Struct { // an Opt
			f.Field(1).SetBool(true)
			f = f.Field(0)
		}
		switch f.Kind() {
		case reflect.String:
			f.SetString(fmt.Sprintf("text \"%d\" \x01é", i))
		case reflect.Slice:
			f.SetBytes(fmt.Appendf(nil, "bytes %d\x02", i))
		case reflect.Int32:
			f.SetInt(-1<<31 + int64(i))
		case reflect.Int64:
			f.SetInt(1<<63 - 1 - int64(i))
		case reflect.Bool:
			f.SetBool(true)
		default:
			t.Fatalf("%T: field %s is of kind %s", h, name, f.Kind())
		}
	}
	return names
}

func newLike(h Header) Header { return reflect.New(reflect.TypeOf(h).Elem()).Interface().(Header) }

func TestEveryHeaderReadsWhatItWrites(t *testing.T) {
	for _, h := range everyHeader() {
		names := fill(t, h)
		require.Empty(t, h.Missing(), "%T", h)
		for _, codec := range []Codec{JSON, Binary} {
			c, err := Decode(AppendRequest(nil, codec, 1, 1, false, h, nil, nil))
			require.NoError(t, err)
			fields := fieldsOf(t, c)
			require.Len(t, fields, len(names), "%T", h)
			got := newLike(h)
			require.NoError(t, c.ReadHeader(got))
			require.Equal(t, h, got)
			for name, required := range names {
				require.Contains(t, fields, name, "%T", h)
				requireMissingIsTold(t, h, codec, fields, name, required)
			}
		}
	}
}

// requireMissingIsTold leaves one field out.
func requireMissingIsTold(t testing.TB, h Header, codec Codec, fields map[string]string, name string, required bool) {
	t.Helper()
	rest := raw{}
	for key, value := range fields {
		if key != name {
			rest[key] = value
		}
	}
	c, err := Decode(AppendRequest(nil, codec, 1, 1, false, rest, nil, nil))
	require.NoError(t, err)
	if err := c.ReadHeader(newLike(h)); required {
		require.EqualError(t, err, "field "+name+" is missing", "%T", h)
	} else {
		require.NoError(t, err, "%T without %s", h, name)
	}
}

func TestEveryHeaderWithoutValuesWritesItsRequiredFields(t *testing.T) {
	for _, h := range everyHeader() {
		names := fill(t, newLike(h))
		c, err := Decode(AppendRequest(nil, JSON, 1, 1, false, h, nil, nil))
		require.NoError(t, err)
		fields := fieldsOf(t, c)
		for name, required := range names {
			_, written := fields[name]
			require.Equal(t, required, written, "%T: %s", h, name)
		}
		require.True(t, c.Fields.Present())
		require.NoError(t, c.ReadHeader(newLike(h)), "%T", h)
	}
}
