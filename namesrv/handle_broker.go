package namesrv

import (
	"errors"
	"fmt"
	"time"

	"github.com/ratchetmq/ratchet/protocol"
	"github.com/ratchetmq/ratchet/remoting"
)

// registerBroker answers REGISTER_BROKER (103).
//
// Kept: all body forms (bare table, JSON, compressed); a CRC of 0 is not checked; a slave learns its master's address;
// the answer's body lists the order topics, and there is none without such a namespace.
//
// Changed: see the package comment on full bodies. A compressed body is known by itself (see zlibbed). Names that lead out of a folder are refused (CVE-2019-17572): of
// brokers and clusters, the registration as a whole; of topics, these topics, while the rest is registered. The answer
// is code 1 with the names then, so that it is seen in the broker's log.
func (s *Server) registerBroker(r *remoting.Request) (protocol.Reply, error) {
	var h protocol.RegisterBrokerRequest
	if err := r.ReadHeader(&h); err != nil {
		return protocol.Reply{}, err
	}
	if crc := protocol.BodyCRC(r.Body); h.BodyCRC32 != 0 && h.BodyCRC32 != crc {
		return protocol.Reply{}, fmt.Errorf("%w: the header says %d, the body has %d", errCRC, h.BodyCRC32, crc)
	}
	body, err := protocol.DecodeRegisterBody(r.Body, h.Compressed || zlibbed(r.Body), r.Version)
	if err != nil {
		return protocol.Reply{}, fmt.Errorf("registration of broker %.255q: %w", h.BrokerName, err)
	}
	reg := registration(&h, body)
	reg.Zone, _ = r.Fields.Get(fieldZoneName)
	_, reg.OneMoment = r.Fields.Get(protocol.FieldOneMoment)
	reg.Conn = r.Conn.ID()
	s.conns.Store(r.Conn.ID(), r.Conn)
	res, err := s.table.Register(reg)
	if err != nil {
		s.log.Warn("registration refused", "broker", h.BrokerName, "addr", h.BrokerAddr, "err", err)
		return protocol.Reply{}, err
	}
	s.logRegistered(&reg, &res)
	if len(res.Refused) > 0 {
		first := res.Refused[:min(4, len(res.Refused))]
		return protocol.Reply{}, fmt.Errorf("%d of %d topics refused, the others are registered: %w",
			len(res.Refused), len(reg.Topics), errors.Join(first...))
	}
	rep := protocol.Reply{}
	if res.MasterAddr != "" {
		rep.Header = &protocol.RegisterBrokerResponse{HAServerAddr: res.HAServerAddr, MasterAddr: res.MasterAddr}
	}
	if s.settings.Get().ReturnOrderTopicConfig {
		rep.Body, err = s.kv.list(protocol.NamespaceOrderTopic)
		if errors.Is(err, errNoConfig) {
			err = nil
		}
	}
	return rep, err
}

// zlibbed says whether a body is compressed, whatever the header says: brokers from 5.0 on with compressedRegister send
// compressed=false with a compressed body, and RocketMQ's own name server cannot read it. No JSON begins like this.
func zlibbed(body []byte) bool {
	return len(body) > 2 && body[0] == 0x78 && (uint(body[0])<<8|uint(body[1]))%31 == 0
}

func registration(h *protocol.RegisterBrokerRequest, body *protocol.RegisterBrokerBody) Registration {
	w := &body.TopicConfigSerializeWrapper
	reg := Registration{
		Cluster:       h.ClusterName,
		Broker:        h.BrokerName,
		ID:            h.BrokerID,
		Addr:          h.BrokerAddr,
		HAAddr:        h.HAServerAddr,
		ActingMaster:  h.EnableActingMaster,
		Timeout:       time.Duration(h.HeartbeatTimeoutMillis.Or(0)) * time.Millisecond,
		Version:       w.DataVersion,
		FilterServers: body.FilterServerList,
		Topics:        make([]TopicEntry, 0, len(w.TopicConfigTable)),
	}
	for name, c := range w.TopicConfigTable {
		reg.Topics = append(reg.Topics, topicEntry(name, &c, w.TopicQueueMappingInfoMap[name]))
	}
	return reg
}

func topicEntry(name string, c *protocol.TopicConfig, mapping []byte) TopicEntry {
	return TopicEntry{
		Name:        name,
		ReadQueues:  c.ReadQueueNums,
		WriteQueues: c.WriteQueueNums,
		Perm:        c.Perm,
		SysFlag:     c.TopicSysFlag,
		Mapping:     mapping,
	}
}

