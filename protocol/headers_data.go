package protocol

// SendMessageRequest is the header of codes 10 and 324, and, through the second names, of 310, 320 and 325: one type
// for whoever handles a send.
//
//rmq:header
type SendMessageRequest struct {
	ProducerGroup         string     `rmq:"producerGroup|a,required,intern"`
	Topic                 string     `rmq:"topic|b,required,intern"`
	DefaultTopic          string     `rmq:"defaultTopic|c,required,intern"`
	DefaultTopicQueueNums int32      `rmq:"defaultTopicQueueNums|d,required"`
	QueueID               int32      `rmq:"queueId|e,required"`
	SysFlag               int32      `rmq:"sysFlag|f,required"`
	BornTimestamp         int64      `rmq:"bornTimestamp|g,required"`
	Flag                  int32      `rmq:"flag|h,required"`
	Properties            []byte     `rmq:"properties|i"`
	ReconsumeTimes        int32      `rmq:"reconsumeTimes|j"`
	UnitMode              bool       `rmq:"unitMode|k"`
	MaxReconsumeTimes     Opt[int32] `rmq:"maxReconsumeTimes|l"`
	Batch                 bool       `rmq:"batch|m"`
	BrokerName            string     `rmq:"bname|n,intern"`

	seen fieldSet
}

// SendMessageRequestV2 is SendMessageRequest under the one-letter names that codes 310, 320 and 325 carry. To read one,
// use SendMessageRequest.
//
//rmq:header
type SendMessageRequestV2 struct {
	ProducerGroup         string     `rmq:"a,required,intern"`
	Topic                 string     `rmq:"b,required,intern"`
	DefaultTopic          string     `rmq:"c,required,intern"`
	DefaultTopicQueueNums int32      `rmq:"d,required"`
	QueueID               int32      `rmq:"e,required"`
	SysFlag               int32      `rmq:"f,required"`
	BornTimestamp         int64      `rmq:"g,required"`
	Flag                  int32      `rmq:"h,required"`
	Properties            []byte     `rmq:"i"`
	ReconsumeTimes        int32      `rmq:"j"`
	UnitMode              bool       `rmq:"k"`
	MaxReconsumeTimes     Opt[int32] `rmq:"l"`
	Batch                 bool       `rmq:"m"`
	BrokerName            string     `rmq:"n,intern"`

	seen fieldSet
}

// SendMessageResponse answers every kind of send. QueueID and QueueOffset must be there: Java clients unbox them
// unchecked.
//
//rmq:header
type SendMessageResponse struct {
	MsgID         string `rmq:"msgId,required"`
	QueueID       int32  `rmq:"queueId,required"`
	QueueOffset   int64  `rmq:"queueOffset,required"`
	TransactionID string `rmq:"transactionId"`
	BatchUniqueID string `rmq:"batchUniqId"`
	RecallHandle  string `rmq:"recallHandle"`

	seen fieldSet
}

// PushReplyMessageRequest is the header of code 326 (broker to producer); Java calls it ReplyMessageRequestHeader.
//
//rmq:header
type PushReplyMessageRequest struct {
	ProducerGroup         string `rmq:"producerGroup,required,intern"`
	Topic                 string `rmq:"topic,required,intern"`
	DefaultTopic          string `rmq:"defaultTopic,required,intern"`
	DefaultTopicQueueNums int32  `rmq:"defaultTopicQueueNums,required"`
	QueueID               int32  `rmq:"queueId,required"`
	SysFlag               int32  `rmq:"sysFlag,required"`
	BornTimestamp         int64  `rmq:"bornTimestamp,required"`
	Flag                  int32  `rmq:"flag,required"`
	Properties            []byte `rmq:"properties"`
	ReconsumeTimes        int32  `rmq:"reconsumeTimes"`
	UnitMode              bool   `rmq:"unitMode"`
	BornHost              string `rmq:"bornHost,required"`
	StoreHost             string `rmq:"storeHost,required"`
	StoreTimestamp        int64  `rmq:"storeTimestamp,required"`

	seen fieldSet
}

// RecallMessageRequest is the header of code 370.
//
//rmq:header
type RecallMessageRequest struct {
	ProducerGroup string `rmq:"producerGroup,intern"`
	Topic         string `rmq:"topic,required,intern"`
	RecallHandle  string `rmq:"recallHandle,required"`

	seen fieldSet
}

// RecallMessageResponse answers code 370.
//
//rmq:header
type RecallMessageResponse struct {
	MsgID string `rmq:"msgId,required"`

	seen fieldSet
}

