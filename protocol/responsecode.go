package protocol

import "strconv"

// ResponseCode says how a request went. Clients act on it; a reply's remark is for people.
type ResponseCode int32

// All response codes that go over the wire, under Java's names.
const (
	Success                              ResponseCode = 0
	SystemError                          ResponseCode = 1
	SystemBusy                           ResponseCode = 2
	RequestCodeNotSupported              ResponseCode = 3
	TransactionFailed                    ResponseCode = 4
	FlushDiskTimeout                     ResponseCode = 10
	SlaveNotAvailable                    ResponseCode = 11
	FlushSlaveTimeout                    ResponseCode = 12
	MessageIllegal                       ResponseCode = 13
	ServiceNotAvailable                  ResponseCode = 14
	VersionNotSupported                  ResponseCode = 15
	NoPermission                         ResponseCode = 16
	TopicNotExist                        ResponseCode = 17
	TopicExistAlready                    ResponseCode = 18
	PullNotFound                         ResponseCode = 19
	PullRetryImmediately                 ResponseCode = 20
	PullOffsetMoved                      ResponseCode = 21
	QueryNotFound                        ResponseCode = 22
	SubscriptionParseFailed              ResponseCode = 23
	SubscriptionNotExist                 ResponseCode = 24
	SubscriptionNotLatest                ResponseCode = 25
	SubscriptionGroupNotExist            ResponseCode = 26
	FilterDataNotExist                   ResponseCode = 27
	FilterDataNotLatest                  ResponseCode = 28
	InvalidParameter                     ResponseCode = 29
	TransactionShouldCommit              ResponseCode = 200
	TransactionShouldRollback            ResponseCode = 201
	TransactionStateUnknow               ResponseCode = 202
	TransactionStateGroupWrong           ResponseCode = 203
	NoBuyerID                            ResponseCode = 204
	NotInCurrentUnit                     ResponseCode = 205
	ConsumerNotOnline                    ResponseCode = 206
	ConsumeMsgTimeout                    ResponseCode = 207
	NoMessage                            ResponseCode = 208
	PollingFull                          ResponseCode = 209
	PollingTimeout                       ResponseCode = 210
	BrokerNotExist                       ResponseCode = 211
	BrokerDispatchNotComplete            ResponseCode = 212
	BroadcastConsumption                 ResponseCode = 213
	FlowControl                          ResponseCode = 215
	NotLeaderForQueue                    ResponseCode = 501
	IllegalOperation                     ResponseCode = 604
	GoAway                               ResponseCode = 1500
	ControllerFencedMasterEpoch          ResponseCode = 2000
	ControllerFencedSyncStateSetEpoch    ResponseCode = 2001
	ControllerInvalidMaster              ResponseCode = 2002
	ControllerInvalidReplicas            ResponseCode = 2003
	ControllerMasterNotAvailable         ResponseCode = 2004
	ControllerInvalidRequest             ResponseCode = 2005
	ControllerBrokerNotAlive             ResponseCode = 2006
	ControllerNotLeader                  ResponseCode = 2007
	ControllerBrokerMetaDataNotExist     ResponseCode = 2008
	ControllerInvalidCleanBrokerMetaData ResponseCode = 2009
	ControllerBrokerNeedToBeRegistered   ResponseCode = 2010
	ControllerMasterStillExist           ResponseCode = 2011
	ControllerElectMasterFailed          ResponseCode = 2012
	ControllerAlterSyncStateSetFailed    ResponseCode = 2013
	ControllerBrokerIDInvalid            ResponseCode = 2014
	ControllerJRaftInternalError         ResponseCode = 2015
	ControllerBrokerLiveInfoNotExists    ResponseCode = 2016
	UserNotExist                         ResponseCode = 3001
	PolicyNotExist                       ResponseCode = 3002
)

