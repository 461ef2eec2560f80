//go:build conformance && linux

package crash

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/ratchetmq/ratchet/conformance/oracle"
	"github.com/ratchetmq/ratchet/internal/freeport"
	"github.com/ratchetmq/ratchet/protocol"
)

// A storyBroker is one broker of the story, a process that comes back at the same address.
type storyBroker struct {
	t       *testing.T
	kind    storyKind
	name    string // of its group
	id      int
	home    string // configuration and logs: what the power cut doesn't touch
	store   string
	disk    *disk // where the store is; nil: an ordinary folder
	port    int
	server  *oracle.Server
	wire    *wire
	address string
}

// startNameServer starts the name server of the kind, in dir, and returns its address.
func startNameServer(t *testing.T, kind storyKind, dir string) string {
	t.Helper()
	port, err := freeport.Get()
	require.NoError(t, err)
	conf, log := filepath.Join(dir, "namesrv.conf"), filepath.Join(dir, "namesrv.log")
	require.NoError(t, oracle.WriteConf(conf,
		"listenPort", port,
		"rocketmqHome", dir,
		"kvConfigPath", filepath.Join(dir, "kvConfig.json"),
		"configStorePath", filepath.Join(dir, "namesrv.properties"),
	))
	require.NoError(t, oracle.WriteLogging(dir, "WARN"))
	var server *oracle.Server
	if kind == ratchetKind {
		binary, err := buildOnce()
		require.NoError(t, err)
		server = oracle.NewServer([]string{binary, "namesrv", "-c", conf}, log, "is ready", port)
	} else {
		server, err = oracle.Namesrv(kind.version(), dir, conf, log, port)
		require.NoError(t, err)
	}
	require.NoError(t, server.Start())
	t.Cleanup(func() { _ = server.End(syscall.SIGKILL) })
	return fmt.Sprintf("127.0.0.1:%d", port)
}

// newStoryBroker prepares a broker; id 0 is the master. One with a disk keeps its store there.
func newStoryBroker(t *testing.T, kind storyKind, namesrv, name string, id int, home string, d *disk) *storyBroker {
	t.Helper()
	port, err := freeport.Get()
	require.NoError(t, err)
	b := &storyBroker{
		t: t, kind: kind, name: name, id: id, home: home, store: filepath.Join(home, "store"), disk: d,
		port: port, address: fmt.Sprintf("127.0.0.1:%d", port),
	}
	if d != nil {
		b.store = filepath.Join(d.dir, "store")
	}
	role := "SYNC_MASTER"
	if id > 0 {
		role = "SLAVE"
	}
	conf, log := filepath.Join(home, "broker.conf"), filepath.Join(home, "broker.log")
	require.NoError(t, oracle.WriteLogging(home, "WARN"))
	settings := []any{
		"brokerClusterName", "story",
		"brokerName", name,
		"brokerId", id,
		"brokerRole", role,
		"flushDiskType", "ASYNC_FLUSH",
		"brokerIP1", "127.0.0.1",
		"brokerIP2", "127.0.0.1",
		"namesrvAddr", namesrv,
		"registerNameServerPeriod", 10_000,
		"listenPort", port,
		"haListenPort", port + 1,
		"autoCreateTopicEnable", true,
		"autoCreateSubscriptionGroup", true,
		"storePathRootDir", b.store,
		"storePathCommitLog", filepath.Join(b.store, "commitlog"),
		"mappedFileSizeCommitLog", 64 << 20,
		"mappedFileSizeConsumeQueue", 20 * 20_000,
		"maxHashSlotNum", 10_000,
		"maxIndexNum", 200_000,
		"slaveReadEnable", true,
		"diskMaxUsedSpaceRatio", 95,
		// The kernel writes what is 30 s old. Nobody asks it to do so before: how much a power cut takes should not
		// depend on luck.
		"flushIntervalCommitLog", 60_000,
		"flushCommitLogThoroughInterval", 600_000,
	}
	if kind == ratchetKind {
		settings = append(settings,
			"pageCacheTrusted", false, // the power goes without the machine starting anew, which it could tell
			"recoverFromReplicaTimeoutMs", int(storyPatience/time.Millisecond),
			// What is kept free for what may have been lost takes place on a small disk.
			"maxUnflushedBytes", 64<<20,
			"maxUnflushedMessages", 100_000,
			"slaveTimeout", 2000, // less than the few seconds after which a checkpoint flushes the log
		)
	} else {
		settings = append(settings,
			"flushIntervalCommitLog", 600_000, // the last of several counts
			"flushCommitLogTimed", true,
			"flushIntervalConsumeQueue", 600_000,
			"flushConsumeQueueThoroughInterval", 600_000,
			"timerWheelEnable", false,
			// A machine that runs several JVMs stalls now and then: no reason to refuse a message.
			"waitTimeMillsInSendQueue", 30_000,
			"osPageCacheBusyTimeOutMills", 30_000,
		)
	}
	if kind == "java-3.2.6" {
		settings = append(settings, // its names for the sizes
			"mapedFileSizeCommitLog", 64<<20,
			"mapedFileSizeConsumeQueue", 20*20_000,
		)
	}
	if kind == "java-5.4.0" {
		settings = append(settings, "inSyncReplicas", 2) // with its default, 1, SYNC_MASTER waits for nobody
	}
	require.NoError(t, oracle.WriteConf(conf, settings...))
	if kind == ratchetKind {
		binary, err := buildOnce()
		require.NoError(t, err)
		b.server = oracle.NewServer([]string{binary, "broker", "-c", conf, "-n", namesrv}, log, "is ready", port)
	} else {
		b.server, err = oracle.Broker(kind.version(), home, conf, log, port)
		require.NoError(t, err)
	}
	t.Cleanup(func() {
		b.kill()
		if t.Failed() {
			t.Logf("%s %s/%d: end of its log:\n%s", kind, name, id, oracle.Tail(log))
		}
	})
	return b
}

