//go:build conformance

package conformance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/conformance/oracle"
	"github.com/ratchetmq/ratchet/internal/freeport"
	"github.com/ratchetmq/ratchet/message"
	"github.com/ratchetmq/ratchet/protocol"
	"github.com/ratchetmq/ratchet/remoting"
)

// delays are the levels of all folders here: level 4 is long enough for a broker to stop, and short enough to wait for.
const (
	delays    = "1s 5s 10s 30s 40s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 2h"
	soon      = 4
	soonDelay = 30 * time.Second
	never     = 18
)

// ownerStart is how long an owner may take to be up or gone; JVMs share few processors here.
const ownerStart = 90 * time.Second

// An owner is a broker that a folder is given to.
type owner string

// ratchet is ours; any other owner is a version of the Java broker.
const ratchet owner = "ratchet"

// A folder is what one broker leaves to the next: store and configuration, at one address.
type folder struct {
	dir     string
	version string // of the Java brokers that own it in turn
	port    int
	address string
	namesrv Target
	conf    string

	leg    int // how many owners it had
	owner  owner
	home   string // for the owner's own logs
	server *oracle.Server
	client *remoting.Client
	asked  []asked // what is known to be committed
}

// asked is a group's progress in a topic, all queues of it.
type asked struct{ group, topic string }

// namesrvOnly is a Target of a name server and nothing else.
type namesrvOnly struct {
	Target
	address string
	server  *oracle.Server
}

func (n namesrvOnly) NameServer() string    { return n.address }
func (n namesrvOnly) Down() <-chan struct{} { return n.server.Down() }

// startNamesrv starts our name server, or with a version the Java one. It ends with the test.
func startNamesrv(t *testing.T, dir, version string) namesrvOnly {
	t.Helper()
	port, err := freeport.Get()
	require.NoError(t, err)
	n := namesrvOnly{address: fmt.Sprintf("127.0.0.1:%d", port)}
	conf := filepath.Join(dir, "namesrv.conf")
	require.NoError(t, oracle.WriteConf(conf,
		"listenPort", port,
		"rocketmqHome", dir,
		"kvConfigPath", filepath.Join(dir, "kvConfig.json"),
		"configStorePath", filepath.Join(dir, "namesrv.properties"),
	))
	log := filepath.Join(dir, "namesrv.log")
	if version == "" {
		binary, err := ratchetBinary()
		require.NoError(t, err)
		n.server = oracle.NewServer([]string{binary, "namesrv", "-c", conf}, log, "is ready", port)
	} else {
		require.NoError(t, oracle.WriteLogging(dir, "INFO"))
		n.server, err = oracle.Namesrv(version, dir, conf, log, port)
		require.NoError(t, err)
	}
	require.NoError(t, n.server.Start())
	t.Cleanup(func() { n.server.End(syscall.SIGKILL) })
	return n
}

// newFolder makes an empty folder below dir for brokers that register at the name server.
func newFolder(t *testing.T, dir, version string, namesrv Target, more ...any) *folder {
	t.Helper()
	port, err := freeport.Get()
	require.NoError(t, err)
	f := &folder{
		dir: dir, version: version, port: port, address: fmt.Sprintf("127.0.0.1:%d", port), namesrv: namesrv,
		conf: filepath.Join(dir, "broker.conf"),
	}
	store := filepath.Join(dir, "store")
	require.NoError(t, oracle.WriteConf(f.conf, append([]any{
		"brokerClusterName", "interop",
		"brokerName", "interop-a",
		"brokerId", 0,
		"brokerIP1", "127.0.0.1",
		"brokerIP2", "127.0.0.1",
		"namesrvAddr", namesrv.NameServer(),
		"registerNameServerPeriod", 10_000,
		"listenPort", port,
		"haListenPort", port + 1,
		"brokerRole", "ASYNC_MASTER",
		"flushDiskType", "ASYNC_FLUSH",
		"autoCreateTopicEnable", true,
		"autoCreateSubscriptionGroup", true,
		"messageDelayLevel", delays,
		"storePathRootDir", store,
		"storePathCommitLog", filepath.Join(store, "commitlog"),
		"mappedFileSizeCommitLog", 1 << 20,
		"mappedFileSizeConsumeQueue", 20 * 1000,
		"maxHashSlotNum", 100,
		"maxIndexNum", 200,
		"mappedFileSizeTimerLog", 1 << 20,
		"diskMaxUsedSpaceRatio", 95,
		// A machine that runs several JVMs stalls now and then: no reason to refuse a message.
		"waitTimeMillsInSendQueue", 30_000,
		"osPageCacheBusyTimeOutMills", 30_000,
	}, more...)...))
	f.client, err = remoting.NewClient(remoting.ClientConfig{})
	require.NoError(t, err)
	t.Cleanup(func() {
		f.client.Close()
		if f.server != nil {
			f.server.End(syscall.SIGKILL)
		}
	})
	return f
}

