package protocol

// ConsumeStats answers code 208.
type ConsumeStats struct {
	ConsumeTPS  float64                   `json:"consumeTps"`
	OffsetTable QueueTable[OffsetWrapper] `json:"offsetTable"`
}

// OffsetWrapper is how far a group is in a queue. LastTimestamp is in ms.
type OffsetWrapper struct {
	BrokerOffset   int64 `json:"brokerOffset"`
	ConsumerOffset int64 `json:"consumerOffset"`
	LastTimestamp  int64 `json:"lastTimestamp"`
	PullOffset     int64 `json:"pullOffset"`
}

// ConsumeStatsList answers code 317: by group, one entry per topic.
type ConsumeStatsList struct {
	BrokerAddr        string                      `json:"brokerAddr"`
	ConsumeStatsList  []map[string][]ConsumeStats `json:"consumeStatsList"`
	TotalDiff         int64                       `json:"totalDiff"`
	TotalInflightDiff int64                       `json:"totalInflightDiff"`
}

// TopicStatsTable answers code 202.
type TopicStatsTable struct {
	OffsetTable QueueTable[TopicOffset] `json:"offsetTable"`
	TopicPutTPS float64                 `json:"topicPutTps"`
}

// TopicOffset is what a queue holds. LastUpdateTimestamp is in ms, 0 for an empty queue.
type TopicOffset struct {
	LastUpdateTimestamp int64 `json:"lastUpdateTimestamp"`
	MaxOffset           int64 `json:"maxOffset"`
	MinOffset           int64 `json:"minOffset"`
}

// Connection is a client as the broker sees it.
type Connection struct {
	ClientAddr string   `json:"clientAddr"`
	ClientID   string   `json:"clientId"`
	Language   Language `json:"language"`
	Version    int32    `json:"version"`
}

// ConsumerConnection answers code 203.
type ConsumerConnection struct {
	ConnectionSet     []Connection                `json:"connectionSet"`
	ConsumeFromWhere  EnumText                    `json:"consumeFromWhere"`
	ConsumeType       EnumText                    `json:"consumeType"`
	MessageModel      EnumText                    `json:"messageModel"`
	SubscriptionTable map[string]SubscriptionData `json:"subscriptionTable"`
}

// ProducerConnection answers code 204.
type ProducerConnection struct {
	ConnectionSet []Connection `json:"connectionSet"`
}

// ProducerInfo is a live producer. LastUpdateTimestamp is in ms.
type ProducerInfo struct {
	ClientID            string   `json:"clientId"`
	Language            Language `json:"language"`
	LastUpdateTimestamp int64    `json:"lastUpdateTimestamp"`
	RemoteIP            string   `json:"remoteIP"`
	Version             int32    `json:"version"`
}

// ProducerTableInfo answers code 328: producers by group.
type ProducerTableInfo struct {
	Data map[string][]ProducerInfo `json:"data"`
}

// ConsumerRunningInfo answers code 307. A broker passes the client's bytes on unread.
type ConsumerRunningInfo struct {
	JStack           string                          `json:"jstack,omitempty"`
	MQPopTable       QueueTable[PopProcessQueueInfo] `json:"mqPopTable"`
	MQTable          QueueTable[ProcessQueueInfo]    `json:"mqTable"`
	Properties       map[string]string               `json:"properties"`
	StatusTable      map[string]ConsumeStatus        `json:"statusTable"`
	SubscriptionSet  []SubscriptionData              `json:"subscriptionSet"`
	UserConsumerInfo map[string]string               `json:"userConsumerInfo"`
}

