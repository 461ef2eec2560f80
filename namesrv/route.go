package namesrv

import (
	"strconv"
	"strings"

	"github.com/ratchetmq/ratchet/protocol"
)

// syncMemberPrefix begins the topics that tell brokers of one name from each other; they show no acting master.
const syncMemberPrefix = "rmq_sys_SYNC_BROKER_MEMBER_"

// Route returns the encoded route of a topic (body of code 105), and false when no live broker has it. The bytes belong
// to the table: do not write to them. quoted writes broker ids as JSON strings; clients before 4.9.4 are used to bare
// numbers, which is not JSON.
//
// An unchanged route is encoded once.
func (t *Table) Route(name string, quoted bool) ([]byte, bool) {
	variant := 0
	if quoted {
		variant = 1
	}
	// Read before anything that a route shows, so that a change in between makes the cached bytes stale, not wrong.
	gen := t.brokersGen.Load()

	t.mu.RLock()
	defer t.mu.RUnlock()
	tp := t.topics[name]
	if tp == nil {
		return nil, false
	}
	if c := tp.cached[variant].Load(); c != nil && c.gen == gen {
		return c.body, c.body != nil
	}
	c := &cachedRoute{gen: gen}
	e := routeEncoder{options: t.options.Load(), topic: tp, quoted: quoted}
	if e.live() {
		c.body = e.append(make([]byte, 0, e.size()))
	}
	tp.cached[variant].Store(c)
	return c.body, c.body != nil
}

// ZoneRoute is Route for a client that wants brokers of one zone only (compared without case). Brokers of a name that
// has no live master are shown to every zone.
func (t *Table) ZoneRoute(name, zone string, quoted bool) ([]byte, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	tp := t.topics[name]
	if tp == nil {
		return nil, false
	}
	e := routeEncoder{options: t.options.Load(), topic: tp, quoted: quoted}
	if !e.live() {
		return nil, false
	}
	e.zone = zone
	return e.append(make([]byte, 0, e.size())), true
}

// routeEncoder writes one route. Use it with mu held. Keys are in alphabetical order and there is no white space, which
// is how every RocketMQ name server writes and what the Go client needs.
type routeEncoder struct {
	options *Options
	topic   *topic
	quoted  bool
	zone    string // "" = all
}

// live says whether any broker of the topic is.
func (e *routeEncoder) live() bool {
	for _, q := range e.topic.queues {
		if len(q.group.members) > 0 {
			return true
		}
	}
	return false
}

// shown says whether the client sees the brokers of a group.
func (e *routeEncoder) shown(g *group) bool {
	if len(g.members) == 0 {
		return false
	}
	// As in RocketMQ the acting master counts here: the zone is looked at after it took its place.
	return e.zone == "" || strings.EqualFold(g.zone, e.zone) || !g.hasMaster() && e.acting(g) < 0
}

func (g *group) hasMaster() bool { return g.members[masterID] != nil }

// acting returns the id of the slave to show as master of the group, -1 for none: the smallest, if there is no master,
// the brokers want it, and the topic takes no messages there.
func (e *routeEncoder) acting(g *group) int64 {
	if !e.options.SupportActingMaster || !g.actingMaster || g.hasMaster() ||
		strings.HasPrefix(e.topic.name, syncMemberPrefix) {
		return -1
	}
	for _, q := range e.topic.queues {
		if q.group == g && q.perm&protocol.PermWrite == 0 {
			if least, ok := g.minID(); ok {
				return least
			}
		}
	}
	return -1
}

// size is a guess of the encoded length.
func (e *routeEncoder) size() int {
	n := 80
	for _, q := range e.topic.queues {
		n += 160 + 2*len(q.group.name) + len(q.group.cluster) + 40*len(q.group.members) + len(q.mapping)
	}
	return n
}

