package protocol

// CreateTopicRequest is the header of codes 17 and 513. Attributes is text of the form +key=value,-key.
//
//rmq:header
type CreateTopicRequest struct {
	Topic           string `rmq:"topic,required,intern"`
	DefaultTopic    string `rmq:"defaultTopic,required,intern"`
	ReadQueueNums   int32  `rmq:"readQueueNums,required"`
	WriteQueueNums  int32  `rmq:"writeQueueNums,required"`
	Perm            int32  `rmq:"perm,required"`
	TopicFilterType string `rmq:"topicFilterType,required"`
	TopicSysFlag    int32  `rmq:"topicSysFlag"`
	Order           bool   `rmq:"order,required"`
	Attributes      string `rmq:"attributes"`
	Force           bool   `rmq:"force"`

	seen fieldSet
}

// DeleteTopicRequest is the header of code 215.
//
//rmq:header
type DeleteTopicRequest struct {
	Topic string `rmq:"topic,required,intern"`

	seen fieldSet
}

// GetAllTopicConfigRequest is the header of code 21. Without a TopicSeq everything is wanted.
//
//rmq:header
type GetAllTopicConfigRequest struct {
	TopicSeq    Opt[int32] `rmq:"topicSeq"`
	DataVersion string     `rmq:"dataVersion"`
	MaxTopicNum int32      `rmq:"maxTopicNum"`
}

// GetAllTopicConfigResponse answers code 21. Before 5.0 it has no fields.
//
//rmq:header
type GetAllTopicConfigResponse struct {
	TotalTopicNum Opt[int32] `rmq:"totalTopicNum"`
}

// GetTopicConfigRequest is the header of code 351.
//
//rmq:header
type GetTopicConfigRequest struct {
	Topic   string    `rmq:"topic,required,intern"`
	Logical Opt[bool] `rmq:"lo"`

	seen fieldSet
}

// GetAllSubscriptionGroupConfigRequest is the header of code 201. Without a GroupSeq everything is wanted.
//
//rmq:header
type GetAllSubscriptionGroupConfigRequest struct {
	GroupSeq    Opt[int32] `rmq:"groupSeq"`
	DataVersion string     `rmq:"dataVersion"`
	MaxGroupNum int32      `rmq:"maxGroupNum"`
}

// GetAllSubscriptionGroupConfigResponse answers code 201. Before 5.0 it has no fields.
//
//rmq:header
type GetAllSubscriptionGroupConfigResponse struct {
	TotalGroupNum Opt[int32] `rmq:"totalGroupNum"`
}

// GetSubscriptionGroupConfigRequest is the header of code 352.
//
//rmq:header
type GetSubscriptionGroupConfigRequest struct {
	Group string `rmq:"group,required,intern"`

	seen fieldSet
}

// DeleteSubscriptionGroupRequest is the header of code 207. Up to 4.9 the last field is called removeOffset.
//
//rmq:header
type DeleteSubscriptionGroupRequest struct {
	GroupName   string `rmq:"groupName,required,intern"`
	CleanOffset bool   `rmq:"cleanOffset|removeOffset"`

	seen fieldSet
}

// UpdateGroupForbiddenRequest is the header of code 353. Without Readable it only asks.
//
//rmq:header
type UpdateGroupForbiddenRequest struct {
	Group    string    `rmq:"group,required,intern"`
	Topic    string    `rmq:"topic,required,intern"`
	Readable Opt[bool] `rmq:"readable"`

	seen fieldSet
}

// GetBrokerConfigResponse answers code 26. Version is a DataVersion as JSON text.
//
//rmq:header
type GetBrokerConfigResponse struct {
	Version string `rmq:"version,required"`

	seen fieldSet
}

// GetTopicStatsInfoRequest is the header of code 202.
//
//rmq:header
type GetTopicStatsInfoRequest struct {
	Topic string `rmq:"topic,required,intern"`

	seen fieldSet
}

// GetConsumeStatsRequest is the header of code 208. TopicList is separated by semicolons.
//
//rmq:header
type GetConsumeStatsRequest struct {
	ConsumerGroup string `rmq:"consumerGroup,required,intern"`
	Topic         string `rmq:"topic,intern"`
	TopicList     string `rmq:"topicList"`

	seen fieldSet
}

// GetBrokerConsumeStatsRequest is the header of code 317; Java calls it GetConsumeStatsInBrokerHeader.
//
//rmq:header
type GetBrokerConsumeStatsRequest struct {
	IsOrder bool `rmq:"isOrder,required"`

	seen fieldSet
}

// GetConsumerConnectionListRequest is the header of code 203.
//
//rmq:header
type GetConsumerConnectionListRequest struct {
	ConsumerGroup string `rmq:"consumerGroup,required,intern"`

	seen fieldSet
}

// GetProducerConnectionListRequest is the header of code 204.
//
//rmq:header
type GetProducerConnectionListRequest struct {
	ProducerGroup string `rmq:"producerGroup,required,intern"`

	seen fieldSet
}

// QueryTopicConsumeByWhoRequest is the header of code 300.
//
//rmq:header
type QueryTopicConsumeByWhoRequest struct {
	Topic string `rmq:"topic,required,intern"`

	seen fieldSet
}

// QueryTopicsByConsumerRequest is the header of code 343.
//
//rmq:header
type QueryTopicsByConsumerRequest struct {
	Group string `rmq:"group,required,intern"`

	seen fieldSet
}

