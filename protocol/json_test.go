package protocol

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestStrictJSONCorrects(t *testing.T) {
	for in, want := range map[string]string{
		`{0:"a",-1:"b",12:{}}`:                 `{"0":"a","-1":"b","12":{}}`,
		`{true:1,false:2,null:3,word_x:4}`:     `{"true":1,"false":2,"null":3,"word_x":4}`,
		`{{"q":0,"t":"T"}:5,{"q":1}:{2:3}}`:    `{"{\"q\":0,\"t\":\"T\"}":5,"{\"q\":1}":{"2":3}}`,
		`{{1:'x'}:5}`:                          `{"{\"1\":\"x\"}":5}`,
		`{[1,]:5}`:                             `{"[1]":5}`,
		`{'a':'b"c\'d','e':"f\'g"}`:            `{"a":"b\"c'd","e":"f'g"}`,
		`{"a":[1,2,],"b":{"c":1,},}`:           `{"a":[1,2],"b":{"c":1}}`,
		`[1 , ]`:                               `[1  ]`,
		"{\"a\":\"x\x01y\x1f\"}":               `{"a":"x\u0001y\u001f"}`,
		`+5`:                                   `5`,
		` { 1 : 2 , } `:                        ` { "1" : 2  } `,
		`{"a":"{1:2}","b":"[1,]","c":"\"{1:"}`: `{"a":"{1:2}","b":"[1,]","c":"\"{1:"}`,
	} {
		got, err := strictJSON([]byte(in))
		require.NoError(t, err, in)
		require.Equal(t, want, string(got))
		require.True(t, json.Valid(got), in)
	}
}

func TestStrictJSONLeavesJSONAlone(t *testing.T) {
	for _, in := range []string{
		`{}`, `[]`, ` null `, `"x"`, `-1.5e+30`, `0`, `-0.0E-1`, `{"a":[{"b":null},true,false,"\u00e9\\\/\"\b\f\n\r\t"],"c":{}}`, "\t{\r\n\"a\" : 1 }",
	} {
		b := []byte(in)
		got, err := strictJSON(b)
		require.NoError(t, err, in)
		require.Same(t, &b[0], &got[0], "copied %s", in)
		require.Equal(t, in, string(got))
	}
}

func TestStrictJSONRefuses(t *testing.T) {
	for _, in := range []string{
		``, ` `, `{`, `}`, `[`, `{"a"}`, `{"a":}`, `{"a":1`, `{"a":1 "b":2}`, `{,}`, `[,]`, `[1,,2]`, `{"a":1,,}`, `{"a":1}}`, `{} {}`, `{:1}`,
		`nul`, `True`, `NaN`, `01`, `1.`, `.5`, `1e`, `-`, `+`, `--1`, `"abc`, `"\x"`, `"\u12"`, `"\u12g4"`, `"abc\`, `'abc"`, `{'a:1}`, `{"a":'x}`,
		`{{{1:2}:3}:4}`, `{{:1}`, `{{"a":1:2}`, `{[:1}`, "\x00", "\xff",
		strings.Repeat("[", 5000) + strings.Repeat("]", 5000),
	} {
		_, err := strictJSON([]byte(in))
		require.ErrorIs(t, err, ErrJSON, in[:min(len(in), 40)])
	}
}

func TestDeepInputDoesNotHurt(t *testing.T) {
	started := time.Now()
	for _, in := range []string{
		strings.Repeat("[", 1e6), strings.Repeat(`{"a":`, 1e6), strings.Repeat("{", 1e6), strings.Repeat("{[", 5e5), strings.Repeat(`{{1:`, 3e5),
		strings.Repeat(`[{"a":`, 5000) + "1" + strings.Repeat("}]", 5000),
	} {
		var h HeartbeatData
		require.ErrorIs(t, Unmarshal([]byte(in), &h), ErrJSON)
	}
	require.Less(t, time.Since(started), 10*time.Second)
	var v map[string]any
	deep := strings.Repeat(`{"a":`, maxBodyDepth) + "1" + strings.Repeat("}", maxBodyDepth)
	require.NoError(t, Unmarshal([]byte(deep), &v), "the limit itself is fine")
}

