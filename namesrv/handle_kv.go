package namesrv

import (
	"github.com/ratchetmq/ratchet/protocol"
	"github.com/ratchetmq/ratchet/remoting"
)

// The KV table: PUT_KV_CONFIG (100), GET_KV_CONFIG (101), DELETE_KV_CONFIG (102), GET_KVLIST_BY_NAMESPACE (219).
//
// Kept: a missing key is code 22; a value may be empty; deleting what is not there succeeds.
//
// Changed: a request without key or namespace is refused (RocketMQ 4.9 and older stored a null key, and every broker
// failed on it, apache/rocketmq#2935), and so is an empty key. A put is answered when it is on disk.

func (s *Server) putKV(r *remoting.Request) (protocol.Reply, error) {
	var h protocol.PutKVConfigRequest
	if err := r.ReadHeader(&h); err != nil {
		return protocol.Reply{}, err
	}
	if h.Namespace == "" || h.Key == "" {
		return protocol.Reply{}, errEmptyKey
	}
	if err := s.kv.put(h.Namespace, h.Key, h.Value); err != nil {
		return protocol.Reply{}, err
	}
	s.kvChanged(h.Namespace)
	return protocol.Reply{}, nil
}

func (s *Server) getKV(r *remoting.Request) (protocol.Reply, error) {
	var h protocol.GetKVConfigRequest
	if err := r.ReadHeader(&h); err != nil {
		return protocol.Reply{}, err
	}
	v, err := s.kv.get(h.Namespace, h.Key)
	return protocol.Reply{Extra: []protocol.KV{{Key: "value", Value: v}}}, err
}

func (s *Server) deleteKV(r *remoting.Request) (protocol.Reply, error) {
	var h protocol.DeleteKVConfigRequest
	if err := r.ReadHeader(&h); err != nil {
		return protocol.Reply{}, err
	}
	if err := s.kv.delete(h.Namespace, h.Key); err != nil {
		return protocol.Reply{}, err
	}
	s.kvChanged(h.Namespace)
	return protocol.Reply{}, nil
}

func (s *Server) listKV(r *remoting.Request) (protocol.Reply, error) {
	var h protocol.GetKVListByNamespaceRequest
	if err := r.ReadHeader(&h); err != nil {
		return protocol.Reply{}, err
	}
	body, err := s.kv.list(h.Namespace)
	return protocol.Reply{Body: body}, err
}

// kvChanged makes routes show the new order configuration.
func (s *Server) kvChanged(namespace string) {
	if namespace == protocol.NamespaceOrderTopic {
		s.table.Invalidate()
	}
}
