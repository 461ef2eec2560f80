// Package oracle fetches and starts the Java original: its name server, its broker and its clients, of any published
// version. Both conformance, which compares with it, and crash, which lets its brokers replicate with ours, need that.
//
// Maven brings the jars. The paths are those of a test: the working directory is a folder next to conformance.
package oracle

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// JVMFlags are what the code of 3.x to 5.x needs on a current JDK, plus thrift for a small machine.
// home receives the logs that the Java code writes below the user's home.
func JVMFlags(home, heap string) []string {
	flags := []string{
		"-Xmx" + heap, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto",
		"-Duser.home=" + home,
	}
	for _, p := range []string{"java.nio", "sun.nio.ch", "java.lang", "java.util", "jdk.internal.ref"} {
		flags = append(flags, "--add-opens=java.base/"+p+"=ALL-UNNAMED")
	}
	return flags
}

// Two Maven runs at once would fight over the local repository. built are the folders with jars that are there by now.
var (
	mavenLock sync.Mutex
	built     = map[string]string{}
)

// maven runs the goals of a project, a folder of conformance, for one version, and returns the folder with the jars. It
// does so once: a test that starts a broker again does not wait for it.
func maven(project, version string, goals ...string) (lib string, err error) {
	mavenLock.Lock()
	defer mavenLock.Unlock()
	if lib, ok := built[project+version]; ok {
		return lib, nil
	}
	defer func() {
		if err == nil {
			built[project+version] = lib
		}
	}()
	args := append([]string{"-q", "-B", "-Drocketmq.version=" + version, "-Drocketmq.group=" + maker(version)}, goals...)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "mvn", args...)
	cmd.Dir = filepath.Join("..", "conformance", project)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("mvn in %s for %s: %w\n%s", project, version, err, out)
	}
	return filepath.Abs(filepath.Join(cmd.Dir, "target", version, "lib"))
}

// maker is whose package names a version has: 3.x is from before Apache.
func maker(version string) string {
	if strings.HasPrefix(version, "3.") {
		return "com.alibaba.rocketmq"
	}
	return "org.apache.rocketmq"
}

// Program is the command that runs a main class of conformance/java with the client of a version.
func Program(version, class, home string) ([]string, error) {
	lib, err := maven("java", version, "compile", "dependency:copy-dependencies")
	if err != nil {
		return nil, err
	}
	classes := filepath.Join(filepath.Dir(lib), "classes")
	return append(append([]string{"java"}, JVMFlags(home, "256m")...), "-cp", classes+":"+filepath.Join(lib, "*"), class), nil
}

// Namesrv is the Java name server of a version, with its configuration in conf and its home in home.
func Namesrv(version, home, conf, log string, ports ...int) (*Server, error) {
	return javaServer(version, "namesrv.NamesrvStartup", home, conf, log, ports)
}

// Broker is the Java broker of a version.
func Broker(version, home, conf, log string, ports ...int) (*Server, error) {
	return javaServer(version, "broker.BrokerStartup", home, conf, log, ports)
}

func javaServer(version, class, home, conf, log string, ports []int) (*Server, error) {
	lib, err := maven("oracle", version, "dependency:copy-dependencies")
	if err != nil {
		return nil, err
	}
	args := append([]string{"java"}, JVMFlags(home, "512m")...)
	args = append(args, "-Drocketmq.home.dir="+home, "-cp", filepath.Join(lib, "*"), maker(version)+"."+class, "-c", conf)
	s := NewServer(args, log, "boot success", ports...)
	s.Env = []string{"ROCKETMQ_HOME=" + home}
	return s, nil
}

// WriteLogging writes two files that 3.x and 4.x do not start without; 5.x does not look for them.
func WriteLogging(home, level string) error {
	logback := `<configuration>
  <appender name="out" class="ch.qos.logback.core.ConsoleAppender"><encoder><pattern>%d %-5p %c - %m%n</pattern></encoder></appender>
  <root level="` + level + `"><appender-ref ref="out"/></root>
</configuration>
`
	if err := os.MkdirAll(filepath.Join(home, "conf"), 0o755); err != nil {
		return err
	}
	for _, name := range []string{"logback_namesrv.xml", "logback_broker.xml"} {
		if err := os.WriteFile(filepath.Join(home, "conf", name), []byte(logback), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// WriteConf writes key=value lines.
func WriteConf(path string, pairs ...any) error {
	var b strings.Builder
	for i := 0; i < len(pairs); i += 2 {
		fmt.Fprintf(&b, "%v=%v\n", pairs[i], pairs[i+1])
	}
	return os.WriteFile(path, []byte(b.String()), 0o644)
}
