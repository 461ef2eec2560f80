package sim

import (
	"bytes"
	"cmp"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/internal/state"
	"github.com/ratchetmq/ratchet/message"
	"github.com/ratchetmq/ratchet/protocol"
	"github.com/ratchetmq/ratchet/store"
)

// ledger sees everything, and holds the promises against it.
type ledger struct {
	c *cluster

	// mu is taken with a node's held, never the other way round.
	mu       sync.Mutex
	lines    []string                  // guarded by mu, as all below; what happened
	broken   []string                  // promises
	given    map[place]string          // message, of every offset that was acknowledged or delivered
	places   map[string]place          // and the other way round
	highest  map[queueName]int64       // behind the highest of them
	at       map[place]offset.Physical // in a log
	sure     map[string]*fate          // messages answered OK
	floors   map[progress]mark         // committed offsets that all brokers had
	pending  []floor                   // that they may have by now
	gone     map[int]map[int]bool      // by host of an open master: hosts that it could not ask when it opened
	openedAt map[int]offset.Physical   // by life
	orders
}

type queueName struct {
	topic string
	queue int32
}

type place struct {
	queueName
	offset int64
	life   offset.Physical // see ledger.life
}

func (p place) String() string { return fmt.Sprintf("%s/%d:%d", p.topic, p.queue, p.offset) }

type progress struct {
	group string
	queueName
}

// floor is a committed offset that all brokers had, each in the life given.
type floor struct {
	at    time.Time
	of    progress
	mark  mark
	lives []int
}

// fate is which hosts have a message that was answered OK.
type fate struct {
	hosts map[int]offset.Physical // the end of its record in the log
	lost  bool                    // at some time none had it any more
	when  string
}

// walk is what of a process's log was read.
type walk struct {
	mu      sync.Mutex
	next    offset.Physical
	records []record
	gaps    uint64 // store.GapChanges + 1; 0: nothing is read yet
}

// record is a message in a log.
type record struct {
	at   offset.Physical
	size int32
	sum  uint32
	id   string
	place
}

func newLedger(c *cluster) *ledger {
	return &ledger{
		c: c, given: map[place]string{}, places: map[string]place{}, highest: map[queueName]int64{}, at: map[place]offset.Physical{}, sure: map[string]*fate{},
		floors: map[progress]mark{}, gone: map[int]map[int]bool{}, openedAt: map[int]offset.Physical{},
		orders: newOrders(),
	}
}

func (l *ledger) now() string { return fmt.Sprintf("%8.3f", time.Since(l.c.began).Seconds()) }

// note adds a line to what happened.
func (l *ledger) note(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, l.now()+"  "+fmt.Sprintf(format, args...))
}

// violate notes a broken promise.
func (l *ledger) violate(promise, format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.violateLocked(promise, format, args...)
}

func (l *ledger) violateLocked(promise, format string, args ...any) {
	text := promise + ": " + fmt.Sprintf(format, args...)
	l.lines = append(l.lines, l.now()+"  !! "+text)
	if len(l.broken) < 3 {
		l.broken = append(l.broken, text)
	}
}

func (l *ledger) failed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.broken) > 0
}

// give notes that an offset was given to a message, and shown to somebody (P2).
func (l *ledger) give(at place, id, how string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.judge(at, id, how) {
		l.given[at], l.places[id] = id, at
		l.highest[at.queueName] = max(l.highest[at.queueName], at.offset+1)
	}
}

func (l *ledger) judge(at place, id, how string) bool {
	if other, ok := l.given[at]; ok && other != id {
		l.violateLocked("P2", "%s is %s, and %s (%s)", at, other, id, how)
		return false
	}
	if other, ok := l.places[id]; ok && other != at && !mayComeTwice(id) {
		l.violateLocked("P2", "message %s is at %s, and at %s (%s)", id, other, at, how)
		return false
	}
	return true
}

