package broker

import (
	"bufio"
	"cmp"
	"context"
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
	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/internal/vfs"
)

// replication is what of the group comes before the store, which asks it what may be shown.
type replication struct {
	memory   *ha.Memory
	replicas *ha.Replicas
	listener net.Listener
	haAddr   string // advertised
}

// openReplication takes the HA port, and reads what must be known after a crash.
func (b *Broker) openReplication(c Config, host string) (err error) {
	s, r := c.Settings, &b.replication
	if r.memory, err = ha.OpenMemory(c.FS, s.StoreRoot); err != nil {
		return err
	}
	port := s.HAPort
	if port == 0 && b.chosen == nil {
		port = s.Port + 1
	}
	listen := func(port int) (net.Listener, error) {
		return net.Listen("tcp", net.JoinHostPort(s.BindAddr, strconv.Itoa(port)))
	}
	r.listener, err = listen(port)
	if errors.Is(err, unix.EADDRINUSE) && s.HAPort == 0 { // nobody asked for this one; slaves hear of any
		b.log.Warn("the port after listenPort is taken, slaves are told of another", "err", err)
		r.listener, err = listen(0)
	}
	if err != nil {
		return fmt.Errorf("haListenPort: %w", err)
	}
	port = r.listener.Addr().(*net.TCPAddr).Port
	r.haAddr = net.JoinHostPort(cmp.Or(s.IP2, host), strconv.Itoa(port))
	s.HAPort = port // as GET_BROKER_CONFIG tells it
	r.replicas = ha.NewReplicas(ha.ReplicaOptions{
		Need: s.InSyncReplicas - 1, Timeout: s.SlaveTimeout, BehindMax: s.HASlaveBehindMax, Logger: b.log.With("component", "ha"),
		Written: func() offset.Physical { return b.store.Written() },
		Expose:  r.memory.Expose,
		Covered: func() {
			if err := r.memory.Covered(); err != nil {
				b.log.Error("not noted that slaves have everything", "err", err)
			}
		},
		Wake: func() { b.store.WakeDispatch() },
	})
	return nil
}

// newGroup puts the broker's part in its group together, when everything else is there.
func (b *Broker) newGroup(suspect bool) *ha.Group {
	return ha.NewGroup(ha.GroupOptions{
		Settings: b.settings, Addr: b.addr, HAAddr: b.replication.haAddr, Suspect: suspect,
		Store: b.store, Memory: b.replication.memory, Replicas: b.replication.replicas, Client: b.client, Dial: dialHA, Logger: b.log,
		Metadata: &ha.Metadata{
			Topics: b.topics, Groups: b.groups, Offsets: b.offsets, Delay: b.delay, Client: b.client, Logger: b.log,
			Written: b.store.Written, Deleted: b.store.Deleted, Removed: func(topic string) error { return b.processor.DropTopic(topic) },
			Changed: make(chan struct{}, 1),
		},
		Register: func(ctx context.Context) func() {
			b.registrar.start(ctx, b.settings.Get().Namesrv)
			return b.registrar.wait
		},
		Deliver: b.delay.Run,
	})
}

const haConnectTimeout = 3 * time.Second

var dialer net.Dialer

func dialHA(ctx context.Context, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, haConnectTimeout)
	defer cancel()
	return dialer.DialContext(ctx, "tcp", addr)
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
	return b.replication.memory.Awake(trustedBoot(s), clean, synced, func() bool {
		return !s.TrustPageCache || !unclean.After(bootTime())
	})
}

// trustedBoot is the boot whose page cache is trusted; empty when none is.
func trustedBoot(s *config.Broker) string {
	if !s.TrustPageCache {
		return ""
	}
	return bootID()
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
