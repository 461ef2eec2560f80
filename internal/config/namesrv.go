package config

import (
	"path/filepath"
	"time"
)

// Namesrv is a name server's settings; the keys are RocketMQ's.
type Namesrv struct {
	Port         int    `prop:"listenPort" default:"9876" range:"0..65535"`
	BindAddr     string `prop:"bindAddress" default:"0.0.0.0"`
	Home         string `prop:"rocketmqHome,path,protected"`
	KVPath       string `prop:"kvConfigPath,path,protected"` // empty: kvConfig.json under the data folder
	ConfPath     string `prop:"configStorePath,path,protected"`
	BlackList    List   `prop:"configBlackList,protected"`
	OrderMessage bool   `prop:"orderMessageEnable,live" default:"false"`
	// ReturnOrderTopicConfig answers a registration with the order topics; brokers mark those topics.
	ReturnOrderTopicConfig bool `prop:"returnOrderTopicConfigToBroker,live" default:"true"`

	ScanEvery       time.Duration `prop:"scanNotActiveBrokerInterval,ms" default:"5000" range:"1.."`
	IdleTimeout     time.Duration `prop:"serverChannelMaxIdleTimeSeconds,s" default:"120" range:"1.."`
	TopicList       bool          `prop:"enableAllTopicList,live" default:"true"`
	TopicListJava   bool          `prop:"enableTopicList,live" default:"true"`
	ActingMaster    bool          `prop:"supportActingMaster,live" default:"false"`
	NotifyMinID     bool          `prop:"notifyMinBrokerIdChanged,unused" default:"false"`
	DeleteTopics    bool          `prop:"deleteTopicWithBrokerRegistration,unused" default:"false"`
	NeedWait        bool          `prop:"needWaitForService,live" default:"false"`
	WaitFor         time.Duration `prop:"waitSecondsForService,s,live" default:"45" range:"0.."`
	ClusterTest     bool          `prop:"clusterTest,unused" default:"false"`
	ProductEnv      string        `prop:"productEnvName,unused" default:"center"`
	RouteWorkers    int           `prop:"clientRequestThreadPoolNums" default:"0" range:"0..1024"` // 0: by the number of CPUs
	RouteQueue      int           `prop:"clientRequestThreadPoolQueueCapacity" default:"50000" range:"1.."`
	DefaultQueue    int           `prop:"defaultThreadPoolQueueCapacity" default:"10000" range:"1.."`
	UnregisterQueue int           `prop:"unRegisterBrokerQueueCapacity,unused" default:"3000" range:"1.."`

	// MetricsAddr is Ratchet's own: where GET /metrics listens, host:port; empty: nowhere.
	MetricsAddr string `prop:"metricsAddr,unused"`
}

// LoadNamesrv reads a name server's file; empty text: the defaults alone. dir is the data folder, for files that the
// text does not place. The pairs returned have no effect, see Load.
func LoadNamesrv(file string, text []byte, dir string, env Env) (*Namesrv, []Pair, error) {
	n := new(Namesrv)
	Defaults(n)
	unknown, err := Load(n, file, text, env)
	if err != nil {
		return nil, nil, err
	}
	if n.KVPath == "" {
		n.KVPath = filepath.Join(dir, "kvConfig.json")
	}
	return n, unknown, nil
}