func TestUnmarshalCopies(t *testing.T) {
	for _, body := range []string{
		`{"brokerDatas":[{"brokerName":"broker","brokerAddrs":{"0":"address"}}],"topicQueueMappingByBroker":{"broker":{"x":"raw"}}}`,
		`{"brokerDatas":[{"brokerName":"broker","brokerAddrs":{0:"address"}}],"topicQueueMappingByBroker":{"broker":{"x":"raw"}},}`,
	} {
		b := []byte(body)
		var r TopicRouteData
		require.NoError(t, Unmarshal(b, &r))
		for i := range b {
			b[i] = 'X'
		}
		require.Equal(t, TopicRouteData{
			BrokerDatas:               []BrokerData{{BrokerName: "broker", BrokerAddrs: map[int64]string{0: "address"}}},
			TopicQueueMappingByBroker: map[string]Raw{"broker": Raw(`{"x":"raw"}`)},
		}, r)
	}
}

func TestUnmarshalOfTheWrongTypeFails(t *testing.T) {
	for _, body := range []string{
		`[]`, `{"clientID":5}`, `{"consumerDataSet":{}}`, `{"consumerDataSet":[{"subscriptionDataSet":[{"codeSet":["x"]}]}]}`,
		`{"consumerDataSet":[{"subscriptionDataSet":[{"subVersion":1e40}]}]}`,
	} {
		var h HeartbeatData
		require.ErrorIs(t, Unmarshal([]byte(body), &h), ErrJSON, body)
	}
	var h HeartbeatData
	require.NoError(t, Unmarshal([]byte(`null`), &h))
	require.NoError(t, Unmarshal([]byte(`{"clientID":null,"consumerDataSet":null,"unknown":{"deep":[1,{"x":2}]}}`), &h))
	require.Zero(t, h)
}

func TestMarshalIsCompactAndHasNoNulls(t *testing.T) {
	for want, v := range map[string]any{
		`{"brokerDatas":[],"filterServerTable":{},"queueDatas":[]}`:    &TopicRouteData{},
		`{"consumerTable":{},"messageQueueTable":{}}`:                  ConsumerStatusBody{},
		`{"consumeTps":null,"offsetTable":{}}`:                         ConsumeStats{ConsumeTPS: math.NaN()},
		`{"table":{"a":"<é\u0001\"\\/\n>"}}`:                           KVTable{Table: map[string]string{"a": "<é\x01\"\\/\n>"}},
		`{"offsetTable":{"T@g":{"0":5,"10":7,"2":6}}}`:                 ConsumerOffsetTable{OffsetTable: map[string]map[int32]int64{"T@g": {0: 5, 10: 7, 2: 6}}},
		`{"lockOKMQSet":[{"brokerName":"b","queueId":1,"topic":"T"}]}`: LockBatchResponse{LockOKMQSet: []MessageQueue{{"b", 1, "T"}}},
		`{"topicList":[]}`: TopicList{},
	} {
		got, err := Marshal(v)
		require.NoError(t, err)
		require.Equal(t, want, string(got))
	}
}

