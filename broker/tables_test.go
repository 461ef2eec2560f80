package broker_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/protocol"
	"github.com/ratchetmq/ratchet/remoting"
)

// table asks for a whole table as a replica of ours does, which has the state with that mark.
func (p *peer) table(code protocol.RequestCode, h protocol.Header, has string) (*remoting.Response, string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	extra := []protocol.KV{{Key: protocol.FieldUnless, Value: has}}
	resp, err := p.client.Call(ctx, p.broker.Addr, code, h, extra, nil)
	require.NoError(p.t, err)
	require.Equal(p.t, protocol.Success, protocol.ResponseCode(resp.Code), resp.Remark)
	mark, ok := resp.Fields.Get(protocol.FieldMark)
	require.True(p.t, ok)
	return resp, mark
}

// A replica that has a table is told so, and given it when it has changed.
func TestTablesAreGivenWhenTheyHaveChanged(t *testing.T) {
	p := newPeer(t)
	p.createTopic("T", 4)
	group := protocol.NewSubscriptionGroupConfig("G")
	body, err := protocol.Marshal(group)
	require.NoError(t, err)
	p.must(protocol.UpdateAndCreateSubscriptionGroup, nil, body)
	p.sendMany("T", 0, 3)
	commit := func(to int64) {
		t.Helper()
		p.must(protocol.UpdateConsumerOffset, &protocol.UpdateConsumerOffsetRequest{
			ConsumerGroup: "G", Topic: "T", QueueID: 0, CommitOffset: to,
		}, nil)
	}
	commit(1)
	for _, c := range []struct {
		code   protocol.RequestCode
		change func()
	}{
		{protocol.GetAllTopicConfig, func() { p.createTopic("U", 4) }},
		{protocol.GetAllConsumerOffset, func() { commit(2) }},
		{protocol.GetAllSubscriptionGroupConfig, func() {
			p.must(protocol.DeleteSubscriptionGroup, &protocol.DeleteSubscriptionGroupRequest{GroupName: "G"}, nil)
		}},
	} {
		code := c.code
		resp, mark := p.table(code, nil, "")
		require.NotEmpty(t, resp.Body)
		resp, again := p.table(code, nil, mark)
		require.Equal(t, mark, again)
		require.Empty(t, resp.Body, "%s", code)
		said, _ := resp.Fields.Get(protocol.FieldUnchanged)
		require.Equal(t, "true", said)
		c.change()
		resp, after := p.table(code, nil, mark)
		require.NotEqual(t, mark, after, "%s", code)
		require.NotEmpty(t, resp.Body)
	}
}

// A slave of 5.4 asks for pages, and begins anew when the table changes on the way.
func TestTopicsInPages(t *testing.T) {
	p := newPeer(t)
	for i := range 5 {
		p.createTopic(fmt.Sprintf("Page%d", i), 1)
	}
	ask := func(seq protocol.Opt[int32], limit int32, version string) (protocol.TopicConfigSerializeWrapper, int) {
		t.Helper()
		resp := p.must(protocol.GetAllTopicConfig, &protocol.GetAllTopicConfigRequest{TopicSeq: seq, MaxTopicNum: limit, DataVersion: version}, nil)
		var h protocol.GetAllTopicConfigResponse
		require.NoError(t, resp.ReadHeader(&h))
		var w protocol.TopicConfigSerializeWrapper
		require.NoError(t, protocol.Unmarshal(resp.Body, &w))
		return w, int(h.TotalTopicNum.Value)
	}
	all, total := ask(protocol.Opt[int32]{}, 0, "")
	require.Len(t, all.TopicConfigTable, total)
	read := map[string]protocol.TopicConfig{}
	version := ""
	pages := 0
	for len(read) < total {
		part, n := ask(protocol.Some(int32(len(read))), 4, version)
		require.Equal(t, total, n)
		require.LessOrEqual(t, len(part.TopicConfigTable), 4)
		for name, c := range part.TopicConfigTable {
			require.NotContains(t, read, name)
			read[name] = c
		}
		text, err := protocol.Marshal(part.DataVersion)
		require.NoError(t, err)
		version = string(text)
		pages++
	}
	require.Equal(t, all.TopicConfigTable, read)
	require.Equal(t, (total+3)/4, pages)
	beyond, _ := ask(protocol.Some(int32(1000)), 4, version)
	require.Empty(t, beyond.TopicConfigTable)

	p.createTopic("Aaa", 1)
	first, _ := ask(protocol.Some(int32(4)), 1, version)
	require.Contains(t, first.TopicConfigTable, "Aaa", "the table is another: the first page comes")
	groups := p.must(protocol.GetAllSubscriptionGroupConfig, &protocol.GetAllSubscriptionGroupConfigRequest{
		GroupSeq: protocol.Some(int32(0)), MaxGroupNum: 3,
	}, nil)
	var w protocol.SubscriptionGroupWrapper
	require.NoError(t, protocol.Unmarshal(groups.Body, &w))
	require.Len(t, w.SubscriptionGroupTable, 3)
	var h protocol.GetAllSubscriptionGroupConfigResponse
	require.NoError(t, groups.ReadHeader(&h))
	require.Greater(t, h.TotalGroupNum.Value, int32(3))
}

