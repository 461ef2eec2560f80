package protocol

import (
	"errors"
	"fmt"
	"strings"
)

// Bits of a topic's or broker's permission.
const (
	PermInherit  int32 = 1 // topics made on demand may copy this one
	PermWrite    int32 = 2
	PermRead     int32 = 4
	PermPriority int32 = 8
)

// Bits of a topic's system flag.
const (
	TopicUnit    int32 = 1
	TopicUnitSub int32 = 2
)

// Names that the protocol reserves.
const (
	TopicDefault           = "TBW102" // its settings are copied to topics made on demand
	TopicSchedule          = "SCHEDULE_TOPIC_XXXX"
	TopicHalf              = "RMQ_SYS_TRANS_HALF_TOPIC"
	TopicOpHalf            = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
	TopicTransCheckMaxTime = "TRANS_CHECK_MAX_TIME_TOPIC"
	TopicSelfTest          = "SELF_TEST_TOPIC"
	TopicOffsetMoved       = "OFFSET_MOVED_EVENT"
	TopicTrace             = "RMQ_SYS_TRACE_TOPIC"
	TopicBenchmark         = "BenchmarkTest"
	TopicTimer             = "rmq_sys_wheel_timer"

	RetryPrefix       = "%RETRY%"
	DLQPrefix         = "%DLQ%"
	SystemTopicPrefix = "rmq_sys_"
	SystemGroupPrefix = "CID_RMQ_SYS_"
	ReplyTopicSuffix  = "_REPLY_TOPIC" // after the cluster's name

	GroupInnerProducer = "CLIENT_INNER_PRODUCER"
	GroupTools         = "TOOLS_CONSUMER"

	NamespaceOrderTopic = "ORDER_TOPIC_CONFIG" // of the name server's KV table
)

// Lengths in bytes.
const (
	MaxTopic      = 127 // of a topic that a client may make: old records have one signed byte for the length
	MaxOwnTopic   = 255 // of retry and dead letter topics
	MaxGroup      = 255 // that clients accept
	MaxAdminGroup = 120 // that tools may create
)

// Errors of the Validate functions.
var (
	ErrTopicName = errors.New("topic name is illegal")
	ErrGroupName = errors.New("group name is illegal")
)

// RetryTopic is the topic for messages that the group could not consume yet.
func RetryTopic(group string) string { return RetryPrefix + group }

// DLQTopic is the topic for messages that the group gave up.
func DLQTopic(group string) string { return DLQPrefix + group }

// IsRetryTopic says whether a topic is some group's retry topic.
func IsRetryTopic(topic string) bool { return strings.HasPrefix(topic, RetryPrefix) }

// IsDLQTopic says whether a topic is some group's dead letter topic.
func IsDLQTopic(topic string) bool { return strings.HasPrefix(topic, DLQPrefix) }

// ValidateTopic checks length and letters of a topic's name. An error is ErrTopicName, with the reason.
func ValidateTopic(name string) error {
	limit := MaxTopic
	if IsRetryTopic(name) || IsDLQTopic(name) {
		limit = MaxOwnTopic
	}
	return validateName(name, limit, ErrTopicName)
}

// ValidateGroup checks length and letters of a producer or consumer group's name as clients do. An error is
// ErrGroupName, with the reason.
func ValidateGroup(name string) error { return validateName(name, MaxGroup, ErrGroupName) }

// ValidateAdminGroup is ValidateGroup with the lower limit that brokers have for groups made by a tool (codes 200 and
// 225).
func ValidateAdminGroup(name string) error { return validateName(name, MaxAdminGroup, ErrGroupName) }

func validateName(name string, limit int, sentinel error) error {
	if strings.TrimSpace(name) == "" {
		return fmt.Errorf("%w: it is blank", sentinel)
	}
	if len(name) > limit {
		return fmt.Errorf("%w: it has %d bytes, at most %d are allowed", sentinel, len(name), limit)
	}
	for i := range len(name) {
		if c := name[i]; !(isWord(c) && c != '$' || c == '%' || c == '|') {
			return fmt.Errorf("%w: %q at %d, allowed are letters, digits and %%|-_", sentinel, c, i)
		}
	}
	return nil
}

// systemTopics holds the reserved topics; the value says that clients may not send to them.
var systemTopics = map[string]bool{
	TopicDefault:                          false,
	TopicSchedule:                         true,
	TopicHalf:                             true,
	TopicOpHalf:                           true,
	TopicTransCheckMaxTime:                true,
	TopicSelfTest:                         true,
	TopicOffsetMoved:                      true,
	TopicTrace:                            false,
	TopicBenchmark:                        false,
	"CHECKPOINT_TOPIC":                    false,
	"RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC":    false,
	"RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC": false,
}

// IsSystemTopic says whether a topic is reserved: tools may neither create nor delete it. A broker adds its own name,
// its cluster's and the cluster's reply topic.
func IsSystemTopic(name string) bool {
	_, ok := systemTopics[name]
	return ok || strings.HasPrefix(name, SystemTopicPrefix)
}

// IsClosedTopic says whether a topic takes messages from the broker only.
func IsClosedTopic(name string) bool { return systemTopics[name] }
