package namesrv

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ratchetmq/ratchet/internal/config"
	"github.com/ratchetmq/ratchet/internal/vfs"
	"github.com/ratchetmq/ratchet/protocol"
	"github.com/ratchetmq/ratchet/remoting"
)

// DefaultStartGrace is how long a name server that no broker has registered with says "not ready" to route queries. A
// broker registers every 30 s.
const DefaultStartGrace = 30 * time.Second

// Config is what a Server is made of. The zero value is a name server with RocketMQ's defaults that keeps no files.
type Config struct {
	// Addrs are the addresses to listen at, ":0" for any free port. None: the settings' bindAddress and listenPort.
	Addrs []string
	// Settings are the properties; nil: the defaults, and the KV table is not kept on disk.
	Settings *config.Live[config.Namesrv]
	// StartGrace is how long after the start route queries are answered "not ready" while no broker has registered yet.
	// 0 means DefaultStartGrace, less than 0 not at all.
	StartGrace time.Duration
	// FS holds kvConfig.json and the properties; nil means the disk.
	FS vfs.FS
	// Logger may be nil.
	Logger *slog.Logger
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Server is a name server. Make it with New, then call Run once.
type Server struct {
	settings *config.Live[config.Namesrv]
	fs       vfs.FS
	log      *slog.Logger
	now      func() time.Time
	started  time.Time
	grace    time.Duration

	table  *Table
	kv     *kvStore
	remote *remoting.Server
	conns  sync.Map   // connection id -> *remoting.Conn, those that brokers live by
	saving sync.Mutex // held while settings are changed and saved
}

// Lanes. Brokers have their own, so that their heartbeats never wait behind lists of 60,000 topics.
const (
	laneRoute = iota
	laneBroker
	laneAdmin
)

// New makes a server and reads its KV table. It listens only in Run.
func New(cfg Config) (*Server, error) {
	s := &Server{settings: cfg.Settings, fs: cfg.FS, log: cfg.Logger, now: cfg.Now, grace: cfg.StartGrace}
	if s.settings == nil {
		n := new(config.Namesrv)
		config.Defaults(n)
		s.settings = config.NewLive(n, nil, config.OSEnv())
	}
	if s.fs == nil {
		s.fs = vfs.OS{}
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.now == nil {
		s.now = time.Now
	}
	if s.grace == 0 {
		s.grace = DefaultStartGrace
	}
	s.started = s.now()
	s.table = NewTable(s.now)
	set := s.settings.Get()
	var err error
	if s.kv, err = openKV(s.fs, set.KVPath, s.log); err != nil {
		return nil, err
	}
	s.applySettings(nil, set)
	s.settings.OnChange(s.applySettings)

	addrs := cfg.Addrs
	if len(addrs) == 0 {
		addrs = []string{set.BindAddr + ":" + strconv.Itoa(set.Port)}
	}
	s.remote, err = remoting.NewServer(remoting.ServerConfig{
		Addrs:   addrs,
		Handler: remoting.HandlerFunc(s.serve),
		Lanes: []remoting.LaneConfig{
			laneRoute:  {Name: "route", Workers: set.RouteWorkers, Queue: set.RouteQueue},
			laneBroker: {Name: "broker", Workers: 4, Queue: set.DefaultQueue},
			laneAdmin:  {Name: "admin", Workers: 4, Queue: set.DefaultQueue},
		},
		LaneOf:      laneOf,
		IdleTimeout: set.IdleTimeout,
		OnClose:     s.connClosed,
		Logger:      s.log,
	})
	if err != nil {
		return nil, fmt.Errorf("name server: %w", err)
	}
	return s, nil
}

// applySettings hands the settings that the table needs to it.
func (s *Server) applySettings(_, now *config.Namesrv) {
	o := Options{SupportActingMaster: now.ActingMaster}
	if now.OrderMessage {
		o.OrderTopicConf = func(topic string) string {
			conf, _ := s.kv.get(protocol.NamespaceOrderTopic, topic)
			return conf
		}
	}
	s.table.SetOptions(o)
}

// Run serves until ctx is done and all connections are closed. Its goroutines, the network's and the expiry loop, have
// ended when it returns.
func (s *Server) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.remote.Run(ctx) })
	g.Go(func() error { s.expireLoop(ctx); return nil })
	return g.Wait()
}

// Ready is closed once the server listens.
func (s *Server) Ready() <-chan struct{} { return s.remote.Ready() }

