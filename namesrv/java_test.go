//go:build conformance

package namesrv

import (
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/conformance/oracle"
	"github.com/ratchetmq/ratchet/internal/freeport"
	"github.com/ratchetmq/ratchet/protocol"
)

const (
	javaStart = 90 * time.Second // for a broker to be up, on a machine that has other things to do
	javaStep  = 50 * time.Millisecond
)

// javaBroker is a real RocketMQ broker, a process of its own.
type javaBroker struct {
	testing.TB
	server *oracle.Server
	addr   string
}

func newJavaBroker(t testing.TB, version, namesrvAddr string, extra ...any) *javaBroker {
	t.Helper()
	dir := t.TempDir()
	port, err := freeport.Get()
	require.NoError(t, err)
	conf := filepath.Join(dir, "broker.conf")
	require.NoError(t, oracle.WriteConf(conf, append([]any{
		"brokerClusterName", "javaCluster", "brokerName", "java-a", "brokerId", 0, "brokerIP1", "127.0.0.1", "brokerIP2", "127.0.0.1",
		"namesrvAddr", namesrvAddr, "listenPort", port, "haListenPort", port + 1,
		"registerNameServerPeriod", 10_000, "storePathRootDir", dir + "/store", "storePathCommitLog", dir + "/store/commitlog",
		"mappedFileSizeCommitLog", 4 << 20, "mappedFileSizeConsumeQueue", 20_000, "maxHashSlotNum", 1000, "maxIndexNum", 4000,
		"mappedFileSizeTimerLog", 1 << 20, "diskMaxUsedSpaceRatio", 95,
	}, extra...)...))
	require.NoError(t, oracle.WriteLogging(dir, "WARN"))
	s, err := oracle.Broker(version, dir, conf, filepath.Join(dir, "broker.log"), port)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.End(syscall.SIGKILL) })
	return &javaBroker{TB: t, server: s, addr: fmt.Sprintf("127.0.0.1:%d", port)}
}

func (b *javaBroker) start() {
	b.Helper()
	require.NoError(b, b.server.Start())
}

// end sends the signal and waits until the process has gone.
func (b *javaBroker) end(signal syscall.Signal) {
	b.Helper()
	require.NoError(b, b.server.End(signal))
}

// until waits for a condition, for as long as a broker may need to start.
func (b *javaBroker) until(done func() bool, what string) {
	b.Helper()
	if !assert.Eventually(b, done, javaStart, javaStep, what) {
		require.Fail(b, what, "%s", oracle.Tail(b.server.Log))
	}
}

// admin sends a request to the broker.
func (b *javaBroker) admin(code protocol.RequestCode, fields ...string) {
	b.Helper()
	conn, err := net.Dial("tcp", b.addr)
	require.NoError(b, err)
	defer conn.Close()
	p := &peer{TB: b, conn: conn}
	requireCode(b, protocol.Success, p.ask(code, nil, kv(fields...), nil))
}

func (b *javaBroker) createTopic(name string) {
	b.Helper()
	b.admin(protocol.UpdateAndCreateTopic, "topic", name, "defaultTopic", "TBW102", "readQueueNums", "4", "writeQueueNums", "4",
		"perm", "6", "topicFilterType", "SINGLE_TAG", "topicSysFlag", "0", "order", "false")
}

// logLines collects what the server logs.
type logLines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *logLines) count(msg string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), msg)
}

// live returns what the table knows about the broker.
func (s *Server) live(addr string) (round uint64, lastSeen time.Time, ok bool) {
	s.table.writing.Lock()
	defer s.table.writing.Unlock()
	m := s.table.byAddr[addr]
	if m == nil {
		return 0, time.Time{}, false
	}
	return m.group.round, m.lastSeen, true
}

func TestJavaBrokers(t *testing.T) {
	for _, version := range []string{"4.9.7", "5.4.0"} {
		t.Run(version, func(t *testing.T) { testJavaBroker(t, version) })
	}
}

// A broker's life: it registers, makes and loses a topic, is killed, comes back, and says goodbye.
func testJavaBroker(t *testing.T, version string) {
	lines := new(logLines)
	s := start(t, Config{Logger: slog.New(slog.NewTextHandler(lines, nil))})
	b := newJavaBroker(t, version, s.Addr().String())
	client := dial(t, s)
	routed := func(topic string) func() bool {
		return func() bool {
			d, _ := client.route(topic)
			return d != nil
		}
	}
	gone := func(topic string) func() bool {
		return func() bool {
			_, code := client.route(topic)
			return code == protocol.TopicNotExist
		}
	}
	b.start()
	b.until(routed("TBW102"), "the first registration")
	d, _ := client.route("TBW102")
	require.Equal(t, []string{"java-a:7/0@" + b.addr}, d.brokers())
	round, _, _ := s.live(b.addr)
	require.NotZero(t, round, "a real broker's first registration is seen as a full one")

	for _, name := range []string{"KEPT", "DELETED"} {
		b.createTopic(name)
		require.Eventually(t, routed(name), waitLong, waitStep, "an increment brings %s", name)
	}
	d, _ = client.route("KEPT")
	require.Equal(t, []string{"java-a:6/0@" + b.addr}, d.brokers())
	b.admin(protocol.DeleteTopicInBroker, "topic", "DELETED")
	require.Eventually(t, gone("DELETED"), 30*time.Second, javaStep, "a full registration removes it")
	require.True(t, routed("KEPT")())
	after, _, _ := s.live(b.addr)
	require.Greater(t, after, round)

	b.end(syscall.SIGKILL)
	require.Eventually(t, gone("TBW102"), waitLong, waitStep)
	logged := func(msg string) func() bool { // right after the table was changed
		return func() bool { return lines.count(msg) == 1 }
	}
	require.Eventually(t, logged("broker connection closed"), waitLong, waitStep)

	b.start()
	b.until(routed("KEPT"), "the registration after a kill")
	require.True(t, gone("DELETED")())
	b.end(syscall.SIGTERM)
	require.Eventually(t, gone("KEPT"), waitLong, waitStep)
	require.Eventually(t, logged("broker unregistered"), waitLong, waitStep, "%s\n%s", lines, oracle.Tail(b.server.Log))
}

// Brokers that compress their registrations, and that ask for the version first and register only if it differs.
func TestJavaBrokersThatSpareRegistrations(t *testing.T) {
	for _, version := range []string{"4.9.7", "5.4.0"} {
		t.Run(version, func(t *testing.T) {
			lines := new(logLines)
			s := start(t, Config{Logger: slog.New(slog.NewTextHandler(lines, nil))})
			b := newJavaBroker(t, version, s.Addr().String(), "compressedRegister", true, "forceRegister", false)
			client := dial(t, s)
			b.start()
			b.until(func() bool {
				d, _ := client.route("TBW102")
				return d != nil
			}, "the first registration")

			// Until nothing changes in the broker any more it registers; then it only asks.
			var round uint64
			var seen time.Time
			quiet := 0
			b.until(func() bool {
				r, at, ok := s.live(b.addr)
				if ok && at.After(seen) {
					seen = at
					if quiet++; r != round {
						round, quiet = r, 0
					}
				}
				return quiet >= 2
			}, "signs of life without registrations")
			t.Log(lines)
			b.end(syscall.SIGKILL)
		})
	}
}