func (b *storyBroker) start() {
	b.t.Helper()
	require.NoError(b.t, b.server.Start(), "%s %s/%d", b.kind, b.name, b.id)
}

// kill ends the broker with SIGKILL.
func (b *storyBroker) kill() {
	_ = b.server.End(syscall.SIGKILL) // an error would say that it did not end within a minute of SIGKILL
	if b.wire != nil {
		b.wire.Close()
		b.wire = nil
	}
}

// stop ends the broker: ours in order, so that its store can be checked. A Java broker is killed, as one whose log has come
// to harm waits for its end for long; what it has written is with the kernel.
func (b *storyBroker) stop() {
	b.t.Helper()
	if b.kind != ratchetKind {
		b.kill()
		return
	}
	require.NoError(b.t, b.server.End(syscall.SIGTERM))
	require.True(b.t, b.server.State().Success(), "%s %s/%d: %v", b.kind, b.name, b.id, b.server.State())
}

// checkpoint has all that is written on the broker's disk by now, if it has one of its own.
func (b *storyBroker) checkpoint() {
	b.t.Helper()
	if b.disk == nil {
		return
	}
	dir, err := os.Open(b.disk.dir)
	require.NoError(b.t, err)
	defer dir.Close()
	require.NoError(b.t, unix.Syncfs(int(dir.Fd())))
}

// cutPower kills the broker, has its disk lose what was not flushed, and gives the power back.
func (b *storyBroker) cutPower() {
	b.t.Helper()
	b.kill()
	b.disk.cut()
	b.disk.powerBack()
}

// powerBack is remount by way of a new loop device: a process with a mount namespace of its own, somebody else's, may
// still hold the dead file system, and then the old device would only give that again.
func (d *disk) powerBack() {
	d.t.Helper()
	require.Eventually(d.t, func() bool { return exec.Command("umount", d.dir).Run() == nil }, time.Minute, 20*time.Millisecond,
		"%s is still in use", d.dir)
	run(d.t, "losetup", "--detach", d.device) // as soon as nobody has it
	d.device = run(d.t, "losetup", "--find", "--show", filepath.Join(filepath.Dir(d.dir), "image"))
	d.mount()
}

// checkpointed is when a broker of ours last flushed its log for a checkpoint, which it does every 10 s if something is
// new, whatever is configured.
func (b *storyBroker) checkpointed() time.Time {
	info, err := os.Stat(filepath.Join(b.store, "checkpoint"))
	if err != nil {
		return time.Time{} // it is being replaced, or the first is still to come
	}
	return info.ModTime()
}

// call asks the broker.
func (b *storyBroker) call(code protocol.RequestCode, h protocol.Header) (protocol.Command, error) {
	return callOnce(b.address, &b.wire, code, h)
}

