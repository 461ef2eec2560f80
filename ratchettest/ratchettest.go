// Package ratchettest gives other people's tests a broker: in the test's own process, on free ports, with its data in a
// folder that goes away with the test. It is ready in some ten milliseconds.
//
//	func TestOrders(t *testing.T) {
//		b := ratchettest.Start(t)
//		producer, _ := rocketmq.NewProducer(producer.WithNameServer([]string{b.NameServer}))
//		...
//	}
package ratchettest

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/ratchetmq/ratchet/broker"
	"github.com/ratchetmq/ratchet/internal/config"
	"github.com/ratchetmq/ratchet/internal/freeport"
	"github.com/ratchetmq/ratchet/namesrv"
)

// Broker is a running broker with a name server of its own.
type Broker struct {
	NameServer string // host:port, for clients
	Addr       string // the broker's own host:port

	t        testing.TB
	dir      string
	settings []string
	stop     context.CancelFunc
	running  sync.WaitGroup
}

// Start runs a name server and a broker until the test ends. settings are lines of a broker.conf, "key=value".
func Start(t testing.TB, settings ...string) *Broker {
	t.Helper()
	b := &Broker{t: t, dir: t.TempDir(), settings: settings}
	b.startNamesrv()
	port, err := freeport.Get() // not any: Restart finds it free
	if err != nil {
		t.Fatal(err)
	}
	b.start(strconv.Itoa(port))
	t.Cleanup(func() { b.Stop() })
	return b
}

// Restart stops the broker as SIGTERM does and starts it again on the same data and port.
func (b *Broker) Restart() {
	b.t.Helper()
	b.Stop()
	b.Start()
}

// Start starts a broker that was stopped again, on the same data and port; more settings count for this time.
func (b *Broker) Start(more ...string) {
	b.t.Helper()
	b.start(b.Addr[strings.LastIndexByte(b.Addr, ':')+1:], more...)
}

// Wipe removes all data of a broker that was stopped, as a new disk does.
func (b *Broker) Wipe() { b.Remove("") }

// Remove removes a file or folder of the store of a broker that was stopped.
func (b *Broker) Remove(name string) {
	b.t.Helper()
	if err := os.RemoveAll(filepath.Join(b.dir, "store", name)); err != nil {
		b.t.Fatal(err)
	}
}

// Files are the names of what is in a folder of the store.
func (b *Broker) Files(folder string) (names []string) {
	b.t.Helper()
	list, err := os.ReadDir(filepath.Join(b.dir, "store", folder))
	if err != nil && !os.IsNotExist(err) {
		b.t.Fatal(err)
	}
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

// Stop stops the broker as SIGTERM does and waits for it. It may be called more than once.
func (b *Broker) Stop() {
	b.stop()
	b.running.Wait()
}

func (b *Broker) startNamesrv() {
	b.t.Helper()
	server, err := namesrv.New(namesrv.Config{Addrs: []string{"127.0.0.1:0"}, StartGrace: -1, Logger: quiet()})
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := server.Run(ctx); err != nil {
			b.t.Errorf("name server: %v", err)
		}
	})
	b.t.Cleanup(func() {
		stop()
		running.Wait()
	})
	<-server.Ready()
	b.NameServer = server.Addr().String()
}

func (b *Broker) start(port string, more ...string) {
	b.t.Helper()
	lines := append([]string{
		"brokerName=ratchettest", "bindAddress=127.0.0.1", "listenPort=" + port, "vipPortEnable=false",
		"namesrvAddr=" + b.NameServer,
		fmt.Sprintf("mappedFileSizeCommitLog=%d", 16<<20), "mappedFileSizeConsumeQueue=200000",
		"maxHashSlotNum=10000", "maxIndexNum=40000",
	}, slices.Concat(b.settings, more)...)
	settings, _, err := config.LoadBroker("ratchettest", []byte(strings.Join(lines, "\n")), filepath.Join(b.dir, "store"),
		config.OSEnv())
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	b.stop = stop
	running, err := broker.Start(ctx, broker.Config{Settings: settings, Logger: quiet()})
	if err != nil {
		stop()
		b.t.Fatal(err)
	}
	b.Addr = running.Addr()
	b.running.Go(func() {
		if err := running.Wait(); err != nil {
			b.t.Errorf("broker: %v", err)
		}
	})
}

func quiet() *slog.Logger {
	if os.Getenv("RATCHETTEST_LOG") != "" {
		return slog.Default()
	}
	return slog.New(slog.DiscardHandler)
}
