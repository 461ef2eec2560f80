// GET_CONSUMER_CONNECTION_LIST (203), GET_PRODUCER_CONNECTION_LIST (204): who is connected.

package processor

import (
	"context"

	"github.com/ratchetmq/ratchet/internal/state"
	"github.com/ratchetmq/ratchet/protocol"
	"github.com/ratchetmq/ratchet/remoting"
)

func (p *Processor) consumerConnections(_ context.Context, r *remoting.Request) (protocol.Reply, error) {
	var h protocol.GetConsumerConnectionListRequest
	if err := r.ReadHeader(&h); err != nil {
		return protocol.Reply{}, err
	}
	group, ok := p.clients.Group(h.ConsumerGroup)
	if !ok {
		return protocol.Reply{}, refuse(protocol.ConsumerNotOnline, "consumer group %s is not online", h.ConsumerGroup)
	}
	subscriptions := make(map[string]protocol.SubscriptionData, len(group.Subscriptions))
	for topic, sub := range group.Subscriptions {
		subscriptions[topic] = *sub
	}
	return bodyReply(protocol.ConsumerConnection{
		ConnectionSet:     connections(group.Members()),
		ConsumeFromWhere:  group.ConsumeFromWhere,
		ConsumeType:       group.ConsumeType,
		MessageModel:      group.MessageModel,
		SubscriptionTable: subscriptions,
	})
}

func (p *Processor) producerConnections(_ context.Context, r *remoting.Request) (protocol.Reply, error) {
	var h protocol.GetProducerConnectionListRequest
	if err := r.ReadHeader(&h); err != nil {
		return protocol.Reply{}, err
	}
	members := p.clients.Producers(h.ProducerGroup)
	if len(members) == 0 {
		return protocol.Reply{}, refuse(protocol.SystemError, "producer group %s is not online", h.ProducerGroup)
	}
	return bodyReply(protocol.ProducerConnection{ConnectionSet: connections(members)})
}

func connections(members []*state.Member) []protocol.Connection {
	list := make([]protocol.Connection, 0, len(members))
	for _, m := range members {
		list = append(list, protocol.Connection{
			ClientAddr: m.Conn.RemoteAddr().String(), ClientID: m.ID, Language: m.Language, Version: m.Version,
		})
	}
	return list
}
