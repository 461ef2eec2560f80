package broker_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/broker"
	"github.com/ratchetmq/ratchet/internal/config"
	"github.com/ratchetmq/ratchet/protocol"
	"github.com/ratchetmq/ratchet/ratchettest"
)

// startWithFile starts a broker whose settings are in a file.
func startWithFile(t *testing.T, root string) (b *ratchettest.Broker, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "broker.conf")
	text := "# mine\nbindAddress=127.0.0.1\nlistenPort=0\nvipPortEnable=false\nmappedFileSizeCommitLog=1048576\n" +
		"maxHashSlotNum=1000\nmaxIndexNum=4000\n"
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	settings, _, err := config.LoadBroker(path, []byte(text), root, config.OSEnv())
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	running, err := broker.Start(ctx, broker.Config{Settings: settings, File: path, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() {
		stop()
		require.NoError(t, running.Wait())
	})
	return &ratchettest.Broker{Addr: running.Addr()}, path
}

// Settings that are changed at the same time all reach the file, and it says what is in force.
func TestSettingsChangedAtOnceAreAllSaved(t *testing.T) {
	b, path := startWithFile(t, t.TempDir())
	const operators, changes = 4, 20
	var all sync.WaitGroup
	for i := range operators {
		p := join(t, b)
		all.Go(func() {
			for n := range changes {
				p.must(protocol.UpdateBrokerConfig, nil, fmt.Appendf(nil, "key%d=%d\nshortPollingTimeMills=%d", i, n, 1+changes*i+n))
			}
		})
	}
	all.Wait()
	saved, err := os.ReadFile(path)
	require.NoError(t, err)
	for i := range operators {
		require.Contains(t, string(saved), fmt.Sprintf("\nkey%d=%d\n", i, changes-1))
	}
	inForce := join(t, b).must(protocol.GetBrokerConfig, nil, nil).Body
	require.Contains(t, string(inForce), regexp.MustCompile(`\nshortPollingTimeMills=\d+\n`).FindString(string(saved)))
}

// What waits for a restart can be taken back before it, and is checked with what else waits.
func TestSettingThatWaitsForARestartIsTakenBack(t *testing.T) {
	b, path := startWithFile(t, t.TempDir())
	p := join(t, b)
	require.Contains(t, p.must(protocol.UpdateBrokerConfig, nil, []byte("flushDiskType=SYNC_FLUSH")).Remark, "needs restart")
	p.must(protocol.UpdateBrokerConfig, nil, []byte("flushDiskType=ASYNC_FLUSH"))
	saved, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NotContains(t, string(saved), "flushDiskType=SYNC_FLUSH")

	p.must(protocol.UpdateBrokerConfig, nil, []byte("brokerRole=SLAVE\nbrokerId=1"))
	p.refused(protocol.InvalidParameter, protocol.UpdateBrokerConfig, nil, []byte("brokerId=0"), "brokerId")
	saved, err = os.ReadFile(path)
	require.NoError(t, err)
	_, _, err = config.LoadBroker(path, saved, t.TempDir(), config.OSEnv())
	require.NoError(t, err, "the broker can be started with what was saved")
}

// autoCreateTopicEnable counts at once, either way.
func TestAutoCreateIsSwitchedAtRunTime(t *testing.T) {
	p := newPeer(t, "autoCreateTopicEnable=false")
	p.refused(protocol.TopicNotExist, protocol.SendMessageV2, sendHeader("T", 0), nil)
	p.must(protocol.UpdateBrokerConfig, nil, []byte("autoCreateTopicEnable=true"))
	p.send("T", 0, "a")
	require.Equal(t, protocol.PermRead|protocol.PermWrite|protocol.PermInherit, p.perm(p.broker.NameServer, protocol.TopicDefault))
	p.must(protocol.UpdateBrokerConfig, nil, []byte("autoCreateTopicEnable=false"))
	p.refused(protocol.TopicNotExist, protocol.SendMessageV2, sendHeader("U", 0), nil)
	p.must(protocol.UpdateBrokerConfig, nil, []byte("autoCreateTopicEnable=true"))
	p.send("U", 0, "a")
}

// A value with which the broker could not start again is refused, not saved.
func TestDelayLevelsThatMakeNoSenseAreRefused(t *testing.T) {
	b, path := startWithFile(t, t.TempDir())
	p := join(t, b)
	p.refused(protocol.InvalidParameter, protocol.UpdateBrokerConfig, nil, []byte("messageDelayLevel=1s 5x\nbrokerPermission=4"), "messageDelayLevel", "5x")
	saved, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NotContains(t, string(saved), "messageDelayLevel")
	require.NotContains(t, string(saved), "brokerPermission")
	p.must(protocol.UpdateBrokerConfig, nil, []byte("messageDelayLevel=1s 5m"))
}

// A group that a Java broker was told to keep from a topic is kept from it here, too.
func TestForbiddenGroupDoesNotRead(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(root, "config"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(root, "config", "subscriptionGroup.json"), []byte(
		`{"dataVersion":{"counter":1},"forbiddenTable":{"G":{"T":4}},"subscriptionGroupTable":{"G":{"groupName":"G"}}}`), 0o600))
	b, _ := startWithFile(t, root)
	p := join(t, b)
	p.createTopic("T", 1)
	p.createTopic("U", 1)
	p.beat("c", "G", subscription{"T", "*", nil, 1}, subscription{"U", "*", nil, 1})
	pull := func(topic string) *protocol.PullMessageRequest {
		h := pullHeader("G", topic, 0, 0)
		h.SysFlag &^= 4 // by the subscription of its heartbeat
		return h
	}
	p.refused(protocol.NoPermission, protocol.PullMessage, pull("T"), nil, "G", "T")
	require.Equal(t, protocol.PullNotFound, p.pull(pull("U")).code)
}
