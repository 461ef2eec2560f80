package protocol

import "bytes"

// TopicRouteData answers code 105: where a topic is.
type TopicRouteData struct {
	BrokerDatas               []BrokerData        `json:"brokerDatas"`
	FilterServerTable         map[string][]string `json:"filterServerTable"`
	OrderTopicConf            string              `json:"orderTopicConf,omitempty"`
	QueueDatas                []QueueData         `json:"queueDatas"`
	TopicQueueMappingByBroker map[string]Raw      `json:"topicQueueMappingByBroker,omitempty"`
}

// BrokerData is a broker name with the addresses of its master (id 0) and slaves.
type BrokerData struct {
	BrokerAddrs        map[int64]string `json:"brokerAddrs"`
	BrokerName         string           `json:"brokerName"`
	Cluster            string           `json:"cluster"`
	EnableActingMaster bool             `json:"enableActingMaster"`
	ZoneName           string           `json:"zoneName,omitempty"`
}

// QueueData is a topic's share of a broker.
type QueueData struct {
	BrokerName     string `json:"brokerName"`
	Perm           int32  `json:"perm"`
	ReadQueueNums  int32  `json:"readQueueNums"`
	TopicSysFlag   int32  `json:"topicSysFlag"`
	WriteQueueNums int32  `json:"writeQueueNums"`
}

// ClusterInfo answers code 106: brokers by name, and names by cluster.
type ClusterInfo struct {
	BrokerAddrTable  map[string]BrokerData `json:"brokerAddrTable"`
	ClusterAddrTable map[string][]string   `json:"clusterAddrTable"`
}

// BrokerMemberGroup answers code 901.
type BrokerMemberGroup struct {
	BrokerMemberGroup MemberGroup `json:"brokerMemberGroup"`
}

// MemberGroup is a broker name with all its addresses.
type MemberGroup struct {
	BrokerAddrs map[int64]string `json:"brokerAddrs"`
	BrokerName  string           `json:"brokerName"`
	Cluster     string           `json:"cluster"`
}

// StandardJSONVersion is the first client version (4.9.4) that a Java name server sends quoted broker ids to.
const StandardJSONVersion int32 = 401

// MarshalBareIDs writes route data or cluster info like Marshal, but the broker ids without quotes: what a Java name
// server sends to clients below StandardJSONVersion that did not ask for standard JSON.
func MarshalBareIDs(v any) ([]byte, error) {
	data, err := Marshal(v)
	if err != nil {
		return nil, err
	}
	out := data[:0] // only ever shorter
	// Inside a string the quotes of this text would have a backslash before them, so it is always a key.
	ids := []byte(`"brokerAddrs":{`)
	for {
		at := bytes.Index(data, ids)
		if at < 0 {
			return append(out, data...), nil
		}
		out, data = append(out, data[:at+len(ids)]...), data[at+len(ids):]
		for data[0] != '}' {
			if data[0] == ',' {
				out, data = append(out, ','), data[1:]
			}
			id, rest, _ := bytes.Cut(data[1:], []byte{'"'}) // Marshal wrote "id":"address"
			address, next, _ := scanString(rest, 1)
			out = append(append(out, id...), ':', '"')
			out = append(append(out, address.text...), '"')
			data = rest[next:]
		}
	}
}