func (e *routeEncoder) append(dst []byte) []byte {
	dst = append(dst, `{"brokerDatas":[`...)
	for i, q := range e.shownQueues() {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = q.group.append(dst, e.quoted, e.acting(q.group))
	}
	dst = append(dst, `],"filterServerTable":{`...)
	dst = e.appendFilterServers(dst)
	dst = append(dst, '}')
	if e.options.OrderTopicConf != nil {
		if conf := e.options.OrderTopicConf(e.topic.name); conf != "" {
			dst = append(dst, `,"orderTopicConf":`...)
			dst = appendString(dst, conf)
		}
	}
	dst = append(dst, `,"queueDatas":[`...)
	for i, q := range e.shownQueues() {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, `{"brokerName":`...)
		dst = appendString(dst, q.group.name)
		dst = append(dst, `,"perm":`...)
		dst = strconv.AppendInt(dst, int64(q.perm), 10)
		dst = append(dst, `,"readQueueNums":`...)
		dst = strconv.AppendInt(dst, int64(q.read), 10)
		dst = append(dst, `,"topicSysFlag":`...)
		dst = strconv.AppendInt(dst, int64(q.sysFlag), 10)
		dst = append(dst, `,"writeQueueNums":`...)
		dst = strconv.AppendInt(dst, int64(q.write), 10)
		dst = append(dst, '}')
	}
	dst = append(dst, ']')
	dst = e.appendMappings(dst)
	return append(dst, '}')
}

// shownQueues yields the queues that the client sees, numbered from 0.
func (e *routeEncoder) shownQueues() func(yield func(int, *queue) bool) {
	return func(yield func(int, *queue) bool) {
		n := 0
		for _, q := range e.topic.queues {
			if !e.shown(q.group) {
				continue
			}
			if !yield(n, q) {
				return
			}
			n++
		}
	}
}

// appendFilterServers writes the members of filterServerTable: broker address -> its filter servers.
func (e *routeEncoder) appendFilterServers(dst []byte) []byte {
	first := true
	for _, q := range e.shownQueues() {
		for _, m := range q.group.sorted() {
			if len(m.filterServers) == 0 {
				continue
			}
			if !first {
				dst = append(dst, ',')
			}
			first = false
			dst = appendString(dst, m.addr)
			dst = append(dst, ':')
			dst = appendStrings(dst, m.filterServers)
		}
	}
	return dst
}

// appendMappings writes the static queue mappings, if there are any.
func (e *routeEncoder) appendMappings(dst []byte) []byte {
	first := true
	for _, q := range e.shownQueues() {
		if len(q.mapping) == 0 {
			continue
		}
		if first {
			dst = append(dst, `,"topicQueueMappingByBroker":{`...)
		} else {
			dst = append(dst, ',')
		}
		first = false
		dst = appendString(dst, q.group.name)
		dst = append(dst, ':')
		dst = append(dst, q.mapping...)
	}
	if !first {
		dst = append(dst, '}')
	}
	return dst
}

// append writes the group as BrokerData. acting is the id to show as 0, -1 for none. Call it with mu held.
func (g *group) append(dst []byte, quoted bool, acting int64) []byte {
	dst = append(dst, `{"brokerAddrs":`...)
	dst = g.appendAddrs(dst, quoted, acting)
	dst = append(dst, `,"brokerName":`...)
	dst = appendString(dst, g.name)
	dst = append(dst, `,"cluster":`...)
	dst = appendString(dst, g.cluster)
	dst = append(dst, `,"enableActingMaster":`...)
	dst = strconv.AppendBool(dst, g.actingMaster)
	if g.zone != "" {
		dst = append(dst, `,"zoneName":`...)
		dst = appendString(dst, g.zone)
	}
	return append(dst, '}')
}

func (g *group) appendAddrs(dst []byte, quoted bool, acting int64) []byte {
	dst = append(dst, '{')
	for i, m := range g.sorted() {
		if i > 0 {
			dst = append(dst, ',')
		}
		id := m.id
		if id == acting {
			id = masterID
		}
		if quoted {
			dst = append(dst, '"')
		}
		dst = strconv.AppendInt(dst, id, 10)
		if quoted {
			dst = append(dst, '"')
		}
		dst = append(dst, ':')
		dst = appendString(dst, m.addr)
	}
	return append(dst, '}')
}

// sorted returns the members by id. Call it with mu held.
func (g *group) sorted() []*member {
	ms := make([]*member, 0, len(g.members))
	for _, m := range g.members {
		at := len(ms)
		for at > 0 && ms[at-1].id > m.id {
			at--
		}
		ms = append(ms, nil)
		copy(ms[at+1:], ms[at:])
		ms[at] = m
	}
	return ms
}

const hexDigits = "0123456789abcdef"

// appendString writes s as a JSON string, non-ASCII as it is.
func appendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, s[start:i]...)
		start = i + 1
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	dst = append(dst, s[start:]...)
	return append(dst, '"')
}

func appendStrings(dst []byte, list []string) []byte {
	dst = append(dst, '[')
	for i, s := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendString(dst, s)
	}
	return append(dst, ']')
}
