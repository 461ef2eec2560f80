package protocol

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestValidateTopic(t *testing.T) {
	long := strings.Repeat("x", 127)
	for _, name := range []string{"T", "%RETRY%g", "a|b-c_D9", "rmq_sys_x", long, RetryTopic(strings.Repeat("g", 248)), DLQTopic(strings.Repeat("g", 250))} {
		require.NoError(t, ValidateTopic(name), name)
	}
	for _, name := range []string{
		"", " ", "\t", long + "x", RetryTopic(strings.Repeat("g", 249)), DLQTopic(strings.Repeat("g", 251)),
		"a b", "a.b", "a/b", "../x", "a$", "a+b", "a:b", "ä", "a\x00", "a\n", "話",
	} {
		require.ErrorIs(t, ValidateTopic(name), ErrTopicName, name)
	}
}

func TestValidateGroup(t *testing.T) {
	require.NoError(t, ValidateGroup(strings.Repeat("g", 255)))
	require.ErrorIs(t, ValidateGroup(strings.Repeat("g", 256)), ErrGroupName)
	require.NoError(t, ValidateAdminGroup(strings.Repeat("g", 120)))
	require.ErrorIs(t, ValidateAdminGroup(strings.Repeat("g", 121)), ErrGroupName)
	require.ErrorIs(t, ValidateGroup(""), ErrGroupName)
	require.ErrorIs(t, ValidateGroup("a@b"), ErrGroupName)
}

func TestReservedNames(t *testing.T) {
	require.Equal(t, "%RETRY%g", RetryTopic("g"))
	require.Equal(t, "%DLQ%g", DLQTopic("g"))
	require.True(t, IsRetryTopic("%RETRY%g"))
	require.False(t, IsRetryTopic("%DLQ%g"))
	require.True(t, IsDLQTopic("%DLQ%g"))
	for name, closed := range map[string]bool{
		"TBW102": false, "SCHEDULE_TOPIC_XXXX": true, "RMQ_SYS_TRANS_HALF_TOPIC": true, "RMQ_SYS_TRANS_OP_HALF_TOPIC": true,
		"TRANS_CHECK_MAX_TIME_TOPIC": true, "SELF_TEST_TOPIC": true, "OFFSET_MOVED_EVENT": true, "RMQ_SYS_TRACE_TOPIC": false, "BenchmarkTest": false,
		"rmq_sys_wheel_timer": false,
	} {
		require.True(t, IsSystemTopic(name), name)
		require.Equal(t, closed, IsClosedTopic(name), name)
	}
	require.False(t, IsSystemTopic("T"))
	require.False(t, IsSystemTopic("%RETRY%g"))

	// All but the names of broker and cluster, which this package does not know.
	var list TopicList
	require.NoError(t, Unmarshal(goldenFrame(t, "admin-system-topic-list-broker", "response").body(), &list))
	for _, name := range list.TopicList {
		require.Equal(t, !strings.HasPrefix(name, "WireCluster") && name != "wire-a", IsSystemTopic(name), name)
	}
}
