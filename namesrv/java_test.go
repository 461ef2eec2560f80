//go:build conformance

package namesrv

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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
	command []string
	log     string
	addr    string
	cmd     *exec.Cmd
	done    chan error
}

// javaLib returns the folder with the jars of a release, from Maven if they are not there.
func javaLib(t testing.TB, version string) string {
	t.Helper()
	project, err := filepath.Abs(filepath.Join("..", "conformance", "oracle"))
	require.NoError(t, err)
	lib := filepath.Join(project, "target", version, "lib")
	if _, err := os.Stat(filepath.Join(lib, "rocketmq-broker-"+version+".jar")); err != nil {
		mvn := exec.Command("mvn", "-q", "-B", "-Drocketmq.version="+version, "dependency:copy-dependencies")
		mvn.Dir = project
		out, err := mvn.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	return lib
}

const logback = `<configuration>
  <appender name="out" class="ch.qos.logback.core.ConsoleAppender"><encoder><pattern>%d %-5p %c - %m%n</pattern></encoder></appender>
  <root level="WARN"><appender-ref ref="out"/></root>
</configuration>
`

func newJavaBroker(t testing.TB, version, namesrvAddr string, extra ...string) *javaBroker {
	t.Helper()
	dir := t.TempDir()
	port, err := freeport.Get()
	require.NoError(t, err)
	conf := append([]string{
		"brokerClusterName=javaCluster", "brokerName=java-a", "brokerId=0", "brokerIP1=127.0.0.1", "brokerIP2=127.0.0.1",
		"namesrvAddr=" + namesrvAddr, fmt.Sprintf("listenPort=%d", port), fmt.Sprintf("haListenPort=%d", port+1),
		"registerNameServerPeriod=10000", "storePathRootDir=" + dir + "/store", "storePathCommitLog=" + dir + "/store/commitlog",
		"mappedFileSizeCommitLog=4194304", "mappedFileSizeConsumeQueue=20000", "maxHashSlotNum=1000", "maxIndexNum=4000",
		"mappedFileSizeTimerLog=1048576", "diskMaxUsedSpaceRatio=95",
	}, extra...)
	writeFile(t, dir+"/broker.conf", strings.Join(conf, "\n"))
	require.NoError(t, os.Mkdir(dir+"/conf", 0o755))
	writeFile(t, dir+"/conf/logback_broker.xml", logback) // 4.x does not start without
	return &javaBroker{
		TB:   t,
		log:  dir + "/broker.log",
		addr: fmt.Sprintf("127.0.0.1:%d", port),
		command: []string{
			"java",
			"--add-opens", "java.base/java.nio=ALL-UNNAMED", "--add-opens", "java.base/sun.nio.ch=ALL-UNNAMED",
			"--add-opens", "java.base/java.lang=ALL-UNNAMED", "--add-opens", "java.base/java.util=ALL-UNNAMED",
			// Without these two 4.9.7 fails in its shutdown, before it unregisters.
			"--add-opens", "java.base/jdk.internal.ref=ALL-UNNAMED", "--add-exports", "java.base/jdk.internal.ref=ALL-UNNAMED",
			"-Xms512m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:MaxDirectMemorySize=512m",
			"-Duser.home=" + dir, "-Drocketmq.home.dir=" + dir,
			"-cp", filepath.Join(javaLib(t, version), "*"), "org.apache.rocketmq.broker.BrokerStartup", "-c", dir + "/broker.conf",
		},
	}
}

func (b *javaBroker) start() {
	b.Helper()
	out, err := os.OpenFile(b.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(b, err)
	b.cmd = exec.Command(b.command[0], b.command[1:]...)
	b.cmd.Stdout, b.cmd.Stderr = out, out
	b.cmd.Env = append(os.Environ(), "ROCKETMQ_HOME="+filepath.Dir(b.log))
	require.NoError(b, b.cmd.Start())
	require.NoError(b, out.Close())
	cmd, done := b.cmd, make(chan error, 1)
	b.done = done
	go func() { done <- cmd.Wait() }()
	b.Cleanup(func() { _ = cmd.Process.Kill() })
}

// end sends the signal and waits until the process has gone.
func (b *javaBroker) end(signal syscall.Signal) {
	b.Helper()
	require.NoError(b, b.cmd.Process.Signal(signal))
	select {
	case <-b.done:
	case <-time.After(javaStart):
		require.Fail(b, "the broker does not end")
	}
}

// until waits for a condition, for as long as a broker may need to start.
func (b *javaBroker) until(done func() bool, what string) {
	b.Helper()
	if !assert.Eventually(b, done, javaStart, javaStep, what) {
		require.Fail(b, what, "%s", b.tail())
	}
}

// tail is the end of the broker's output.
func (b *javaBroker) tail() string {
	data, _ := os.ReadFile(b.log)
	return string(data[max(0, len(data)-4000):])
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

	require.Eventually(t, func() bool { return portOpen(b.addr) }, javaStart, javaStep)
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
	require.Eventually(t, func() bool { return portOpen(b.addr) }, javaStart, javaStep)
	b.end(syscall.SIGTERM)
	require.Eventually(t, gone("KEPT"), waitLong, waitStep)
	require.Eventually(t, logged("broker unregistered"), waitLong, waitStep, "%s\n%s", lines, b.tail())
}

func portOpen(addr string) bool {
	conn, err := net.Dial("tcp", addr)
	if err == nil {
		_ = conn.Close()
	}
	return err == nil
}

// Brokers that compress their registrations, and that ask for the version first and register only if it differs.
func TestJavaBrokersThatSpareRegistrations(t *testing.T) {
	for _, version := range []string{"4.9.7", "5.4.0"} {
		t.Run(version, func(t *testing.T) {
			lines := new(logLines)
			s := start(t, Config{Logger: slog.New(slog.NewTextHandler(lines, nil))})
			b := newJavaBroker(t, version, s.Addr().String(), "compressedRegister=true", "forceRegister=false")
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