// ProcessQueueInfo is a queue as a consumer has it.
type ProcessQueueInfo struct {
	CachedMsgCount          int32 `json:"cachedMsgCount"`
	CachedMsgMaxOffset      int64 `json:"cachedMsgMaxOffset"`
	CachedMsgMinOffset      int64 `json:"cachedMsgMinOffset"`
	CachedMsgSizeInMiB      int32 `json:"cachedMsgSizeInMiB"`
	CommitOffset            int64 `json:"commitOffset"`
	Dropped                 bool  `json:"droped"`
	LastConsumeTimestamp    int64 `json:"lastConsumeTimestamp"`
	LastLockTimestamp       int64 `json:"lastLockTimestamp"`
	LastPullTimestamp       int64 `json:"lastPullTimestamp"`
	Locked                  bool  `json:"locked"`
	TransactionMsgCount     int32 `json:"transactionMsgCount"`
	TransactionMsgMaxOffset int64 `json:"transactionMsgMaxOffset"`
	TransactionMsgMinOffset int64 `json:"transactionMsgMinOffset"`
	TryUnlockTimes          int64 `json:"tryUnlockTimes"`
}

// PopProcessQueueInfo is a queue as a pop consumer has it.
type PopProcessQueueInfo struct {
	Dropped          bool  `json:"droped"`
	LastPopTimestamp int64 `json:"lastPopTimestamp"`
	WaitAckCount     int32 `json:"waitAckCount"`
}

// ConsumeStatus is how fast a consumer reads a topic.
type ConsumeStatus struct {
	ConsumeFailedMsgs int64   `json:"consumeFailedMsgs"`
	ConsumeFailedTPS  float64 `json:"consumeFailedTPS"`
	ConsumeOKTPS      float64 `json:"consumeOKTPS"`
	ConsumeRT         float64 `json:"consumeRT"`
	PullRT            float64 `json:"pullRT"`
	PullTPS           float64 `json:"pullTPS"`
}

// BrokerStatsData answers code 315.
type BrokerStatsData struct {
	StatsDay    BrokerStatsItem `json:"statsDay"`
	StatsHour   BrokerStatsItem `json:"statsHour"`
	StatsMinute BrokerStatsItem `json:"statsMinute"`
}

// BrokerStatsItem is a counter over one span of time.
type BrokerStatsItem struct {
	AveragePerTime float64 `json:"avgpt"`
	Sum            int64   `json:"sum"`
	TPS            float64 `json:"tps"`
}

// QueryConsumeQueueResponse answers code 321. FilterData is JSON in a string, "null" if there is none.
type QueryConsumeQueueResponse struct {
	FilterData       string             `json:"filterData"`
	MaxQueueIndex    int64              `json:"maxQueueIndex"`
	MinQueueIndex    int64              `json:"minQueueIndex"`
	QueueData        []ConsumeQueueData `json:"queueData"`
	SubscriptionData *SubscriptionData  `json:"subscriptionData,omitempty"`
}

// ConsumeQueueData is an entry of a consume queue.
type ConsumeQueueData struct {
	BitMap         string `json:"bitMap,omitempty"`
	Eval           bool   `json:"eval"`
	ExtendDataJSON string `json:"extendDataJson,omitempty"`
	Message        string `json:"msg,omitempty"`
	PhysicalOffset int64  `json:"physicOffset"`
	PhysicalSize   int32  `json:"physicSize"`
	TagsCode       int64  `json:"tagsCode"`
}

// QueryConsumeTimeSpanResponse answers code 303.
type QueryConsumeTimeSpanResponse struct {
	ConsumeTimeSpanSet []QueueTimeSpan `json:"consumeTimeSpanSet"`
}

// QueueTimeSpan says from when to when the messages of a queue are, and up to when they are consumed. All in ms.
type QueueTimeSpan struct {
	ConsumeTimestamp     int64        `json:"consumeTimeStamp"`
	ConsumeTimestampText string       `json:"consumeTimeStampStr,omitempty"`
	DelayTime            int64        `json:"delayTime"`
	MaxTimestamp         int64        `json:"maxTimeStamp"`
	MaxTimestampText     string       `json:"maxTimeStampStr,omitempty"`
	MessageQueue         MessageQueue `json:"messageQueue"`
	MinTimestamp         int64        `json:"minTimeStamp"`
	MinTimestampText     string       `json:"minTimeStampStr,omitempty"`
}

// QuerySubscriptionResponse answers code 345.
type QuerySubscriptionResponse struct {
	Group            string            `json:"group"`
	SubscriptionData *SubscriptionData `json:"subscriptionData,omitempty"`
	Topic            string            `json:"topic"`
}
