package namesrv

import (
	"github.com/ratchetmq/ratchet/protocol"
	"github.com/ratchetmq/ratchet/remoting"
)

// The questions of tools: GET_BROKER_CLUSTER_INFO (106), the topic lists (206, 224, 304, 311 to 313), DELETE_TOPIC_IN_
// NAMESRV (216), and the write permissions of a broker (205, 327).
//
// Kept: enableAllTopicList=false switches off 206, and enableTopicList=false the other lists; both answer code 1
// "disable".
//
// Changed: 106 has quoted broker ids, since RocketMQ's bare ones are not JSON. 205 holds until the topic itself changes
// on its broker; RocketMQ gives it back with any change of any topic of that broker.

func (s *Server) getClusterInfo(*remoting.Request) (protocol.Reply, error) {
	return protocol.Reply{Body: s.table.ClusterInfo()}, nil
}

func (s *Server) getAllTopics(*remoting.Request) (protocol.Reply, error) {
	if !s.settings.Get().TopicList {
		return protocol.Reply{}, errDisabled
	}
	return protocol.Reply{Body: s.table.TopicList()}, nil
}

// topicList answers with a list unless lists are switched off.
func (s *Server) topicList(list func() []byte) (protocol.Reply, error) {
	if !s.settings.Get().TopicListJava {
		return protocol.Reply{}, errDisabled
	}
	return protocol.Reply{Body: list()}, nil
}

func (s *Server) getTopicsByCluster(r *remoting.Request) (protocol.Reply, error) {
	var h protocol.GetTopicsByClusterRequest
	if err := r.ReadHeader(&h); err != nil {
		return protocol.Reply{}, err
	}
	return s.topicList(func() []byte { return s.table.ClusterTopics(h.Cluster) })
}

func (s *Server) getSystemTopics(*remoting.Request) (protocol.Reply, error) {
	return s.topicList(s.table.SystemTopics)
}

func (s *Server) getUnitTopics(*remoting.Request) (protocol.Reply, error) {
	return s.topicList(s.table.UnitTopics)
}

func (s *Server) getUnitSubTopics(*remoting.Request) (protocol.Reply, error) {
	return s.topicList(func() []byte { return s.table.UnitSubTopics(false) })
}

func (s *Server) getUnitSubNonUnitTopics(*remoting.Request) (protocol.Reply, error) {
	return s.topicList(func() []byte { return s.table.UnitSubTopics(true) })
}

func (s *Server) deleteTopic(r *remoting.Request) (protocol.Reply, error) {
	var h protocol.DeleteTopicFromNamesrvRequest
	if err := r.ReadHeader(&h); err != nil {
		return protocol.Reply{}, err
	}
	n := s.table.DeleteTopic(h.Topic, h.ClusterName)
	s.log.Info("topic deleted", "topic", h.Topic, "cluster", h.ClusterName, "brokers", n)
	return protocol.Reply{}, nil
}

func (s *Server) wipeWritePerm(r *remoting.Request) (protocol.Reply, error) {
	var h protocol.WipeWritePermOfBrokerRequest
	if err := r.ReadHeader(&h); err != nil {
		return protocol.Reply{}, err
	}
	n := s.setWritable(h.BrokerName, false)
	return protocol.Reply{Header: &protocol.WipeWritePermOfBrokerResponse{WipeTopicCount: n}}, nil
}

func (s *Server) addWritePerm(r *remoting.Request) (protocol.Reply, error) {
	var h protocol.AddWritePermOfBrokerRequest
	if err := r.ReadHeader(&h); err != nil {
		return protocol.Reply{}, err
	}
	n := s.setWritable(h.BrokerName, true)
	return protocol.Reply{Header: &protocol.AddWritePermOfBrokerResponse{AddTopicCount: n}}, nil
}

func (s *Server) setWritable(broker string, writable bool) int32 {
	n := s.table.SetWritable(broker, writable)
	s.log.Info("write permission set", "broker", broker, "writable", writable, "topics", n)
	return int32(n)
}
