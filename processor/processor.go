// Package processor is what a broker does with each kind of request: one file per request code, listed in routes.go.
// A handler checks what was asked, calls the store or a table of internal/state, and returns an answer. It knows
// nothing of sockets beyond the connection that a request came on, and nothing of files.
package processor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/ratchetmq/ratchet/delay"
	"github.com/ratchetmq/ratchet/ha"
	"github.com/ratchetmq/ratchet/internal/config"
	"github.com/ratchetmq/ratchet/internal/state"
	"github.com/ratchetmq/ratchet/message"
	"github.com/ratchetmq/ratchet/protocol"
	"github.com/ratchetmq/ratchet/remoting"
	"github.com/ratchetmq/ratchet/store"
	"github.com/ratchetmq/ratchet/store/index"
)

// Config is all that handlers work with. Everything but Logger is required.
type Config struct {
	Store     *store.Store
	Index     *index.Index
	Delay     delay.Levels
	Scheduler *delay.Scheduler
	Topics    *state.Topics
	Groups    *state.Groups
	Offsets   *state.Offsets
	Clients   *state.Clients
	Locks     *state.Locks
	Settings  *config.Live[config.Broker]
	Replicas  *ha.Replicas
	Group     Group
	StoreHost netip.AddrPort // what message ids name: the advertised address
	Memory    int64          // of this machine, bytes; decides what counts as a young queue
	// Lane tells the state of a lane's queue, Room that of the disk that holds a folder.
	Lane func(lane int) Lane
	Room func(dir string) (Room, error)
	// SaveSettings writes changed settings to the file that the broker was started with, all or none of them; nil when there
	// was no file. Two calls do not overlap.
	SaveSettings func(changed ...config.Pair) error
	Logger       *slog.Logger
}

// Processor serves a broker's requests. All methods may be called from any goroutine.
type Processor struct {
	store     *store.Store
	index     *index.Index
	delay     delay.Levels
	scheduler *delay.Scheduler
	topics    *state.Topics
	groups    *state.Groups
	offsets   *state.Offsets
	clients   *state.Clients
	locks     *state.Locks
	live      *config.Live[config.Broker]
	slaves    *ha.Replicas
	peers     Group
	log       *slog.Logger

	brokerName   string
	saveSettings func(changed ...config.Pair) error
	saving       sync.Mutex // held while settings are changed and saved
	ids          message.IDs
	memory       int64
	syncFlush    bool
	sendMarks    []byte        // properties that every sent message gets
	sendExtra    []protocol.KV // fields that every answer to a send has
	receipts     *protocol.ReceiptForm
	uniqueIDs    *message.UniqueIDs
	lane         func(int) Lane
	room         func(string) (Room, error)
	traffic      *traffic
	holds        *holds
	safe         *safety
}

// New makes a Processor. It hears of new messages from the store's dispatch, so it must be made before the store runs.
func New(c Config) *Processor {
	settings := c.Settings.Get()
	logger := c.Logger
	if logger == nil {
		logger = slog.Default()
	}
	p := &Processor{
		store: c.Store, index: c.Index, delay: c.Delay, scheduler: c.Scheduler,
		topics: c.Topics, groups: c.Groups, offsets: c.Offsets, clients: c.Clients, locks: c.Locks,
		live:         c.Settings,
		slaves:       c.Replicas,
		peers:        c.Group,
		log:          logger.With("component", "processor"),
		brokerName:   settings.Name,
		saveSettings: c.SaveSettings,
		ids:          message.NewIDs(c.StoreHost),
		memory:       c.Memory,
		syncFlush:    settings.Flush == config.SyncFlush,
		uniqueIDs:    message.NewUniqueIDs(c.StoreHost.Addr(), uint32(time.Now().UnixNano()), time.Now),
		lane:         c.Lane,
		room:         c.Room,
		traffic:      newTraffic(time.Now()),
		holds:        newHolds(),
		safe:         newSafety(c.Store, c.Replicas, settings.SyncFlushWait),
	}
	trace := "false"
	if settings.TraceOn {
		trace = "true"
	}
	p.sendMarks = message.AppendProperty(p.sendMarks, message.PropertyRegion, settings.RegionID)
	p.sendMarks = message.AppendProperty(p.sendMarks, message.PropertyTrace, trace)
	p.sendMarks = message.AppendProperty(p.sendMarks, message.PropertyCluster, settings.Cluster)
	p.sendExtra = []protocol.KV{
		{Key: message.PropertyRegion, Value: settings.RegionID}, {Key: message.PropertyTrace, Value: trace},
	}
	p.receipts = protocol.NewReceiptForm(p.sendExtra...)
	follows := func() bool {
		s := p.peers.Standing()
		return s.Follows()
	}
	p.topics.Follow(follows)
	p.groups.Follow(follows)
	c.Store.OnDeleted(p.offsets.RemoveTopic)
	c.Store.RestWhile(p.holds.none)
	c.Store.OnArrival(func(a store.Arrival) { p.holds.arrived(a.Topic, a.Queue, a.Offset+1, a.TagsCode) })
	return p
}