// logRegistered logs what has changed, if anything.
func (s *Server) logRegistered(reg *Registration, res *Registered) {
	log := s.log.With("broker", reg.Broker, "id", reg.ID, "addr", reg.Addr)
	if res.Evicted != "" {
		log.Warn("address had another broker before", "before", res.Evicted)
	}
	switch {
	case res.Stood:
		log.Warn("registration ignored, the broker with this id has a newer state")
	case res.First:
		log.Info("broker registered", "cluster", reg.Cluster, "topics", len(reg.Topics))
	case res.Added+res.Changed+res.Removed > 0:
		log.Info("topics changed", "added", res.Added, "changed", res.Changed, "removed", res.Removed)
	}
	for _, err := range res.Refused[:min(4, len(res.Refused))] {
		log.Warn("topic refused", "err", err)
	}
}

// unregisterBroker answers UNREGISTER_BROKER (104). RocketMQ 5 answers before it has done it; here it is done.
func (s *Server) unregisterBroker(r *remoting.Request) (protocol.Reply, error) {
	var h protocol.UnregisterBrokerRequest
	if err := r.ReadHeader(&h); err != nil {
		return protocol.Reply{}, err
	}
	if gone, ok := s.table.Unregister(h.ClusterName, h.BrokerName, h.BrokerAddr); ok {
		s.logOf(gone).Info("broker unregistered")
	}
	return protocol.Reply{}, nil
}

// queryDataVersion answers QUERY_DATA_VERSION (322): whether the broker has to register. It counts as a sign of life.
//
// Changed: RocketMQ compares with the version of the last registration, so that an increment that got lost before that
// one is never repeated (apache/rocketmq#4359). Here the version counts up to which nothing is missing.
func (s *Server) queryDataVersion(r *remoting.Request) (protocol.Reply, error) {
	var h protocol.QueryDataVersionRequest
	if err := r.ReadHeader(&h); err != nil {
		return protocol.Reply{}, err
	}
	var theirs protocol.DataVersion
	if err := protocol.Unmarshal(r.Body, &theirs); err != nil {
		return protocol.Reply{}, fmt.Errorf("data version: %w", err)
	}
	ours, known := s.table.DataVersion(h.ClusterName, h.BrokerAddr, r.Conn.ID())
	rep := protocol.Reply{Header: &protocol.QueryDataVersionResponse{Changed: !known || ours != theirs}}
	if !known {
		return rep, nil
	}
	s.conns.Store(r.Conn.ID(), r.Conn)
	var err error
	rep.Body, err = protocol.Marshal(&ours)
	return rep, err
}

// brokerHeartbeat answers BROKER_HEARTBEAT (904). An unknown broker is told nothing, as in RocketMQ: it registers by
// itself.
func (s *Server) brokerHeartbeat(r *remoting.Request) (protocol.Reply, error) {
	var h protocol.BrokerHeartbeatRequest
	if err := r.ReadHeader(&h); err != nil {
		return protocol.Reply{}, err
	}
	if s.table.Heartbeat(h.ClusterName, h.BrokerAddr, r.Conn.ID()) {
		s.conns.Store(r.Conn.ID(), r.Conn)
	}
	return protocol.Reply{}, nil
}

// registerTopic answers REGISTER_TOPIC_IN_NAMESRV (217), which brokers with enableSingleTopicRegister send instead of
// an increment. The body is the topic's route; its brokers are ignored, they must have registered.
func (s *Server) registerTopic(r *remoting.Request) (protocol.Reply, error) {
	var h protocol.RegisterTopicRequest
	if err := r.ReadHeader(&h); err != nil {
		return protocol.Reply{}, err
	}
	var route protocol.TopicRouteData
	if err := protocol.Unmarshal(r.Body, &route); err != nil {
		return protocol.Reply{}, fmt.Errorf("route of topic %.255q: %w", h.Topic, err)
	}
	queues := make(map[string]TopicEntry, len(route.QueueDatas))
	for _, q := range route.QueueDatas {
		queues[q.BrokerName] = TopicEntry{
			ReadQueues: q.ReadQueueNums, WriteQueues: q.WriteQueueNums, Perm: q.Perm, SysFlag: q.TopicSysFlag,
		}
	}
	_, err := s.table.RegisterTopic(h.Topic, queues)
	return protocol.Reply{}, err
}

// getMemberGroup answers GET_BROKER_MEMBER_GROUP (901).
func (s *Server) getMemberGroup(r *remoting.Request) (protocol.Reply, error) {
	var h protocol.GetBrokerMemberGroupRequest
	if err := r.ReadHeader(&h); err != nil {
		return protocol.Reply{}, err
	}
	return protocol.Reply{Body: s.table.MemberGroup(h.ClusterName, h.BrokerName)}, nil
}
