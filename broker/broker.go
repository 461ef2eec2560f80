// Package broker puts a broker together from its parts, starts them in order and stops them in the opposite one. It
// is also how another Go program runs one: see Start.
package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"sync/atomic"

	"github.com/ratchetmq/ratchet/delay"
	"github.com/ratchetmq/ratchet/ha"
	"github.com/ratchetmq/ratchet/internal/config"
	"github.com/ratchetmq/ratchet/internal/state"
	"github.com/ratchetmq/ratchet/internal/vfs"
	"github.com/ratchetmq/ratchet/processor"
	"github.com/ratchetmq/ratchet/remoting"
	"github.com/ratchetmq/ratchet/store"
	"github.com/ratchetmq/ratchet/store/index"
)

// Config says how a broker is to run.
type Config struct {
	Settings *config.Broker // required; see config.LoadBroker
	Unknown  []config.Pair  // keys of the file that mean nothing here: kept, shown, named once in the log
	File     string         // the file that Settings came from; changed settings are saved to it. May be empty
	FS       vfs.FS         // where data is; nil: the operating system's
	Logger   *slog.Logger   // nil: slog.Default
}

// Broker is a running broker.
type Broker struct {
	settings *config.Live[config.Broker]
	log      *slog.Logger

	store     *store.Store
	index     *index.Index
	topics    *state.Topics
	groups    *state.Groups
	offsets   *state.Offsets
	delay     *delay.Scheduler
	processor *processor.Processor
	server    *remoting.Server
	client    *remoting.Client
	registrar *registrar
	group     *ha.Group
	unread    atomic.Int64 // see MessagesExpiredUnread

	replication replication

	addr   string         // advertised
	chosen []net.Listener // on the ports that the system chose, which may choose that of HA, too
	done   chan struct{}
	err    error // how it ended; set before done is closed
}

// Start runs a broker until ctx is done. It returns when the broker can be used: its data is recovered, it listens, and
// it has begun to register at its name servers. If ctx is done before that, the error is ctx's. Wait tells when it has
// stopped.
func Start(ctx context.Context, c Config) (*Broker, error) {
	b := &Broker{log: c.Logger, done: make(chan struct{})}
	if b.log == nil {
		b.log = slog.Default()
	}
	if c.FS == nil {
		c.FS = vfs.OS{}
	}
	b.settings = config.NewLive(c.Settings, c.Unknown, config.OSEnv())
	for _, pair := range c.Unknown {
		b.log.Warn("setting without effect", "key", pair.Key, "path", c.File)
	}
	if err := b.build(c); err != nil {
		if b.client != nil {
			b.client.Close()
		}
		return nil, errors.Join(err, b.closeFiles())
	}
	started := make(chan struct{})
	go func() { // owned: by the Broker; it ends after ctx is done, or when a part fails, and closes done
		defer close(b.done)
		b.err = b.serve(ctx, started)
	}()
	select {
	case <-started:
		return b, nil
	case <-b.done:
		return nil, cmp.Or(b.err, context.Cause(ctx)) // it ends without an error only when ctx is done
	}
}

// Addr is the address that clients are told.
func (b *Broker) Addr() string { return b.addr }

// Wait returns when the broker has stopped: nil after ctx was done and everything is on disk, else what went wrong.
func (b *Broker) Wait() error {
	<-b.done
	return b.err
}

