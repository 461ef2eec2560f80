// QUERY_TOPIC_CONSUME_BY_WHO (300): the groups that are online for a topic or have progress in it.

package processor

import (
	"context"
	"slices"

	"github.com/ratchetmq/ratchet/protocol"
	"github.com/ratchetmq/ratchet/remoting"
)

func (p *Processor) topicConsumers(_ context.Context, r *remoting.Request) (protocol.Reply, error) {
	var h protocol.QueryTopicConsumeByWhoRequest
	if err := r.ReadHeader(&h); err != nil {
		return protocol.Reply{}, err
	}
	groups := append(p.clients.Subscribers(h.Topic), p.offsets.TopicGroups(h.Topic)...)
	slices.Sort(groups)
	return bodyReply(protocol.GroupList{GroupList: slices.Compact(groups)})
}