var responseNames = map[ResponseCode]string{
	Success:                              "SUCCESS",
	SystemError:                          "SYSTEM_ERROR",
	SystemBusy:                           "SYSTEM_BUSY",
	RequestCodeNotSupported:              "REQUEST_CODE_NOT_SUPPORTED",
	TransactionFailed:                    "TRANSACTION_FAILED",
	FlushDiskTimeout:                     "FLUSH_DISK_TIMEOUT",
	SlaveNotAvailable:                    "SLAVE_NOT_AVAILABLE",
	FlushSlaveTimeout:                    "FLUSH_SLAVE_TIMEOUT",
	MessageIllegal:                       "MESSAGE_ILLEGAL",
	ServiceNotAvailable:                  "SERVICE_NOT_AVAILABLE",
	VersionNotSupported:                  "VERSION_NOT_SUPPORTED",
	NoPermission:                         "NO_PERMISSION",
	TopicNotExist:                        "TOPIC_NOT_EXIST",
	TopicExistAlready:                    "TOPIC_EXIST_ALREADY",
	PullNotFound:                         "PULL_NOT_FOUND",
	PullRetryImmediately:                 "PULL_RETRY_IMMEDIATELY",
	PullOffsetMoved:                      "PULL_OFFSET_MOVED",
	QueryNotFound:                        "QUERY_NOT_FOUND",
	SubscriptionParseFailed:              "SUBSCRIPTION_PARSE_FAILED",
	SubscriptionNotExist:                 "SUBSCRIPTION_NOT_EXIST",
	SubscriptionNotLatest:                "SUBSCRIPTION_NOT_LATEST",
	SubscriptionGroupNotExist:            "SUBSCRIPTION_GROUP_NOT_EXIST",
	FilterDataNotExist:                   "FILTER_DATA_NOT_EXIST",
	FilterDataNotLatest:                  "FILTER_DATA_NOT_LATEST",
	InvalidParameter:                     "INVALID_PARAMETER",
	TransactionShouldCommit:              "TRANSACTION_SHOULD_COMMIT",
	TransactionShouldRollback:            "TRANSACTION_SHOULD_ROLLBACK",
	TransactionStateUnknow:               "TRANSACTION_STATE_UNKNOW",
	TransactionStateGroupWrong:           "TRANSACTION_STATE_GROUP_WRONG",
	NoBuyerID:                            "NO_BUYER_ID",
	NotInCurrentUnit:                     "NOT_IN_CURRENT_UNIT",
	ConsumerNotOnline:                    "CONSUMER_NOT_ONLINE",
	ConsumeMsgTimeout:                    "CONSUME_MSG_TIMEOUT",
	NoMessage:                            "NO_MESSAGE",
	PollingFull:                          "POLLING_FULL",
	PollingTimeout:                       "POLLING_TIMEOUT",
	BrokerNotExist:                       "BROKER_NOT_EXIST",
	BrokerDispatchNotComplete:            "BROKER_DISPATCH_NOT_COMPLETE",
	BroadcastConsumption:                 "BROADCAST_CONSUMPTION",
	FlowControl:                          "FLOW_CONTROL",
	NotLeaderForQueue:                    "NOT_LEADER_FOR_QUEUE",
	IllegalOperation:                     "ILLEGAL_OPERATION",
	GoAway:                               "GO_AWAY",
	ControllerFencedMasterEpoch:          "CONTROLLER_FENCED_MASTER_EPOCH",
	ControllerFencedSyncStateSetEpoch:    "CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH",
	ControllerInvalidMaster:              "CONTROLLER_INVALID_MASTER",
	ControllerInvalidReplicas:            "CONTROLLER_INVALID_REPLICAS",
	ControllerMasterNotAvailable:         "CONTROLLER_MASTER_NOT_AVAILABLE",
	ControllerInvalidRequest:             "CONTROLLER_INVALID_REQUEST",
	ControllerBrokerNotAlive:             "CONTROLLER_BROKER_NOT_ALIVE",
	ControllerNotLeader:                  "CONTROLLER_NOT_LEADER",
	ControllerBrokerMetaDataNotExist:     "CONTROLLER_BROKER_METADATA_NOT_EXIST",
	ControllerInvalidCleanBrokerMetaData: "CONTROLLER_INVALID_CLEAN_BROKER_METADATA",
	ControllerBrokerNeedToBeRegistered:   "CONTROLLER_BROKER_NEED_TO_BE_REGISTERED",
	ControllerMasterStillExist:           "CONTROLLER_MASTER_STILL_EXIST",
	ControllerElectMasterFailed:          "CONTROLLER_ELECT_MASTER_FAILED",
	ControllerAlterSyncStateSetFailed:    "CONTROLLER_ALTER_SYNC_STATE_SET_FAILED",
	ControllerBrokerIDInvalid:            "CONTROLLER_BROKER_ID_INVALID",
	ControllerJRaftInternalError:         "CONTROLLER_JRAFT_INTERNAL_ERROR",
	ControllerBrokerLiveInfoNotExists:    "CONTROLLER_BROKER_LIVE_INFO_NOT_EXISTS",
	UserNotExist:                         "USER_NOT_EXIST",
	PolicyNotExist:                       "POLICY_NOT_EXIST",
}

// String is Java's name of the code, or its number.
func (c ResponseCode) String() string {
	if name, ok := responseNames[c]; ok {
		return name
	}
	return strconv.Itoa(int(c))
}
