package namesrv

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ratchetmq/ratchet/protocol"
)

// Why a registration is refused.
var (
	// ErrFirstContact: a broker id that the table does not know sent a single topic. That is an increment to a state
	// that this name server never saw, and the broker has to send the whole table.
	ErrFirstContact = errors.New("register broker failed: the broker is not known and sent one topic only")
	// ErrName: a name that no broker may register, because it would lead out of a folder named after it or into
	// somebody's log.
	ErrName = errors.New("name is not allowed")
)

// selfTestTopic is one of the topics that every broker has from birth.
const selfTestTopic = "SELF_TEST_TOPIC"

// splitRegistrationSize is RocketMQ's default for the number of topics in one part of a split registration.
const splitRegistrationSize = 800

// Registration is one REGISTER_BROKER. The table keeps none of its slices.
type Registration struct {
	Cluster, Broker string
	ID              int64
	Addr, HAAddr    string
	Zone            string
	// ActingMaster is the header field enableActingMaster; not set by brokers before 5.0.
	ActingMaster protocol.Opt[bool]
	// Timeout is how long the broker lives without a sign of life; 0 means DefaultBrokerTimeout.
	Timeout time.Duration
	Version protocol.DataVersion
	Topics  []TopicEntry
	// OneMoment: the topics are those that Version stands for, no fewer.
	OneMoment bool
	// FilterServers replaces what the broker had; nil leaves it.
	FilterServers []string
	// Conn is the connection that the registration came over.
	Conn uint64
}

// TopicEntry is what a broker says about one of its topics.
type TopicEntry struct {
	Name                          string
	ReadQueues, WriteQueues, Perm int32
	SysFlag                       int32
	// Mapping is the JSON of the static queue mapping, nil for none.
	Mapping []byte
}

func (e *TopicEntry) shape() shape {
	return shape{read: e.ReadQueues, write: e.WriteQueues, perm: e.Perm, sysFlag: e.SysFlag}
}

// Registered is what a registration led to.
type Registered struct {
	// MasterAddr and HAServerAddr are set for a slave whose master is live.
	MasterAddr, HAServerAddr string
	// First: the table did not know this address under this broker id.
	First bool
	// Stood: the broker id stays with another address whose state version is newer.
	Stood bool
	// Evicted names the broker that had this address until now, "" for none.
	Evicted string
	// Added, Changed and Removed count topics of this broker.
	Added, Changed, Removed int
	// Refused are topics that were left out, with the reason; the rest is registered.
	Refused []error
}

// Register applies a registration. Errors: ErrFirstContact and ErrName, both without effect on the table.
func (t *Table) Register(r Registration) (Registered, error) {
	if err := checkIdentity(&r); err != nil {
		return Registered{}, err
	}
	t.writing.Lock()
	defer t.writing.Unlock()

	var old *member
	if g := t.groups[r.Broker]; g != nil {
		old = g.members[r.ID]
	}
	var res Registered
	switch {
	case old != nil && old.addr != r.Addr && old.version.StateVersion > r.Version.StateVersion:
		res.Stood = true
		return res, nil
	case old == nil && len(r.Topics) == 1:
		return res, ErrFirstContact
	}
	res.First = old == nil || old.addr != r.Addr
	// One address is one process: a broker that comes back under another id or name has left the old one. Another name
	// goes last, so that its topics are never without any broker.
	other := t.byAddr[r.Addr]
	if other != nil && (other.group.name != r.Broker || other.id != r.ID) {
		res.Evicted = fmt.Sprintf("%s:%d", other.group.name, other.id)
	} else {
		other = nil
	}
	m := t.enlist(&r, old, other)
	if other != nil && other.group == m.group {
		other = nil
	}
	g := m.group
	if least, _ := g.minID(); r.ID == masterID || r.ActingMaster.Set && r.ID == least {
		t.applyTopics(m, &r, &res)
	} else {
		m.version = r.Version
	}
	if other != nil {
		t.remove(other)
	}
	if r.ID != masterID {
		if master := g.members[masterID]; master != nil {
			res.MasterAddr, res.HAServerAddr = master.addr, master.haAddr
		}
	}
	t.registered.Store(true)
	return res, nil
}