// callOnce asks over the connection, and makes a new one the next time if that fails.
func callOnce(address string, w **wire, code protocol.RequestCode, h protocol.Header) (answer protocol.Command, err error) {
	if *w == nil {
		if *w, err = dial(address); err != nil {
			return answer, err
		}
	}
	answer, err = (*w).callPlain(code, h)
	if err != nil {
		(*w).Close()
		*w = nil
	}
	return answer, err
}

// callPlain is call with a request whose sender's language RocketMQ 3.2.6 knows: it throws on "GO".
func (w *wire) callPlain(code protocol.RequestCode, h protocol.Header) (protocol.Command, error) {
	w.opaque++
	frame := protocol.AppendRequest(nil, protocol.JSON, code, w.opaque, false, h, nil, nil)
	frame = bytes.Replace(frame, []byte(`"language":"GO"`), []byte(`"language":"OTHER"`), 1)
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
	binary.BigEndian.PutUint32(frame[4:], uint32(len(frame)-8)) // no body; codec 0 is JSON
	if _, err := w.Write(frame); err != nil {
		return protocol.Command{}, err
	}
	for {
		answer, err := w.next()
		if err != nil || answer.IsResponse() && answer.Opaque == w.opaque {
			return answer, err
		}
	}
}

// createTopic makes the story's topic with four queues.
func (b *storyBroker) createTopic() {
	b.t.Helper()
	require.Eventually(b.t, func() bool {
		answer, err := b.call(protocol.UpdateAndCreateTopic, &protocol.CreateTopicRequest{
			Topic: storyTopic, DefaultTopic: protocol.TopicDefault, ReadQueueNums: storyQueues, WriteQueueNums: storyQueues,
			Perm: 6, TopicFilterType: protocol.SingleTag,
		})
		return err == nil && protocol.ResponseCode(answer.Code) == protocol.Success
	}, 30*time.Second, 200*time.Millisecond, "%s/%d makes the topic", b.name, b.id)
}

// awaitTopic waits until the broker, a slave, has learned of the topic. A 5.x slave asks for the first time after a minute.
func (b *storyBroker) awaitTopic() {
	b.t.Helper()
	require.Eventually(b.t, b.hasTopic, 100*time.Second, 200*time.Millisecond, "the slave %s/%d knows the topic", b.name, b.id)
}

// committed says that the group has committed all that is in the broker's queues.
func (b *storyBroker) committed(group string) bool {
	for queue := range int32(storyQueues) {
		var most protocol.GetMaxOffsetResponse
		answer, err := b.call(protocol.GetMaxOffset, &protocol.GetMaxOffsetRequest{Topic: storyTopic, QueueID: queue})
		if err != nil || answer.ReadHeader(&most) != nil {
			return false
		}
		var at protocol.QueryConsumerOffsetResponse
		answer, err = b.call(protocol.QueryConsumerOffset, &protocol.QueryConsumerOffsetRequest{
			ConsumerGroup: group, Topic: storyTopic, QueueID: queue,
		})
		if err != nil || protocol.ResponseCode(answer.Code) != protocol.Success || answer.ReadHeader(&at) != nil ||
			at.Offset != most.Offset {
			return false
		}
	}
	return true
}

// routed waits until the name server names the broker under its id.
func (b *storyBroker) routed(ctx context.Context, namesrv string) error {
	var w *wire
	defer func() {
		if w != nil {
			w.Close()
		}
	}()
	for ; ; <-time.After(200 * time.Millisecond) {
		if ctx.Err() != nil {
			return fmt.Errorf("%s %s/%d: not at the name server: %w", b.kind, b.name, b.id, ctx.Err())
		}
		answer, err := callOnce(namesrv, &w, protocol.GetRouteInfoByTopic, &protocol.GetRouteInfoRequest{Topic: storyTopic})
		var route protocol.TopicRouteData
		if err != nil || protocol.ResponseCode(answer.Code) != protocol.Success || protocol.Unmarshal(answer.Body, &route) != nil {
			continue
		}
		for _, d := range route.BrokerDatas {
			if d.BrokerName == b.name && d.BrokerAddrs[int64(b.id)] == b.address {
				return nil
			}
		}
	}
}

// subfolder makes a folder below dir.
func subfolder(t *testing.T, dir, name string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	require.NoError(t, os.MkdirAll(path, 0o755))
	return path
}
