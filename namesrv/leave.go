package namesrv

import (
	"fmt"
	"time"

	"github.com/ratchetmq/ratchet/protocol"
)

// Gone names a broker that left the table.
type Gone struct {
	Cluster, Broker string
	ID              int64
	Addr            string
	Conn            uint64
	// LastConn: no other broker lives by Conn.
	LastConn bool
}

// Unregister removes the broker that said goodbye (code 104). What is not there is no error. A broker is named by name
// and address, as in RocketMQ 5; the id only by older ones.
func (t *Table) Unregister(cluster, broker, addr string) (Gone, bool) {
	t.writing.Lock()
	defer t.writing.Unlock()
	m := t.byAddr[addr]
	if m == nil || m.group.name != broker || m.group.cluster != cluster {
		return Gone{}, false
	}
	return t.remove(m), true
}

// ConnClosed removes the brokers that live by the connection. A broker that has registered, or given any other sign of
// life, over a newer connection is not one of them.
func (t *Table) ConnClosed(conn uint64) []Gone {
	t.writing.Lock()
	defer t.writing.Unlock()
	var gone []Gone
	for m := range t.byConn[conn] {
		gone = append(gone, t.remove(m))
	}
	return gone
}

// Expire removes the brokers that gave no sign of life for too long. Call it every interval: if it is called much later
// than that, this process stood still and could not have heard anybody, so everybody gets that time as well.
func (t *Table) Expire(interval time.Duration) []Gone {
	t.writing.Lock()
	defer t.writing.Unlock()
	now := t.now()
	var pause time.Duration
	if late := now.Sub(t.lastScan); !t.lastScan.IsZero() && late > 3*interval {
		pause = late
	}
	t.lastScan = now
	var late []*member
	for _, m := range t.byAddr {
		if pause > 0 {
			m.lastSeen = m.lastSeen.Add(pause)
		}
		if now.Sub(m.lastSeen) > m.timeout {
			late = append(late, m)
		}
	}
	var gone []Gone
	for _, m := range late {
		gone = append(gone, t.remove(m))
	}
	return gone
}

// Heartbeat notes a sign of life (code 904). False: the broker is not known and has to register.
func (t *Table) Heartbeat(cluster, addr string, conn uint64) bool {
	t.writing.Lock()
	defer t.writing.Unlock()
	m := t.byAddr[addr]
	if m == nil || m.group.cluster != cluster {
		return false
	}
	m.lastSeen = t.now()
	t.adopt(m, conn)
	return true
}

// DataVersion is what QUERY_DATA_VERSION asks: the version up to which the table is complete for the broker. ok is false
// for an unknown broker. It is a sign of life too.
func (t *Table) DataVersion(cluster, addr string, conn uint64) (v protocol.DataVersion, ok bool) {
	t.writing.Lock()
	defer t.writing.Unlock()
	m := t.byAddr[addr]
	if m == nil || m.group.cluster != cluster {
		return v, false
	}
	m.lastSeen = t.now()
	t.adopt(m, conn)
	return m.version, true
}

// remove takes m out of the table, and with the last of its group the topics. Call it with writing held.
func (t *Table) remove(m *member) Gone {
	g := m.group
	gone := Gone{Cluster: g.cluster, Broker: g.name, ID: m.id, Addr: m.addr, Conn: m.conn}
	t.release(m)
	gone.LastConn = t.byConn[m.conn] == nil

	t.mu.Lock()
	if g.members[m.id] == m {
		delete(g.members, m.id)
	}
	t.Invalidate()
	empty := len(g.members) == 0
	if empty {
		delete(t.groups, g.name)
	}
	t.mu.Unlock()

	switch {
	case empty:
		t.dropQueues(g.all())
	case m.id == masterID && g.actingMaster:
		// A slave may act as master but take no messages; until it says so itself, say it here.
		t.setWritable(g, false)
	}
	return gone
}

// release frees what finds m by address and connection.
func (t *Table) release(m *member) {
	if t.byAddr[m.addr] == m {
		delete(t.byAddr, m.addr)
	}
	t.disown(m)
	if m.group.writer == m {
		m.group.writer = nil
	}
}

// all returns the group's queues. Call it with writing held.
func (g *group) all() []*queue {
	qs := make([]*queue, 0, len(g.queues))
	for _, q := range g.queues {
		qs = append(qs, q)
	}
	return qs
}

// SetWritable takes the write permission from every topic of the broker name, or gives it (codes 205 and 327), and
// returns how many topics the broker has. A topic keeps it until the broker registers that topic with other settings,
// or comes back over a new connection.
func (t *Table) SetWritable(broker string, writable bool) int {
	t.writing.Lock()
	defer t.writing.Unlock()
	g := t.groups[broker]
	if g == nil {
		return 0
	}
	return t.setWritable(g, writable)
}

func (t *Table) setWritable(g *group, writable bool) int {
	qs := g.all()
	for rest := qs; len(rest) > 0; {
		part := rest[:min(sliceSize, len(rest))]
		rest = rest[len(part):]
		t.mu.Lock()
		for _, q := range part {
			if writable {
				q.perm |= protocol.PermWrite
			} else {
				q.perm &^= protocol.PermWrite
			}
			q.topic.forget()
		}
		t.mu.Unlock()
	}
	return len(qs)
}

// DeleteTopic removes the topic (code 216), from the brokers of one cluster only if cluster is not empty. A broker that
// still has the topic brings it back with its next registration. It returns from how many brokers.
func (t *Table) DeleteTopic(name, cluster string) int {
	t.writing.Lock()
	defer t.writing.Unlock()
	tp := t.topics[name]
	if tp == nil {
		return 0
	}
	var gone []*queue
	for _, q := range tp.queues {
		if cluster == "" || q.group.cluster == cluster {
			gone = append(gone, q)
		}
	}
	t.dropQueues(gone)
	return len(gone)
}

// RegisterTopic gives a topic to brokers that are registered (code 217); queues maps broker name to entry. It returns to
// how many. The next full registration of a broker does not delete it, the one after it does unless it names the topic.
func (t *Table) RegisterTopic(name string, queues map[string]TopicEntry) (int, error) {
	t.writing.Lock()
	defer t.writing.Unlock()
	done := 0
	for broker, e := range queues {
		g := t.groups[broker]
		if g == nil {
			continue
		}
		if err := checkTopic(name, &Registration{Broker: g.name, Cluster: g.cluster}); err != nil {
			return done, fmt.Errorf("register topic: %w", err)
		}
		t.mu.Lock()
		q := g.queues[name]
		if q == nil {
			q = t.addQueue(g, name)
			q.shape = e.shape()
			q.perm = e.Perm
		} else if s := e.shape(); q.shape != s {
			q.shape, q.perm = s, s.perm
			q.topic.forget()
		}
		q.round = g.round + 1
		t.mu.Unlock()
		done++
	}
	return done, nil
}
