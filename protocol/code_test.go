package protocol

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCodesArePinned holds the numbers to the ones on the wire, independently of the constants.
func TestCodesArePinned(t *testing.T) {
	for code, name := range map[RequestCode]string{
		10: "SEND_MESSAGE", 11: "PULL_MESSAGE", 12: "QUERY_MESSAGE", 14: "QUERY_CONSUMER_OFFSET", 15: "UPDATE_CONSUMER_OFFSET",
		17: "UPDATE_AND_CREATE_TOPIC", 29: "SEARCH_OFFSET_BY_TIMESTAMP", 30: "GET_MAX_OFFSET", 31: "GET_MIN_OFFSET", 33: "VIEW_MESSAGE_BY_ID",
		34: "HEART_BEAT", 35: "UNREGISTER_CLIENT", 36: "CONSUMER_SEND_MSG_BACK", 37: "END_TRANSACTION", 38: "GET_CONSUMER_LIST_BY_GROUP",
		39: "CHECK_TRANSACTION_STATE", 40: "NOTIFY_CONSUMER_IDS_CHANGED", 41: "LOCK_BATCH_MQ", 42: "UNLOCK_BATCH_MQ", 46: "CHECK_CLIENT_CONFIG",
		103: "REGISTER_BROKER", 104: "UNREGISTER_BROKER", 105: "GET_ROUTEINFO_BY_TOPIC", 106: "GET_BROKER_CLUSTER_INFO", 220: "RESET_CONSUMER_CLIENT_OFFSET",
		310: "SEND_MESSAGE_V2", 320: "SEND_BATCH_MESSAGE", 322: "QUERY_DATA_VERSION", 361: "LITE_PULL_MESSAGE", 200050: "POP_MESSAGE", 9999: "9999",
	} {
		require.Equal(t, name, code.String())
	}
	for code, name := range map[ResponseCode]string{
		0: "SUCCESS", 1: "SYSTEM_ERROR", 2: "SYSTEM_BUSY", 3: "REQUEST_CODE_NOT_SUPPORTED", 10: "FLUSH_DISK_TIMEOUT", 11: "SLAVE_NOT_AVAILABLE",
		12: "FLUSH_SLAVE_TIMEOUT", 13: "MESSAGE_ILLEGAL", 14: "SERVICE_NOT_AVAILABLE", 16: "NO_PERMISSION", 17: "TOPIC_NOT_EXIST", 19: "PULL_NOT_FOUND",
		20: "PULL_RETRY_IMMEDIATELY", 21: "PULL_OFFSET_MOVED", 22: "QUERY_NOT_FOUND", 24: "SUBSCRIPTION_NOT_EXIST", 25: "SUBSCRIPTION_NOT_LATEST",
		26: "SUBSCRIPTION_GROUP_NOT_EXIST", 29: "INVALID_PARAMETER", 206: "CONSUMER_NOT_ONLINE", 210: "POLLING_TIMEOUT", 1500: "GO_AWAY", -5: "-5",
	} {
		require.Equal(t, name, code.String())
	}
	for code := range responseNames {
		require.Equal(t, code, ResponseCode(int16(code)), "Go clients read 16 bits")
	}
	require.Equal(t, []int32{4, 2, 1, 8}, []int32{PermRead, PermWrite, PermInherit, PermPriority})
	require.Equal(t, []int32{1, 2, 493, 401}, []int32{FlagResponse, FlagOneway, Version, StandardJSONVersion})
	require.Equal(t, 16777216, MaxFrame)
}

// TestGoldenCodesHaveNames demands a name for every code that was ever captured.
func TestGoldenCodesHaveNames(t *testing.T) {
	for _, g := range goldenFrames(t) {
		if g.Side == "response" {
			require.Contains(t, responseNames, ResponseCode(g.Code), g)
		} else if g.Code != 9999 {
			require.Contains(t, requestNames, RequestCode(g.Code), g)
		}
	}
}

func TestNamesAreUnique(t *testing.T) {
	names := map[string]bool{}
	for _, name := range requestNames {
		require.False(t, names[name], name)
		names[name] = true
	}
	clear(names)
	for _, name := range responseNames {
		require.False(t, names[name], name)
		names[name] = true
	}
}

func TestLanguages(t *testing.T) {
	for name, number := range map[string]Language{"JAVA": 0, "CPP": 1, "DOTNET": 2, "PYTHON": 3, "OTHER": 7, "GO": 9, "RUST": 12, "NODE_JS": 13} {
		require.Equal(t, name, number.String())
		require.Equal(t, number, languageOf([]byte(name)))
	}
	require.Equal(t, "OTHER", Language(200).String())
	out, err := Marshal(Connection{Language: LanguageGo})
	require.NoError(t, err)
	require.Contains(t, string(out), `"language":"GO"`)
	require.Equal(t, "JSON ROCKETMQ codec 7", JSON.String()+" "+Binary.String()+" "+Codec(7).String())
}
