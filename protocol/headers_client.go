package protocol

// HeartbeatResponse answers code 34 with the two fields of heartbeat V2. A broker that does not want V2 heartbeats
// leaves the header out.
//
//rmq:header
type HeartbeatResponse struct {
	SupportsV2          bool      `rmq:"IS_SUPPORT_HEART_BEAT_V2"`
	SubscriptionChanged Opt[bool] `rmq:"IS_SUB_CHANGE"`
}

// UnregisterClientRequest is the header of code 35. Either group may be missing.
//
//rmq:header
type UnregisterClientRequest struct {
	ClientID      string `rmq:"clientID,required"`
	ProducerGroup string `rmq:"producerGroup,intern"`
	ConsumerGroup string `rmq:"consumerGroup,intern"`

	seen fieldSet
}

// GetConsumerListByGroupRequest is the header of code 38.
//
//rmq:header
type GetConsumerListByGroupRequest struct {
	ConsumerGroup string `rmq:"consumerGroup,required,intern"`

	seen fieldSet
}

// NotifyConsumerIDsChangedRequest is the header of code 40 (broker to consumer).
//
//rmq:header
type NotifyConsumerIDsChangedRequest struct {
	ConsumerGroup string `rmq:"consumerGroup,required,intern"`

	seen fieldSet
}

// ResetOffsetRequest is the header of codes 220 (broker to consumer) and 222. Timestamp is in ms, -1 for the newest.
// Without a queue id, all queues are meant.
//
//rmq:header
type ResetOffsetRequest struct {
	Topic     string     `rmq:"topic,required,intern"`
	Group     string     `rmq:"group,required,intern"`
	Timestamp int64      `rmq:"timestamp,required"`
	IsForce   bool       `rmq:"isForce,required"`
	QueueID   Opt[int32] `rmq:"queueId"`
	Offset    Opt[int64] `rmq:"offset"`

	seen fieldSet
}

// GetConsumerStatusRequest is the header of codes 221 (broker to consumer) and 223. ClientAddr is a client id.
//
//rmq:header
type GetConsumerStatusRequest struct {
	Topic      string `rmq:"topic,required,intern"`
	Group      string `rmq:"group,required,intern"`
	ClientAddr string `rmq:"clientAddr"`

	seen fieldSet
}

// GetConsumerRunningInfoRequest is the header of code 307.
//
//rmq:header
type GetConsumerRunningInfoRequest struct {
	ConsumerGroup string `rmq:"consumerGroup,required,intern"`
	ClientID      string `rmq:"clientId,required"`
	JstackEnable  bool   `rmq:"jstackEnable"`

	seen fieldSet
}

// ConsumeMessageDirectlyRequest is the header of code 309.
//
//rmq:header
type ConsumeMessageDirectlyRequest struct {
	ConsumerGroup string `rmq:"consumerGroup,required,intern"`
	ClientID      string `rmq:"clientId"`
	MsgID         string `rmq:"msgId"`
	BrokerName    string `rmq:"brokerName,intern"`
	Topic         string `rmq:"topic,intern"`
	TopicSysFlag  int32  `rmq:"topicSysFlag"`
	GroupSysFlag  int32  `rmq:"groupSysFlag"`

	seen fieldSet
}

// PopMessageRequest is the header of code 200050. Times are in ms.
//
//rmq:header
type PopMessageRequest struct {
	ConsumerGroup  string `rmq:"consumerGroup,required,intern"`
	Topic          string `rmq:"topic,required,intern"`
	QueueID        int32  `rmq:"queueId,required"`
	MaxMsgNums     int32  `rmq:"maxMsgNums,required"`
	InvisibleTime  int64  `rmq:"invisibleTime,required"`
	PollTime       int64  `rmq:"pollTime,required"`
	BornTime       int64  `rmq:"bornTime,required"`
	InitMode       int32  `rmq:"initMode,required"`
	ExpressionType string `rmq:"expType"`
	Expression     string `rmq:"exp"`
	Order          bool   `rmq:"order"`
	AttemptID      string `rmq:"attemptId"`

	seen fieldSet
}