func TestAllConsumerAndDelayOffsets(t *testing.T) {
	p := newPeer(t, "messageDelayLevel=1s 1h")
	p.createTopic("T", 1)
	p.must(protocol.UpdateAndCreateSubscriptionGroup, nil, []byte(`{"groupName":"G"}`))
	p.sendMany("T", 0, 5)
	p.must(protocol.UpdateConsumerOffset, &protocol.UpdateConsumerOffsetRequest{ConsumerGroup: "G", Topic: "T", CommitOffset: 4}, nil)
	offsets := func() (table protocol.ConsumerOffsetTable) {
		t.Helper()
		require.NoError(t, protocol.Unmarshal(p.must(protocol.GetAllConsumerOffset, nil, nil).Body, &table))
		return table
	}
	table := offsets()
	require.Equal(t, map[string]map[int32]int64{"T@G": {0: 4}}, table.OffsetTable)
	require.NotNil(t, table.DataVersion)
	require.Empty(t, table.Ratchet.Resets, "but it says that it knows of resets")
	p.must(protocol.InvokeBrokerToResetOffset, &protocol.ResetOffsetRequest{
		Group: "G", Topic: "T", Timestamp: 0, IsForce: true, QueueID: protocol.Some(int32(0)), Offset: protocol.Some(int64(2)),
	}, nil)
	table = offsets()
	require.Equal(t, map[string]map[int32]int64{"T@G": {0: 2}}, table.OffsetTable)
	require.Len(t, table.Ratchet.Resets, 1)
	reset := table.Ratchet.Resets[0]
	require.InDelta(t, time.Now().UnixMilli(), reset.Epoch, 60_000)
	require.Equal(t, protocol.OffsetReset{Epoch: reset.Epoch, Key: "T@G", Pending: true, Queue: 0}, reset)

	p.send("T", 0, "late", "DELAY", "1")
	require.Eventually(t, func() bool {
		var delays protocol.DelayOffsetTable
		require.NoError(t, protocol.Unmarshal(p.must(protocol.GetAllDelayOffset, nil, nil).Body, &delays))
		return delays.OffsetTable[1] == 1
	}, waitLimit, waitStep)
}

func TestRuntimeInfo(t *testing.T) {
	p := newPeer(t, "messageDelayLevel=1h")
	figures := func() map[string]string {
		t.Helper()
		var kv protocol.KVTable
		require.NoError(t, protocol.Unmarshal(p.must(protocol.GetBrokerRuntimeInfo, nil, nil).Body, &kv))
		return kv.Table
	}
	require.Equal(t, "-1", figures()["earliestMessageTimeStamp"])
	p.sendMany("T", 0, 7)
	p.send("T", 0, "late", "DELAY", "1")
	require.Len(t, p.bodies("T", 0, 0), 7)
	p.refused(protocol.MessageIllegal, protocol.SendMessage, sendHeader("T", 0), make([]byte, 5<<20))
	require.Eventually(t, func() bool { return figures()["scheduleMessageOffset_1"] == "0,1" }, waitLimit, waitStep)
	table := figures()
	require.Equal(t, "8", table["msgPutTotalTodayNow"])
	require.Equal(t, "7", table["msgGetTotalTodayNow"])
	require.Equal(t, "1", table["putMessageFailedTimes"])
	require.Equal(t, table["commitLogMaxOffset"], table["putMessageSizeTotal"])
	require.Equal(t, "0", table["commitLogMinOffset"])
	require.Equal(t, "true", table["brokerActive"])
	require.Equal(t, "0", table["dispatchBehindBytes"])
	require.Regexp(t, `^\d+(\.\d [KM]i| )B$`, table["remainHowManyDataToFlush"])
	require.Regexp(t, `^Total : \d+\.\d [GTP]iB, Free : \d+\.\d [MGTP]iB\.$`, table["commitLogDirCapacity"])
	require.Regexp(t, `^0\.\d{4}$`, table["commitLogDiskRatio"])
	require.Equal(t, "0", table["sendThreadPoolQueueSize"])
	require.Equal(t, "0", table["sendThreadPoolQueueHeadWaitTimeMills"])
	require.Equal(t, "10000", table["sendThreadPoolQueueCapacity"])
	require.Equal(t, "100000", table["pullThreadPoolQueueCapacity"])
	require.NotEqual(t, "-1", table["earliestMessageTimeStamp"])
}