// ConsumerSendMsgBackRequest is the header of code 36. MaxReconsumeTimes counts only for clients of version 121 and
// later.
//
//rmq:header
type ConsumerSendMsgBackRequest struct {
	Offset            int64      `rmq:"offset,required"`
	Group             string     `rmq:"group,required,intern"`
	DelayLevel        int32      `rmq:"delayLevel,required"`
	OriginMsgID       string     `rmq:"originMsgId"`
	OriginTopic       string     `rmq:"originTopic"`
	UnitMode          bool       `rmq:"unitMode"`
	MaxReconsumeTimes Opt[int32] `rmq:"maxReconsumeTimes"`

	seen fieldSet
}

// EndTransactionRequest is the header of code 37. CommitOrRollback holds the transaction bits of a system flag.
//
//rmq:header
type EndTransactionRequest struct {
	ProducerGroup        string `rmq:"producerGroup,required,intern"`
	TranStateTableOffset int64  `rmq:"tranStateTableOffset,required"`
	CommitLogOffset      int64  `rmq:"commitLogOffset,required"`
	CommitOrRollback     int32  `rmq:"commitOrRollback,required"`
	FromTransactionCheck bool   `rmq:"fromTransactionCheck"`
	MsgID                string `rmq:"msgId,required"`
	TransactionID        string `rmq:"transactionId"`
	Topic                string `rmq:"topic,intern"`

	seen fieldSet
}

// CheckTransactionStateRequest is the header of code 39 (broker to producer).
//
//rmq:header
type CheckTransactionStateRequest struct {
	TranStateTableOffset int64  `rmq:"tranStateTableOffset,required"`
	CommitLogOffset      int64  `rmq:"commitLogOffset,required"`
	MsgID                string `rmq:"msgId"`
	TransactionID        string `rmq:"transactionId"`
	OffsetMsgID          string `rmq:"offsetMsgId"`
	Topic                string `rmq:"topic,intern"`
	BrokerName           string `rmq:"bname,intern"`

	seen fieldSet
}

// PullMessageRequest is the header of codes 11 and 361. SuspendTimeoutMillis is in ms.
//
//rmq:header
type PullMessageRequest struct {
	ConsumerGroup        string     `rmq:"consumerGroup,required,intern"`
	Topic                string     `rmq:"topic,required,intern"`
	QueueID              int32      `rmq:"queueId,required"`
	QueueOffset          int64      `rmq:"queueOffset,required"`
	MaxMsgNums           int32      `rmq:"maxMsgNums,required"`
	SysFlag              int32      `rmq:"sysFlag,required"`
	CommitOffset         int64      `rmq:"commitOffset,required"`
	SuspendTimeoutMillis int64      `rmq:"suspendTimeoutMillis,required"`
	Subscription         string     `rmq:"subscription"`
	SubVersion           int64      `rmq:"subVersion,required"`
	ExpressionType       string     `rmq:"expressionType,intern"`
	MaxMsgBytes          int32      `rmq:"maxMsgBytes"`
	RequestSource        Opt[int32] `rmq:"requestSource"`
	ProxyFrowardClientID string     `rmq:"proxyFrowardClientId"`
	BrokerName           string     `rmq:"bname,intern"`

	seen fieldSet
}

// PullMessageResponse answers codes 11 and 361. The first four must be there on every code that isn't an error: clients
// unbox them, or take a missing one for 0 and start over.
//
//rmq:header
type PullMessageResponse struct {
	SuggestWhichBrokerID int64      `rmq:"suggestWhichBrokerId,required"`
	NextBeginOffset      int64      `rmq:"nextBeginOffset,required"`
	MinOffset            int64      `rmq:"minOffset,required"`
	MaxOffset            int64      `rmq:"maxOffset,required"`
	OffsetDelta          int64      `rmq:"offsetDelta"`
	TopicSysFlag         int32      `rmq:"topicSysFlag"`
	GroupSysFlag         int32      `rmq:"groupSysFlag"`
	ForbiddenType        Opt[int32] `rmq:"forbiddenType"`

	seen fieldSet
}

// QueryMessageRequest is the header of code 12. Times are ms of the store clock. IndexType is U or K, sent by 5.4 only.
//
//rmq:header
type QueryMessageRequest struct {
	Topic          string `rmq:"topic,required,intern"`
	Key            string `rmq:"key,required"`
	MaxNum         int32  `rmq:"maxNum,required"`
	BeginTimestamp int64  `rmq:"beginTimestamp,required"`
	EndTimestamp   int64  `rmq:"endTimestamp,required"`
	IndexType      string `rmq:"indexType"`
	LastKey        string `rmq:"lastKey"`

	seen fieldSet
}

