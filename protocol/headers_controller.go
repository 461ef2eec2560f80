package protocol

// ExchangeHAInfoRequest is the header of code 906.
//
//rmq:header
type ExchangeHAInfoRequest struct {
	MasterHAAddress   string     `rmq:"masterHaAddress"`
	MasterFlushOffset Opt[int64] `rmq:"masterFlushOffset"`
	MasterAddress     string     `rmq:"masterAddress"`
}

// ExchangeHAInfoResponse answers code 906.
//
//rmq:header
type ExchangeHAInfoResponse struct {
	MasterHAAddress   string     `rmq:"masterHaAddress"`
	MasterFlushOffset Opt[int64] `rmq:"masterFlushOffset"`
	MasterAddress     string     `rmq:"masterAddress"`
}

// ResetMasterFlushOffsetRequest is the header of code 908.
//
//rmq:header
type ResetMasterFlushOffsetRequest struct {
	MasterFlushOffset int64 `rmq:"masterFlushOffset,required"`

	seen fieldSet
}

// AddBrokerRequest is the header of code 902.
//
//rmq:header
type AddBrokerRequest struct {
	ConfigPath string `rmq:"configPath"`
}

// RemoveBrokerRequest is the header of code 903.
//
//rmq:header
type RemoveBrokerRequest struct {
	BrokerName        string `rmq:"brokerName,required,intern"`
	BrokerClusterName string `rmq:"brokerClusterName,required"`
	BrokerID          int64  `rmq:"brokerId,required"`

	seen fieldSet
}

// AlterSyncStateSetRequest is the header of code 1001.
//
//rmq:header
type AlterSyncStateSetRequest struct {
	BrokerName     string     `rmq:"brokerName,intern"`
	MasterBrokerID Opt[int64] `rmq:"masterBrokerId"`
	MasterEpoch    Opt[int32] `rmq:"masterEpoch"`
}

// AlterSyncStateSetResponse answers code 1001.
//
//rmq:header
type AlterSyncStateSetResponse struct {
	NewSyncStateSetEpoch int32 `rmq:"newSyncStateSetEpoch"`
}

// ElectMasterRequest is the header of code 1002.
//
//rmq:header
type ElectMasterRequest struct {
	ClusterName    string `rmq:"clusterName,required,intern"`
	BrokerName     string `rmq:"brokerName,required,intern"`
	BrokerID       int64  `rmq:"brokerId,required"`
	DesignateElect bool   `rmq:"designateElect,required"`

	seen fieldSet
}

// ElectMasterResponse answers code 1002.
//
//rmq:header
type ElectMasterResponse struct {
	MasterBrokerID    Opt[int64] `rmq:"masterBrokerId"`
	MasterAddress     string     `rmq:"masterAddress"`
	MasterEpoch       Opt[int32] `rmq:"masterEpoch"`
	SyncStateSetEpoch Opt[int32] `rmq:"syncStateSetEpoch"`
}

// RegisterBrokerToControllerRequest is the header of code 1003.
//
//rmq:header
type RegisterBrokerToControllerRequest struct {
	ClusterName   string     `rmq:"clusterName,intern"`
	BrokerName    string     `rmq:"brokerName,intern"`
	BrokerID      Opt[int64] `rmq:"brokerId"`
	BrokerAddress string     `rmq:"brokerAddress"`
	InvokeTime    Opt[int64] `rmq:"invokeTime"`
}

// RegisterBrokerToControllerResponse answers code 1003.
//
//rmq:header
type RegisterBrokerToControllerResponse struct {
	ClusterName       string     `rmq:"clusterName,intern"`
	BrokerName        string     `rmq:"brokerName,intern"`
	MasterBrokerID    Opt[int64] `rmq:"masterBrokerId"`
	MasterAddress     string     `rmq:"masterAddress"`
	MasterEpoch       Opt[int32] `rmq:"masterEpoch"`
	SyncStateSetEpoch Opt[int32] `rmq:"syncStateSetEpoch"`
}

// GetReplicaInfoRequest is the header of code 1004.
//
//rmq:header
type GetReplicaInfoRequest struct {
	BrokerName string `rmq:"brokerName,intern"`
}

// GetReplicaInfoResponse answers code 1004.
//
//rmq:header
type GetReplicaInfoResponse struct {
	MasterBrokerID Opt[int64] `rmq:"masterBrokerId"`
	MasterAddress  string     `rmq:"masterAddress"`
	MasterEpoch    Opt[int32] `rmq:"masterEpoch"`
}

// GetMetaDataResponse answers code 1005.
//
//rmq:header
type GetMetaDataResponse struct {
	Group                   string `rmq:"group,intern"`
	ControllerLeaderID      string `rmq:"controllerLeaderId"`
	ControllerLeaderAddress string `rmq:"controllerLeaderAddress"`
	IsLeader                bool   `rmq:"isLeader"`
	Peers                   string `rmq:"peers"`
}

// NotifyBrokerRoleChangedRequest is the header of code 1008.
//
//rmq:header
type NotifyBrokerRoleChangedRequest struct {
	MasterAddress     string     `rmq:"masterAddress"`
	MasterEpoch       Opt[int32] `rmq:"masterEpoch"`
	SyncStateSetEpoch Opt[int32] `rmq:"syncStateSetEpoch"`
	MasterBrokerID    Opt[int64] `rmq:"masterBrokerId"`
}

// CleanBrokerDataRequest is the header of code 1011.
//
//rmq:header
type CleanBrokerDataRequest struct {
	ClusterName                string `rmq:"clusterName,intern"`
	BrokerName                 string `rmq:"brokerName,required,intern"`
	BrokerControllerIDsToClean string `rmq:"brokerControllerIdsToClean"`
	IsCleanLivingBroker        bool   `rmq:"isCleanLivingBroker"`

	seen fieldSet
}

// GetNextBrokerIDRequest is the header of code 1012.
//
//rmq:header
type GetNextBrokerIDRequest struct {
	ClusterName string `rmq:"clusterName,intern"`
	BrokerName  string `rmq:"brokerName,intern"`
}

// GetNextBrokerIDResponse answers code 1012.
//
//rmq:header
type GetNextBrokerIDResponse struct {
	ClusterName  string     `rmq:"clusterName,intern"`
	BrokerName   string     `rmq:"brokerName,intern"`
	NextBrokerID Opt[int64] `rmq:"nextBrokerId"`
}

// ApplyBrokerIDRequest is the header of code 1013.
//
//rmq:header
type ApplyBrokerIDRequest struct {
	ClusterName       string     `rmq:"clusterName,intern"`
	BrokerName        string     `rmq:"brokerName,intern"`
	AppliedBrokerID   Opt[int64] `rmq:"appliedBrokerId"`
	RegisterCheckCode string     `rmq:"registerCheckCode"`
}

// ApplyBrokerIDResponse answers code 1013.
//
//rmq:header
type ApplyBrokerIDResponse struct {
	ClusterName string `rmq:"clusterName,intern"`
	BrokerName  string `rmq:"brokerName,intern"`
}
