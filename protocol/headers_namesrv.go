package protocol

// GetRouteInfoRequest is the header of code 105.
//
//rmq:header
type GetRouteInfoRequest struct {
	Topic                  string `rmq:"topic,required,intern"`
	AcceptStandardJSONOnly bool   `rmq:"acceptStandardJsonOnly"`

	seen fieldSet
}

// RegisterBrokerRequest is the header of code 103. BodyCRC32 0 means that there is none. HeartbeatTimeoutMillis is in
// ms.
//
//rmq:header
type RegisterBrokerRequest struct {
	BrokerName             string     `rmq:"brokerName,required,intern"`
	BrokerAddr             string     `rmq:"brokerAddr,required"`
	ClusterName            string     `rmq:"clusterName,required,intern"`
	HAServerAddr           string     `rmq:"haServerAddr,required"`
	BrokerID               int64      `rmq:"brokerId,required"`
	Compressed             bool       `rmq:"compressed"`
	BodyCRC32              int32      `rmq:"bodyCrc32"`
	HeartbeatTimeoutMillis Opt[int64] `rmq:"heartbeatTimeoutMillis"`
	EnableActingMaster     Opt[bool]  `rmq:"enableActingMaster"`

	seen fieldSet
}

// RegisterBrokerResponse answers code 103: addresses for a slave whose master is live, else empty.
//
//rmq:header
type RegisterBrokerResponse struct {
	HAServerAddr string `rmq:"haServerAddr"`
	MasterAddr   string `rmq:"masterAddr"`
}

// UnregisterBrokerRequest is the header of code 104.
//
//rmq:header
type UnregisterBrokerRequest struct {
	BrokerName  string `rmq:"brokerName,required,intern"`
	BrokerAddr  string `rmq:"brokerAddr,required"`
	ClusterName string `rmq:"clusterName,required,intern"`
	BrokerID    int64  `rmq:"brokerId,required"`

	seen fieldSet
}

// QueryDataVersionRequest is the header of code 322.
//
//rmq:header
type QueryDataVersionRequest struct {
	BrokerName  string `rmq:"brokerName,required,intern"`
	BrokerAddr  string `rmq:"brokerAddr,required"`
	ClusterName string `rmq:"clusterName,required,intern"`
	BrokerID    int64  `rmq:"brokerId,required"`

	seen fieldSet
}

// QueryDataVersionResponse answers code 322.
//
//rmq:header
type QueryDataVersionResponse struct {
	Changed bool `rmq:"changed,required"`

	seen fieldSet
}

// BrokerHeartbeatRequest is the header of code 904.
//
//rmq:header
type BrokerHeartbeatRequest struct {
	ClusterName            string     `rmq:"clusterName,required,intern"`
	BrokerAddr             string     `rmq:"brokerAddr,required"`
	BrokerName             string     `rmq:"brokerName,required,intern"`
	BrokerID               Opt[int64] `rmq:"brokerId"`
	Epoch                  Opt[int32] `rmq:"epoch"`
	MaxOffset              Opt[int64] `rmq:"maxOffset"`
	ConfirmOffset          Opt[int64] `rmq:"confirmOffset"`
	HeartbeatTimeoutMillis Opt[int64] `rmq:"heartbeatTimeoutMills"`
	ElectionPriority       Opt[int32] `rmq:"electionPriority"`

	seen fieldSet
}

// GetBrokerMemberGroupRequest is the header of code 901.
//
//rmq:header
type GetBrokerMemberGroupRequest struct {
	ClusterName string `rmq:"clusterName,required,intern"`
	BrokerName  string `rmq:"brokerName,required,intern"`

	seen fieldSet
}

// NotifyMinBrokerIDChangeRequest is the header of code 905 (name server to broker).
//
//rmq:header
type NotifyMinBrokerIDChangeRequest struct {
	MinBrokerID       Opt[int64] `rmq:"minBrokerId"`
	BrokerName        string     `rmq:"brokerName,intern"`
	MinBrokerAddr     string     `rmq:"minBrokerAddr"`
	OfflineBrokerAddr string     `rmq:"offlineBrokerAddr"`
	HABrokerAddr      string     `rmq:"haBrokerAddr"`
}

// PutKVConfigRequest is the header of code 100.
//
//rmq:header
type PutKVConfigRequest struct {
	Namespace string `rmq:"namespace,required"`
	Key       string `rmq:"key,required"`
	Value     string `rmq:"value,required"`

	seen fieldSet
}

// GetKVConfigRequest is the header of code 101.
//
//rmq:header
type GetKVConfigRequest struct {
	Namespace string `rmq:"namespace,required"`
	Key       string `rmq:"key,required"`

	seen fieldSet
}

// GetKVConfigResponse answers code 101.
//
//rmq:header
type GetKVConfigResponse struct {
	Value string `rmq:"value"`
}

// DeleteKVConfigRequest is the header of code 102.
//
//rmq:header
type DeleteKVConfigRequest struct {
	Namespace string `rmq:"namespace,required"`
	Key       string `rmq:"key,required"`

	seen fieldSet
}

// GetKVListByNamespaceRequest is the header of code 219.
//
//rmq:header
type GetKVListByNamespaceRequest struct {
	Namespace string `rmq:"namespace,required"`

	seen fieldSet
}

// WipeWritePermOfBrokerRequest is the header of code 205.
//
//rmq:header
type WipeWritePermOfBrokerRequest struct {
	BrokerName string `rmq:"brokerName,required,intern"`

	seen fieldSet
}

// WipeWritePermOfBrokerResponse answers code 205.
//
//rmq:header
type WipeWritePermOfBrokerResponse struct {
	WipeTopicCount int32 `rmq:"wipeTopicCount,required"`

	seen fieldSet
}

// AddWritePermOfBrokerRequest is the header of code 327.
//
//rmq:header
type AddWritePermOfBrokerRequest struct {
	BrokerName string `rmq:"brokerName,required,intern"`

	seen fieldSet
}

// AddWritePermOfBrokerResponse answers code 327.
//
//rmq:header
type AddWritePermOfBrokerResponse struct {
	AddTopicCount int32 `rmq:"addTopicCount,required"`

	seen fieldSet
}

// GetTopicsByClusterRequest is the header of code 224.
//
//rmq:header
type GetTopicsByClusterRequest struct {
	Cluster string `rmq:"cluster,required,intern"`

	seen fieldSet
}

// DeleteTopicFromNamesrvRequest is the header of code 216.
//
//rmq:header
type DeleteTopicFromNamesrvRequest struct {
	Topic       string `rmq:"topic,required,intern"`
	ClusterName string `rmq:"clusterName,intern"`

	seen fieldSet
}

// RegisterTopicRequest is the header of code 217.
//
//rmq:header
type RegisterTopicRequest struct {
	Topic string `rmq:"topic,required,intern"`

	seen fieldSet
}