// QueryMessageResponse answers code 12.
//
//rmq:header
type QueryMessageResponse struct {
	IndexLastUpdateTimestamp int64 `rmq:"indexLastUpdateTimestamp,required"`
	IndexLastUpdatePhyOffset int64 `rmq:"indexLastUpdatePhyoffset,required"`

	seen fieldSet
}

// ViewMessageRequest is the header of code 33. Offset is a position in the commit log.
//
//rmq:header
type ViewMessageRequest struct {
	Offset int64  `rmq:"offset,required"`
	Topic  string `rmq:"topic,intern"`

	seen fieldSet
}

// QueryConsumerOffsetRequest is the header of code 14.
//
//rmq:header
type QueryConsumerOffsetRequest struct {
	ConsumerGroup     string    `rmq:"consumerGroup,required,intern"`
	Topic             string    `rmq:"topic,required,intern"`
	QueueID           int32     `rmq:"queueId,required"`
	SetZeroIfNotFound Opt[bool] `rmq:"setZeroIfNotFound"`

	seen fieldSet
}

// QueryConsumerOffsetResponse answers code 14.
//
//rmq:header
type QueryConsumerOffsetResponse struct {
	Offset int64 `rmq:"offset,required"`

	seen fieldSet
}

// UpdateConsumerOffsetRequest is the header of code 15.
//
//rmq:header
type UpdateConsumerOffsetRequest struct {
	ConsumerGroup string `rmq:"consumerGroup,required,intern"`
	Topic         string `rmq:"topic,required,intern"`
	QueueID       int32  `rmq:"queueId,required"`
	CommitOffset  int64  `rmq:"commitOffset,required"`

	seen fieldSet
}

// SearchOffsetRequest is the header of code 29. BoundaryType is LOWER or UPPER in any case, empty (LOWER) before 5.0.
//
//rmq:header
type SearchOffsetRequest struct {
	Topic        string `rmq:"topic,required,intern"`
	QueueID      int32  `rmq:"queueId,required"`
	Timestamp    int64  `rmq:"timestamp,required"`
	BoundaryType string `rmq:"boundaryType"`

	seen fieldSet
}

// SearchOffsetResponse answers code 29.
//
//rmq:header
type SearchOffsetResponse struct {
	Offset int64 `rmq:"offset,required"`

	seen fieldSet
}

// GetMaxOffsetRequest is the header of code 30.
//
//rmq:header
type GetMaxOffsetRequest struct {
	Topic     string    `rmq:"topic,required,intern"`
	QueueID   int32     `rmq:"queueId,required"`
	Committed Opt[bool] `rmq:"committed"`

	seen fieldSet
}

// GetMaxOffsetResponse answers code 30.
//
//rmq:header
type GetMaxOffsetResponse struct {
	Offset int64 `rmq:"offset,required"`

	seen fieldSet
}

// GetMinOffsetRequest is the header of code 31.
//
//rmq:header
type GetMinOffsetRequest struct {
	Topic   string `rmq:"topic,required,intern"`
	QueueID int32  `rmq:"queueId,required"`

	seen fieldSet
}

// GetMinOffsetResponse answers code 31.
//
//rmq:header
type GetMinOffsetResponse struct {
	Offset int64 `rmq:"offset,required"`

	seen fieldSet
}

// GetEarliestMsgStoreTimeRequest is the header of code 32.
//
//rmq:header
type GetEarliestMsgStoreTimeRequest struct {
	Topic   string `rmq:"topic,required,intern"`
	QueueID int32  `rmq:"queueId,required"`

	seen fieldSet
}

// GetEarliestMsgStoreTimeResponse answers code 32, in ms; -1 for an empty queue.
//
//rmq:header
type GetEarliestMsgStoreTimeResponse struct {
	Timestamp int64 `rmq:"timestamp,required"`

	seen fieldSet
}

// Plain is the header under its long names.
func (h *SendMessageRequestV2) Plain() SendMessageRequest { return SendMessageRequest(*h) }

// V2 is the header under its one-letter names.
func (h *SendMessageRequest) V2() *SendMessageRequestV2 {
	v2 := SendMessageRequestV2(*h)
	return &v2
}