// enlist makes the sender of r the member with its id. A new address makes a new member. other is who had the address,
// nil for nobody else.
func (t *Table) enlist(r *Registration, old, other *member) *member {
	m := old
	if old != nil && old.addr != r.Addr {
		t.release(old)
		m = nil
	}
	t.mu.Lock()
	g := t.groups[r.Broker]
	if g == nil {
		g = &group{name: strings.Clone(r.Broker), members: map[int64]*member{}, queues: map[string]*queue{}}
		t.groups[g.name] = g
	}
	if other != nil && other.group == g {
		delete(g.members, other.id)
	}
	if m == nil {
		m = &member{group: g, id: r.ID, addr: strings.Clone(r.Addr)}
		g.members[r.ID] = m
		t.Invalidate()
	}
	acting := r.ActingMaster.Set && r.ActingMaster.Value
	if g.cluster != r.Cluster || g.zone != r.Zone || g.actingMaster != acting {
		g.cluster, g.zone, g.actingMaster = strings.Clone(r.Cluster), strings.Clone(r.Zone), acting
		t.Invalidate()
	}
	m.haAddr = strings.Clone(r.HAAddr)
	if r.FilterServers != nil && !equal(m.filterServers, r.FilterServers) {
		m.filterServers = append([]string(nil), r.FilterServers...)
		t.Invalidate()
	}
	t.mu.Unlock()

	if other != nil && other.group == g {
		t.release(other)
	}
	t.byAddr[m.addr] = m
	t.adopt(m, r.Conn)
	m.lastSeen = t.now()
	m.timeout = r.Timeout
	if m.timeout <= 0 {
		m.timeout = DefaultBrokerTimeout
	}
	return m
}

// round is one application of a registration's topics.
type round struct {
	*Registration
	group   *group
	full    bool
	fresh   bool // nothing that the group's queues remember comes from this process
	overdue bool // an increment with a newer version has been applied before
	now     time.Time
}

// applyTopics makes the group's routes what the registration says.
func (t *Table) applyTopics(m *member, r *Registration, res *Registered) {
	g := m.group
	a := round{Registration: r, group: g, full: isFull(r), now: t.now()}
	a.fresh = g.writer != m || g.writerConn != r.Conn
	a.overdue = !a.fresh && older(r.Version, m.version)
	if a.overdue && a.full {
		// The same old version twice is no overtaken body: the broker did go back (a slave that took over the table
		// of another master).
		a.fresh, g.stale = g.stale == r.Version, r.Version
		a.overdue = !a.fresh
	}
	slack := g.sweepSlack(&a)
	if a.full {
		g.round++
	}
	rest := r.Topics
	for len(rest) > 0 {
		part := rest[:min(sliceSize, len(rest))]
		rest = rest[len(part):]
		t.mu.Lock()
		for i := range part {
			t.applyTopic(&a, &part[i], res)
		}
		t.mu.Unlock()
	}
	if a.full {
		res.Removed = t.sweep(&a, slack)
	}
	g.writer, g.writerConn = m, r.Conn
	m.advance(&a)
}

// applyTopic adds or updates one queue. Call it with mu held.
func (t *Table) applyTopic(a *round, e *TopicEntry, res *Registered) {
	q := a.group.queues[e.Name]
	s := e.shape()
	if a.ID != masterID && a.group.actingMaster {
		s.perm &^= protocol.PermWrite
	}
	switch {
	case q == nil:
		if err := checkTopic(e.Name, a.Registration); err != nil {
			res.Refused = append(res.Refused, err)
			return
		}
		q = t.addQueue(a.group, e.Name)
		res.Added++
	case !a.fresh && older(a.Version, q.version):
		q.round = a.group.round
		return
	case a.fresh || q.shape != s || string(q.mapping) != string(e.Mapping):
		if q.shape == s && q.perm == s.perm && string(q.mapping) == string(e.Mapping) {
			break
		}
		q.topic.forget()
		res.Changed++
	default:
		// Unchanged. A wiped write permission stays wiped.
		q.mark(a)
		return
	}
	q.shape, q.perm, q.mapping = s, s.perm, append([]byte(nil), e.Mapping...)
	q.mark(a)
}

