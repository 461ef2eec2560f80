package processor

import (
	"context"

	"github.com/ratchetmq/ratchet/protocol"
	"github.com/ratchetmq/ratchet/remoting"
)

// Lanes are the classes of work that don't wait for each other.
const (
	LaneSend = iota
	LanePull
	LaneClient
	LaneAdmin
	Lanes // how many there are
)

// route says where a request code goes: which lane it waits in and which handler answers it.
//
// A handler's Reply is the answer; errLater means that the request was handed on; another error becomes a code in
// errorReply.
type route struct {
	lane   int
	handle func(*Processor, context.Context, *remoting.Request) (protocol.Reply, error)
}

// routes is the whole of what a broker answers; a code that is not here gets REQUEST_CODE_NOT_SUPPORTED.
var routes = map[protocol.RequestCode]route{
	protocol.SendMessage:         {LaneSend, (*Processor).sendMessage},
	protocol.SendMessageV2:       {LaneSend, (*Processor).sendMessage},
	protocol.SendBatchMessage:    {LaneSend, (*Processor).sendMessage},
	protocol.ConsumerSendMsgBack: {LaneSend, (*Processor).sendBack},

	protocol.PullMessage:     {LanePull, (*Processor).pullMessage},
	protocol.LitePullMessage: {LanePull, (*Processor).pullMessage},
	protocol.QueryMessage:    {LaneAdmin, (*Processor).queryMessage},
	protocol.ViewMessageByID: {LaneAdmin, (*Processor).viewMessage},

	protocol.HeartBeat:              {LaneClient, (*Processor).heartbeat},
	protocol.UnregisterClient:       {LaneClient, (*Processor).unregisterClient},
	protocol.CheckClientConfig:      {LaneClient, (*Processor).checkClientConfig},
	protocol.GetConsumerListByGroup: {LaneClient, (*Processor).consumerList},
	protocol.LockBatchMQ:            {LaneClient, (*Processor).lockQueues},
	protocol.UnlockBatchMQ:          {LaneClient, (*Processor).unlockQueues},
	protocol.QueryConsumerOffset:    {LaneClient, (*Processor).queryConsumerOffset},
	protocol.UpdateConsumerOffset:   {LaneClient, (*Processor).updateConsumerOffset},

	protocol.SearchOffsetByTimestamp: {LaneAdmin, (*Processor).searchOffset},
	protocol.GetMaxOffset:            {LaneAdmin, (*Processor).maxOffset},
	protocol.GetMinOffset:            {LaneAdmin, (*Processor).minOffset},
	protocol.GetEarliestMsgStoreTime: {LaneAdmin, (*Processor).earliestStoreTime},

	protocol.UpdateAndCreateTopic:             {LaneAdmin, (*Processor).updateTopic},
	protocol.DeleteTopicInBroker:              {LaneAdmin, (*Processor).deleteTopic},
	protocol.GetAllTopicConfig:                {LaneAdmin, (*Processor).allTopics},
	protocol.GetTopicConfig:                   {LaneAdmin, (*Processor).getTopic},
	protocol.UpdateAndCreateSubscriptionGroup: {LaneAdmin, (*Processor).updateGroup},
	protocol.DeleteSubscriptionGroup:          {LaneAdmin, (*Processor).deleteGroup},
	protocol.GetAllSubscriptionGroupConfig:    {LaneAdmin, (*Processor).allGroups},
	protocol.GetSubscriptionGroupConfig:       {LaneAdmin, (*Processor).getGroup},
	protocol.GetConsumerConnectionList:        {LaneAdmin, (*Processor).consumerConnections},
	protocol.GetProducerConnectionList:        {LaneAdmin, (*Processor).producerConnections},
	protocol.QueryTopicConsumeByWho:           {LaneAdmin, (*Processor).topicConsumers},
	protocol.GetConsumeStats:                  {LaneAdmin, (*Processor).consumeStats},
	protocol.InvokeBrokerToResetOffset:        {LaneAdmin, (*Processor).resetOffset},
	protocol.CleanExpiredConsumeQueue:         {LaneAdmin, (*Processor).cleanExpired},
	protocol.DeleteExpiredCommitLog:           {LaneAdmin, (*Processor).cleanExpired},
	protocol.UpdateBrokerConfig:               {LaneAdmin, (*Processor).updateConfig},
	protocol.GetBrokerConfig:                  {LaneAdmin, (*Processor).getConfig},
}

// LaneOf is the lane of a request code, for remoting's server.
func LaneOf(code int32) int {
	if r, ok := routes[protocol.RequestCode(code)]; ok {
		return r.lane
	}
	return LaneAdmin
}
