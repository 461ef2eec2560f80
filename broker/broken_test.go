package broker_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/broker"
	"github.com/ratchetmq/ratchet/internal/config"
	"github.com/ratchetmq/ratchet/internal/vfs/vfstest"
	"github.com/ratchetmq/ratchet/protocol"
	"github.com/ratchetmq/ratchet/ratchettest"
	"github.com/ratchetmq/ratchet/remoting"
)

// A disk that fails once ends all sends, for good: nothing is acknowledged after it, the route says that the broker takes
// no messages, and those it has can still be read.
func TestBrokenDisk(t *testing.T) {
	disk := vfstest.New()
	names := secondNameServer(t)
	settings, _, err := config.LoadBroker("test", []byte(strings.Join([]string{
		"brokerName=broken", "bindAddress=127.0.0.1", "listenPort=0", "vipPortEnable=false", "namesrvAddr=" + names,
		"flushDiskType=SYNC_FLUSH", "mappedFileSizeCommitLog=1048576", "maxHashSlotNum=1000", "maxIndexNum=4000",
	}, "\n")), "/store", config.OSEnv())
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	running, err := broker.Start(ctx, broker.Config{Settings: settings, FS: disk, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	client, err := remoting.NewClient(remoting.ClientConfig{})
	require.NoError(t, err)
	defer client.Close()
	p := &peer{t: t, broker: &ratchettest.Broker{NameServer: names, Addr: running.Addr()}, client: client}
	p.createTopic("T", 1)
	p.send("T", 0, "before")

	disk.SetFault(vfstest.FailNth(1, func(op vfstest.Op) bool {
		return op.Kind == vfstest.OpSync && strings.Contains(op.Name, "commitlog")
	}, syscall.EIO))
	p.refused(protocol.ServiceNotAvailable, protocol.SendMessageV2, sendHeader("T", 0), []byte("lost"), "broken")
	disk.SetFault(nil)
	p.refused(protocol.ServiceNotAvailable, protocol.SendMessageV2, sendHeader("T", 0), []byte("after"), "broken")
	require.Contains(t, p.bodies("T", 0, 0), "before")
	require.Eventually(t, func() bool { return p.perm(names, "T") == protocol.PermRead }, waitLimit, waitStep)
	stop()
	select {
	case <-stopped(running):
	case <-time.After(waitLimit):
		t.Fatal("it does not stop")
	}
	require.Error(t, running.Wait(), "how it ended is no success")
}

// A start after a power cut that fails, since the disk is full, ends in order. The next one still knows of the power cut: what was lost
// may have been given out.
func TestPowerCutIsKnownAfterAStartThatFailed(t *testing.T) {
	disk := vfstest.New()
	names := secondNameServer(t)
	settings, _, err := config.LoadBroker("test", []byte(strings.Join([]string{
		"brokerName=broken", "bindAddress=127.0.0.1", "listenPort=0", "vipPortEnable=false", "namesrvAddr=" + names,
		"flushDiskType=ASYNC_FLUSH", "mappedFileSizeCommitLog=1048576", "messageIndexEnable=false",
	}, "\n")), "/store", config.OSEnv())
	require.NoError(t, err)
	memory := func() (boot string, suspect bool) {
		b, err := disk.ReadFile("/store/replication.json")
		require.NoError(t, err)
		var r struct {
			Boot    string `json:"boot"`
			Suspect bool   `json:"suspect"`
		}
		require.NoError(t, json.Unmarshal(b, &r))
		return r.Boot, r.Suspect
	}
	config := broker.Config{Settings: settings, FS: disk, Logger: slog.New(slog.DiscardHandler)}
	ctx, stop := context.WithCancel(context.Background())
	running, err := broker.Start(ctx, config)
	require.NoError(t, err)
	disk = disk.CrashClone(vfstest.KeepAll, 1)
	stop()
	<-stopped(running)
	boot, _ := memory()
	b, err := disk.ReadFile("/store/replication.json")
	require.NoError(t, err)
	disk.WriteFile("/store/replication.json", []byte(strings.Replace(string(b), boot, "another", 1)))

	config.FS = disk
	disk.SetFault(vfstest.FailNth(1, func(op vfstest.Op) bool {
		return op.Kind == vfstest.OpWrite && strings.Contains(op.Name, "replication.json")
	}, syscall.ENOSPC))
	_, err = broker.Start(context.Background(), config)
	require.ErrorIs(t, err, syscall.ENOSPC)
	disk.SetFault(vfstest.FailNth(1, func(op vfstest.Op) bool { // an open master has made good what is lost
		return op.Kind == vfstest.OpWrite && strings.Contains(op.Name, "gaps.json")
	}, syscall.ENOSPC))
	ctx, stop = context.WithCancel(context.Background())
	defer stop()
	go func() { _, _ = broker.Start(ctx, config) }()
	require.Eventually(t, func() bool {
		boot, suspect := memory()
		return boot != "another" && suspect
	}, waitLimit, waitStep)
}

func stopped(b *broker.Broker) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		_ = b.Wait()
		close(done)
	}()
	return done
}

// perm is what a topic's route allows.
func (p *peer) perm(names, topic string) int32 {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	resp, err := p.client.Call(ctx, names, protocol.GetRouteInfoByTopic, &protocol.GetRouteInfoRequest{Topic: topic}, nil, nil)
	require.NoError(p.t, err)
	var route protocol.TopicRouteData
	require.NoError(p.t, protocol.Unmarshal(resp.Body, &route))
	require.Len(p.t, route.QueueDatas, 1)
	return route.QueueDatas[0].Perm
}
