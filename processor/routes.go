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

// need is what a broker must be to answer a request.
type need uint8

const (
	anyone  need = iota // whatever it is
	serving             // an open master or a slave: a master that may be behind answers no clients (P5)
	leading             // an open master
)

// route says where a request code goes: which lane it waits in, who may answer it, and which handler does.
//
// A handler's Reply is the answer; errLater means that the request was handed on; another error becomes a code in
// errorReply.
type route struct {
	lane   int
	need   need
	handle func(*Processor, context.Context, *remoting.Request) (protocol.Reply, error)
}

// routes is the whole of what a broker answers; a code that is not here gets REQUEST_CODE_NOT_SUPPORTED.
var routes = map[protocol.RequestCode]route{
	protocol.SendMessage:         {LaneSend, leading, (*Processor).sendMessage},
	protocol.SendMessageV2:       {LaneSend, leading, (*Processor).sendMessage},
	protocol.SendBatchMessage:    {LaneSend, leading, (*Processor).sendMessage},
	protocol.ConsumerSendMsgBack: {LaneSend, leading, (*Processor).sendBack},

	protocol.PullMessage:     {LanePull, serving, (*Processor).pullMessage},
	protocol.LitePullMessage: {LanePull, serving, (*Processor).pullMessage},
	protocol.QueryMessage:    {LaneAdmin, serving, (*Processor).queryMessage},
	protocol.ViewMessageByID: {LaneAdmin, serving, (*Processor).viewMessage},

	protocol.HeartBeat:              {LaneClient, serving, (*Processor).heartbeat},
	protocol.UnregisterClient:       {LaneClient, serving, (*Processor).unregisterClient},
	protocol.CheckClientConfig:      {LaneClient, serving, (*Processor).checkClientConfig},
	protocol.GetConsumerListByGroup: {LaneClient, serving, (*Processor).consumerList},
	protocol.LockBatchMQ:            {LaneClient, leading, (*Processor).lockQueues},
	protocol.UnlockBatchMQ:          {LaneClient, leading, (*Processor).unlockQueues},
	protocol.QueryConsumerOffset:    {LaneClient, serving, (*Processor).queryConsumerOffset},
	protocol.UpdateConsumerOffset:   {LaneClient, serving, (*Processor).updateConsumerOffset},

	protocol.SearchOffsetByTimestamp: {LaneAdmin, serving, (*Processor).searchOffset},
	protocol.GetMaxOffset:            {LaneAdmin, anyone, (*Processor).maxOffset},
	protocol.GetMinOffset:            {LaneAdmin, anyone, (*Processor).minOffset},
	protocol.GetEarliestMsgStoreTime: {LaneAdmin, serving, (*Processor).earliestStoreTime},

	protocol.GetBrokerRuntimeInfo: {LaneAdmin, anyone, (*Processor).runtimeInfo},
	protocol.GetAllConsumerOffset: {LaneAdmin, anyone, (*Processor).allConsumerOffsets},
	protocol.GetAllDelayOffset:    {LaneAdmin, anyone, (*Processor).allDelayOffsets},

	protocol.UpdateAndCreateTopic:             {LaneAdmin, leading, (*Processor).updateTopic},
	protocol.DeleteTopicInBroker:              {LaneAdmin, leading, (*Processor).deleteTopic},
	protocol.GetAllTopicConfig:                {LaneAdmin, anyone, (*Processor).allTopics},
	protocol.GetTopicConfig:                   {LaneAdmin, anyone, (*Processor).getTopic},
	protocol.UpdateAndCreateSubscriptionGroup: {LaneAdmin, leading, (*Processor).updateGroup},
	protocol.DeleteSubscriptionGroup:          {LaneAdmin, leading, (*Processor).deleteGroup},
	protocol.GetAllSubscriptionGroupConfig:    {LaneAdmin, anyone, (*Processor).allGroups},
	protocol.GetSubscriptionGroupConfig:       {LaneAdmin, anyone, (*Processor).getGroup},
	protocol.GetConsumerConnectionList:        {LaneAdmin, anyone, (*Processor).consumerConnections},
	protocol.GetProducerConnectionList:        {LaneAdmin, anyone, (*Processor).producerConnections},
	protocol.QueryTopicConsumeByWho:           {LaneAdmin, anyone, (*Processor).topicConsumers},
	protocol.GetConsumeStats:                  {LaneAdmin, anyone, (*Processor).consumeStats},
	protocol.InvokeBrokerToResetOffset:        {LaneAdmin, leading, (*Processor).resetOffset},
	protocol.CleanExpiredConsumeQueue:         {LaneAdmin, anyone, (*Processor).cleanExpired},
	protocol.DeleteExpiredCommitLog:           {LaneAdmin, anyone, (*Processor).cleanExpired},
	protocol.GetBrokerHAStatus:                {LaneAdmin, anyone, (*Processor).haStatus},
	protocol.GetReplicaStatus:                 {LaneAdmin, anyone, (*Processor).replicaStatus},
	protocol.OpenMaster:                       {LaneAdmin, anyone, (*Processor).openMaster},
	protocol.SwitchMaster:                     {LaneAdmin, leading, (*Processor).switchMaster},
	protocol.ForgetPeer:                       {LaneAdmin, anyone, (*Processor).forgetPeer},
	protocol.TakeOver:                         {LaneAdmin, anyone, (*Processor).takeOver},
	protocol.MergeOffsets:                     {LaneAdmin, leading, (*Processor).mergeOffsets},

	protocol.UpdateBrokerConfig: {LaneAdmin, anyone, (*Processor).updateConfig},
	protocol.GetBrokerConfig:    {LaneAdmin, anyone, (*Processor).getConfig},
}

// LaneOf is the lane of a request code, for remoting's server.
func LaneOf(code int32) int {
	if isSend(protocol.RequestCode(code)) {
		return LaneSend // by far the most, and a map takes longer
	}
	if r, ok := routes[protocol.RequestCode(code)]; ok {
		return r.lane
	}
	return LaneAdmin
}

// isSend says whether a request is one that may be served with others.
func isSend(code protocol.RequestCode) bool {
	return code == protocol.SendMessageV2 || code == protocol.SendBatchMessage || code == protocol.SendMessage
}