// build makes the parts, bottom up. What it has opened when it fails is closed by closeFiles.
func (b *Broker) build(c Config) error {
	s := c.Settings
	var err error
	if b.chosen, err = choosePort(s); err != nil {
		return err
	}
	host, err := advertisedHost(s)
	if err != nil {
		return err
	}
	b.addr = net.JoinHostPort(host, strconv.Itoa(s.Port))
	storeHost, err := numbered(host, s.Port)
	if err != nil {
		return err
	}
	levels, err := delayLevels(s)
	if err != nil {
		return err
	}
	b.settings.Demand(func(s *config.Broker) error {
		_, err := delayLevels(s)
		return err
	})
	if err := b.openReplication(c, host); err != nil {
		return err
	}
	unclean := abortTime(c.FS, s.StoreRoot)
	if err := b.openStore(c, storeHost, levels); err != nil {
		return err
	}
	suspect, err := b.suspects(s, unclean)
	if err != nil {
		b.store.Break(err)
		return err
	}
	if err := b.openTables(c, levels); err != nil {
		return err
	}
	memory, err := physicalMemory()
	if err != nil {
		return err
	}
	b.client, err = remoting.NewClient(remoting.ClientConfig{
		Logger:  b.log,
		OnClose: func(addr string, _ *remoting.Conn) { b.registrar.Disconnected(addr) },
	})
	if err != nil {
		return err
	}
	b.group = b.newGroup(suspect)
	b.processor = processor.New(processor.Config{
		Store: b.store, Index: b.index, Delay: levels, Scheduler: b.delay,
		Topics: b.topics, Groups: b.groups, Offsets: b.offsets,
		Clients: state.NewClients(state.ClientOptions{}), Locks: state.NewLocks(state.LockOptions{}),
		Settings: b.settings, Replicas: b.replication.replicas, Group: b.group, StoreHost: storeHost, Memory: memory, Lane: b.lane, Room: roomOf(c.FS), SaveSettings: saver(c), Logger: b.log,
	})
	b.server, err = remoting.NewServer(b.serverConfig(s))
	if err != nil {
		return err
	}
	b.registrar = newRegistrar(identity{
		cluster: s.Cluster, name: s.Name, id: b.group.BrokerID, heartbeat: s.RegisterEvery,
		addr: b.addr, haAddr: b.replication.haAddr,
	}, b.topics, b.client, b.permission, b.log)
	b.registrar.onMaster = b.group.MasterIs
	return nil
}

func delayLevels(s *config.Broker) (delay.Levels, error) {
	levels, err := delay.ParseLevels(s.DelayLevels)
	if err != nil {
		return nil, fmt.Errorf("messageDelayLevel: %w", err)
	}
	return levels, nil
}

func (b *Broker) openStore(c Config, host netip.AddrPort, levels delay.Levels) (err error) {
	s := c.Settings
	options := store.Options{
		FS: c.FS, Root: s.StoreRoot, CommitLogDirs: s.CommitLogDirs(), ReadOnlyCommitLogDirs: s.ReadOnlyCommitLogDirs(),
		SegmentSize: s.SegmentSize, ConsumeQueueUnits: s.QueueUnits(),
		FlushInterval: s.FlushEvery, FlushLeastBytes: int64(s.FlushPages) * 4096, FlushThorough: s.FlushThorough,
		Retention: b.retention, CleanInterval: s.CleanEvery, OnExpire: b.expired,
		MaxUnflushedBytes: s.MaxUnflushedBytes, MaxUnflushedMessages: s.MaxUnflushedMessages,
		Confirmed: b.replication.replicas.Confirmed, MaxMessageSize: s.MaxMessageSize, StoreHost: host,
		TagsCode: levels.TagsCode, SameBoot: b.replication.memory.SameBoot(trustedBoot(s)), Logger: b.log,
	}
	if s.Flush == config.SyncFlush {
		options.Flush = store.SyncFlush
	}
	if s.IndexEnable {
		options.OpenIndex = func(clean bool, synced int64) (store.Indexer, error) {
			var err error
			b.index, err = index.Open(c.FS, filepath.Join(s.StoreRoot, "index"), index.Options{
				Slots: s.IndexSlots, Entries: s.IndexEntries, Unclean: !clean, SameBoot: options.SameBoot, SyncedTime: synced, Logger: b.log,
			})
			return b.index, err
		}
	}
	b.store, err = store.Open(options)
	return err
}