func TestQueueTablesAreInTheFormOfTheJavaPeers(t *testing.T) {
	table := QueueTable[int64]{{"b", 1, "T"}: 6, {"b", 0, "T"}: 5, {`q"\`, -1, "S"}: 7}
	got, err := Marshal(ResetOffsetBody{OffsetTable: table})
	require.NoError(t, err)
	require.Equal(t, `{"offsetTable":{{"brokerName":"q\"\\","queueId":-1,"topic":"S"}:7,`+
		`{"brokerName":"b","queueId":0,"topic":"T"}:5,{"brokerName":"b","queueId":1,"topic":"T"}:6}}`, string(got))
	require.False(t, json.Valid(got), "Go clients know the form by that")
	var back ResetOffsetBody
	require.NoError(t, Unmarshal(got, &back))
	require.Equal(t, table, back.OffsetTable)

	// The keys as strings, which fastjson 1 reads too.
	require.NoError(t, Unmarshal([]byte(`{"offsetTable":{"{\"brokerName\":\"b\",\"queueId\":3,\"topic\":\"T\"}":5}}`), &back))
	require.Equal(t, QueueTable[int64]{{"b", 3, "T"}: 5}, back.OffsetTable)
	require.NoError(t, Unmarshal([]byte(`{"offsetTable":null}`), &back))
	for _, bad := range []string{`{"offsetTable":{"x":5}}`, `{"offsetTable":[]}`, `{"offsetTable":{{"queueId":"x"}:5}}`, `{"offsetTable":{{}:"x"}}`} {
		require.ErrorIs(t, Unmarshal([]byte(bad), &back), ErrJSON, bad)
	}
}

func TestQueueTableEscapesKeysLikeMarshal(t *testing.T) {
	q := MessageQueue{BrokerName: "a\"\\\n\x01é<中", QueueID: math.MinInt32, Topic: "%RETRY%g|-_"}
	want, err := Marshal(q)
	require.NoError(t, err)
	require.JSONEq(t, string(want), string(q.appendJSON(nil)))
}

func TestMarshalBareIDs(t *testing.T) {
	got, err := MarshalBareIDs(ClusterInfo{
		BrokerAddrTable: map[string]BrokerData{
			"7": {BrokerAddrs: map[int64]string{0: `a,"brokerAddrs":{"1":"x"}:1`, -3: "b:2", 12: ""}, BrokerName: "7", Cluster: `"brokerAddrs":{`},
			"8": {},
		},
		ClusterAddrTable: map[string][]string{"c": {"7"}},
	})
	require.NoError(t, err)
	require.Equal(t, `{"brokerAddrTable":{"7":{"brokerAddrs":{-3:"b:2",0:"a,\"brokerAddrs\":{\"1\":\"x\"}:1",12:""},"brokerName":"7",`+
		`"cluster":"\"brokerAddrs\":{","enableActingMaster":false},"8":{"brokerAddrs":{},"brokerName":"","cluster":"",`+
		`"enableActingMaster":false}},"clusterAddrTable":{"c":["7"]}}`, string(got))
	var back ClusterInfo
	require.NoError(t, Unmarshal(got, &back))
	require.Equal(t, "b:2", back.BrokerAddrTable["7"].BrokerAddrs[-3])
}

func TestCodesReadNumbersAndStrings(t *testing.T) {
	for in, want := range map[string]Codes{
		`[1,-2147483648]`: {1, math.MinInt32}, `["2598919", "-5"]`: {2598919, -5}, `[ 1 , "2" ]`: {1, 2}, `[]`: nil, `null`: nil,
	} {
		var s SubscriptionData
		require.NoError(t, Unmarshal([]byte(`{"codeSet":`+in+`}`), &s), in)
		require.Equal(t, want, s.CodeSet, in)
	}
	for _, in := range []string{`["x"]`, `[2147483648]`, `[1.5]`, `[{}]`, `[null]`, `"a"`, `{"a":1}`} {
		var s SubscriptionData
		require.Error(t, Unmarshal([]byte(`{"codeSet":`+in+`}`), &s), in)
	}
}

func TestByteStringsReadBothForms(t *testing.T) {
	for _, in := range []string{`"AQL/"`, `[1,2,-1]`, `[1,2,255]`} {
		var a BatchAck
		require.NoError(t, Unmarshal([]byte(`{"b":`+in+`}`), &a), in)
		require.Equal(t, ByteString{1, 2, 255}, a.BitSet, in)
		out, err := Marshal(a.BitSet)
		require.NoError(t, err)
		require.Equal(t, `"AQL/"`, string(out))
	}
	var a BatchAck
	require.NoError(t, Unmarshal([]byte(`{"b":null}`), &a))
	require.Error(t, Unmarshal([]byte(`{"b":"?"}`), &a))
	require.Error(t, Unmarshal([]byte(`{"b":["x"]}`), &a))
}

func TestEnumsReadNamesAndNumbers(t *testing.T) {
	for in, want := range map[string]EnumText{`"CR_SUCCESS"`: "CR_SUCCESS", `0`: "0", `null`: ""} {
		var r ConsumeMessageDirectlyResult
		require.NoError(t, Unmarshal([]byte(`{"consumeResult":`+in+`}`), &r), in)
		require.Equal(t, want, r.ConsumeResult)
	}
	for in, want := range map[string]Language{`"GO"`: LanguageGo, `9`: LanguageGo, `"ZIG"`: LanguageOther, `null`: LanguageOther} {
		var c Connection
		require.NoError(t, Unmarshal([]byte(`{"language":`+in+`}`), &c), in)
		require.Equal(t, want, c.Language, in)
	}
}

func TestGroupsGetJavasDefaults(t *testing.T) {
	var list SubscriptionGroupList
	require.NoError(t, Unmarshal([]byte(`{"groupConfigList":[{"groupName":"g","retryMaxTimes":3,"consumeEnable":false}]}`), &list))
	want := NewSubscriptionGroupConfig("g")
	want.RetryMaxTimes, want.ConsumeEnable = 3, false
	require.Equal(t, []SubscriptionGroupConfig{want}, list.GroupConfigList)
}