// Tools of 4.9 ask for a group's offsets to go by another name than those of 5.x.
func TestADeletedGroupTakesItsOffsetsAlong(t *testing.T) {
	p := newPeer(t)
	p.createTopic("T", 1)
	for _, field := range []string{"cleanOffset", "removeOffset"} {
		p.must(protocol.UpdateAndCreateSubscriptionGroup, nil, []byte(`{"groupName":"G"}`))
		p.must(protocol.UpdateConsumerOffset, &protocol.UpdateConsumerOffsetRequest{ConsumerGroup: "G", Topic: "T"}, nil)
		_, known := p.query("G", "T", 0)
		require.True(t, known)
		extra := []protocol.KV{{Key: "groupName", Value: "G"}, {Key: field, Value: "true"}}
		resp, err := p.client.Call(t.Context(), p.broker.Addr, protocol.DeleteSubscriptionGroup, nil, extra, nil)
		require.NoError(t, err)
		require.Equal(t, protocol.Success, protocol.ResponseCode(resp.Code), resp.Remark)
		var table protocol.ConsumerOffsetTable
		require.NoError(t, protocol.Unmarshal(p.must(protocol.GetAllConsumerOffset, nil, nil).Body, &table))
		require.Empty(t, table.OffsetTable, field)
	}
}

// What an operator does on the master counts on its slave: a deleted topic is gone with its messages and offsets, a reset
// moves the group back.
func TestWhatIsDoneOnTheMasterCountsOnTheSlave(t *testing.T) {
	master, slave := pair(t, "SYNC_MASTER")
	for _, topic := range []string{"Kept", "Gone"} {
		master.createTopic(topic, 1)
		master.sendMany(topic, 0, 10)
		master.must(protocol.UpdateAndCreateSubscriptionGroup, nil, []byte(`{"groupName":"G"}`))
		master.must(protocol.UpdateConsumerOffset, commitHeader("G", topic, 0, 7), nil)
	}
	at := func(topic string) (at int64) {
		var table protocol.ConsumerOffsetTable
		require.NoError(t, protocol.Unmarshal(slave.must(protocol.GetAllConsumerOffset, nil, nil).Body, &table))
		at, ok := table.OffsetTable[topic+"@G"][0]
		if !ok {
			return -1
		}
		return at
	}
	require.Eventually(t, func() bool { return at("Kept") == 7 && at("Gone") == 7 }, waitLimit, waitStep)
	require.Equal(t, int64(10), slave.maxOffset("Gone", 0))

	master.must(protocol.DeleteTopicInBroker, &protocol.DeleteTopicRequest{Topic: "Gone"}, nil)
	master.must(protocol.InvokeBrokerToResetOffset, &protocol.ResetOffsetRequest{
		Group: "G", Topic: "Kept", IsForce: true, QueueID: protocol.Some(int32(0)), Offset: protocol.Some(int64(2)),
	}, nil)
	require.Eventually(t, func() bool { return at("Kept") == 2 && at("Gone") == -1 }, waitLimit, waitStep)
	require.Zero(t, slave.maxOffset("Gone", 0))
	require.Equal(t, int64(10), slave.maxOffset("Kept", 0))
	level(t, master, slave)
}

// Attributes of topics and groups stay until a request changes or removes them.
func TestAttributesAreChangedOneByOne(t *testing.T) {
	p := newPeer(t)
	update := func(attributes string) map[string]string {
		p.must(protocol.UpdateAndCreateTopic, &protocol.CreateTopicRequest{
			Topic: "T", DefaultTopic: protocol.TopicDefault, ReadQueueNums: 1, WriteQueueNums: 1, Perm: 6,
			TopicFilterType: "SINGLE_TAG", Attributes: attributes,
		}, nil)
		var topic protocol.TopicConfig
		resp := p.must(protocol.GetTopicConfig, &protocol.GetTopicConfigRequest{Topic: "T"}, nil)
		require.NoError(t, protocol.Unmarshal(resp.Body, &topic))
		return topic.Attributes
	}
	require.Equal(t, map[string]string{"message.type": "FIFO", "a": "1"}, update("+message.type=FIFO,+a=1"))
	require.Equal(t, map[string]string{"message.type": "FIFO", "a": "1"}, update(""), "as mqadmin's updateTopicPerm asks")
	require.Equal(t, map[string]string{"message.type": "FIFO", "b": "2"}, update("-a,+b=2"))

	group := func(body string) map[string]string {
		p.must(protocol.UpdateAndCreateSubscriptionGroup, nil, []byte(body))
		var config protocol.SubscriptionGroupConfig
		resp := p.must(protocol.GetSubscriptionGroupConfig, &protocol.GetSubscriptionGroupConfigRequest{Group: "G"}, nil)
		require.NoError(t, protocol.Unmarshal(resp.Body, &config))
		return config.Attributes
	}
	require.Equal(t, map[string]string{"a": "1"}, group(`{"groupName":"G","attributes":{"+a":"1"}}`))
	require.Equal(t, map[string]string{"a": "1"}, group(`{"groupName":"G","retryMaxTimes":3}`))
	require.Equal(t, map[string]string{"b": "2"}, group(`{"groupName":"G","attributes":{"-a":"","+b":"2"}}`))
}
