package broker_test

import (
	"context"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/namesrv"
	"github.com/ratchetmq/ratchet/protocol"
	"github.com/ratchetmq/ratchet/ratchettest"
)

// secondNameServer runs a name server beside the test broker's own.
func secondNameServer(t *testing.T) (addr string) {
	t.Helper()
	server, err := namesrv.New(namesrv.Config{
		Addrs: []string{"127.0.0.1:0"}, StartGrace: -1, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = server.Run(ctx) })
	t.Cleanup(func() {
		stop()
		running.Wait()
	})
	<-server.Ready()
	return server.Addr().String()
}

// routed says whether a name server knows the way to a topic.
func (p *peer) routed(addr, topic string) bool {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	resp, err := p.client.Call(ctx, addr, protocol.GetRouteInfoByTopic, &protocol.GetRouteInfoRequest{Topic: topic}, nil, nil)
	require.NoError(p.t, err)
	return resp.Code == int32(protocol.Success)
}

// The list of name servers can change while the broker runs: it registers at the new ones and leaves the others.
func TestScenario4_10(t *testing.T) {
	p := newPeer(t)
	p.createTopic("T", 1)
	soon := func(addr, topic string) {
		t.Helper()
		require.Eventually(t, func() bool { return p.routed(addr, topic) }, waitLimit, waitStep)
	}
	soon(p.broker.NameServer, "T")
	second := secondNameServer(t)
	require.False(t, p.routed(second, "T"))
	p.must(protocol.UpdateBrokerConfig, nil, []byte("namesrvAddr="+second))
	require.Eventually(t, func() bool { return p.routed(second, "T") && !p.routed(p.broker.NameServer, "T") }, waitLimit, waitStep)
	p.createTopic("Later", 1)
	soon(second, "Later")
}

// A topic that is deleted soon after it was made is routed no more.
func TestScenario4_08(t *testing.T) {
	p := newPeer(t)
	p.createTopic("T", 1)
	require.Eventually(t, func() bool { return p.routed(p.broker.NameServer, "T") }, waitLimit, waitStep)
	p.must(protocol.DeleteTopicInBroker, &protocol.DeleteTopicRequest{Topic: "T"}, nil)
	require.False(t, p.routed(p.broker.NameServer, "T"))
}

// Name servers that take connections and never answer keep nobody from registering at the others.
func TestScenario4_11(t *testing.T) {
	var silent strings.Builder
	for range 10 { // one after the other they would keep the broker for 30 s
		hole, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer hole.Close()
		silent.WriteString(hole.Addr().String() + ";")
	}
	second := secondNameServer(t)
	p := join(t, ratchettest.Start(t, "namesrvAddr="+silent.String()+second))
	const soon = 25 * time.Second
	routed := func(topic string) func() bool { return func() bool { return p.routed(second, topic) } }
	require.Eventually(t, routed("TBW102"), soon, waitStep, "registered although those before it on the list are silent")
	start := time.Now()
	p.createTopic("T", 1)
	require.Less(t, time.Since(start), soon, "a change does not wait for the silent ones for long")
	require.Eventually(t, routed("T"), soon, waitStep)
}

// Old clients use a second port, two below the first.
func TestVIPPort(t *testing.T) {
	p := newPeer(t, "listenPort=0", "vipPortEnable=true")
	host, port, err := net.SplitHostPort(p.broker.Addr)
	require.NoError(t, err)
	first, err := strconv.Atoi(port)
	require.NoError(t, err)
	p.createTopic("T", 1)
	frame := protocol.AppendRequest(nil, protocol.JSON, protocol.SendMessageV2, 1, false, sendHeader("T", 0), nil, []byte("x"))
	answer := exchange(t, net.JoinHostPort(host, strconv.Itoa(first-2)), frame)
	require.Equal(t, int32(protocol.Success), answer.Code, answer.Remark)
}

// Topic and group names of the longest kind, and one more.
func TestScenario6_17(t *testing.T) {
	p := newPeer(t)
	name := func(n int) string { return strings.Repeat("n", n) }
	p.arrived(name(127), 0, p.send(name(127), 0, "x").QueueOffset)
	require.Equal(t, []string{"x"}, p.bodies(name(127), 0, 0))
	p.refused(protocol.InvalidParameter, protocol.SendMessageV2, sendHeader(name(128), 0), []byte("x"), "127")
	group := name(120)
	p.beat("c", group, subscription{name(127), "*", nil, 1})
	sent := p.send(protocol.RetryTopic(group), 0, "retried")
	p.arrived(protocol.RetryTopic(group), 0, sent.QueueOffset)
	require.Equal(t, []string{"retried"}, p.bodies(protocol.RetryTopic(group), 0, sent.QueueOffset))
}