// give starts the next owner. Each has a log of its own.
func (f *folder) give(t *testing.T, to owner) {
	t.Helper()
	begin := time.Now()
	f.owner, f.leg = to, f.leg+1
	f.home = filepath.Join(f.dir, fmt.Sprintf("%d-%s", f.leg, to))
	require.NoError(t, oracle.WriteLogging(f.home, "WARN"))
	log := filepath.Join(f.home, "broker.log")
	if to == ratchet {
		binary, err := ratchetBinary()
		require.NoError(t, err)
		f.server = oracle.NewServer([]string{binary, "broker", "-c", f.conf}, log, "is ready", f.port)
	} else {
		var err error
		f.server, err = oracle.Broker(string(to), f.home, f.conf, log, f.port)
		require.NoError(t, err)
	}
	require.NoError(t, f.server.Start(), "owner %d, %s", f.leg, to)
	t.Logf("owner %d, %s, is up after %.1f s", f.leg, to, time.Since(begin).Seconds())
}

// take ends the owner by the signal.
func (f *folder) take(t *testing.T, signal syscall.Signal) {
	t.Helper()
	begin := time.Now()
	require.NoError(t, f.server.End(signal))
	if signal == syscall.SIGTERM && f.owner == ratchet {
		require.True(t, f.server.State().Success(), "%s\n%s", f.server.State(), oracle.Tail(f.server.Log))
	}
	t.Logf("owner %d, %s, is gone %.1f s after %v", f.leg, f.owner, time.Since(begin).Seconds(), signal)
}

// Lines of a log, of any owner, that are more than information. In those of Java's store: what says that files are not in
// order, less what it also says about a folder that it alone has had. In those of the rest: tables that can't be read.
var (
	warning    = regexp.MustCompile(`level=(WARN|ERROR)|^[-0-9]+ [:,0-9]+ (WARN|ERROR) `)
	suspicious = regexp.MustCompile(`(?i)ERROR|exception|illegal|invalid|corrupt|damage|dirty|truncate|match|wrong|crc|bug|` +
		`lost|delete|maybe|exist|fail|recover`)
	unreadable = regexp.MustCompile(`(?i)load .*(fail|exception|error)|(decode|parse).*(fail|exception|error)`)
	usual      = regexp.MustCompile(`found a illegal magic code 0x0$` + // the zeros behind the last message
		`|AllocateMappedFileService` + // slow, or interrupted at the end
		`|ScheduleMessageService, executeOnTimeup exception` + // interrupted at the end
		`|is full, trying to create another one`) // an index file
	usualFirst = regexp.MustCompile(`The commitlog files are deleted`) // when there are none yet
	usualKill  = regexp.MustCompile(`Maybe try to build consume queue repeatedly`)
	// halfMade is what ours says of an index file that a killed owner was just making, with its size or without it yet.
	halfMade  = regexp.MustCompile(`index file repaired|index file of another size removed after an unclean stop.* size=0 `)
	truncates = regexp.MustCompile(`maxPhyOffsetOfConsumeQueue\((\d+)\) >= processOffset\((\d+)\)`)
)

// complaints are the lines of the owner's log that say that something about the folder is not in order.
func (f *folder) complaints(t *testing.T, killed bool) []string {
	t.Helper()
	logs := []string{f.server.Log}
	if f.owner != ratchet && f.owner != "4.9.7" { // 4.9 writes to its output
		for _, name := range []string{"broker.log", "store.log"} {
			logs = append(logs, filepath.Join(f.home, "logs", "rocketmqlogs", name))
		}
	}
	var all []string
	for _, log := range logs {
		text, err := os.ReadFile(log)
		require.NoError(t, err)
		for line := range strings.Lines(string(text)) {
			line = strings.TrimSpace(line)
			store := strings.HasSuffix(log, "store.log") || strings.Contains(line, "RocketmqStore")
			if warning.MatchString(line) && f.complains(line, store, killed) {
				all = append(all, line)
			}
		}
	}
	return all
}

// complains says whether a warning, of the store or of something else, is about the folder.
func (f *folder) complains(line string, store, killed bool) bool {
	switch m := truncates.FindStringSubmatch(line); {
	case f.owner == ratchet:
		return !strings.Contains(line, "setting without effect") && !(killed && halfMade.MatchString(line))
	case !store:
		return unreadable.MatchString(line)
	case m != nil:
		return m[1] != m[2] // else both end at the same place: there is nothing to truncate
	case f.leg == 1 && usualFirst.MatchString(line), killed && usualKill.MatchString(line):
		return false
	}
	return suspicious.MatchString(line) && !usual.MatchString(line)
}