// answered notes a send's answer.
func (l *ledger) answered(p *process, first place, ids []string, code protocol.ResponseCode) {
	for i, id := range ids {
		l.give(place{first.queueName, first.offset + int64(i), first.life}, id, "acknowledged by host "+fmt.Sprint(p.n.host)+" with "+code.String())
	}
	if code != protocol.Success {
		return
	}
	l.mu.Lock()
	for _, id := range ids {
		if l.sure[id] == nil {
			l.sure[id] = &fate{hosts: map[int]offset.Physical{}, when: l.now()}
		}
	}
	l.mu.Unlock()
	for _, n := range l.c.nodes {
		if q := n.process(); q != nil {
			l.read(q)
			l.has(q, ids)
		}
	}
	for _, id := range ids {
		switch has := l.hosts(id); {
		case len(has) == 0 && !p.dead.Load():
			l.violate("DURABLE", "%s was answered OK by host %d, and nobody has it", id, p.n.host)
		case p.replicas.Sync() && len(has) < 2 && !p.dead.Load() && l.allAlive(): // it was all the time, then
			l.violate("DURABLE", "%s was answered OK by the SYNC_MASTER on host %d, and only %v has it", id, p.n.host, has)
		}
	}
}

// hosts are those that have a message that was answered OK.
func (l *ledger) hosts(id string) []int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return sorted(l.sure[id].hosts)
}

// allAlive says whether the ledger can look at every log.
func (l *ledger) allAlive() bool {
	for _, n := range l.c.nodes {
		if p := n.process(); p == nil || !p.up.Load() || p.dead.Load() {
			return false
		}
	}
	return true
}

// powerCut notes that a host has lost what was not flushed.
func (l *ledger) powerCut(host int, flushed offset.Physical) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.power = true
	for _, f := range l.sure {
		if end, ok := f.hosts[host]; ok && end > flushed {
			l.loses(f, host)
		}
	}
}

func (l *ledger) wiped(host int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.sure {
		l.loses(f, host)
	}
}

func (l *ledger) loses(f *fate, host int) {
	if delete(f.hosts, host); len(f.hosts) == 0 {
		f.lost = true
	}
}

// ends notes what was committed at a broker whose process ends while its machine goes on. n.mu is held.
func (l *ledger) ends(p *process, power bool) {
	p.n.committed = nil
	if power || !p.up.Load() {
		return
	}
	p.n.committed = map[progress]mark{}
	for of, at := range p.acked { // what is in memory may not have come to the disk, and was not answered then
		p.n.committed[of] = lesser(at, p.mark(of))
	}
}

// commits notes a commit that a broker has answered for.
func (l *ledger) commits(p *process, of progress, at int64) {
	p.n.mu.Lock()
	defer p.n.mu.Unlock()
	if now := p.mark(of); !p.dead.Load() && now.followed { // else it was ignored
		p.acked[of] = mark{now.reset, true, at}
	}
}

// returned holds P4 against a master that serves again: nobody can have committed since.
func (l *ledger) returned(p *process) {
	p.n.mu.Lock()
	before := p.n.committed
	p.n.committed = nil
	p.n.mu.Unlock()
	for of, least := range before {
		if at := p.mark(of); at.before(least) && !p.dead.Load() {
			l.violate("P4", "host %d returns with %v for %v, it had %v", p.n.host, at, of, least)
		}
	}
}

// asking is how old an answer may be that a master opens on: others are asked at once, and one that is silent is waited for.
const asking = 4 * time.Second

// opened is told of a master that is about to serve (P5).
func (l *ledger) opened(p *process) {
	if p.dead.Load() {
		return
	}
	away := map[int]bool{}
	for _, n := range l.c.nodes {
		q := n.process()
		if q == nil || !q.up.Load() || time.Since(time.Unix(0, q.since.Load())) < asking || !l.c.net.joinedFor(n.host, p.n.host, asking) {
			away[n.host] = true
		}
	}
	l.note("host %d opens as master, log ends at %d, cannot ask %v", p.n.host, p.store.Written(), keys(away))
	l.mu.Lock()
	l.gone[p.number] = away
	l.mu.Unlock()
	l.ahead(p)
	l.returned(p)
	l.cut(p.store.Written())
}

func keys(m map[int]bool) (list []int) {
	for k, v := range m {
		if v {
			list = append(list, k)
		}
	}
	slices.Sort(list)
	return list
}

// ahead holds P5 against an open master.
func (l *ledger) ahead(p *process) {
	l.mu.Lock()
	away := l.gone[p.number]
	l.mu.Unlock()
	if away == nil {
		return
	}
	for _, n := range l.c.nodes {
		q := n.process()
		if n.host == p.n.host || q == nil || !q.up.Load() || q.dead.Load() || p.dead.Load() || away[n.host] || !l.c.net.joined(n.host, p.n.host) {
			continue
		}
		if theirs, own := q.store.Written(), p.store.Written(); theirs > own && !q.open() {
			l.violate("P5", "host %d serves as master with a log up to %d, host %d has %d", p.n.host, own, n.host, theirs)
		}
	}
}

