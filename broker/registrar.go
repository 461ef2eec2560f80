package broker

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/ratchetmq/ratchet/internal/state"
	"github.com/ratchetmq/ratchet/protocol"
	"github.com/ratchetmq/ratchet/remoting"
)

// identity is how a broker introduces itself to name servers.
type identity struct {
	cluster   string
	name      string
	id        func() int64 // it changes when roles are switched
	addr      string       // advertised, host:port
	haAddr    string
	heartbeat time.Duration // how often it registers
}

// registrar keeps every name server informed of this broker and its topics. Each name server has a goroutine of its
// own, so that one that does not answer delays nobody (apache/rocketmq#7056).
type registrar struct {
	self   identity
	topics *state.Topics
	client *remoting.Client
	log    *slog.Logger
	// onMaster is told whom a name server takes for the group's master; empty: nobody.
	onMaster func(addr string)
	// perm is what every topic's permission is cut down to.
	perm     func() int32
	patience time.Duration // of topicsChanged

	mu    sync.Mutex
	links map[string]*link // by name server address. guarded by mu
	run   context.Context  // links live as long; nil before run. guarded by mu
	loops sync.WaitGroup
}

// link is the registration at one name server.
type link struct {
	addr string
	stop context.CancelFunc
	poke chan struct{}

	// told is the table as the name server has it, nil when that is not known. It belongs to the link's goroutine.
	told map[string]*protocol.TopicConfig

	mu      sync.Mutex
	full    bool            // tell of all topics, not only of those that differ from told. guarded by mu
	waiters []chan struct{} // closed when the next registration has ended. guarded by mu
	away    bool            // the last one failed, and nobody waits for the next. guarded by mu
}

// Limits of a registration.
const (
	registerTimeout = 10 * time.Second // a full table is large, and a name server may have other things to do
	registerRetry   = 500 * time.Millisecond
	// topicChangeWait is how long a request that changed a topic waits for name servers to know.
	topicChangeWait = time.Second
)

func newRegistrar(self identity, topics *state.Topics, client *remoting.Client, perm func() int32, log *slog.Logger) *registrar {
	return &registrar{
		self: self, topics: topics, client: client, perm: perm, patience: topicChangeWait,
		log: log.With("component", "registrar"), links: map[string]*link{},
	}
}

// start registers at the name servers, and waits for them to know the broker; it goes on without those that are away.
// Everything ends when ctx does, see wait; then it may be started again.
func (g *registrar) start(ctx context.Context, addrs []string) {
	g.mu.Lock()
	g.run = ctx
	clear(g.links)
	g.mu.Unlock()
	g.SetNameServers(addrs)
	g.tell(registerTimeout)
}

// SetNameServers replaces the list of name servers: it registers at new ones at once and leaves those that are gone.
func (g *registrar) SetNameServers(addrs []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.run == nil {
		return // it will be started with the list as it is then
	}
	wanted := map[string]bool{}
	for _, addr := range addrs {
		wanted[addr] = true
		if g.links[addr] != nil {
			continue
		}
		ctx, stop := context.WithCancel(g.run)
		l := &link{addr: addr, stop: stop, poke: make(chan struct{}, 1)}
		g.links[addr] = l
		g.loops.Go(func() { g.keep(ctx, l) })
	}
	for addr, l := range g.links {
		if !wanted[addr] {
			delete(g.links, addr)
			l.stop()
		}
	}
}

// wait returns when every link has said good-bye to its name server, after the context given to start is done.
func (g *registrar) wait() { g.loops.Wait() }

// topicsChanged makes every name server know of a change of the topic table. It waits a short time at most, so that
// whoever asks a name server after the answer to the request that made the change finds the topic.
func (g *registrar) topicsChanged(state.TopicChange) { g.tell(g.patience) }

// tell asks for registrations of what has changed, and waits until each has ended, or for the limit.
func (g *registrar) tell(limit time.Duration) {
	g.mu.Lock()
	done := make([]chan struct{}, 0, len(g.links))
	for _, l := range g.links {
		done = append(done, l.tell())
	}
	g.mu.Unlock()
	awaitAll(done, limit)
}

// awaitAll waits until all channels are closed, or for the limit.
func awaitAll(done []chan struct{}, limit time.Duration) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for _, ch := range done {
		select {
		case <-ch:
		case <-timer.C:
			return
		}
	}
}

