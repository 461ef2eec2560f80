package broker

import (
	"context"
	"errors"
	"runtime"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/ratchetmq/ratchet/internal/config"
	"github.com/ratchetmq/ratchet/processor"
	"github.com/ratchetmq/ratchet/protocol"
	"github.com/ratchetmq/ratchet/remoting"
)

// serve runs the broker's loops until ctx is done or one of them fails, then stops them from the front to the back: no
// new work, answers for what is in flight, and only then the store. It closes started when clients may come.
//
//	front: group (registrar, delayed messages), server, processor (held pulls)   ends first, in this order
//	back:  HA port, consumer offsets, store                                     ends when nothing can call it any more
func (b *Broker) serve(ctx context.Context, started chan<- struct{}) error {
	// The back outlives ctx; a back loop that dies takes the front with it.
	backRoot, stopBack := context.WithCancel(context.WithoutCancel(ctx))
	defer stopBack()
	back, backCtx := errgroup.WithContext(backRoot)
	back.Go(func() error { return b.store.Run(backCtx) })
	back.Go(func() error { return b.offsets.Run(backCtx) })
	back.Go(func() error { return b.group.Serve(backCtx, b.replication.listener) })

	frontRoot, stopFront := context.WithCancel(ctx)
	defer stopFront()
	defer context.AfterFunc(backCtx, stopFront)()
	front, frontCtx := errgroup.WithContext(frontRoot)

	// The server stops after the registrar has taken its leave, and the processor after the server has stopped
	// reading: so no pull is parked that nobody answers.
	serverCtx, stopServer := context.WithCancel(backCtx)
	defer stopServer()
	front.Go(func() error { return b.server.Run(serverCtx) })
	processorCtx, stopProcessor := context.WithCancel(backCtx)
	defer stopProcessor()
	front.Go(func() error { return b.processor.Run(processorCtx) })
	front.Go(func() error {
		b.watchStore(frontCtx)
		return nil
	})
	front.Go(func() error {
		defer stopServer()
		defer stopProcessor()
		return b.register(frontCtx, started)
	})

	err := front.Wait()
	b.client.Close()
	stopBack()
	err = errors.Join(err, back.Wait(), b.closeFiles())
	if err != nil {
		b.log.Error("broker stopped", "err", err)
		return err
	}
	b.log.Info("broker stopped")
	return nil
}

// watchStore takes the broker out of the route for writers when the store has broken: what it has can still be read. It
// ends with ctx.
func (b *Broker) watchStore(ctx context.Context) {
	select {
	case <-b.store.Failed():
		b.log.Error("the store is broken: no more messages are taken until a restart, those there are can be read",
			"err", b.store.Err())
		b.registrar.RegisterAll()
	case <-ctx.Done():
	}
}

// permission is what clients may do here, for the route: brokerPermission, and no writing to a broken store.
func (b *Broker) permission() int32 {
	perm := int32(b.settings.Get().Permission)
	if b.store.Err() != nil {
		perm &^= protocol.PermWrite
	}
	return perm
}

// register waits for the server to listen, then plays the broker's role in its group, which keeps the name servers
// informed, until ctx is done.
func (b *Broker) register(ctx context.Context, started chan<- struct{}) error {
	select {
	case <-b.server.Ready():
	case <-ctx.Done():
		return nil
	}
	b.topics.OnChange(b.registrar.topicsChanged)
	b.settings.OnChange(func(before, after *config.Broker) {
		b.registrar.SetNameServers(after.Namesrv)
		if before.Permission != after.Permission {
			b.registrar.RegisterAll()
		}
		if before.AutoCreateTopic != after.AutoCreateTopic {
			b.topics.SwitchAutoCreate()
		}
	})
	var once sync.Once
	return b.group.Run(ctx, func() {
		once.Do(func() {
			b.log.Info("broker started", "addr", b.addr, "broker", b.settings.Get().Name)
			close(started)
		})
	})
}

// serverConfig has one lane for each class of work, so that a flood of one does not keep the others waiting.
func (b *Broker) serverConfig(s *config.Broker) remoting.ServerConfig {
	workers := func(configured int) int {
		if configured > 0 {
			return configured
		}
		return 2 * runtime.GOMAXPROCS(0)
	}
	lanes := make([]remoting.LaneConfig, processor.Lanes)
	lanes[processor.LaneSend] = remoting.LaneConfig{Name: "send", Workers: workers(s.SendWorkers), Queue: s.SendQueue, Group: true}
	lanes[processor.LanePull] = remoting.LaneConfig{Name: "pull", Workers: workers(s.PullWorkers), Queue: s.PullQueue}
	lanes[processor.LaneClient] = remoting.LaneConfig{Name: "client", Workers: workers(0), Queue: s.BeatQueue}
	lanes[processor.LaneAdmin] = remoting.LaneConfig{Name: "admin", Workers: workers(0), Queue: s.SendQueue}
	var addrs []string
	if b.chosen == nil {
		addrs = listenAddrs(s)
	}
	return remoting.ServerConfig{
		Addrs: addrs, Listeners: b.chosen, Handler: b.processor, Lanes: lanes, LaneOf: processor.LaneOf,
		IdleTimeout: s.IdleTimeout, OnClose: b.processor.ConnClosed, Logger: b.log,
	}
}

// lane is the state of a lane's queue. The lanes are there when a request is.
func (b *Broker) lane(i int) processor.Lane {
	s := b.settings.Get()
	capacity := s.SendQueue
	switch i {
	case processor.LanePull:
		capacity = s.PullQueue
	case processor.LaneClient:
		capacity = s.BeatQueue
	}
	return processor.Lane{Waiting: b.server.Stats().Lanes[i].Waiting, Capacity: capacity}
}

// closeFiles gives back what build has opened, whatever of it there is.
func (b *Broker) closeFiles() error {
	var errs []error
	if b.offsets != nil {
		errs = append(errs, b.offsets.Close())
	}
	if b.groups != nil {
		errs = append(errs, b.groups.Close())
	}
	if b.topics != nil {
		errs = append(errs, b.topics.Close())
	}
	if b.index != nil {
		errs = append(errs, b.index.Close())
	}
	if b.store != nil {
		errs = append(errs, b.store.Close())
	}
	if b.replication.listener != nil {
		_ = b.replication.listener.Close() // it is closed already, unless the broker never ran
	}
	for _, l := range b.chosen {
		_ = l.Close() // as well
	}
	return errors.Join(errs...)
}
