package protocol

// Requests of Ratchet's own, between brokers of one group and from `ratchet admin`. The numbers are far from all of
// RocketMQ's; a Java broker answers REQUEST_CODE_NOT_SUPPORTED, and so is told from ours.
const (
	// GetReplicaStatus is answered with a ReplicaStatus. No header.
	GetReplicaStatus RequestCode = 348_001
	// OpenMaster makes a master that waits for its replicas go on with what it has. No header.
	OpenMaster RequestCode = 348_002
	// SwitchMaster makes a master hand its role over to a slave. The body is a SwitchRequest.
	SwitchMaster RequestCode = 348_003
	// TakeOver is what a master that hands over tells the slave. The body is a TakeOverRequest.
	TakeOver RequestCode = 348_004
	// MergeOffsets tells a master what clients have committed at its slave. The body is a ConsumerOffsetTable. No header.
	MergeOffsets RequestCode = 348_005
	// ForgetPeer drops a broker of the group that will not come back. The body is its address.
	ForgetPeer RequestCode = 348_006
)

// ReplicaStatus is what a broker says of its part in replication. Positions are of the commit log, times in ms.
type ReplicaStatus struct {
	BrokerName string `json:"brokerName"`
	BrokerID   int64  `json:"brokerId"`
	Role       string `json:"role"` // brokerRole
	// State is one of package ha's: "open", "opening", "closed", "following", "taking over"; see Waiting.
	State   string `json:"state"`
	Waiting string `json:"waiting,omitempty"` // why it is not open, or does not follow
	Since   int64  `json:"since"`             // of State
	HAAddr  string `json:"haAddr"`
	Low     int64  `json:"low"`
	End     int64  `json:"end"`
	Flushed int64  `json:"flushed"`
	Shown   int64  `json:"shown"` // up to where readers see it

	Suspect bool          `json:"suspect"` // what was not flushed may be gone
	Exposed bool          `json:"exposed"` // readers may have seen what no slave has
	Epochs  []EpochStart  `json:"epochs"`
	Gaps    []LogGap      `json:"gaps"`
	Damaged []LogGap      `json:"damaged,omitempty"` // parts of the log that can't be read
	Slaves  []SlaveStatus `json:"slaves"`
	Master  *MasterStatus `json:"master,omitempty"` // of a slave
	Peers   []string      `json:"peers"`            // other brokers of the group that were ever seen
}

// EpochStart is where in the log a master's time began.
type EpochStart struct {
	Epoch       int32 `json:"epoch"`
	StartOffset int64 `json:"startOffset"`
}

// LogGap is a part of the log that has no messages: [From, To).
type LogGap struct {
	From int64 `json:"from"`
	To   int64 `json:"to"`
}

// SlaveStatus is a slave as its master sees it.
type SlaveStatus struct {
	Addr   string `json:"addr"`
	Since  int64  `json:"since"`
	Heard  int64  `json:"heard"`
	Sent   int64  `json:"sent"`
	Acked  int64  `json:"acked"`  // -1: it is not known to share anything
	Behind int64  `json:"behind"` // bytes
	InSync bool   `json:"inSync"`
}

// MasterStatus is the master as its slave sees it.
type MasterStatus struct {
	Addr   string `json:"addr"`
	HAAddr string `json:"haAddr"`
	End    int64  `json:"end"`
	Behind int64  `json:"behind"` // bytes
	Lag    int64  `json:"lag"`    // ms since this broker had all that the master had
}

// SwitchRequest names the slave that is to be the master, by its address.
type SwitchRequest struct {
	Slave string `json:"slave"`
}

// QueueFree says that the next message of a queue gets an offset that is not below To: others were given out and lost.
type QueueFree struct {
	Topic string `json:"topic"`
	Queue int32  `json:"queueId"`
	To    int64  `json:"to"`
}

// TakeOverRequest says how long the log is that the new master must have, and what the old one is.
type TakeOverRequest struct {
	End    int64        `json:"end"`
	Epochs []EpochStart `json:"epochs"`
	Queues []QueueFree  `json:"queues,omitempty"`
	// Deleted are topics that are gone, each below a position of the log.
	Deleted map[string]int64 `json:"deleted,omitempty"`
	ID      int64            `json:"brokerId"`
	Role    string           `json:"role"`
	Master  string           `json:"master"` // address of the old one
}