// PopMessageResponse answers codes 200050 and 200052.
//
//rmq:header
type PopMessageResponse struct {
	PopTime         int64  `rmq:"popTime,required"`
	InvisibleTime   int64  `rmq:"invisibleTime,required"`
	ReviveQID       int32  `rmq:"reviveQid,required"`
	RestNum         int64  `rmq:"restNum,required"`
	StartOffsetInfo string `rmq:"startOffsetInfo"`
	MsgOffsetInfo   string `rmq:"msgOffsetInfo"`
	OrderCountInfo  string `rmq:"orderCountInfo"`

	seen fieldSet
}

// AckMessageRequest is the header of code 200051.
//
//rmq:header
type AckMessageRequest struct {
	ConsumerGroup string `rmq:"consumerGroup,required,intern"`
	Topic         string `rmq:"topic,required,intern"`
	QueueID       int32  `rmq:"queueId,required"`
	ExtraInfo     string `rmq:"extraInfo,required"`
	Offset        int64  `rmq:"offset,required"`

	seen fieldSet
}

// PeekMessageRequest is the header of code 200052.
//
//rmq:header
type PeekMessageRequest struct {
	Topic         string `rmq:"topic,required,intern"`
	QueueID       int32  `rmq:"queueId,required"`
	MaxMsgNums    int32  `rmq:"maxMsgNums,required"`
	ConsumerGroup string `rmq:"consumerGroup,required,intern"`

	seen fieldSet
}

// ChangeInvisibleTimeRequest is the header of code 200053.
//
//rmq:header
type ChangeInvisibleTimeRequest struct {
	ConsumerGroup string `rmq:"consumerGroup,required,intern"`
	Topic         string `rmq:"topic,required,intern"`
	QueueID       int32  `rmq:"queueId,required"`
	ExtraInfo     string `rmq:"extraInfo,required"`
	Offset        int64  `rmq:"offset,required"`
	InvisibleTime int64  `rmq:"invisibleTime,required"`

	seen fieldSet
}

// ChangeInvisibleTimeResponse answers code 200053; the client makes its new handle of it.
//
//rmq:header
type ChangeInvisibleTimeResponse struct {
	PopTime       int64 `rmq:"popTime,required"`
	InvisibleTime int64 `rmq:"invisibleTime,required"`
	ReviveQID     int32 `rmq:"reviveQid,required"`

	seen fieldSet
}

// NotificationRequest is the header of code 200054.
//
//rmq:header
type NotificationRequest struct {
	ConsumerGroup string `rmq:"consumerGroup,required,intern"`
	Topic         string `rmq:"topic,required,intern"`
	QueueID       int32  `rmq:"queueId,required"`
	PollTime      int64  `rmq:"pollTime,required"`
	BornTime      int64  `rmq:"bornTime,required"`
	Order         bool   `rmq:"order"`
	AttemptID     string `rmq:"attemptId"`

	seen fieldSet
}

// NotificationResponse answers code 200054.
//
//rmq:header
type NotificationResponse struct {
	HasMsg      bool `rmq:"hasMsg,required"`
	PollingFull bool `rmq:"pollingFull"`

	seen fieldSet
}

// PollingInfoRequest is the header of code 200055.
//
//rmq:header
type PollingInfoRequest struct {
	ConsumerGroup string `rmq:"consumerGroup,required,intern"`
	Topic         string `rmq:"topic,required,intern"`
	QueueID       int32  `rmq:"queueId,required"`

	seen fieldSet
}

// PollingInfoResponse answers code 200055.
//
//rmq:header
type PollingInfoResponse struct {
	PollingNum int32 `rmq:"pollingNum,required"`

	seen fieldSet
}
