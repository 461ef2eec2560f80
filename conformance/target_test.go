//go:build conformance

package conformance

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// A Target is the name server and broker under test, running.
type Target interface {
	// Name tells which one it is, for the table of expectations.
	Name() string
	// NameServer returns the address that clients are given.
	NameServer() string
	// Down is closed when a process of the target ends although nobody asked it to.
	Down() <-chan struct{}
	// Settle returns how long after an acknowledged offset commit a crash may not undo it.
	Settle() time.Duration
	// Restart stops the broker with SIGTERM and starts it again on the same data.
	Restart(t testing.TB)
	// Kill9 does the same with SIGKILL.
	Kill9(t testing.TB)
	// Stop ends everything; the data stays.
	Stop()
}

// startTarget starts what RATCHET_ORACLE asks for, with its data and logs in dir. A strict one lets a group that was
// never seen start where it asks to, even at a queue that still starts at 0.
func startTarget(dir string, strict bool) (Target, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	switch oracle := os.Getenv("RATCHET_ORACLE"); oracle {
	case "":
		return startRatchet(dir, strict)
	case "java-5.4.0", "java-4.9.7":
		return startJava(dir, strings.TrimPrefix(oracle, "java-"), strict)
	default:
		return nil, fmt.Errorf("RATCHET_ORACLE=%s: want java-5.4.0 or java-4.9.7", oracle)
	}
}

// freePort returns a port p such that p-2, p and p+1 are free as well: a Java broker takes all three. It is below those
// that the system gives to outgoing connections, so that nobody has it while a server is down for a moment.
func freePort() (int, error) {
	for range 100 {
		port, free := 10_000+rand.IntN(22_000), true
		for _, p := range []int{port - 2, port, port + 1} {
			if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", p)); err == nil {
				l.Close()
			} else {
				free = false
			}
		}
		if free {
			return port, nil
		}
	}
	return 0, errors.New("no free ports")
}

// A server is one process of a target: it can be stopped and started again.
type server struct {
	command []string
	env     []string
	log     string // where its output goes
	ready   string // what a line of its output contains once it serves
	ports   []int  // what must accept connections then

	cmd    *exec.Cmd
	done   chan struct{} // closed when the process has ended
	ending atomic.Bool   // it was asked to end
	down   chan struct{} // closed when it ended unasked
}