// call asks the owner. It fails on an answer other than those allowed; SUCCESS always is.
func (f *folder) call(
	t *testing.T, code protocol.RequestCode, h protocol.Header, body []byte, allowed ...protocol.ResponseCode,
) *remoting.Response {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	answer, err := f.client.Call(ctx, f.address, code, h, nil, body)
	if errors.Is(err, remoting.ErrClosed) { // of the owner before this one
		answer, err = f.client.Call(ctx, f.address, code, h, nil, body)
	}
	require.NoError(t, err, "%v of %s", code, f.owner)
	got := protocol.ResponseCode(answer.Code)
	for _, ok := range append(allowed, protocol.Success) {
		if got == ok {
			return answer
		}
	}
	require.Failf(t, "refused", "%v %+v of %s: %v %s", code, h, f.owner, got, answer.Remark)
	return nil
}

// send sends one message and checks where the owner says it is.
func (f *folder) send(t *testing.T, h protocol.SendMessageRequest, body []byte) protocol.SendMessageResponse {
	t.Helper()
	h.ProducerGroup, h.DefaultTopic, h.DefaultTopicQueueNums = "interop-producer", protocol.TopicDefault, 4
	if h.BornTimestamp == 0 {
		h.BornTimestamp = time.Now().UnixMilli()
	}
	code := protocol.SendMessage
	if h.Batch {
		code = protocol.SendBatchMessage
	}
	var v2 protocol.Header = &h
	if h.Batch {
		v2 = &protocol.SendMessageRequestV2{
			ProducerGroup: h.ProducerGroup, Topic: h.Topic, DefaultTopic: h.DefaultTopic,
			DefaultTopicQueueNums: h.DefaultTopicQueueNums, QueueID: h.QueueID, SysFlag: h.SysFlag,
			BornTimestamp: h.BornTimestamp, Flag: h.Flag, Properties: h.Properties, Batch: true,
		}
	}
	var at protocol.SendMessageResponse
	require.NoError(t, f.call(t, code, v2, body).ReadHeader(&at))
	return at
}

// commit sets a group's progress in a queue.
func (f *folder) commit(t *testing.T, group, topic string, queue int32, to int64) {
	t.Helper()
	f.call(t, protocol.UpdateConsumerOffset, &protocol.UpdateConsumerOffsetRequest{
		ConsumerGroup: group, Topic: topic, QueueID: queue, CommitOffset: to,
	}, nil)
}

func (f *folder) maxOffset(t *testing.T, topic string, queue int32) int64 {
	t.Helper()
	var h protocol.GetMaxOffsetResponse
	answer := f.call(t, protocol.GetMaxOffset, &protocol.GetMaxOffsetRequest{Topic: topic, QueueID: queue}, nil)
	require.NoError(t, answer.ReadHeader(&h))
	return h.Offset
}

// properties builds the text of a message's properties.
func properties(pairs ...string) []byte {
	var text []byte
	for i := 0; i < len(pairs); i += 2 {
		text = message.AppendProperty(text, pairs[i], pairs[i+1])
	}
	return text
}

// saved waits until the owner's files hold what it knows of its consumers and of its delayed messages, which it may
// write with a delay of some seconds. A Java broker that comes after a kill reads nothing but these files.
func (f *folder) saved(t *testing.T, v *view) {
	t.Helper()
	var offsets protocol.ConsumerOffsetTable
	var delivered protocol.DelayOffsetTable
	read := func(name string, into any) bool {
		text, err := os.ReadFile(filepath.Join(f.dir, "store", "config", name))
		return err == nil && protocol.Unmarshal(text, into) == nil
	}
	require.Eventually(t, func() bool {
		offsets, delivered = protocol.ConsumerOffsetTable{}, protocol.DelayOffsetTable{}
		if !read("consumerOffset.json", &offsets) || !read("delayOffset.json", &delivered) {
			return false
		}
		for at, n := range v.commits {
			if got, ok := offsets.OffsetTable[at.topic+"@"+at.group][at.queue]; !ok || got != n {
				return false
			}
		}
		for level, n := range v.delivered() {
			if delivered.OffsetTable[level] < n {
				return false
			}
		}
		return true
	}, 30*time.Second, 100*time.Millisecond, "offsets and progress are saved")
}

// itoa is a number as text.
func itoa(n int) string { return strconv.Itoa(n) }