// QuerySubscriptionByConsumerRequest is the header of code 345.
//
//rmq:header
type QuerySubscriptionByConsumerRequest struct {
	Group string `rmq:"group,required,intern"`
	Topic string `rmq:"topic,intern"`

	seen fieldSet
}

// QueryConsumeTimeSpanRequest is the header of code 303.
//
//rmq:header
type QueryConsumeTimeSpanRequest struct {
	Topic string `rmq:"topic,required,intern"`
	Group string `rmq:"group,required,intern"`

	seen fieldSet
}

// QueryCorrectionOffsetRequest is the header of code 308. FilterGroups is separated by commas.
//
//rmq:header
type QueryCorrectionOffsetRequest struct {
	FilterGroups string `rmq:"filterGroups"`
	CompareGroup string `rmq:"compareGroup,required,intern"`
	Topic        string `rmq:"topic,required,intern"`

	seen fieldSet
}

// CloneGroupOffsetRequest is the header of code 314.
//
//rmq:header
type CloneGroupOffsetRequest struct {
	SrcGroup  string `rmq:"srcGroup,required"`
	DestGroup string `rmq:"destGroup,required"`
	Topic     string `rmq:"topic,intern"`
	Offline   bool   `rmq:"offline"`

	seen fieldSet
}

// ViewBrokerStatsDataRequest is the header of code 315.
//
//rmq:header
type ViewBrokerStatsDataRequest struct {
	StatsName string `rmq:"statsName,required"`
	StatsKey  string `rmq:"statsKey,required"`

	seen fieldSet
}

// QueryConsumeQueueRequest is the header of code 321.
//
//rmq:header
type QueryConsumeQueueRequest struct {
	Topic         string `rmq:"topic,intern"`
	QueueID       int32  `rmq:"queueId"`
	Index         int64  `rmq:"index"`
	Count         int32  `rmq:"count"`
	ConsumerGroup string `rmq:"consumerGroup,intern"`
}

// ResumeCheckHalfMessageRequest is the header of code 323. MsgID is the offset id of the half message.
//
//rmq:header
type ResumeCheckHalfMessageRequest struct {
	Topic string `rmq:"topic,intern"`
	MsgID string `rmq:"msgId"`
}

// CheckRocksDBCQWriteProgressRequest is the header of code 354.
//
//rmq:header
type CheckRocksDBCQWriteProgressRequest struct {
	Topic          string `rmq:"topic,required,intern"`
	CheckStoreTime int64  `rmq:"checkStoreTime"`

	seen fieldSet
}

// ExportRocksDBConfigToJSONRequest is the header of code 355.
//
//rmq:header
type ExportRocksDBConfigToJSONRequest struct {
	ConfigType string `rmq:"configType,required"`

	seen fieldSet
}

// CreateAccessConfigRequest is the header of code 50. The lists are separated by commas.
//
//rmq:header
type CreateAccessConfigRequest struct {
	AccessKey          string `rmq:"accessKey,required"`
	SecretKey          string `rmq:"secretKey,required"`
	WhiteRemoteAddress string `rmq:"whiteRemoteAddress"`
	Admin              bool   `rmq:"admin,required"`
	DefaultTopicPerm   string `rmq:"defaultTopicPerm"`
	DefaultGroupPerm   string `rmq:"defaultGroupPerm"`
	TopicPerms         string `rmq:"topicPerms"`
	GroupPerms         string `rmq:"groupPerms"`

	seen fieldSet
}

// DeleteAccessConfigRequest is the header of code 51.
//
//rmq:header
type DeleteAccessConfigRequest struct {
	AccessKey string `rmq:"accessKey,required"`

	seen fieldSet
}

// GetBrokerClusterACLInfoResponse answers code 52.
//
//rmq:header
type GetBrokerClusterACLInfoResponse struct {
	Version           string `rmq:"version"`
	AllACLFileVersion string `rmq:"allAclFileVersion"`
	BrokerName        string `rmq:"brokerName,intern"`
	BrokerAddr        string `rmq:"brokerAddr"`
	ClusterName       string `rmq:"clusterName,intern"`
}

// UpdateGlobalWhiteAddrsConfigRequest is the header of code 53.
//
//rmq:header
type UpdateGlobalWhiteAddrsConfigRequest struct {
	GlobalWhiteAddrs string `rmq:"globalWhiteAddrs,required"`
	ACLFileFullPath  string `rmq:"aclFileFullPath"`

	seen fieldSet
}

// UserRequest is the header of codes 3001 to 3004.
//
//rmq:header
type UserRequest struct {
	Username string `rmq:"username"`
}

// ListUsersRequest is the header of code 3005.
//
//rmq:header
type ListUsersRequest struct {
	Filter string `rmq:"filter"`
}

// ACLRequest is the header of codes 3006, 3007, 3008 and 3009.
//
//rmq:header
type ACLRequest struct {
	Subject    string `rmq:"subject"`
	PolicyType string `rmq:"policyType"`
	Resource   string `rmq:"resource"`
}

// ListACLRequest is the header of code 3010.
//
//rmq:header
type ListACLRequest struct {
	SubjectFilter  string `rmq:"subjectFilter"`
	ResourceFilter string `rmq:"resourceFilter"`
}
