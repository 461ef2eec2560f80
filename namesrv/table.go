package namesrv

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/ratchetmq/ratchet/protocol"
)

const (
	// masterID is the broker id of a master. All other ids are slaves.
	masterID = 0

	// DefaultBrokerTimeout is how long a broker lives without a sign of life, unless its registration says otherwise.
	DefaultBrokerTimeout = 120 * time.Second

	// incrementGrace is how long a topic that came in an increment is safe from full bodies that lack it.
	incrementGrace = 2 * time.Second

	// sliceSize is the number of topics that change under one hold of mu, so that route reads wait for some 100 µs even
	// while a broker with 60,000 topics registers.
	sliceSize = 512
)

// Table is the route table. All methods may be called from any goroutine.
//
// Two locks: writing serialises the changes, mu protects what readers see and is held for sliceSize topics at a time.
// Order: writing, then mu. Nothing else is called under mu.
type Table struct {
	now func() time.Time

	writing  sync.Mutex
	byAddr   map[string]*member              // guarded by writing: address -> who has it
	byConn   map[uint64]map[*member]struct{} // guarded by writing: connection -> brokers that live by it
	lastScan time.Time                       // guarded by writing

	mu     sync.RWMutex
	topics map[string]*topic // guarded by mu
	groups map[string]*group // guarded by mu: by broker name

	// brokersGen changes with everything but a topic's own queues that shows in a route: addresses, zones, settings.
	brokersGen atomic.Uint64
	// topicsGen changes with the set of topics.
	topicsGen  atomic.Uint64
	listing    atomic.Pointer[listing]
	registered atomic.Bool
	options    atomic.Pointer[Options]
}

// Options are the switches of a Table that change at run time.
type Options struct {
	// SupportActingMaster shows the slave with the smallest id as master of a group that has none.
	SupportActingMaster bool
	// OrderTopicConf returns the order configuration of a topic for its route, "" for none. May be nil. After a change
	// of its answer call Invalidate.
	OrderTopicConf func(topic string) string
}

// topic is a topic and the brokers that have it.
type topic struct {
	name   string
	queues []*queue // guarded by mu, sorted by broker name
	// cached are the encoded routes, index 0 with bare and 1 with quoted broker ids. Stored under mu (read), cleared
	// under mu (write).
	cached [2]atomic.Pointer[cachedRoute]
}

type cachedRoute struct {
	gen  uint64
	body []byte
}

// shape is what a registration says about one topic.
type shape struct {
	read, write, perm, sysFlag int32
}

// queue is one topic on one broker name.
type queue struct {
	group *group
	topic *topic

	perm    int32  // guarded by mu: what clients see; differs from shape.perm after a wipe
	mapping []byte // guarded by mu: JSON of the static queue mapping, nil for none
	shape          // guarded by mu

	// The rest is guarded by writing.
	version   protocol.DataVersion // that brought shape
	round     uint64               // the group's round that last named the topic
	safeUntil time.Time            // no full body deletes the topic before
}

// group is all brokers of one name.
type group struct {
	name         string
	cluster      string            // guarded by mu
	zone         string            // guarded by mu
	actingMaster bool              // guarded by mu: its brokers want to act as master
	members      map[int64]*member // guarded by mu: by broker id
	queues       map[string]*queue // guarded by mu: by topic

	// The rest is guarded by writing.
	writer     *member // whose registrations make the routes; nil: none yet
	writerConn uint64  // the connection it used
	round      uint64  // counts full bodies
	parts      bool    // a body that is part of a table came since the last full one
	stale      protocol.DataVersion
}

// member is one live broker process.
type member struct {
	group *group
	id    int64
	addr  string

	haAddr        string   // guarded by mu
	filterServers []string // guarded by mu

	// The rest is guarded by writing.
	conn     uint64
	lastSeen time.Time
	timeout  time.Duration
	version  protocol.DataVersion // the table's topics of this broker are complete up to here
}

// NewTable returns an empty table. now is the clock; nil means time.Now.
func NewTable(now func() time.Time) *Table {
	if now == nil {
		now = time.Now
	}
	t := &Table{
		now:    now,
		byAddr: map[string]*member{},
		byConn: map[uint64]map[*member]struct{}{},
		topics: map[string]*topic{},
		groups: map[string]*group{},
	}
	t.options.Store(&Options{})
	return t
}

// SetOptions replaces the switches. Routes show the new ones at once.
func (t *Table) SetOptions(o Options) {
	t.options.Store(&o)
	t.Invalidate()
}

// Invalidate drops all encoded routes, for a change outside of the table that routes show.
func (t *Table) Invalidate() { t.brokersGen.Add(1) }

// Registered says whether any broker has registered since the table was made.
func (t *Table) Registered() bool { return t.registered.Load() }

// Size returns how many topics and live brokers the table holds.
func (t *Table) Size() (topics, brokers int) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, g := range t.groups {
		brokers += len(g.members)
	}
	return len(t.topics), brokers
}

// minID returns the smallest broker id of the group. Call it with mu or writing held.
func (g *group) minID() (int64, bool) {
	found, least := false, int64(0)
	for id := range g.members {
		if !found || id < least {
			found, least = true, id
		}
	}
	return least, found
}

// older says whether a is the state before b. Versions of two processes are not comparable this way; the caller knows
// that both came from one.
func older(a, b protocol.DataVersion) bool {
	if a.StateVersion != b.StateVersion {
		return a.StateVersion < b.StateVersion
	}
	// The counter, not the time: a broker's clock may be set back, its counter never is.
	return a.Counter < b.Counter
}

// adopt makes conn the connection that m lives by. Call it with writing held.
func (t *Table) adopt(m *member, conn uint64) {
	if _, has := t.byConn[conn][m]; has {
		return
	}
	t.disown(m)
	m.conn = conn
	if t.byConn[conn] == nil {
		t.byConn[conn] = map[*member]struct{}{}
	}
	t.byConn[conn][m] = struct{}{}
}

func (t *Table) disown(m *member) {
	delete(t.byConn[m.conn], m)
	if len(t.byConn[m.conn]) == 0 {
		delete(t.byConn, m.conn)
	}
}
