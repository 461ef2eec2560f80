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
	id        int64
	addr      string // advertised, host:port
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
	// perm is what every topic's permission is cut down to.
	perm func() int32

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

	mu      sync.Mutex
	pending map[string]bool // topics to tell of. guarded by mu
	full    bool            // tell of all. guarded by mu
	waiters []chan struct{} // closed by the next successful registration. guarded by mu
}

// Limits of a registration.
const (
	registerTimeout = 3 * time.Second
	registerRetry   = 500 * time.Millisecond
	// topicChangeWait is how long a request that changed a topic waits for name servers to know.
	topicChangeWait = time.Second
)

func newRegistrar(self identity, topics *state.Topics, client *remoting.Client, perm func() int32, log *slog.Logger) *registrar {
	return &registrar{
		self: self, topics: topics, client: client, perm: perm,
		log: log.With("component", "registrar"), links: map[string]*link{},
	}
}

// start registers at the name servers, and waits a short time for them to know the broker; it goes on without those
// that are away. Everything ends when ctx does, see wait.
func (g *registrar) start(ctx context.Context, addrs []string) {
	g.mu.Lock()
	g.run = ctx
	g.mu.Unlock()
	g.SetNameServers(addrs)
	g.topicsChanged(state.TopicChange{})
}

// SetNameServers replaces the list of name servers: it registers at new ones at once and leaves those that are gone.
func (g *registrar) SetNameServers(addrs []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	wanted := map[string]bool{}
	for _, addr := range addrs {
		wanted[addr] = true
		if g.links[addr] != nil {
			continue
		}
		ctx, stop := context.WithCancel(g.run)
		l := &link{addr: addr, stop: stop, poke: make(chan struct{}, 1), pending: map[string]bool{}, full: true}
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
func (g *registrar) topicsChanged(change state.TopicChange) {
	g.mu.Lock()
	done := make([]chan struct{}, 0, len(g.links))
	for _, l := range g.links {
		done = append(done, l.tell(change))
	}
	g.mu.Unlock()
	awaitAll(done, topicChangeWait)
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

// RegisterAll tells every name server everything again, soon: the broker's permission or address has changed.
func (g *registrar) RegisterAll() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, l := range g.links {
		l.tellAll()
	}
}

// tell asks for a registration that has the changed topics in it or, when a topic is gone, all others. The channel is
// closed when the name server knows.
func (l *link) tell(change state.TopicChange) chan struct{} {
	done := make(chan struct{})
	l.mu.Lock()
	for _, topic := range change.Put {
		l.pending[topic.TopicName] = true
	}
	l.full = l.full || len(change.Deleted) > 0
	l.waiters = append(l.waiters, done)
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

// register sends one registration: everything, or the topics that changed since the last one.
func (g *registrar) register(ctx context.Context, l *link) error {
	l.mu.Lock()
	pending, full, waiters := l.pending, l.full, l.waiters
	l.pending, l.full, l.waiters = map[string]bool{}, false, nil
	l.mu.Unlock()

	err := g.send(ctx, l, pending, full)
	if err != nil {
		l.mu.Lock()
		l.full = true
		l.waiters = append(l.waiters, waiters...)
		l.mu.Unlock()
		return err
	}
	for _, w := range waiters {
		close(w)
	}
	return nil
}

func (g *registrar) send(ctx context.Context, l *link, pending map[string]bool, full bool) error {
	body, err := g.body(pending, full)
	if err != nil {
		return err
	}
	header := &protocol.RegisterBrokerRequest{
		BrokerName: g.self.name, BrokerAddr: g.self.addr, ClusterName: g.self.cluster,
		HAServerAddr: g.self.haAddr, BrokerID: g.self.id, BodyCRC32: protocol.BodyCRC(body),
	}
	ctx, cancel := context.WithTimeout(ctx, registerTimeout)
	defer cancel()
	resp, err := g.client.Call(ctx, l.addr, protocol.RegisterBroker, header, nil, body)
	if err != nil {
		return err
	}
	if resp.Code != int32(protocol.Success) {
		return errors.New("name server answers " + protocol.ResponseCode(resp.Code).String() + ": " + resp.Remark)
	}
	return g.applyOrder(resp.Body)
}

// body is what a registration carries: every topic, or those in pending.
func (g *registrar) body(pending map[string]bool, full bool) ([]byte, error) {
	topics, version := g.topics.Snapshot()
	perm := g.perm() | protocol.PermInherit | protocol.PermPriority
	table := make(map[string]protocol.TopicConfig, len(topics))
	for name, topic := range topics {
		if full || pending[name] {
			config := *topic
			config.Perm &= perm
			table[name] = config
		}
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
		BrokerName: g.self.name, BrokerAddr: g.self.addr, ClusterName: g.self.cluster, BrokerID: g.self.id,
	}
	if _, err := g.client.Call(ctx, l.addr, protocol.UnregisterBroker, header, nil, nil); err != nil {
		g.log.Warn("not unregistered", "addr", l.addr, "err", err)
	}
}