// HeldPulls is the number of pulls that wait for a message.
func (p *Processor) HeldPulls() int { return p.holds.len() }

// wakeWorkers answer held pulls; more than one so that a slow read does not delay the others.
const wakeWorkers = 4

// Run answers held pulls and overdue sends until ctx is done, then answers every pull that is still held.
func (p *Processor) Run(ctx context.Context) error {
	var loops sync.WaitGroup
	for range wakeWorkers {
		loops.Go(func() { p.holds.run(ctx, p.answerHeld) })
	}
	loops.Go(func() { p.holds.runDeadlines(ctx) })
	loops.Go(func() { p.safe.run(ctx) })
	loops.Go(func() { p.expireClients(ctx) })
	loops.Go(func() { p.traffic.run(ctx) })
	loops.Wait()
	return nil
}

// clientScan is how often silent clients are looked for.
const clientScan = 10 * time.Second

func (p *Processor) expireClients(ctx context.Context) {
	ticker := time.NewTicker(clientScan)
	defer ticker.Stop()
	for {
		select {
		case now := <-ticker.C:
			p.locks.Expire()
			p.notifyMembers(p.clients.Expire(now))
		case <-ctx.Done():
			return
		}
	}
}

// errLater is what a handler returns when it has handed its request on: the answer comes from elsewhere.
var errLater = errors.New("answered later")

// Serve answers one request. It is remoting's handler.
func (p *Processor) Serve(ctx context.Context, r *remoting.Request) {
	p.finish(r, func() (protocol.Reply, error) {
		route, ok := routes[protocol.RequestCode(r.Code)]
		if !ok {
			return protocol.Reply{
				Code:   protocol.RequestCodeNotSupported,
				Remark: fmt.Sprintf(" request type %d not supported", r.Code), // the space is RocketMQ's
			}, nil
		}
		if err := p.allows(route.need); err != nil {
			return protocol.Reply{}, err
		}
		return route.handle(p, ctx, r)
	})
}

// finish runs a handler and sends what it returned.
func (p *Processor) finish(r *remoting.Request, handle func() (protocol.Reply, error)) {
	reply, err := handle()
	if errors.Is(err, errLater) {
		return
	}
	if err != nil {
		reply = errorReply(err)
	}
	r.Reply(reply)
}

// settings are the broker's settings as they are now.
func (p *Processor) settings() *config.Broker { return p.live.Get() }

// permits says whether brokerPermission allows reading or writing.
func (p *Processor) permits(perm int32) bool { return int32(p.settings().Permission)&perm != 0 }

// takesMessages refuses when brokerPermission does not allow writing.
func (p *Processor) takesMessages() error {
	if p.permits(protocol.PermWrite) {
		return nil
	}
	return refuse(protocol.NoPermission, "broker %s takes no messages: brokerPermission is %d",
		p.brokerName, p.settings().Permission)
}

// topic is a topic that is to exist.
func (p *Processor) topic(name string) (*protocol.TopicConfig, error) {
	if topic, ok := p.topics.Get(name); ok {
		return topic, nil
	}
	return nil, refuse(protocol.TopicNotExist, "topic %s does not exist on broker %s", name, p.brokerName)
}

// group is a consumer group that is to exist.
func (p *Processor) group(name string) (*protocol.SubscriptionGroupConfig, error) {
	if group, ok := p.groups.Get(name); ok {
		return group, nil
	}
	return nil, refuse(protocol.SubscriptionGroupNotExist, "consumer group %s does not exist", name)
}