// read takes in what a process's log has got since it was read last.
func (l *ledger) read(p *process) {
	if !p.up.Load() || p.dead.Load() {
		return
	}
	w := &p.walked
	w.mu.Lock()
	defer w.mu.Unlock()
	st := p.store
	if gaps := st.GapChanges() + 1; gaps != w.gaps || st.Written() < w.next || !w.holds(st) {
		w.gaps, w.next, w.records = gaps, st.Low(), nil
	}
	end, size := st.Written(), offset.Physical(st.SegmentSize())
	buf := make([]byte, size)
	for w.next < end {
		n, err := st.ReadLog(w.next, buf)
		if err != nil || n == 0 {
			return // it dies, or is cut just now
		}
		segmentEnd := w.next - w.next%size + size
		for b := buf[:n]; len(b) > 0; {
			r, err := message.Parse(b)
			if _, magic, ok := message.Peek(b); err != nil && ok && magic != message.MagicBlank { // damage: the log goes on behind it
				if w.next, err = st.FirstRecord(w.next); err != nil {
					return
				}
				break
			}
			if err != nil {
				w.next = min(segmentEnd, end)
				break
			}
			rec := record{
				at: w.next, size: r.Size, sum: crc32.ChecksumIEEE(b[:r.Size]), id: recordID(&r),
				place: place{queueName{string(r.Topic), r.QueueID}, int64(r.QueueOffset), l.life(p, string(r.Topic), w.next)},
			}
			w.records = append(w.records, rec)
			w.next += offset.Physical(r.Size)
			b = b[r.Size:]
			l.found(p, &rec)
		}
	}
}

// has notes which of the messages a process's log has, that was read.
func (l *ledger) has(p *process, ids []string) {
	p.walked.mu.Lock()
	defer p.walked.mu.Unlock()
	for i := len(p.walked.records) - 1; i >= 0; i-- {
		if r := &p.walked.records[i]; slices.Contains(ids, r.id) {
			l.found(p, r)
		}
	}
}

// unreadable says whether a broker knows of damage where a message stands that others have.
func (l *ledger) unreadable(p *process, at place) bool {
	l.mu.Lock()
	pos, ok := l.at[at]
	l.mu.Unlock()
	return ok && slices.ContainsFunc(p.store.Damaged(), func(d store.Span) bool { return d.Has(pos) })
}

// holds says whether the last record read is still there: else the log was cut meanwhile.
func (w *walk) holds(st *store.Store) bool {
	if len(w.records) == 0 {
		return true
	}
	last := w.records[len(w.records)-1]
	b, err := st.Record(last.at, nil)
	return err == nil && crc32.ChecksumIEEE(b) == last.sum
}

func (l *ledger) found(p *process, r *record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.judge(r.place, r.id, fmt.Sprintf("in the log of host %d at %d", p.n.host, r.at))
	l.at[r.place] = r.at
	if f := l.sure[r.id]; f != nil && !p.dead.Load() {
		f.hosts[p.n.host] = r.at + offset.Physical(r.size)
	}
}

func idOf(body []byte) string {
	id, _, _ := bytes.Cut(body, []byte{' '})
	return string(id)
}

// compare holds P3 against two logs, up to a position.
func (l *ledger) compare(p, q *process, limit offset.Physical) {
	l.read(p)
	l.read(q)
	p.walked.mu.Lock()
	a := slices.Clone(p.walked.records)
	p.walked.mu.Unlock()
	q.walked.mu.Lock()
	b := slices.Clone(q.walked.records)
	q.walked.mu.Unlock()
	for len(a) > 0 && len(b) > 0 {
		x, y := a[0], b[0]
		switch {
		case max(x.at, y.at) >= limit:
			return
		case x.at == y.at && x.size == y.size && x.sum == y.sum:
			a, b = a[1:], b[1:]
		case x.at+offset.Physical(x.size) <= y.at:
			a = a[1:]
		case y.at+offset.Physical(y.size) <= x.at:
			b = b[1:]
		default:
			l.violate("P3", "host %d has %s (%s) at %d, host %d has %s (%s) at %d", p.n.host, x.id, x.place, x.at, q.n.host, y.id, y.place, y.at)
			return
		}
	}
}

