// HEART_BEAT (34), UNREGISTER_CLIENT (35), GET_CONSUMER_LIST_BY_GROUP (38), CHECK_CLIENT_CONFIG (46), and the push that
// follows from them: NOTIFY_CONSUMER_IDS_CHANGED (40).
//
// Kept: groups and their retry topics are made by the first heartbeat; every member of a group is told at once when
// another comes, leaves or changes what it subscribes to.
// Changed: members of a group with different subscriptions are logged by name as a conflict and each keeps its own.
// Not implemented: the short "fingerprint" heartbeats of 5.x; the answer doesn't offer them, so clients send full ones.

package processor

import (
	"context"

	"github.com/ratchetmq/ratchet/internal/state"
	"github.com/ratchetmq/ratchet/protocol"
	"github.com/ratchetmq/ratchet/remoting"
)

func (p *Processor) heartbeat(_ context.Context, r *remoting.Request) (protocol.Reply, error) {
	var data protocol.HeartbeatData
	if err := protocol.Unmarshal(r.Body, &data); err != nil {
		return protocol.Reply{}, refuse(protocol.SystemError, "heartbeat body: %v", err)
	}
	if data.ClientID == "" {
		return protocol.Reply{}, refuse(protocol.SystemError, "heartbeat body: field clientID is missing")
	}
	for _, consumer := range data.ConsumerDataSet {
		p.prepareGroup(consumer.GroupName, consumer.UnitMode)
	}
	beat := p.clients.Heartbeat(r.Conn, state.Client{ID: data.ClientID, Language: r.Language, Version: r.Version}, &data)
	for _, c := range beat.Conflicts {
		p.log.Warn("members of a group subscribe to different things", "group", c.Group, "topic", c.Topic,
			"client", c.Client, "wants", c.Wanted, "other", c.Other, "has", c.OtherHas)
	}
	p.notifyMembers(beat.Groups)
	return protocol.Reply{}, nil
}

// prepareGroup makes the group and its retry topic, when the broker may.
func (p *Processor) prepareGroup(name string, unit bool) {
	group, err := p.groups.GetOrCreate(name)
	if err != nil {
		p.log.Warn("consumer group not made", "group", name, "err", err)
		return
	}
	if group.RetryQueueNums <= 0 {
		return
	}
	if _, err := p.topics.CreateRetry(name, group.RetryQueueNums, unit); err != nil {
		p.log.Warn("retry topic not made", "group", name, "err", err)
	}
}

// notifyMembers tells every member of the groups that the group's membership or what it subscribes to has changed.
func (p *Processor) notifyMembers(groups []string) {
	if !p.settings().NotifyMembers {
		return
	}
	for _, name := range groups {
		if config, ok := p.groups.Get(name); ok && !config.NotifyConsumerIDsChangedEnable {
			continue
		}
		group, ok := p.clients.Group(name)
		if !ok || group.Broadcasting() {
			continue
		}
		header := &protocol.NotifyConsumerIDsChangedRequest{ConsumerGroup: name}
		for _, conn := range group.Conns() {
			if err := conn.(*remoting.Conn).Notify(protocol.NotifyConsumerIDsChanged, header, nil); err != nil {
				p.log.Debug("consumer not told of a change of its group", "group", name, "client", conn.RemoteAddr(), "err", err)
			}
		}
	}
}

func (p *Processor) unregisterClient(_ context.Context, r *remoting.Request) (protocol.Reply, error) {
	var h protocol.UnregisterClientRequest
	if err := r.ReadHeader(&h); err != nil {
		return protocol.Reply{}, err
	}
	p.notifyMembers(p.clients.Unregister(r.Conn, h.ClientID, h.ProducerGroup, h.ConsumerGroup))
	return protocol.Reply{}, nil
}

// ConnClosed forgets what was known of a connection's client; remoting calls it once for each connection.
func (p *Processor) ConnClosed(conn *remoting.Conn) {
	p.notifyMembers(p.clients.Closed(conn))
}

func (p *Processor) consumerList(_ context.Context, r *remoting.Request) (protocol.Reply, error) {
	var h protocol.GetConsumerListByGroupRequest
	if err := r.ReadHeader(&h); err != nil {
		return protocol.Reply{}, err
	}
	group, ok := p.clients.Group(h.ConsumerGroup)
	if !ok {
		return protocol.Reply{}, refuse(protocol.SystemError, "no consumer for this group, %s", h.ConsumerGroup)
	}
	return bodyReply(protocol.ConsumerList{ConsumerIDList: group.ClientIDs()})
}

func (p *Processor) checkClientConfig(_ context.Context, r *remoting.Request) (protocol.Reply, error) {
	var data protocol.CheckClientRequest
	if err := protocol.Unmarshal(r.Body, &data); err != nil {
		return protocol.Reply{}, refuse(protocol.SystemError, "client config body: %v", err)
	}
	if kind := data.SubscriptionData.ExpressionType; !isTagExpression(kind) {
		return protocol.Reply{}, refuseSQL(kind)
	}
	return protocol.Reply{}, nil
}

// bodyReply is a success whose body is v as JSON.
func bodyReply(v any) (protocol.Reply, error) {
	body, err := protocol.Marshal(v)
	return protocol.Reply{Body: body}, err
}