// RegisterAll tells every name server everything again, soon: the broker's permission has changed, and with it what is
// told of topics that have not. It does so under a new version, as a name server looks at no second table of the same.
func (g *registrar) RegisterAll() {
	if err := g.topics.Renew(); err != nil {
		g.log.Error("new version of the topics not saved", "err", err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, l := range g.links {
		l.tellAll()
	}
}

// tell asks for a registration of what has changed. The channel is closed when the name server knows, or is away.
func (l *link) tell() chan struct{} {
	done := make(chan struct{})
	l.mu.Lock()
	if l.away {
		close(done)
	} else {
		l.waiters = append(l.waiters, done)
	}
	l.mu.Unlock()
	l.ring()
	return done
}

// tellAll asks for a registration of everything, soon.
func (l *link) tellAll() {
	l.mu.Lock()
	l.full = true
	l.mu.Unlock()
	l.ring()
}

func (l *link) ring() {
	select {
	case l.poke <- struct{}{}:
	default:
	}
}

// Disconnected is to be called when the connection to a name server has ended: it was restarted, perhaps, and must not
// have to wait for the next round.
func (g *registrar) Disconnected(addr string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if l := g.links[addr]; l != nil {
		l.tellAll()
	}
}

// keep registers at one name server, again and again, until ctx is done; then it unregisters.
func (g *registrar) keep(ctx context.Context, l *link) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	known := false
	for {
		select {
		case <-timer.C:
			l.mu.Lock()
			l.full = true
			l.mu.Unlock()
		case <-l.poke:
		case <-ctx.Done():
			g.leave(l)
			return
		}
		err := g.register(ctx, l)
		if ctx.Err() != nil {
			continue
		}
		if (err == nil) != known {
			known = err == nil
			g.logChange(l, err)
		}
		next := g.self.heartbeat
		if err != nil {
			next = registerRetry
		}
		timer.Reset(next)
	}
}

func (g *registrar) logChange(l *link, err error) {
	if err == nil {
		g.log.Info("registered", "addr", l.addr, "broker", g.self.name)
		return
	}
	g.log.Warn("not registered, trying on", "addr", l.addr, "broker", g.self.name, "err", err)
}

// register sends one registration: everything, or what has changed since the last one. A name server takes no second
// table of the same version, so a table must hold all that its version stands for: what differs from the last, and not
// what somebody has called a change.
func (g *registrar) register(ctx context.Context, l *link) error {
	l.mu.Lock()
	full, waiters := l.full, l.waiters
	l.full, l.waiters = false, nil
	l.mu.Unlock()

	topics, version := g.topics.Snapshot()
	news := topics
	if !full {
		news = changed(l.told, topics)
	}
	var err error
	if full || len(news) > 0 { // else another change's registration had this one in it
		err = g.send(ctx, l, news, version)
	}
	if l.told = topics; err != nil {
		l.told = nil
	}
	l.mu.Lock()
	if l.away = err != nil; l.away {
		waiters, l.waiters = append(waiters, l.waiters...), nil
	}
	l.mu.Unlock()
	for _, w := range waiters {
		close(w)
	}
	return err
}

// changed are the topics in after that are new or different; all of them when one is gone, or nothing is known of before.
func changed(before, after map[string]*protocol.TopicConfig) map[string]*protocol.TopicConfig {
	if before == nil {
		return after
	}
	for name := range before {
		if after[name] == nil {
			return after
		}
	}
	news := map[string]*protocol.TopicConfig{}
	for name, topic := range after {
		if before[name] != topic { // entries are never changed, but replaced
			news[name] = topic
		}
	}
	return news
}

func (g *registrar) send(
	ctx context.Context, l *link, topics map[string]*protocol.TopicConfig, version protocol.DataVersion,
) error {
	body, err := g.body(topics, version)
	if err != nil {
		return err
	}
	header := &protocol.RegisterBrokerRequest{
		BrokerName: g.self.name, BrokerAddr: g.self.addr, ClusterName: g.self.cluster,
		HAServerAddr: g.self.haAddr, BrokerID: g.self.id(), BodyCRC32: protocol.BodyCRC(body),
	}
	ctx, cancel := context.WithTimeout(ctx, registerTimeout)
	defer cancel()
	resp, err := g.client.Call(ctx, l.addr, protocol.RegisterBroker, header, []protocol.KV{{Key: protocol.FieldOneMoment, Value: "true"}}, body)
	if err != nil {
		return err
	}
	if resp.Code != int32(protocol.Success) {
		return errors.New("name server answers " + protocol.ResponseCode(resp.Code).String() + ": " + resp.Remark)
	}
	var told protocol.RegisterBrokerResponse
	if err := resp.ReadHeader(&told); err == nil && g.onMaster != nil {
		g.onMaster(told.MasterAddr)
	}
	return g.applyOrder(resp.Body)
}

// body is what a registration carries.
func (g *registrar) body(topics map[string]*protocol.TopicConfig, version protocol.DataVersion) ([]byte, error) {
	perm := g.perm() | protocol.PermInherit | protocol.PermPriority
	table := make(map[string]protocol.TopicConfig, len(topics))
	for name, topic := range topics {
		config := *topic
		config.Perm &= perm
		table[name] = config
	}
	return protocol.Marshal(protocol.RegisterBrokerBody{
		FilterServerList:            []string{},
		TopicConfigSerializeWrapper: protocol.TopicConfigSerializeWrapper{DataVersion: version, TopicConfigTable: table},
	})
}

// applyOrder takes over which topics the name server's operator has declared ordered.
func (g *registrar) applyOrder(body []byte) error {
	if len(body) == 0 {
		return nil
	}
	var kv protocol.KVTable
	if err := protocol.Unmarshal(body, &kv); err != nil {
		return err
	}
	// The change of the table is told to all links and waits for them, this one included: not from its own goroutine.
	g.loops.Go(func() {
		if err := g.topics.MarkOrder(kv.Table); err != nil {
			g.log.Error("order topics not saved", "err", err)
		}
	})
	return nil
}

// leave takes the broker out of one name server. It is best effort: a name server that is away forgets it by itself.
func (g *registrar) leave(l *link) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	header := &protocol.UnregisterBrokerRequest{
		BrokerName: g.self.name, BrokerAddr: g.self.addr, ClusterName: g.self.cluster, BrokerID: g.self.id(),
	}
	if _, err := g.client.Call(ctx, l.addr, protocol.UnregisterBroker, header, nil, nil); err != nil {
		g.log.Warn("not unregistered", "addr", l.addr, "err", err)
	}
}
