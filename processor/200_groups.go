// UPDATE_AND_CREATE_SUBSCRIPTIONGROUP (200), DELETE_SUBSCRIPTIONGROUP (207), GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201),
// GET_SUBSCRIPTIONGROUP_CONFIG (352).
//
// Changed: reading a group's settings doesn't make the group, as it does in 5.x.

package processor

import (
	"context"

	"github.com/ratchetmq/ratchet/protocol"
	"github.com/ratchetmq/ratchet/remoting"
)

func (p *Processor) updateGroup(_ context.Context, r *remoting.Request) (protocol.Reply, error) {
	config := protocol.NewSubscriptionGroupConfig("")
	if err := protocol.Unmarshal(r.Body, &config); err != nil {
		return protocol.Reply{}, refuse(protocol.InvalidParameter, "group body: %v", err)
	}
	var attributes map[string]string
	if before, ok := p.groups.Get(config.GroupName); ok {
		attributes = before.Attributes
	}
	config.Attributes = alter(attributes, config.Attributes)
	if _, err := p.groups.Put(config); err != nil {
		return protocol.Reply{}, err
	}
	p.log.Info("consumer group set", "group", config.GroupName, "client", r.Conn.RemoteAddr())
	return protocol.Reply{}, nil
}

func (p *Processor) deleteGroup(_ context.Context, r *remoting.Request) (protocol.Reply, error) {
	var h protocol.DeleteSubscriptionGroupRequest
	if err := r.ReadHeader(&h); err != nil {
		return protocol.Reply{}, err
	}
	if _, err := p.groups.Delete(h.GroupName); err != nil {
		return protocol.Reply{}, err
	}
	if h.CleanOffset {
		if err := p.offsets.RemoveGroup(h.GroupName); err != nil {
			return protocol.Reply{}, err
		}
	}
	p.log.Info("consumer group deleted", "group", h.GroupName, "offsets", h.CleanOffset, "client", r.Conn.RemoteAddr())
	return protocol.Reply{}, nil
}

func (p *Processor) allGroups(_ context.Context, r *remoting.Request) (protocol.Reply, error) {
	var h protocol.GetAllSubscriptionGroupConfigRequest
	if err := r.ReadHeader(&h); err != nil {
		return protocol.Reply{}, err
	}
	groups, version := p.groups.Snapshot()
	if has(r, version.Mark()) {
		return unchanged(version.Mark()), nil
	}
	body, err := protocol.Marshal(struct {
		DataVersion            protocol.DataVersion                         `json:"dataVersion"`
		ForbiddenTable         map[string]map[string]int32                  `json:"forbiddenTable"`
		SubscriptionGroupTable map[string]*protocol.SubscriptionGroupConfig `json:"subscriptionGroupTable"`
	}{version, p.groups.Forbidden(), page(groups, version, h.DataVersion, h.GroupSeq, h.MaxGroupNum)})
	return protocol.Reply{
		Header: &protocol.GetAllSubscriptionGroupConfigResponse{TotalGroupNum: protocol.Some(int32(len(groups)))},
		Extra:  marked(version.Mark()), Body: body,
	}, err
}

func (p *Processor) getGroup(_ context.Context, r *remoting.Request) (protocol.Reply, error) {
	var h protocol.GetSubscriptionGroupConfigRequest
	if err := r.ReadHeader(&h); err != nil {
		return protocol.Reply{}, err
	}
	group, err := p.group(h.Group)
	if err != nil {
		return protocol.Reply{}, err
	}
	return bodyReply(group)
}