// Addr is the first address the server listens at. It waits until the server listens.
func (s *Server) Addr() netip.AddrPort { return s.remote.Addrs()[0] }

// Table is the server's route table.
func (s *Server) Table() *Table { return s.table }

// Stats are the counters of the network side.
func (s *Server) Stats() remoting.Stats { return s.remote.Stats() }

// expireLoop forgets brokers that no longer give signs of life.
func (s *Server) expireLoop(ctx context.Context) {
	interval := s.settings.Get().ScanEvery
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, gone := range s.table.Expire(interval) {
			s.logOf(gone).Info("broker expired")
			// The broker may be alive behind a dead connection: closing it makes it come back over a new one.
			if c, ok := s.conns.Load(gone.Conn); ok && gone.LastConn {
				c.(*remoting.Conn).Close()
			}
		}
	}
}

// connClosed runs once no request of the connection will reach a handler any more.
func (s *Server) connClosed(c *remoting.Conn) {
	s.conns.Delete(c.ID())
	for _, gone := range s.table.ConnClosed(c.ID()) {
		s.logOf(gone).Info("broker connection closed")
	}
}

func (s *Server) logOf(gone Gone) *slog.Logger {
	return s.log.With("broker", gone.Broker, "id", gone.ID, "cluster", gone.Cluster, "addr", gone.Addr)
}

// handler answers one request. An error is answered with the code that refusal gives it.
type handler func(s *Server, r *remoting.Request) (protocol.Reply, error)

// routes is the whole API. Every other code is answered with REQUEST_CODE_NOT_SUPPORTED.
var routes = map[protocol.RequestCode]struct {
	lane   int
	handle handler
}{
	protocol.GetRouteInfoByTopic: {laneRoute, (*Server).getRoute},

	protocol.RegisterBroker:         {laneBroker, (*Server).registerBroker},
	protocol.UnregisterBroker:       {laneBroker, (*Server).unregisterBroker},
	protocol.QueryDataVersion:       {laneBroker, (*Server).queryDataVersion},
	protocol.BrokerHeartbeat:        {laneBroker, (*Server).brokerHeartbeat},
	protocol.RegisterTopicInNamesrv: {laneBroker, (*Server).registerTopic},
	protocol.GetBrokerMemberGroup:   {laneBroker, (*Server).getMemberGroup},

	protocol.PutKVConfig:          {laneAdmin, (*Server).putKV},
	protocol.GetKVConfig:          {laneAdmin, (*Server).getKV},
	protocol.DeleteKVConfig:       {laneAdmin, (*Server).deleteKV},
	protocol.GetKVListByNamespace: {laneAdmin, (*Server).listKV},

	protocol.GetBrokerClusterInfo:          {laneAdmin, (*Server).getClusterInfo},
	protocol.WipeWritePermOfBroker:         {laneAdmin, (*Server).wipeWritePerm},
	protocol.AddWritePermOfBroker:          {laneAdmin, (*Server).addWritePerm},
	protocol.GetAllTopicListFromNameServer: {laneAdmin, (*Server).getAllTopics},
	protocol.GetTopicsByCluster:            {laneAdmin, (*Server).getTopicsByCluster},
	protocol.GetSystemTopicListFromNS:      {laneAdmin, (*Server).getSystemTopics},
	protocol.GetUnitTopicList:              {laneAdmin, (*Server).getUnitTopics},
	protocol.GetHasUnitSubTopicList:        {laneAdmin, (*Server).getUnitSubTopics},
	protocol.GetHasUnitSubUnUnitTopicList:  {laneAdmin, (*Server).getUnitSubNonUnitTopics},
	protocol.DeleteTopicInNamesrv:          {laneAdmin, (*Server).deleteTopic},
	protocol.UpdateNamesrvConfig:           {laneAdmin, (*Server).updateSettings},
	protocol.GetNamesrvConfig:              {laneAdmin, (*Server).getSettings},
}

func laneOf(code int32) int { return routes[protocol.RequestCode(code)].lane }

func (s *Server) serve(_ context.Context, r *remoting.Request) {
	route, ok := routes[protocol.RequestCode(r.Code)]
	if !ok {
		r.Reply(protocol.Reply{
			Code:   protocol.RequestCodeNotSupported,
			Remark: fmt.Sprintf(" request type %d not supported", r.Code), // RocketMQ's text, with its space
		})
		return
	}
	rep, err := route.handle(s, r)
	if err != nil {
		rep = refusal(err)
	}
	r.Reply(rep)
}