// step holds against the promises what is there now.
func (l *ledger) step() {
	for _, n := range l.c.nodes {
		p := n.process()
		if p == nil || !p.up.Load() {
			continue
		}
		l.read(p)
		if !p.open() {
			continue
		}
		l.ahead(p)
		for _, link := range p.replicas.Links() {
			for _, m := range l.c.nodes {
				if q := m.process(); q != nil && q.up.Load() && link.Acked > 0 && strings.HasPrefix(link.Addr, hostIP(m.host)+":") {
					l.compare(p, q, link.Acked)
				}
			}
		}
	}
	l.progress()
}

// progress holds P4.
func (l *ledger) progress() {
	// safe: what brokers have heard is on their disks, or will be soon. Else a kill may take it from one, which hears of it again.
	tables, lives, all, safe := map[progress][]mark{}, []int{}, true, true
	for _, n := range l.c.nodes {
		p := n.process()
		if p == nil || !p.up.Load() || n.lostAll() {
			all = false
			lives = append(lives, 0)
			continue
		}
		lives = append(lives, p.number)
		safe = safe && !p.disk.failedLately()
		p.offsets.Each(func(at state.Position) bool {
			of := progress{at.Group, queueName{at.Topic, at.Queue}}
			tables[of] = append(tables[of], markOf(at))
			return true
		})
		for of, at := range p.delays() {
			tables[of] = append(tables[of], at)
		}
		l.mu.Lock()
		for of, least := range l.floors {
			if at := p.mark(of); at.before(least) && !p.dead.Load() {
				l.violateLocked("P4", "host %d has %v for %v, all had %v", n.host, at, of, least)
				l.floors[of] = at
			}
		}
		l.mu.Unlock()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pending = slices.DeleteFunc(l.pending, func(f floor) bool {
		if !safe || !slices.Equal(f.lives, lives) {
			return true
		}
		if time.Since(f.at) < f.of.durable() {
			return false
		}
		if l.floors[f.of].before(f.mark) {
			l.floors[f.of] = f.mark
		}
		return true
	})
	if !all || !safe {
		return
	}
	for of, at := range tables {
		if least := slices.MinFunc(at, mark.compare); len(at) == len(l.c.nodes) && l.floors[of].before(least) && !l.ended(of) {
			l.pending = append(l.pending, floor{time.Now(), of, least, slices.Clone(lives)})
		}
	}
}

// final holds against the promises what is there when all is well again: master is open, and the others are level.
func (l *ledger) final(master *process) {
	l.step()
	at := map[place]string{}
	have := map[string]bool{}
	l.read(master)
	master.walked.mu.Lock()
	for _, r := range master.walked.records {
		at[r.place], have[r.id] = r.id, true
	}
	master.walked.mu.Unlock()
	for _, n := range l.c.nodes {
		if q := n.process(); q != nil && q != master {
			l.compare(master, q, master.store.Written())
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range sorted(l.sure) {
		if f := l.sure[id]; !have[id] && !f.lost {
			l.violateLocked("DURABLE", "%s at %s, answered OK at %s, is gone, though hosts %v never lost it", id, l.places[id], f.when, f.hosts)
		}
	}
	for _, k := range l.c.consumers {
		if l.ended(k.progress) {
			continue
		}
		for _, o := range sorted(k.skipped) {
			id, exists := at[place{k.queueName, o, 0}]
			if exists && !k.delivered[o] {
				l.violateLocked("SKIP", "group %s never got %s at %s/%d:%d: %s", k.group, id, k.topic, k.queue, o, k.skipped[o])
			}
		}
		for p, id := range at {
			if p.queueName == k.queueName && p.offset < k.at && !k.delivered[p.offset] && k.skipped[p.offset] == "" && !k.inGap[p.offset] {
				l.violateLocked("SKIP", "group %s is at %d and never got %s at %s", k.group, k.at, id, p)
			}
		}
	}
}

func sorted[K cmp.Ordered, V any](m map[K]V) []K {
	list := make([]K, 0, len(m))
	for k := range m {
		list = append(list, k)
	}
	slices.Sort(list)
	return list
}
