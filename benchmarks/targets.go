package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/ratchetmq/ratchet/conformance/oracle"
	"github.com/ratchetmq/ratchet/internal/freeport"
)

// Names of what can be measured.
const (
	ratchet     = "ratchet"
	java540     = "java-5.4.0"
	java497     = "java-4.9.7"
	bareGnet    = "gnet"
	gnetAppends = "gnet+append"
)

// A target is a broker, or a bound, that runs.
type target struct {
	stand *stand
	name  string
	addr  string
	dir   string
	*process
}

// store is the folder of a broker's files.
func (t *target) store() string { return filepath.Join(t.dir, "store") }

func (t *target) isBound() bool { return t.name == bareGnet || t.name == gnetAppends }

// A stand starts targets, each in a folder of its own, and one name server for all of them.
type stand struct {
	dir     string
	root    string // of the source tree
	binary  string // ratchet
	namesrv string // its address
	server  *process
	sides   *sides          // nil: all share all processors
	syncing bool            // SYNC_FLUSH instead of ASYNC_FLUSH
	pprof   string          // address for the profiles of ours
	built   map[string]bool // folders of jars
	number  int
}

// sourceRoot is the folder with go.mod, above the working directory.
func sourceRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("run this inside the source tree")
		}
	}
}

// newStand builds ratchet into dir, unless binary names one that is built.
func newStand(ctx context.Context, dir, binary string) (*stand, error) {
	root, err := sourceRoot()
	if err != nil {
		return nil, err
	}
	s := &stand{dir: dir, root: root, binary: binary, built: map[string]bool{}}
	if binary == "" {
		s.binary = filepath.Join(dir, "ratchet")
		if err := runTool(ctx, root, "go", "build", "-o", s.binary, "./cmd/ratchet"); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// names starts the name server that brokers of all kinds register at, for clients that need one.
func (s *stand) names(ctx context.Context) error {
	port, err := freeport.Get()
	if err != nil {
		return err
	}
	s.namesrv = fmt.Sprintf("127.0.0.1:%d", port)
	conf, err := namesConf(s.dir, port)
	if err != nil {
		return err
	}
	s.server, err = s.sides.launch(ctx, filepath.Join(s.dir, "namesrv.log"), s.namesrv, nil, s.binary, "namesrv", "-c", conf)
	return err
}

func (s *stand) close() {
	if s.server != nil {
		s.server.kill()
	}
}

// start runs one target.
func (s *stand) start(ctx context.Context, name string) (*target, error) {
	return s.startOn(ctx, name, nil)
}

// room is a new target that does not run yet, with a folder and an address.
func (s *stand) room(name string) (*target, int, error) {
	dir := s.folder(name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, 0, err
	}
	port, err := freeport.Get()
	return &target{stand: s, name: name, addr: fmt.Sprintf("127.0.0.1:%d", port), dir: dir}, port, err
}

// startOn runs one target on what fill has put into its store's folder.
func (s *stand) startOn(ctx context.Context, name string, fill func(store string) error) (*target, error) {
	t, port, err := s.room(name)
	if err != nil {
		return nil, err
	}
	dir := t.dir
	if fill != nil {
		if err := fill(t.store()); err != nil {
			return nil, err
		}
	}
	switch name {
	case ratchet:
		conf := filepath.Join(dir, "broker.conf")
		if err := s.brokerConf(conf, dir, port); err != nil {
			return nil, err
		}
		t.process, err = s.ours(ctx, t, "broker", "-c", conf)
	case java540, java497:
		t.process, err = s.startJava(ctx, name, dir, port)
	case bareGnet, gnetAppends:
		self, errSelf := os.Executable()
		if errSelf != nil {
			return nil, errSelf
		}
		folder := ""
		if name == gnetAppends {
			folder = dir
		}
		t.process, err = s.sides.launch(ctx, filepath.Join(dir, "log"), t.addr, []string{boundAddr + "=" + t.addr, boundDir + "=" + folder}, self)
	default:
		return nil, fmt.Errorf("no target %q", name)
	}
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return t, nil
}

// end ends a target and removes what it left behind.
func (s *stand) end(t *target) {
	t.kill()
	os.RemoveAll(t.dir)
}

// ours starts our binary as a target, or as its name server.
func (s *stand) ours(ctx context.Context, t *target, args ...string) (*process, error) {
	if s.pprof != "" {
		args = append(args, "-pprof", s.pprof)
	}
	return s.sides.launch(ctx, filepath.Join(t.dir, "log"), t.addr, nil, append([]string{s.binary}, args...)...)
}

// Variables that make this program serve as a bound instead of measuring.
const (
	boundAddr = "RATCHET_BENCHMARK_BOUND"
	boundDir  = "RATCHET_BENCHMARK_BOUND_DIR"
)

// brokerConf writes the settings that all brokers share: equal durability, and no refusals because the machine is slow.
// Each has a name of its own: two of one name would be one group.
func (s *stand) brokerConf(path, dir string, port int) error {
	flush := "ASYNC_FLUSH"
	if s.syncing {
		flush = "SYNC_FLUSH"
	}
	store := filepath.Join(dir, "store")
	return writeConf(path,
		"brokerClusterName", "benchmark", "brokerName", "benchmark-"+strings.ReplaceAll(filepath.Base(dir), ".", ""), "brokerId", 0,
		"brokerIP1", "127.0.0.1", "brokerIP2", "127.0.0.1", "namesrvAddr", s.namesrv,
		"listenPort", port, "haListenPort", port+1, "brokerRole", "ASYNC_MASTER", "flushDiskType", flush,
		"autoCreateTopicEnable", true, "autoCreateSubscriptionGroup", true,
		"storePathRootDir", store, "storePathCommitLog", filepath.Join(store, "commitlog"),
		"waitTimeMillsInSendQueue", 20_000, "osPageCacheBusyTimeOutMills", 20_000, "waitTimeMillsInPullQueue", 20_000,
		"diskMaxUsedSpaceRatio", 95, "diskSpaceCleanForciblyRatio", 99, "diskSpaceWarningLevelRatio", 99, "maxMessageSize", 4<<20,
	)
}

// writeConf writes key=value lines.
func writeConf(path string, pairs ...any) error {
	var b strings.Builder
	for i := 0; i < len(pairs); i += 2 {
		fmt.Fprintf(&b, "%v=%v\n", pairs[i], pairs[i+1])
	}
	return os.WriteFile(path, []byte(b.String()), 0o644)
}

// startJava runs a Java broker: 2 GiB of heap and G1, its own defaults for the rest.
func (s *stand) startJava(ctx context.Context, name, dir string, port int) (*process, error) {
	conf := filepath.Join(dir, "broker.conf")
	if err := s.brokerConf(conf, dir, port); err != nil {
		return nil, err
	}
	return s.java(ctx, name, "broker.BrokerStartup", dir, conf, port)
}

// java runs a server of RocketMQ's.
func (s *stand) java(ctx context.Context, name, class, dir, conf string, port int) (*process, error) {
	lib, err := s.jars(ctx, "conformance/oracle", strings.TrimPrefix(name, "java-"), "dependency:copy-dependencies")
	if err != nil {
		return nil, err
	}
	if err := oracle.WriteLogging(dir, "WARN"); err != nil {
		return nil, err
	}
	command := append([]string{"java", "-Xms2g", "-Xmx2g", "-XX:+UseG1GC"}, javaFlags(dir)...)
	command = append(command, "-Drocketmq.home.dir="+dir, "-cp", filepath.Join(lib, "*"), "org.apache.rocketmq."+class, "-c", conf)
	return s.sides.launch(ctx, filepath.Join(dir, "log"), fmt.Sprintf("127.0.0.1:%d", port), []string{"ROCKETMQ_HOME=" + dir}, command...)
}

// javaFlags are what 4.x and 5.x need on a current JDK. home receives logs that go below the user's home.
func javaFlags(home string) []string {
	flags := []string{"-Duser.home=" + home}
	for _, p := range []string{"java.nio", "sun.nio.ch", "java.lang", "java.util", "jdk.internal.ref"} {
		flags = append(flags, "--add-opens=java.base/"+p+"=ALL-UNNAMED")
	}
	return flags
}

// jars gets the jars of a Maven project of the tree for one release and returns their folder. What is there is taken
// as it is.
func (s *stand) jars(ctx context.Context, project, version string, goals ...string) (string, error) {
	dir := filepath.Join(s.root, filepath.FromSlash(project))
	lib := filepath.Join(dir, "target", version, "lib")
	if s.built[lib] {
		return lib, nil
	}
	if jars, _ := filepath.Glob(filepath.Join(lib, "rocketmq-*.jar")); len(jars) > 0 && len(goals) == 1 {
		return lib, nil
	}
	command := append([]string{"mvn", "-q", "-B", "-Drocketmq.version=" + version}, goals...)
	if err := runTool(ctx, dir, command...); err != nil {
		return "", err
	}
	s.built[lib] = true
	return lib, nil
}