// mark notes that the registration named the topic.
func (q *queue) mark(a *round) {
	q.version, q.round = a.Version, a.group.round
	q.safeUntil = time.Time{}
	if !a.full {
		q.safeUntil = a.now.Add(incrementGrace)
	}
}

// isFull says whether the body holds the broker's whole topic table (or, from a broker that sends it in parts, the part
// that stands for it). The three topics are made when a broker starts, are in every table of RocketMQ 4.9.7 to 5.4.0 and
// of ours, cannot be deleted or changed by an administrator, and so never are in an increment.
func isFull(r *Registration) bool {
	found := 0
	for i := range r.Topics {
		switch name := r.Topics[i].Name; {
		case name == selfTestTopic:
			found |= 1
		case name == r.Broker && name == r.Cluster:
			found |= 6
		case name == r.Broker:
			found |= 2
		case name == r.Cluster:
			found |= 4
		}
	}
	return found == 7
}

// sweepSlack returns how many full rounds a topic may miss before it is deleted. 0, unless the broker sends its table in
// parts: then the other parts came since the last full-looking one, or this is a part of RocketMQ's default size.
func (g *group) sweepSlack(a *round) uint64 {
	if !a.full {
		if len(a.Topics) > 1 {
			g.parts = true
		}
		return 0
	}
	parts := g.parts || len(a.Topics) == splitRegistrationSize
	g.parts = false
	if parts {
		return 1
	}
	return 0
}

// sweep deletes the group's topics that the full body a does not name.
func (t *Table) sweep(a *round, slack uint64) int {
	var gone []*queue
	for _, q := range a.group.queues {
		switch {
		case q.round+slack >= a.group.round:
		case !a.fresh && (!older(q.version, a.Version) || !a.OneMoment && a.now.Before(q.safeUntil)):
			// Next round, unless it is named until then.
		default:
			gone = append(gone, q)
		}
	}
	t.dropQueues(gone)
	return len(gone)
}

// advance notes up to which version the table's topics of this broker are complete, which is what QUERY_DATA_VERSION
// compares with. An increment is only complete if none before it is missing: else the broker must send all again.
func (m *member) advance(a *round) {
	switch {
	case a.full, m.group.round == 0 && len(a.Topics) != 1:
		if !a.overdue {
			m.version = a.Version
		}
	case a.Version.StateVersion == m.version.StateVersion && a.Version.Counter == m.version.Counter+1:
		m.version = a.Version
	}
}

// addQueue gives the group the topic. Call it with mu held.
func (t *Table) addQueue(g *group, name string) *queue {
	tp := t.topics[name]
	if tp == nil {
		// The name may be part of a request's body.
		tp = &topic{name: strings.Clone(name)}
		t.topics[tp.name] = tp
		t.topicsGen.Add(1)
	}
	q := &queue{group: g, topic: tp}
	at := 0
	for at < len(tp.queues) && tp.queues[at].group.name < g.name {
		at++
	}
	tp.queues = append(tp.queues, nil)
	copy(tp.queues[at+1:], tp.queues[at:])
	tp.queues[at] = q
	g.queues[tp.name] = q
	tp.forget()
	return q
}

// dropQueues deletes queues, some at a time.
func (t *Table) dropQueues(gone []*queue) {
	for len(gone) > 0 {
		part := gone[:min(sliceSize, len(gone))]
		gone = gone[len(part):]
		t.mu.Lock()
		for _, q := range part {
			t.dropQueue(q)
		}
		t.mu.Unlock()
	}
}

// dropQueue takes the topic from the group. Call it with mu held.
func (t *Table) dropQueue(q *queue) {
	tp := q.topic
	for i := range tp.queues {
		if tp.queues[i] == q {
			tp.queues = append(tp.queues[:i], tp.queues[i+1:]...)
			break
		}
	}
	delete(q.group.queues, tp.name)
	tp.forget()
	if len(tp.queues) == 0 && t.topics[tp.name] == tp {
		delete(t.topics, tp.name)
		t.topicsGen.Add(1)
	}
}

// forget drops the encoded routes. Call it with mu held.
func (tp *topic) forget() {
	tp.cached[0].Store(nil)
	tp.cached[1].Store(nil)
}

func equal(a, b []string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}
