package config

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// Broker is a broker's settings. The keys are RocketMQ's, of its broker, store and remoting configuration together, as
// they share one file; those under "Ratchet's own" are not in RocketMQ. A path that is empty means a place under
// StoreRoot.
type Broker struct {
	// Who it is and where it can be reached.
	Name       string `prop:"brokerName" default:"DEFAULT_BROKER"`
	Cluster    string `prop:"brokerClusterName" default:"DefaultCluster"`
	ID         int64  `prop:"brokerId" default:"0" range:"0.."` // 0: the master
	IP1        string `prop:"brokerIP1"`                        // told to clients; host name or address; empty: guessed
	IP2        string `prop:"brokerIP2"`                        // told to slaves; empty: as IP1
	Port       int    `prop:"listenPort" default:"10911" range:"0..65535"`
	BindAddr   string `prop:"bindAddress" default:"0.0.0.0"`
	HAPort     int    `prop:"haListenPort" default:"0" range:"0..65535"` // 0: listenPort+1
	RegionID   string `prop:"regionId" default:"DefaultRegion"`
	Namesrv    List   `prop:"namesrvAddr,live"`
	AddrServer bool   `prop:"fetchNamesrvAddrByAddressServer,unused" default:"false"` // accepted; the addresses come from namesrvAddr
	Home       string `prop:"rocketmqHome,path,protected"`
	ConfPath   string `prop:"brokerConfigPath,path,protected"`
	BlackList  List   `prop:"configBlackList,protected"` // further keys that UPDATE_BROKER_CONFIG may not touch

	RegisterEvery   time.Duration `prop:"registerNameServerPeriod,ms" default:"30000" range:"1..3600000"`
	RegisterTimeout time.Duration `prop:"registerBrokerTimeoutMills,ms,unused" default:"24000" range:"1.."`
	ForceRegister   bool          `prop:"forceRegister,unused" default:"true"`
	CompressedReg   bool          `prop:"compressedRegister,unused" default:"false"`

	// Replication.
	Role             Role          `prop:"brokerRole" default:"ASYNC_MASTER"`
	HAMasterAddr     string        `prop:"haMasterAddress"` // empty: the name server says
	SlaveTimeout     time.Duration `prop:"slaveTimeout,ms" default:"3000" range:"1.."`
	HAHousekeeping   time.Duration `prop:"haHousekeepingInterval,ms" default:"20000" range:"1.."`
	HAHeartbeat      time.Duration `prop:"haSendHeartbeatInterval,ms" default:"5000" range:"1.."`
	HABatchSize      int           `prop:"haTransferBatchSize" default:"32768" range:"1024.."`
	HASlaveBehindMax int64         `prop:"haSlaveFallbehindMax" default:"268435456" range:"0.."`
	InSyncReplicas   int           `prop:"inSyncReplicas" default:"1" range:"1.."`
	MinInSync        int           `prop:"minInSyncReplicas" default:"1" range:"1.."` // with fewer, this broker included, a SYNC_MASTER takes no messages
	LastFileOnly     bool          `prop:"syncFromLastFile" default:"false"`          // a slave without data begins at the master's last file
	SlaveRead        bool          `prop:"slaveReadEnable,live" default:"false"`
	OffsetCheckSlave bool          `prop:"offsetCheckInSlave,unused" default:"false"`

	// The store.
	StoreRoot      string        `prop:"storePathRootDir,path"`
	CommitLogPath  string        `prop:"storePathCommitLog,path"` // several folders: joined by commas
	ReadOnlyLogs   string        `prop:"readOnlyCommitLogStorePaths,path"`
	QueuePath      string        `prop:"storePathConsumeQueue,path,unused"`
	IndexPath      string        `prop:"storePathIndex,path,unused"`
	CheckpointPath string        `prop:"storeCheckpoint,path,unused"`
	AbortPath      string        `prop:"abortFile,path,unused"`
	SegmentSize    int64         `prop:"mappedFileSizeCommitLog" default:"1073741824" range:"4096.."`
	QueueFileSize  int64         `prop:"mappedFileSizeConsumeQueue" default:"6000000" range:"20.."` // bytes, 20 an entry
	Flush          FlushType     `prop:"flushDiskType" default:"ASYNC_FLUSH"`
	FlushEvery     time.Duration `prop:"flushIntervalCommitLog,ms" default:"500" range:"1..60000"`
	FlushPages     int           `prop:"flushCommitLogLeastPages" default:"4" range:"0.."`
	FlushThorough  time.Duration `prop:"flushCommitLogThoroughInterval,ms" default:"10000" range:"1.."`
	QueueFlush     time.Duration `prop:"flushIntervalConsumeQueue,ms,unused" default:"1000" range:"1.."`
	SyncFlushWait  time.Duration `prop:"syncFlushTimeout,ms" default:"5000" range:"1.."`
	MaxMessageSize int           `prop:"maxMessageSize" default:"4194304" range:"1..16000000"` // bytes of body
	IndexEnable    bool          `prop:"messageIndexEnable" default:"true"`
	IndexSafe      bool          `prop:"messageIndexSafe,unused" default:"false"`
	IndexSlots     int           `prop:"maxHashSlotNum" default:"5000000" range:"1..500000000"`
	IndexEntries   int           `prop:"maxIndexNum" default:"20000000" range:"2..2000000000"`
	CheckCRC       bool          `prop:"checkCRCOnRecover,unused" default:"true"`
	TransientPool  bool          `prop:"transientStorePoolEnable,unused" default:"false"` // accepted: appends never sit in a heap buffer
	WarmFiles      bool          `prop:"warmMapedFileEnable,unused" default:"false"`      // accepted: nothing is mapped

	// Cleaning.
	ReservedTime  time.Duration `prop:"fileReservedTime,h,live" default:"72" range:"0.."`
	DeleteWhen    List          `prop:"deleteWhen,live" default:"04"` // hours of the day
	CleanEvery    time.Duration `prop:"cleanResourceInterval,ms" default:"10000" range:"1.."`
	DeleteGap     time.Duration `prop:"deleteCommitLogFilesInterval,ms,unused" default:"100" range:"0.."`
	CleanForcibly bool          `prop:"cleanFileForciblyEnable,live" default:"true"`
	DiskMaxUsed   int           `prop:"diskMaxUsedSpaceRatio,live" default:"75" range:"10..95"` // percent
	DiskWarn      int           `prop:"diskSpaceWarningLevelRatio,live" default:"90" range:"35..99"`
	DiskForce     int           `prop:"diskSpaceCleanForciblyRatio,live" default:"85" range:"30..99"`

	// Topics and groups.
	AutoCreateTopic   bool `prop:"autoCreateTopicEnable,live" default:"true"`
	AutoCreateGroup   bool `prop:"autoCreateSubscriptionGroup,live" default:"true"`
	DefaultQueues     int  `prop:"defaultTopicQueueNums" default:"8" range:"1..65535"`
	ClusterTopic      bool `prop:"clusterTopicEnable" default:"true"`
	BrokerTopic       bool `prop:"brokerTopicEnable" default:"true"`
	Permission        int  `prop:"brokerPermission,live" default:"6" range:"0..15"` // bits: 4 read, 2 write
	ReviveQueues      int  `prop:"reviveQueueNum" default:"8" range:"1..1024"`
	NotifyMembers     bool `prop:"notifyConsumerIdsChangedEnable,live" default:"true"`
	SplitRegistration bool `prop:"enableSplitRegistration,unused" default:"false"`

	// Sending.
	RejectTransaction bool          `prop:"rejectTransactionMessage,unused" default:"false"`
	TraceOn           bool          `prop:"traceOn" default:"true"` // told to clients as TRACE_ON
	TraceTopic        bool          `prop:"traceTopicEnable" default:"false"`
	TraceTopicName    string        `prop:"msgTraceTopicName" default:"RMQ_SYS_TRACE_TOPIC"`
	DelayLevels       string        `prop:"messageDelayLevel" default:"1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"`
	DelaySaveEvery    time.Duration `prop:"flushDelayOffsetInterval,ms" default:"1000" range:"1.."`
	AcceptSendFrom    int64         `prop:"startAcceptSendRequestTimeStamp,unused" default:"0"` // ms since 1970
	SendWaitMax       time.Duration `prop:"waitTimeMillsInSendQueue,ms,unused" default:"200" range:"1.."`
	PullWaitMax       time.Duration `prop:"waitTimeMillsInPullQueue,ms,unused" default:"5000" range:"1.."`
	BeatWaitMax       time.Duration `prop:"waitTimeMillsInHeartbeatQueue,ms,unused" default:"31000" range:"1.."`
	EndTxWaitMax      time.Duration `prop:"waitTimeMillsInTransactionQueue,ms,unused" default:"3000" range:"1.."`
	SendWorkers       int           `prop:"sendMessageThreadPoolNums" default:"0" range:"0..1024"` // 0: by the number of CPUs
	SendQueue         int           `prop:"sendThreadPoolQueueCapacity" default:"10000" range:"1.."`
	PullWorkers       int           `prop:"pullMessageThreadPoolNums" default:"0" range:"0..1024"`
	PullQueue         int           `prop:"pullThreadPoolQueueCapacity" default:"100000" range:"1.."`
	BeatQueue         int           `prop:"heartbeatThreadPoolQueueCapacity" default:"50000" range:"1.."`

	// Transactions and timers.
	TransactionTimeout  time.Duration `prop:"transactionTimeOut,ms,unused" default:"6000" range:"0.."`
	TransactionChecks   int           `prop:"transactionCheckMax,unused" default:"15" range:"0.."`
	TransactionInterval time.Duration `prop:"transactionCheckInterval,ms,unused" default:"30000" range:"1.."`
	TimerEnable         bool          `prop:"timerWheelEnable,unused" default:"true"`
	TimerMaxDelay       time.Duration `prop:"timerMaxDelaySec,s,unused" default:"259200" range:"0.."`
	TimerPrecision      time.Duration `prop:"timerPrecisionMs,ms,unused" default:"1000" range:"1.."`
	RecallEnable        bool          `prop:"recallMessageEnable,unused" default:"false"`

	// Pulling.
	LongPolling      bool          `prop:"longPollingEnable,live" default:"true"`
	ShortPolling     time.Duration `prop:"shortPollingTimeMills,ms,live" default:"1000" range:"1.."`
	LitePull         bool          `prop:"litePullMessageEnable,live" default:"true"`
	PropertyFilter   bool          `prop:"enablePropertyFilter,unused" default:"false"`
	MaxBytesInMemory int           `prop:"maxTransferBytesOnMessageInMemory,unused" default:"262144" range:"1.."`
	MaxCountInMemory int           `prop:"maxTransferCountOnMessageInMemory,unused" default:"32" range:"1.."`
	MaxBytesOnDisk   int           `prop:"maxTransferBytesOnMessageInDisk,unused" default:"65536" range:"1.."`
	MaxCountOnDisk   int           `prop:"maxTransferCountOnMessageInDisk,unused" default:"8" range:"1.."`
	MaxFilterBytes   int           `prop:"maxFilterMessageSize,unused" default:"16000" range:"20.."`       // of consume queue entries, 20 each
	MemoryRatio      int           `prop:"accessMessageInMemoryMaxRatio,live" default:"40" range:"0..100"` // percent of RAM
	DefaultQueryMax  int           `prop:"defaultQueryMaxNum,unused" default:"32" range:"1..1024"`
	TransferByHeap   bool          `prop:"transferMsgByHeap,unused" default:"true"` // accepted: bodies are always copied by a worker

	// Consumer progress.
	OffsetSaveEvery time.Duration `prop:"flushConsumerOffsetInterval,ms" default:"5000" range:"1.."`
	ServerSideReset bool          `prop:"useServerSideResetOffset,unused" default:"true"`
	LockStrict      bool          `prop:"lockInStrictMode,unused" default:"false"`

	// Connections.
	IdleTimeout time.Duration `prop:"serverChannelMaxIdleTimeSeconds,s" default:"120" range:"1.."`
	TLSMode     string        `prop:"tls.server.mode,unused" default:"permissive"`

	// Ratchet's own.
	//
	// VIPPort opens RocketMQ's second listener, at listenPort-2, which clients use with vipChannelEnabled.
	VIPPort bool `prop:"vipPortEnable" default:"true"`
	// StrictFromLast makes "from last" mean last: a group without progress is told "none" (22) even when the queue still
	// has its first message, where RocketMQ answers 0 and so hands a new group the whole history.
	StrictFromLast bool `prop:"strictFromLast,live" default:"false"`
	// MetricsAddr is where GET /metrics listens, host:port; empty: nowhere.
	MetricsAddr string `prop:"metricsAddr,unused"`
	// MaxUnflushedBytes and MaxUnflushedMessages bound what a power cut can take: appends wait for the flush beyond.
	MaxUnflushedBytes    int64 `prop:"maxUnflushedBytes" default:"268435456" range:"1048576.."`
	MaxUnflushedMessages int64 `prop:"maxUnflushedMessages" default:"1000000" range:"1000.."`
	// RecoverTimeout bounds how long a master that may be behind waits for its replicas before it serves without them.
	RecoverTimeout time.Duration `prop:"recoverFromReplicaTimeoutMs,ms" default:"60000" range:"0.."`
	// TrustPageCache: what was written before a kill is there after it, unless the machine was started anew in between.
	// Switch it off where a file system can lose what was not flushed although the machine goes on.
	TrustPageCache bool `prop:"pageCacheTrusted" default:"true"`
	// Replicas are further addresses, host:port of the broker, to look for replicas at when the name server knows none.
	Replicas List `prop:"replicaAddrs"`
}