func (s *server) start() error {
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	s.cmd = exec.Command(s.command[0], s.command[1:]...)
	s.cmd.Env = append(os.Environ(), s.env...)
	s.cmd.Stderr = log
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := s.cmd.Start(); err != nil {
		log.Close()
		return err
	}
	ready := make(chan struct{})
	s.done = make(chan struct{})
	s.ending.Store(false)
	go func(cmd *exec.Cmd, done chan struct{}) {
		defer close(done)
		defer log.Close()
		var once sync.Once
		lines := bufio.NewScanner(io.TeeReader(out, log))
		for lines.Scan() {
			if strings.Contains(lines.Text(), s.ready) {
				once.Do(func() { close(ready) })
			}
		}
		io.Copy(log, out)
		cmd.Wait()
		if !s.ending.Load() {
			close(s.down)
		}
	}(s.cmd, s.done)

	limit := time.After(90 * time.Second)
	select {
	case <-ready:
	case <-s.done:
		return fmt.Errorf("%s ended before it was ready: %v\n%s", s.command[0], s.cmd.ProcessState, tail(s.log))
	case <-limit:
		s.end(syscall.SIGKILL)
		return fmt.Errorf("%s is not ready after 90 s\n%s", s.command[0], tail(s.log))
	}
	for _, port := range s.ports {
		for {
			c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
			if err == nil {
				c.Close()
				break
			}
			select {
			case <-limit:
				s.end(syscall.SIGKILL)
				return fmt.Errorf("%s says it is ready, yet: %w", s.command[0], err)
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
	return nil
}

// end sends the signal and waits for the process; one that ignores it is killed and reported.
func (s *server) end(signal syscall.Signal) error {
	if s.cmd == nil || s.cmd.Process == nil {
		return nil
	}
	s.ending.Store(true)
	s.cmd.Process.Signal(signal)
	select {
	case <-s.done:
		return nil
	case <-time.After(60 * time.Second):
		s.cmd.Process.Kill()
		<-s.done
		return fmt.Errorf("%s still runs 60 s after %v", s.command[0], signal)
	}
}

// again ends the server by the signal and starts it anew.
func (s *server) again(t testing.TB, signal syscall.Signal) {
	t.Helper()
	begin := time.Now()
	if err := s.end(signal); err != nil {
		t.Fatal(err)
	}
	ended := time.Since(begin)
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%v: ended after %.1f s, ready again after %.1f s", signal, ended.Seconds(), time.Since(begin).Seconds())
}

// tail returns the end of a log file.
func tail(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	if len(data) > 2000 {
		data = data[len(data)-2000:]
	}
	return string(data)
}

// ratchetTarget is the product: name server and broker in one process.
type ratchetTarget struct {
	namesrv string
	server  *server
}

// ratchetBinary builds the product, once.
var ratchetBinary = sync.OnceValues(func() (string, error) {
	binary := filepath.Join(workDir, "ratchet")
	build := exec.Command("go", "build", "-o", binary, "./cmd/ratchet")
	build.Dir = ".."
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build ./cmd/ratchet: %w\n%s", err, out)
	}
	return binary, nil
})

func startRatchet(dir string, strict bool) (Target, error) {
	binary, err := ratchetBinary()
	if err != nil {
		return nil, err
	}
	namesrv, err := freePort()
	if err != nil {
		return nil, err
	}
	broker, err := freePort()
	if err != nil {
		return nil, err
	}
	r := &ratchetTarget{namesrv: fmt.Sprintf("127.0.0.1:%d", namesrv)}
	r.server = &server{
		command: []string{
			binary, "dev", "-data", filepath.Join(dir, "data"),
			"-namesrv", r.namesrv, "-broker", fmt.Sprintf("127.0.0.1:%d", broker),
			"-set", fmt.Sprintf("strictFromLast=%v", strict),
		},
		log:   filepath.Join(dir, "ratchet.log"),
		ready: "ready",
		ports: []int{namesrv, broker},
		down:  make(chan struct{}),
	}
	return r, r.server.start()
}

func (r *ratchetTarget) Name() string          { return "ratchet" }
func (r *ratchetTarget) NameServer() string    { return r.namesrv }
func (r *ratchetTarget) Down() <-chan struct{} { return r.server.down }
func (r *ratchetTarget) Settle() time.Duration { return time.Second }
func (r *ratchetTarget) Restart(t testing.TB)  { t.Helper(); r.server.again(t, syscall.SIGTERM) }
func (r *ratchetTarget) Kill9(t testing.TB)    { t.Helper(); r.server.again(t, syscall.SIGKILL) }
func (r *ratchetTarget) Stop()                 { r.server.end(syscall.SIGTERM) }

// javaTarget is the oracle: the Java name server and broker, two processes.
type javaTarget struct {
	version string
	address string
	namesrv *server
	broker  *server
}

func startJava(dir, version string, strict bool) (Target, error) {
	lib, err := maven("oracle", version, "dependency:copy-dependencies")
	if err != nil {
		return nil, err
	}
	nport, err := freePort()
	if err != nil {
		return nil, err
	}
	bport, err := freePort()
	if err != nil {
		return nil, err
	}
	j := &javaTarget{version: version, address: fmt.Sprintf("127.0.0.1:%d", nport)}
	inMemory := 40 // percent, the default: what may be in memory counts as young
	if strict {
		inMemory = 0
	}
	store := filepath.Join(dir, "store")
	nconf := filepath.Join(dir, "namesrv.conf")
	bconf := filepath.Join(dir, "broker.conf")
	err = errors.Join(
		writeConf(nconf,
			"listenPort", nport,
			"rocketmqHome", dir,
			"kvConfigPath", filepath.Join(dir, "kvConfig.json"),
			"configStorePath", filepath.Join(dir, "namesrv.properties"),
		),
		writeConf(bconf,
			"brokerClusterName", "oracle",
			"brokerName", "oracle-a",
			"brokerId", 0,
			"brokerIP1", "127.0.0.1",
			"brokerIP2", "127.0.0.1",
			"namesrvAddr", j.address,
			"listenPort", bport,
			"haListenPort", bport+1,
			"brokerRole", "ASYNC_MASTER",
			"flushDiskType", "ASYNC_FLUSH",
			"autoCreateTopicEnable", true,
			"waitTimeMillsInSendQueue", 20000, // a busy machine is no reason to refuse
			"autoCreateSubscriptionGroup", true,
			"storePathRootDir", store,
			"storePathCommitLog", filepath.Join(store, "commitlog"),
			// Small files, so that a run of many short-lived brokers stays cheap.
			"mappedFileSizeCommitLog", 32<<20,
			"mappedFileSizeConsumeQueue", 20*1000,
			"maxHashSlotNum", 10_000,
			"maxIndexNum", 40_000,
			"mappedFileSizeTimerLog", 4<<20,
			"accessMessageInMemoryMaxRatio", inMemory,
			// The disk of a build machine may be fuller than a broker likes.
			"diskMaxUsedSpaceRatio", 95,
		),
	)
	if err != nil {
		return nil, err
	}
	if err := writeLogging(dir, "WARN"); err != nil {
		return nil, err
	}
	java := func(class, conf, log, ready string, ports ...int) *server {
		return javaServer(lib, dir, class, conf, filepath.Join(dir, log), ready, ports...)
	}
	j.namesrv = java("org.apache.rocketmq.namesrv.NamesrvStartup", nconf, "namesrv.log", "boot success", nport)
	j.broker = java("org.apache.rocketmq.broker.BrokerStartup", bconf, "broker.log", "boot success", bport)
	if err := j.namesrv.start(); err != nil {
		return nil, err
	}
	if err := errors.Join(j.broker.start(), j.routed()); err != nil {
		j.Stop()
		return nil, err
	}
	return j, nil
}

// writeLogging writes two files that 4.x does not start without; 5.x does not look for them.
func writeLogging(dir, level string) error {
	logback := `<configuration>
  <appender name="out" class="ch.qos.logback.core.ConsoleAppender"><encoder><pattern>%d %-5p %c - %m%n</pattern></encoder></appender>
  <root level="` + level + `"><appender-ref ref="out"/></root>
</configuration>
`
	if err := os.MkdirAll(filepath.Join(dir, "conf"), 0o755); err != nil {
		return err
	}
	for _, name := range []string{"logback_namesrv.xml", "logback_broker.xml"} {
		if err := os.WriteFile(filepath.Join(dir, "conf", name), []byte(logback), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// javaServer is a Java name server or broker with the jars in lib and its home in dir.
func javaServer(lib, dir, class, conf, log, ready string, ports ...int) *server {
	args := append([]string{"java"}, jvmFlags(dir, "512m")...)
	args = append(args, "-Drocketmq.home.dir="+dir, "-cp", filepath.Join(lib, "*"), class, "-c", conf)
	return &server{
		command: args,
		env:     []string{"ROCKETMQ_HOME=" + dir},
		log:     log,
		ready:   ready,
		ports:   ports,
		down:    make(chan struct{}),
	}
}

// routed waits until the name server knows the broker, which says it is up a moment before.
func (j *javaTarget) routed() error {
	header := `{"code":105,"language":"GO","version":0,"opaque":1,"flag":0,"extFields":{"topic":"TBW102"}}`
	frame := binary.BigEndian.AppendUint32(nil, uint32(4+len(header)))
	frame = binary.BigEndian.AppendUint32(frame, uint32(len(header)))
	frame = append(frame, header...)
	ask := func() error {
		c, err := net.DialTimeout("tcp", j.address, time.Second)
		if err != nil {
			return err
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(3 * time.Second))
		if _, err := c.Write(frame); err != nil {
			return err
		}
		var size [8]byte
		if _, err := io.ReadFull(c, size[:]); err != nil {
			return err
		}
		total, head := binary.BigEndian.Uint32(size[:4]), binary.BigEndian.Uint32(size[4:])
		if head+4 >= total || total > 1<<20 {
			return errors.New("the name server has no route to the broker")
		}
		return nil
	}
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		if err := ask(); err == nil || time.Now().After(end) {
			return err
		}
	}
}

func (j *javaTarget) again(t testing.TB, signal syscall.Signal) {
	t.Helper()
	j.broker.again(t, signal)
	if err := j.routed(); err != nil {
		t.Fatal(err)
	}
}

func (j *javaTarget) Name() string          { return "java-" + j.version }
func (j *javaTarget) NameServer() string    { return j.address }
func (j *javaTarget) Down() <-chan struct{} { return j.broker.down }

// Settle is long, as Java writes offsets every 5 s and for the first time 10 s after its start.
func (j *javaTarget) Settle() time.Duration { return 12 * time.Second }
func (j *javaTarget) Restart(t testing.TB)  { t.Helper(); j.again(t, syscall.SIGTERM) }
func (j *javaTarget) Kill9(t testing.TB)    { t.Helper(); j.again(t, syscall.SIGKILL) }
func (j *javaTarget) Stop() {
	// Nobody reads this store again, so there is no point in a slow goodbye.
	j.broker.end(syscall.SIGKILL)
	j.namesrv.end(syscall.SIGKILL)
}

// writeConf writes key=value lines.
func writeConf(path string, pairs ...any) error {
	var b strings.Builder
	for i := 0; i < len(pairs); i += 2 {
		fmt.Fprintf(&b, "%v=%v\n", pairs[i], pairs[i+1])
	}
	return os.WriteFile(path, []byte(b.String()), 0o644)
}
