package protocol

// DataVersion says how new a table is. A name server or slave takes a table over if its version differs.
type DataVersion struct {
	Counter      int64 `json:"counter"`
	StateVersion int64 `json:"stateVersion"`
	Timestamp    int64 `json:"timestamp"` // ms
}

// Topic filter types.
const (
	SingleTag = "SINGLE_TAG"
	MultiTag  = "MULTI_TAG"
)

// TopicConfig is a topic as its broker has it.
type TopicConfig struct {
	Attributes      map[string]string `json:"attributes"`
	Order           bool              `json:"order"`
	Perm            int32             `json:"perm"`
	ReadQueueNums   int32             `json:"readQueueNums"`
	TopicFilterType EnumText          `json:"topicFilterType"`
	TopicName       string            `json:"topicName"`
	TopicSysFlag    int32             `json:"topicSysFlag"`
	WriteQueueNums  int32             `json:"writeQueueNums"`
}

// TopicConfigSerializeWrapper is a broker's topic table: part of a registration, and the answer to code 21. The three
// mapping fields belong to static topics of 5.x, which are handed on unread.
type TopicConfigSerializeWrapper struct {
	DataVersion                DataVersion            `json:"dataVersion"`
	MappingDataVersion         *DataVersion           `json:"mappingDataVersion,omitempty"`
	TopicConfigTable           map[string]TopicConfig `json:"topicConfigTable"`
	TopicQueueMappingDetailMap map[string]Raw         `json:"topicQueueMappingDetailMap,omitempty"`
	TopicQueueMappingInfoMap   map[string]Raw         `json:"topicQueueMappingInfoMap,omitempty"`
	Ratchet                    *TopicTableOwn         `json:"ratchet,omitempty"`
}

// TopicTableOwn says which topics were deleted, each below a position of the log; they may have been made again.
type TopicTableOwn struct {
	Deleted map[string]int64 `json:"deleted"`
}

// TopicConfigList is the body of code 18.
type TopicConfigList struct {
	TopicConfigList []TopicConfig `json:"topicConfigList"`
}

// SubscriptionGroupConfig is a consumer group as its broker has it. Read from JSON, fields that are not there have
// Java's defaults, as in NewSubscriptionGroupConfig.
type SubscriptionGroupConfig struct {
	Attributes                     map[string]string `json:"attributes"`
	BrokerID                       int64             `json:"brokerId"`
	ConsumeBroadcastEnable         bool              `json:"consumeBroadcastEnable"`
	ConsumeEnable                  bool              `json:"consumeEnable"`
	ConsumeFromMinEnable           bool              `json:"consumeFromMinEnable"`
	ConsumeMessageOrderly          bool              `json:"consumeMessageOrderly"`
	ConsumeTimeoutMinute           int32             `json:"consumeTimeoutMinute"`
	GroupName                      string            `json:"groupName"`
	GroupRetryPolicy               Raw               `json:"groupRetryPolicy,omitempty"`
	GroupSysFlag                   int32             `json:"groupSysFlag"`
	NotifyConsumerIDsChangedEnable bool              `json:"notifyConsumerIdsChangedEnable"`
	RetryMaxTimes                  int32             `json:"retryMaxTimes"`
	RetryQueueNums                 int32             `json:"retryQueueNums"`
	SubscriptionDataSet            Raw               `json:"subscriptionDataSet,omitempty"`
	WhichBrokerWhenConsumeSlowly   int64             `json:"whichBrokerWhenConsumeSlowly"`
}

// NewSubscriptionGroupConfig is a group with the settings that a broker gives one it creates by itself.
func NewSubscriptionGroupConfig(group string) SubscriptionGroupConfig {
	return SubscriptionGroupConfig{
		ConsumeBroadcastEnable:         true,
		ConsumeEnable:                  true,
		ConsumeFromMinEnable:           true,
		ConsumeTimeoutMinute:           15,
		GroupName:                      group,
		GroupRetryPolicy:               Raw(`{"type":"CUSTOMIZED"}`),
		NotifyConsumerIDsChangedEnable: true,
		RetryMaxTimes:                  16,
		RetryQueueNums:                 1,
		WhichBrokerWhenConsumeSlowly:   1,
	}
}

// UnmarshalJSON reads a group, with the defaults for what is not there.
func (c *SubscriptionGroupConfig) UnmarshalJSON(data []byte) error {
	type plain SubscriptionGroupConfig // has no methods, so that this one does not call itself
	p := plain(NewSubscriptionGroupConfig(""))
	if err := decode(data, &p); err != nil {
		return err
	}
	*c = SubscriptionGroupConfig(p)
	return nil
}

// SubscriptionGroupWrapper answers code 201.
type SubscriptionGroupWrapper struct {
	DataVersion            DataVersion                        `json:"dataVersion"`
	ForbiddenTable         map[string]map[string]int32        `json:"forbiddenTable"`
	SubscriptionGroupTable map[string]SubscriptionGroupConfig `json:"subscriptionGroupTable"`
}

// SubscriptionGroupList is the body of code 225.
type SubscriptionGroupList struct {
	GroupConfigList []SubscriptionGroupConfig `json:"groupConfigList"`
}

// GroupForbidden answers code 353.
type GroupForbidden struct {
	Group    string `json:"group"`
	Readable bool   `json:"readable"`
	Topic    string `json:"topic"`
}

// TopicList answers codes 206, 224, 304, 305, 311 to 313 and 343.
type TopicList struct {
	BrokerAddr string   `json:"brokerAddr,omitempty"`
	TopicList  []string `json:"topicList"`
}

// GroupList answers code 300.
type GroupList struct {
	GroupList []string `json:"groupList"`
}

// KVTable answers codes 28, 103 and 219.
type KVTable struct {
	Table map[string]string `json:"table"`
}
