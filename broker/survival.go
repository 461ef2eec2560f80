package broker

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ratchetmq/ratchet/ha"
	"github.com/ratchetmq/ratchet/internal/config"
	"github.com/ratchetmq/ratchet/internal/vfs"
)

// openGroup makes what of the group comes before the store, which asks it what may be shown.
func (b *Broker) openGroup(c Config, host string) (err error) {
	s, g := c.Settings, &group{}
	if g.memory, err = ha.OpenMemory(c.FS, s.StoreRoot); err != nil {
		return err
	}
	port := s.HAPort
	if port == 0 && !b.anyPort {
		port = s.Port + 1
	}
	listen := func(port int) (net.Listener, error) {
		return net.Listen("tcp", net.JoinHostPort(s.BindAddr, strconv.Itoa(port)))
	}
	g.listener, err = listen(port)
	if errors.Is(err, unix.EADDRINUSE) && s.HAPort == 0 { // nobody asked for this one; slaves hear of any
		b.log.Warn("the port after listenPort is taken, slaves are told of another", "err", err)
		g.listener, err = listen(0)
	}
	if err != nil {
		return fmt.Errorf("haListenPort: %w", err)
	}
	port = g.listener.Addr().(*net.TCPAddr).Port
	g.haAddr = net.JoinHostPort(cmp.Or(s.IP2, host), strconv.Itoa(port))
	s.HAPort = port // as GET_BROKER_CONFIG tells it
	g.replicas = g.replicasOf(b, s)
	b.group = g
	return nil
}

// abortTime is when the broker that had the store before made it its own, if it did not end in order; else zero.
func abortTime(fsys vfs.FS, root string) time.Time {
	info, err := fsys.Stat(filepath.Join(root, "abort"))
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

// suspects says whether what was not flushed before this start may be gone. A process that is killed loses nothing, for
// the kernel has it; a power cut, or another machine, does.
func (b *Broker) suspects(s *config.Broker, unclean time.Time) (bool, error) {
	clean := b.store.WasClean()
	synced := s.Flush == config.SyncFlush
	boot := bootID()
	if !s.TrustPageCache {
		boot = ""
	}
	return b.group.memory.Awake(boot, clean, synced, func() bool {
		return !s.TrustPageCache || !unclean.After(bootTime())
	})
}

// bootID names the kernel's present life; empty where it has no name.
func bootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
}

// bootTime is when it began; the zero time when that is not known, which trusts the page cache as RocketMQ does.
func bootTime() time.Time {
	f, err := os.Open("/proc/stat")
	if err != nil {
		return time.Time{}
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "btime "); ok {
			if sec, err := strconv.ParseInt(text, 10, 64); err == nil {
				return time.Unix(sec, 0)
			}
		}
	}
	return time.Time{}
}
