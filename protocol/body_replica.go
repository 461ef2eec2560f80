package protocol

// ConsumerOffsetTable answers code 43: by "topic@group" and queue. Java brokers pass over the last field, which is ours.
type ConsumerOffsetTable struct {
	DataVersion   *DataVersion               `json:"dataVersion,omitempty"`
	GroupTopicMap map[string][]string        `json:"groupTopicMap,omitempty"`
	OffsetTable   map[string]map[int32]int64 `json:"offsetTable"`
	Ratchet       *OffsetTableOwn            `json:"ratchet,omitempty"`
}

// OffsetTableOwn says which positions an operator has reset.
type OffsetTableOwn struct {
	Resets []OffsetReset `json:"resets"`
}

// OffsetReset is one of them. Epoch grows with each reset of the position; Pending says that the group has not been seen
// to follow.
type OffsetReset struct {
	Epoch   int64  `json:"epoch"`
	Key     string `json:"key"` // topic@group
	Pending bool   `json:"pending"`
	Queue   int32  `json:"queue"`
}

// DelayOffsetTable answers code 45: by delay level.
type DelayOffsetTable struct {
	DataVersion *DataVersion    `json:"dataVersion,omitempty"`
	OffsetTable map[int32]int64 `json:"offsetTable"`
}

// CorrectionOffsets answers code 308: by queue.
type CorrectionOffsets struct {
	CorrectionOffsets map[int32]int64 `json:"correctionOffsets"`
}

// TimerMetrics answers code 61: by topic.
type TimerMetrics struct {
	DataVersion DataVersion            `json:"dataVersion"`
	TimingCount map[string]TimerMetric `json:"timingCount"`
}

// TimerMetric is how many messages wait for their time. Timestamp is in ms.
type TimerMetric struct {
	Count     int64 `json:"count"`
	Timestamp int64 `json:"timeStamp"`
}

// HARuntimeInfo answers code 907.
type HARuntimeInfo struct {
	HAClientRuntimeInfo      HAClientRuntimeInfo       `json:"haClientRuntimeInfo"`
	HAConnectionInfo         []HAConnectionRuntimeInfo `json:"haConnectionInfo"`
	InSyncSlaveNums          int32                     `json:"inSyncSlaveNums"`
	Master                   bool                      `json:"master"`
	MasterCommitLogMaxOffset int64                     `json:"masterCommitLogMaxOffset"`
}

// HAConnectionRuntimeInfo is a slave as its master sees it.
type HAConnectionRuntimeInfo struct {
	Addr                    string `json:"addr"`
	Diff                    int64  `json:"diff"`
	InSync                  bool   `json:"inSync"`
	SlaveAckOffset          int64  `json:"slaveAckOffset"`
	TransferFromWhere       int64  `json:"transferFromWhere"`
	TransferredByteInSecond int64  `json:"transferredByteInSecond"`
}

// HAClientRuntimeInfo is a slave's own side of it. Times are in ms.
type HAClientRuntimeInfo struct {
	IsActivated             bool   `json:"isActivated,omitempty"`
	LastReadTimestamp       int64  `json:"lastReadTimestamp"`
	LastWriteTimestamp      int64  `json:"lastWriteTimestamp"`
	MasterAddr              string `json:"masterAddr,omitempty"`
	MasterFlushOffset       int64  `json:"masterFlushOffset"`
	MaxOffset               int64  `json:"maxOffset"`
	TransferredByteInSecond int64  `json:"transferredByteInSecond"`
}

// ColdDataInfo answers code 2003.
type ColdDataInfo struct {
	CGColdReadThreshold     int64            `json:"cgColdReadThreshold"`
	ConfigTable             map[string]int64 `json:"configTable"`
	GlobalAcc               int64            `json:"globalAcc"`
	GlobalColdReadThreshold int64            `json:"globalColdReadThreshold"`
	RuntimeTable            map[string]Raw   `json:"runtimeTable"`
}

// SyncStateSet goes with several codes of the controller.
type SyncStateSet struct {
	SyncStateSet      []int64 `json:"syncStateSet"`
	SyncStateSetEpoch int32   `json:"syncStateSetEpoch"`
}
