//go:build conformance

package conformance

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/protocol"
	"github.com/ratchetmq/ratchet/remoting"
)

// TestJavaNameServers has our broker register at a Java name server, where stock clients look for it, and watches the
// route come, grow and go.
func TestJavaNameServers(t *testing.T) {
	for _, version := range []string{"4.9.7", "5.4.0"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			folders <- struct{}{}
			defer func() { <-folders }()
			testJavaNameServer(t, version)
		})
	}
}

func testJavaNameServer(t *testing.T, version string) {
	dir := filepath.Join(workDir, strings.ReplaceAll(t.Name(), "/", "-"))
	require.NoError(t, os.MkdirAll(dir, 0o755))
	n := startNamesrv(t, dir, version)
	client, err := remoting.NewClient(remoting.ClientConfig{})
	require.NoError(t, err)
	t.Cleanup(client.Close)
	// brokers are the addresses that the name server names for a topic, none without a route.
	brokers := func(topic string) (all []string) {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		answer, err := client.Call(ctx, n.address, protocol.GetRouteInfoByTopic,
			&protocol.GetRouteInfoRequest{Topic: topic}, nil, nil)
		if err != nil || protocol.ResponseCode(answer.Code) != protocol.Success {
			return nil
		}
		var route protocol.TopicRouteData
		require.NoError(t, protocol.Unmarshal(answer.Body, &route))
		for _, b := range route.BrokerDatas {
			all = append(all, b.BrokerAddrs[0])
		}
		return all
	}
	f := newFolder(t, dir, version, n)
	routed := func(topic, what string) {
		t.Helper()
		require.Eventually(t, func() bool { return len(brokers(topic)) > 0 }, ownerStart, 20*time.Millisecond, what)
		require.Equal(t, []string{f.address}, brokers(topic))
	}
	gone := func(topic, what string) {
		t.Helper()
		require.Eventually(t, func() bool { return len(brokers(topic)) == 0 }, 20*time.Second, 20*time.Millisecond, what)
	}

	f.give(t, ratchet)
	routed(protocol.TopicDefault, "the broker registers")
	f.createTopic(t, "Made", 3, true)
	routed("Made", "a new topic is registered")
	f.call(t, protocol.DeleteTopicInBroker, &protocol.DeleteTopicRequest{Topic: "Made"}, nil)

	// The clients know nothing but the name server.
	for _, c := range clients {
		if c.name == "java540" && version == "4.9.7" || c.name == "java497" && version == "5.4.0" {
			continue // the pairs of different age are in TestScenarios
		}
		names := []string{"send.sync", "topic.create", "topic.auto-create", "consume.retry"}
		if c.name == "go" {
			names[1] = "admin.topic"
		}
		p := c.run(n, 4*time.Minute, "run", append([]string{"4", scenarioLimit}, names...)...)
		for _, name := range names {
			if r := p.result(name); !r.pass {
				t.Errorf("%s of %s: %s", name, c.name, r.reason)
			}
		}
		p.stop()
	}

	// No topic changes, yet clients must see it.
	permission := func(perm string) {
		t.Helper()
		f.call(t, protocol.UpdateBrokerConfig, nil, []byte("brokerPermission="+perm))
	}
	permission("4")
	require.Eventually(t, func() bool { return perms(t, client, n.address, protocol.TopicSelfTest) == protocol.PermRead },
		ownerStart, 20*time.Millisecond, "the broker is to be drained")
	permission("6")

	// One that starts without knowing anything learns of the broker by its next sign of life.
	require.NoError(t, n.server.End(syscall.SIGKILL))
	require.NoError(t, n.server.Start())
	routed(protocol.TopicDefault, "the broker registers again")

	f.take(t, syscall.SIGTERM)
	gone(protocol.TopicDefault, "the broker takes its leave")
	require.NotContains(t, namesrvLog(t, dir, n), "channel destroyed", "the name server was told before the connection ended")
	f.give(t, ratchet)
	routed(protocol.TopicDefault, "the broker is back")
	f.take(t, syscall.SIGKILL)
	gone(protocol.TopicDefault, "the name server sees the connection break")
	require.Eventually(t, func() bool { return strings.Contains(namesrvLog(t, dir, n), "channel destroyed") }, ownerStart,
		50*time.Millisecond)
}

// perms is the permission that the name server names for the topic, 0 without a route.
func perms(t *testing.T, client *remoting.Client, addr, topic string) int32 {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	answer, err := client.Call(ctx, addr, protocol.GetRouteInfoByTopic, &protocol.GetRouteInfoRequest{Topic: topic}, nil, nil)
	if err != nil || protocol.ResponseCode(answer.Code) != protocol.Success {
		return 0
	}
	var route protocol.TopicRouteData
	require.NoError(t, protocol.Unmarshal(answer.Body, &route))
	return route.QueueDatas[0].Perm
}

// namesrvLog is what the Java name server has logged: 4.9 to its output, 5.x to files below its home.
func namesrvLog(t *testing.T, dir string, n namesrvOnly) string {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(dir, "logs", "rocketmqlogs", "*.log"))
	require.NoError(t, err)
	var all strings.Builder
	for _, log := range append(logs, n.server.Log) {
		text, err := os.ReadFile(log)
		require.NoError(t, err)
		all.Write(text)
	}
	return all.String()
}
