//go:build conformance

package conformance

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ratchetmq/ratchet/conformance/oracle"
	"github.com/ratchetmq/ratchet/internal/freeport"
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

// again ends the server by the signal and starts it anew.
func again(t testing.TB, s *oracle.Server, signal syscall.Signal) {
	t.Helper()
	begin := time.Now()
	if err := s.End(signal); err != nil {
		t.Fatal(err)
	}
	ended := time.Since(begin)
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%v: ended after %.1f s, ready again after %.1f s", signal, ended.Seconds(), time.Since(begin).Seconds())
}

// ratchetTarget is the product: name server and broker in one process.
type ratchetTarget struct {
	namesrv string
	server  *oracle.Server
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
	namesrv, err := freeport.Get()
	if err != nil {
		return nil, err
	}
	broker, err := freeport.Get()
	if err != nil {
		return nil, err
	}
	r := &ratchetTarget{namesrv: fmt.Sprintf("127.0.0.1:%d", namesrv)}
	r.server = oracle.NewServer(
		[]string{
			binary, "dev", "-data", filepath.Join(dir, "data"),
			"-namesrv", r.namesrv, "-broker", fmt.Sprintf("127.0.0.1:%d", broker),
			"-set", fmt.Sprintf("strictFromLast=%v", strict),
		},
		filepath.Join(dir, "ratchet.log"), "ready", namesrv, broker,
	)
	return r, r.server.Start()
}

func (r *ratchetTarget) Name() string          { return "ratchet" }
func (r *ratchetTarget) NameServer() string    { return r.namesrv }
func (r *ratchetTarget) Down() <-chan struct{} { return r.server.Down() }
func (r *ratchetTarget) Settle() time.Duration { return time.Second }
func (r *ratchetTarget) Restart(t testing.TB)  { t.Helper(); again(t, r.server, syscall.SIGTERM) }
func (r *ratchetTarget) Kill9(t testing.TB)    { t.Helper(); again(t, r.server, syscall.SIGKILL) }
func (r *ratchetTarget) Stop()                 { _ = r.server.End(syscall.SIGTERM) }

// javaTarget is the oracle: the Java name server and broker, two processes.
type javaTarget struct {
	version string
	address string
	namesrv *oracle.Server
	broker  *oracle.Server
}

func startJava(dir, version string, strict bool) (Target, error) {
	nport, err := freeport.Get()
	if err != nil {
		return nil, err
	}
	bport, err := freeport.Get()
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
		oracle.WriteConf(nconf,
			"listenPort", nport,
			"rocketmqHome", dir,
			"kvConfigPath", filepath.Join(dir, "kvConfig.json"),
			"configStorePath", filepath.Join(dir, "namesrv.properties"),
		),
		oracle.WriteConf(bconf,
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
	if err := oracle.WriteLogging(dir, "WARN"); err != nil {
		return nil, err
	}
	j.namesrv, err = oracle.Namesrv(version, dir, nconf, filepath.Join(dir, "namesrv.log"), nport)
	if err != nil {
		return nil, err
	}
	j.broker, err = oracle.Broker(version, dir, bconf, filepath.Join(dir, "broker.log"), bport)
	if err != nil {
		return nil, err
	}
	if err := j.namesrv.Start(); err != nil {
		return nil, err
	}
	if err := errors.Join(j.broker.Start(), j.routed()); err != nil {
		j.Stop()
		return nil, err
	}
	return j, nil
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
	again(t, j.broker, signal)
	if err := j.routed(); err != nil {
		t.Fatal(err)
	}
}

func (j *javaTarget) Name() string          { return "java-" + j.version }
func (j *javaTarget) NameServer() string    { return j.address }
func (j *javaTarget) Down() <-chan struct{} { return j.broker.Down() }

// Settle is long, as Java writes offsets every 5 s and for the first time 10 s after its start.
func (j *javaTarget) Settle() time.Duration { return 12 * time.Second }
func (j *javaTarget) Restart(t testing.TB)  { t.Helper(); j.again(t, syscall.SIGTERM) }
func (j *javaTarget) Kill9(t testing.TB)    { t.Helper(); j.again(t, syscall.SIGKILL) }
func (j *javaTarget) Stop() {
	// Nobody reads this store again, so there is no point in a slow goodbye.
	_ = j.broker.End(syscall.SIGKILL)
	_ = j.namesrv.End(syscall.SIGKILL)
}