// LoadBroker reads a broker's file; empty text: the defaults alone. root is the store's folder when the file names
// none. The pairs returned have no effect, see Load.
func LoadBroker(file string, text []byte, root string, env Env) (*Broker, []Pair, error) {
	b := new(Broker)
	Defaults(b)
	unknown, err := Load(b, file, text, env)
	if err != nil {
		return nil, nil, err
	}
	if b.StoreRoot == "" {
		b.StoreRoot = root
	}
	if err := b.Check(); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", file, err)
	}
	return b, unknown, nil
}

// Check tests what a single value can't show, and completes the rest: a master's id is 0 whatever the file says, as in
// RocketMQ.
func (b *Broker) Check() error {
	switch {
	case strings.TrimSpace(b.Name) == "":
		return fmt.Errorf("key %q is empty", "brokerName")
	case strings.ContainsAny(b.Name+b.Cluster, `/\`):
		return fmt.Errorf("brokerName %q and brokerClusterName %q can't have a slash: they name topics", b.Name, b.Cluster)
	case b.Role == Slave && b.ID == 0:
		return fmt.Errorf("key %q: a slave's id can't be 0", "brokerId")
	case b.DiskForce > b.DiskWarn:
		return fmt.Errorf("diskSpaceCleanForciblyRatio %d is above diskSpaceWarningLevelRatio %d", b.DiskForce, b.DiskWarn)
	}
	for _, hour := range b.DeleteWhen {
		if _, err := time.Parse("15", hour); err != nil {
			return fmt.Errorf("key %q: %q is not an hour of the day, 00 to 23", "deleteWhen", hour)
		}
	}
	if b.Role != Slave {
		b.ID = 0
	}
	return nil
}

// QueueUnits is the number of entries in a consume queue file; RocketMQ rounds the size up to whole entries.
func (b *Broker) QueueUnits() int { return int((b.QueueFileSize + 19) / 20) }

// CommitLogDirs are the folders of the commit log.
func (b *Broker) CommitLogDirs() []string {
	if b.CommitLogPath == "" {
		return []string{filepath.Join(b.StoreRoot, "commitlog")}
	}
	return strings.Split(b.CommitLogPath, ",")
}

// ReadOnlyCommitLogDirs are folders of the commit log in which nothing is written.
func (b *Broker) ReadOnlyCommitLogDirs() []string {
	if b.ReadOnlyLogs == "" {
		return nil
	}
	return strings.Split(b.ReadOnlyLogs, ",")
}

// ConfigDir is the folder of the broker's state files.
func (b *Broker) ConfigDir() string { return filepath.Join(b.StoreRoot, "config") }
