package protocol

// Values of ConsumerData's fields.
const (
	ConsumeActively  = "CONSUME_ACTIVELY"
	ConsumePassively = "CONSUME_PASSIVELY"
	ConsumePop       = "CONSUME_POP"

	Clustering   = "CLUSTERING"
	Broadcasting = "BROADCASTING"

	ConsumeFromLastOffset  = "CONSUME_FROM_LAST_OFFSET"
	ConsumeFromFirstOffset = "CONSUME_FROM_FIRST_OFFSET"
	ConsumeFromTimestamp   = "CONSUME_FROM_TIMESTAMP"

	ExpressionTag   = "TAG"
	ExpressionSQL92 = "SQL92"

	SubscribeAll = "*"
)

// HeartbeatData is the body of code 34. The last two fields belong to heartbeat V2: a fingerprint of the subscriptions,
// and whether these are left out this time.
type HeartbeatData struct {
	ClientID             string         `json:"clientID"`
	ConsumerDataSet      []ConsumerData `json:"consumerDataSet"`
	HeartbeatFingerprint int32          `json:"heartbeatFingerprint"`
	ProducerDataSet      []ProducerData `json:"producerDataSet"`
	WithoutSub           bool           `json:"withoutSub"`
}

// ProducerData is a producer group of a client.
type ProducerData struct {
	GroupName string `json:"groupName"`
}

// ConsumerData is a consumer group of a client, and what it subscribes to.
type ConsumerData struct {
	ConsumeFromWhere    EnumText           `json:"consumeFromWhere"`
	ConsumeType         EnumText           `json:"consumeType"`
	GroupName           string             `json:"groupName"`
	MessageModel        EnumText           `json:"messageModel"`
	SubscriptionDataSet []SubscriptionData `json:"subscriptionDataSet"`
	UnitMode            bool               `json:"unitMode"`
}

// SubscriptionData is what a group wants of a topic. SubVersion only grows: ms from Java clients, ns from Go clients.
type SubscriptionData struct {
	ClassFilterMode bool     `json:"classFilterMode"`
	CodeSet         Codes    `json:"codeSet"`
	ExpressionType  string   `json:"expressionType"`
	SubString       string   `json:"subString"`
	SubVersion      int64    `json:"subVersion"`
	TagsSet         []string `json:"tagsSet"`
	Topic           string   `json:"topic"`
}

// ConsumerList is the body that answers code 38.
type ConsumerList struct {
	ConsumerIDList []string `json:"consumerIdList"`
}

// LockBatchRequest is the body of code 41.
type LockBatchRequest struct {
	ClientID       string         `json:"clientId"`
	ConsumerGroup  string         `json:"consumerGroup"`
	MQSet          []MessageQueue `json:"mqSet"`
	OnlyThisBroker bool           `json:"onlyThisBroker"`
}

// LockBatchResponse is the body that answers code 41: the queues that the client now holds.
type LockBatchResponse struct {
	LockOKMQSet []MessageQueue `json:"lockOKMQSet"`
}

// UnlockBatchRequest is the body of code 42.
type UnlockBatchRequest LockBatchRequest

// CheckClientRequest is the body of code 46.
type CheckClientRequest struct {
	ClientID         string           `json:"clientId"`
	Group            string           `json:"group"`
	Namespace        string           `json:"namespace,omitempty"`
	SubscriptionData SubscriptionData `json:"subscriptionData"`
}

// ResetOffsetBody is the body of code 220, and answers code 222.
type ResetOffsetBody struct {
	OffsetTable QueueTable[int64] `json:"offsetTable"`
}

// ConsumerStatusBody answers codes 221 (with the second table) and 223 (with the first, by client id).
type ConsumerStatusBody struct {
	ConsumerTable     map[string]QueueTable[int64] `json:"consumerTable"`
	MessageQueueTable QueueTable[int64]            `json:"messageQueueTable"`
}

// ConsumeMessageDirectlyResult answers code 309.
type ConsumeMessageDirectlyResult struct {
	AutoCommit     bool     `json:"autoCommit"`
	ConsumeResult  EnumText `json:"consumeResult"`
	Order          bool     `json:"order"`
	Remark         string   `json:"remark,omitempty"`
	SpentTimeMills int64    `json:"spentTimeMills"`
}

// QueryAssignmentRequest is the body of code 400.
type QueryAssignmentRequest struct {
	ClientID      string   `json:"clientId"`
	ConsumerGroup string   `json:"consumerGroup"`
	MessageModel  EnumText `json:"messageModel"`
	StrategyName  string   `json:"strategyName"`
	Topic         string   `json:"topic"`
}

// QueryAssignmentResponse answers code 400. Without assignments at all the client keeps what it has.
type QueryAssignmentResponse struct {
	MessageQueueAssignments []MessageQueueAssignment `json:"messageQueueAssignments"`
}

// Modes of a MessageQueueAssignment.
const (
	ModePull = "PULL"
	ModePop  = "POP"
)

// MessageQueueAssignment is a queue that a consumer shall read, and how.
type MessageQueueAssignment struct {
	Attachments  map[string]string `json:"attachments,omitempty"`
	MessageQueue MessageQueue      `json:"messageQueue"`
	Mode         EnumText          `json:"mode"`
}

// SetMessageRequestModeRequest is the body of code 401.
type SetMessageRequestModeRequest struct {
	ConsumerGroup    string   `json:"consumerGroup"`
	Mode             EnumText `json:"mode"`
	PopShareQueueNum int32    `json:"popShareQueueNum"`
	Topic            string   `json:"topic"`
}

// MessageRequestModeTable answers code 402: topic, group, mode.
type MessageRequestModeTable struct {
	MessageRequestModeMap map[string]map[string]SetMessageRequestModeRequest `json:"messageRequestModeMap"`
}

// BatchAckRequest is the body of code 200151.
type BatchAckRequest struct {
	Acks       []BatchAck `json:"acks"`
	BrokerName string     `json:"brokerName"`
}

// BatchAck acknowledges messages of one pop: bit i of BitSet (Java's order: lowest byte and bit first) stands for
// StartOffset + i. Times are in ms.
type BatchAck struct {
	BitSet        ByteString `json:"b"`
	ConsumerGroup string     `json:"c"`
	InvisibleTime int64      `json:"it"`
	PopTime       int64      `json:"pt"`
	QueueID       int32      `json:"q"`
	Retry         string     `json:"r"`
	ReviveQueueID int32      `json:"rq"`
	StartOffset   int64      `json:"so"`
	Topic         string     `json:"t"`
}
