package sim

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ratchetmq/ratchet/delay"
	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/internal/state"
	"github.com/ratchetmq/ratchet/message"
	"github.com/ratchetmq/ratchet/protocol"
	"github.com/ratchetmq/ratchet/store"
)

// In an acting seed an operator resets consumer offsets, and deletes a topic now and then, which the next send makes anew; some
// messages are delayed.

// mortal is the topic that is deleted.
const mortal = "D"

// delays are those of the levels that are used.
var delays = []time.Duration{time.Second, 5 * time.Second, 10 * time.Second}

func (c *cluster) topics() []string {
	if c.set.acts {
		return []string{"T", "U", mortal}
	}
	return []string{"T", "U"}
}

// actMore does the next thing of those that only acting seeds have.
func (c *cluster) actMore() {
	rnd := c.rnd
	k, share := pick(rnd, c.consumers...), rnd.Float64()
	switch at := rnd.IntN(100); {
	case at < 45:
		c.sent++
		id, level, size := fmt.Sprintf("%s%d", delayedPrefix, c.sent), 1+rnd.IntN(len(delays)), rnd.IntN(300)
		c.requests.Go(func() { c.send(k.queueName, []string{id}, size, level) })
	case at < 70:
		c.withConsumer(k, func() { c.reset(k, share) })
	case at < 76:
		c.requests.Go(c.deleteTopic)
	default:
		c.sendTo(queueName{mortal, k.queue}, 1+int(share*3), rnd.IntN(300))
	}
}

// reset moves a group to some place of the queue, by an operator's order.
func (c *cluster) reset(k *consumer, share float64) {
	hosts := c.hosts()
	if len(hosts) == 0 {
		return
	}
	p := c.nodes[hosts[0]-1].process()
	if p == nil || !p.up.Load() {
		return
	}
	b, ok := p.store.Bounds(k.topic, k.queue)
	if !ok {
		return
	}
	to := b.Low + offset.Queue(share*float64(b.High-b.Low+1))
	c.ledger.orderReset(k.progress, int64(to))
	resp, p, err := c.ask(hosts[0], protocol.InvokeBrokerToResetOffset, &protocol.ResetOffsetRequest{
		Topic: k.topic, Group: k.group, IsForce: true, QueueID: protocol.Some(k.queue), Offset: protocol.Some(int64(to)),
	}, nil)
	if err != nil {
		c.ledger.note("reset of %v to %d at host %d: %v", k.progress, to, hosts[0], err)
		return
	}
	c.ledger.note("reset of %v to %d at host %d: %s %s", k.progress, to, hosts[0], protocol.ResponseCode(resp.Code), resp.Remark)
	if resp.Code == int32(protocol.Success) {
		c.ledger.wasReset(p, k.progress, int64(to))
	}
}

func (c *cluster) deleteTopic() {
	hosts := c.hosts()
	if len(hosts) == 0 {
		return
	}
	p := c.nodes[hosts[0]-1].process()
	if p == nil || !p.up.Load() {
		return
	}
	before := p.store.Written()
	c.ledger.deletes()
	resp, _, err := c.ask(hosts[0], protocol.DeleteTopicInBroker, &protocol.DeleteTopicRequest{Topic: mortal}, nil)
	c.ledger.deletes()
	if err != nil {
		c.ledger.note("deletion of %s at host %d: %v", mortal, hosts[0], err)
		return
	}
	c.ledger.note("deletion of %s at host %d: %s %s", mortal, hosts[0], protocol.ResponseCode(resp.Code), resp.Remark)
	if resp.Code == int32(protocol.Success) {
		c.ledger.mu.Lock()
		c.ledger.orders.vanished = max(c.ledger.orders.vanished, before)
		c.ledger.mu.Unlock()
	}
}

const delayedPrefix = "d"

// A delayed message has one name while it waits, another when it is delivered, which may happen twice.
func whileDelayed(id string) string { return id + "@" }

func mayComeTwice(id string) bool {
	return strings.HasPrefix(id, delayedPrefix) && !strings.HasSuffix(id, "@")
}

func recordID(r *message.Record) string {
	if string(r.Topic) == delay.Topic {
		return whileDelayed(idOf(r.Body))
	}
	return idOf(r.Body)
}

// mark is how far a group has come since its last reset, which is followed when the group was seen to have heard of it.
type mark struct {
	reset    int64
	followed bool
	offset   int64
}

func markOf(at state.Position) mark { return mark{at.Epoch, !at.Pending, int64(at.Offset)} }

func (m mark) compare(other mark) int {
	return cmp.Or(cmp.Compare(m.reset, other.reset), cmp.Compare(truth(m.followed), truth(other.followed)), cmp.Compare(m.offset, other.offset))
}

func truth(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (m mark) before(other mark) bool { return m.compare(other) < 0 }

func lesser(a, b mark) mark {
	if a.before(b) {
		return a
	}
	return b
}

func (m mark) String() string {
	switch {
	case m.reset == 0:
		return fmt.Sprint(m.offset)
	case m.followed:
		return fmt.Sprintf("%d (reset %d)", m.offset, m.reset)
	}
	return fmt.Sprintf("%d (reset %d, not followed)", m.offset, m.reset)
}

// deliverer stands for the group that consumes delayed messages.
const deliverer = "(delivered)"

// durable is after what time a power cut takes no progress: commits are journalled each second; that of delayed messages is
// written when what was delivered is flushed.
func (of progress) durable() time.Duration {
	if of.group == deliverer {
		return 15 * time.Second
	}
	return 3 * time.Second
}

// delays is how far delayed messages are delivered, in an acting seed.
func (p *process) delays() map[progress]mark {
	if !p.c.set.acts {
		return nil
	}
	out := map[progress]mark{}
	for _, level := range p.delay.Progress()[:len(delays)] {
		out[progress{deliverer, queueName{delay.Topic, int32(level.Level - 1)}}] = mark{0, true, int64(level.Next)}
	}
	return out
}

// mark is how far a group has come as the process knows it.
func (p *process) mark(of progress) mark {
	if of.group == deliverer {
		return p.delays()[of]
	}
	found := mark{followed: true}
	p.offsets.Each(func(at state.Position) bool {
		if at.Group != of.group || at.Topic != of.topic || at.Queue != of.queue {
			return true
		}
		found = markOf(at)
		return false
	})
	return found
}

// orders are an operator's acts. Its fields are guarded by the ledger's mu.
type orders struct {
	resets   map[progress][]int64     // offsets to which groups may have been reset
	last     map[progress]order       // that was answered
	deleted  offset.Physical          // messages of the mortal topic before may be gone
	vanished offset.Physical          // and those before are
	ever     bool                     // it was deleted
	power    bool                     // some machine lost it
	lives    map[offset.Physical]bool // of lives of the mortal topic
}

// order is a reset that a broker has carried out.
type order struct {
	mark
	heard bool // the group came to it
}

func newOrders() orders {
	return orders{resets: map[progress][]int64{}, last: map[progress]order{}, lives: map[offset.Physical]bool{}}
}

// life is where in the log that life of a topic began of which a record is: offsets begin at 0 in each.
func (l *ledger) life(p *process, topic string, at offset.Physical) (began offset.Physical) {
	if topic != mortal || !l.c.set.acts {
		return 0
	}
	end, deleted := offset.Physical(0), false
	if p.up.Load() { // else those that are known count
		end, deleted = p.store.Deleted()[mortal]
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if deleted && !p.plain() { // who copies the table of topics alone does not know where it was
		l.orders.lives[end] = true
	}
	for end := range l.orders.lives {
		if end <= at {
			began = max(began, end)
		}
	}
	return began
}

// orderReset notes that a reset is about to be ordered.
func (l *ledger) orderReset(of progress, to int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.resets[of] = append(l.resets[of], to)
	delete(l.last, of)
}

func (l *ledger) hasReset(of progress, to int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Contains(l.resets[of], to)
}

// wasReset notes that it was answered.
func (l *ledger) wasReset(p *process, of progress, to int64) {
	p.n.mu.Lock()
	now := p.mark(of)
	if p.dead.Load() || now.reset == 0 {
		p.n.mu.Unlock()
		return
	}
	p.acked[of] = lesser(now, mark{now.reset, false, to})
	p.n.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last[of] = order{mark: mark{now.reset, false, to}}
}

// ordered notes that the group has come to where it is by a reset, if it has, and that it passes over what is before.
func (k *consumer) ordered(c *cluster, p *process) {
	l := c.ledger
	if !l.hasReset(k.progress, k.at) {
		return
	}
	for o := range k.at {
		if !k.delivered[o] && k.skipped[o] == "" {
			k.inGap[o] = true
		}
	}
	knows := p.mark(k.progress).reset
	l.mu.Lock()
	defer l.mu.Unlock()
	if last, ok := l.last[k.progress]; ok && last.offset == k.at && knows >= last.reset {
		last.heard = true
		l.last[k.progress] = last
	}
}

// goesBack notes that a group commits less than all brokers had, after a reset that not all know.
func (l *ledger) goesBack(k *consumer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if least, ok := l.floors[k.progress]; ok && k.at < least.offset && len(l.resets[k.progress]) > 0 {
		least.offset = k.at
		l.floors[k.progress] = least
	}
	for i := range l.pending {
		if f := &l.pending[i]; f.of == k.progress && len(l.resets[k.progress]) > 0 {
			f.mark.offset = min(f.mark.offset, k.at)
		}
	}
}

// deletes notes that the mortal topic may be deleted just now.
func (l *ledger) deletes() {
	ofMortal := func(of progress, _ mark) bool { return of.topic == mortal }
	var end offset.Physical
	for _, n := range l.c.nodes {
		n.mu.Lock()
		maps.DeleteFunc(n.committed, ofMortal)
		if p := n.p; p != nil {
			maps.DeleteFunc(p.acked, ofMortal)
			if p.up.Load() {
				end = max(end, p.store.Written())
			}
		}
		n.mu.Unlock()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ever, l.deleted = true, max(l.deleted, end)
	maps.DeleteFunc(l.floors, ofMortal)
	l.pending = slices.DeleteFunc(l.pending, func(f floor) bool { return f.of.topic == mortal })
}

// ended says that what was committed for a queue went with its topic. l.mu is held.
func (l *ledger) ended(of progress) bool { return of.topic == mortal && l.ever }

func (l *ledger) hasEnded(of progress) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended(of)
}

func physicalOf(msgID string) offset.Physical {
	first, _, _ := strings.Cut(msgID, ",")
	_, at, _ := message.ParseID(first)
	return at
}

func (l *ledger) wasDeleted(r *message.Record) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return r.PhysicalOffset < l.orders.vanished
}

// cut notes where the log of a master ends that opens: what was behind is no more, nor are lives that began there.
func (l *ledger) cut(end offset.Physical) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.vanished = min(l.vanished, end)
	maps.DeleteFunc(l.lives, func(began offset.Physical, _ bool) bool { return began > end })
}

// settled holds against a master what a group has just committed.
func (l *ledger) settled(k *consumer, master *process) {
	if now := master.mark(k.progress); !now.followed || now.offset != k.at {
		l.violate("P4", "%v has committed %d, and host %d has %v", k.progress, k.at, master.n.host, now)
	}
}

// finalActs holds what acting seeds have more against what is there when all is well again.
func (l *ledger) finalActs(master *process) {
	copies := map[string]int{}
	master.walked.mu.Lock()
	for _, r := range master.walked.records {
		copies[r.id]++
	}
	master.walked.mu.Unlock()
	l.mu.Lock()
	sure := map[string]bool{}
	for id, f := range l.sure {
		sure[id] = !f.lost
	}
	for of, last := range l.last {
		if now := master.mark(of); now.reset == last.reset && l.floors[of].reset == last.reset && !last.heard {
			l.violateLocked("RESET", "%v was reset to %d, and never heard of it", of, last.offset)
		}
	}
	l.mu.Unlock()
	for _, id := range sorted(sure) {
		waits, ok := strings.CutSuffix(id, "@")
		switch {
		case ok && sure[id] && copies[waits] == 0:
			l.violate("DELAY", "%s was answered OK, and never delivered", waits)
		case ok && copies[waits] > 1 && !l.power:
			l.violate("DELAY", "%s was delivered %d times, and no machine lost power", waits, copies[waits])
		}
	}
	for _, level := range master.delay.Progress() {
		if level.Next < level.High {
			l.violate("DELAY", "level %d is delivered up to %d, and waits up to %d", level.Level, level.Next, level.High)
		}
	}
	for _, n := range l.c.nodes {
		q := n.process()
		if topics, _ := master.topics.Snapshot(); q != master {
			table := map[string]protocol.TopicConfig{}
			for name, topic := range topics {
				table[name] = *topic
			}
			if more := q.topics.Lacking(table); len(more) > 0 {
				l.violate("TABLES", "host %d has topics %v, which the master has not", n.host, more)
			}
		}
		for _, k := range l.c.consumers {
			if l.hasEnded(k.progress) {
				continue
			}
			own, at := master.mark(k.progress), q.mark(k.progress)
			if l.c.set.swaps && at.reset > own.reset {
				continue // it was the master, and an operator gave its role to one that had not heard of this, and could not ask
			}
			if at.reset != own.reset {
				l.violate("RESET", "host %d has %v for %v, the master %v", n.host, at, k.progress, own)
			}
		}
		l.mortalHas(q)
	}
}

// mortalHas holds against a broker what it has of the mortal topic: all that came since it was deleted, and nothing from before.
func (l *ledger) mortalHas(p *process) {
	if p.plain() {
		return // it hears of a deletion when it compares tables, unless the topic is there again by then
	}
	found := map[string]bool{}
	for queue := range int32(2) {
		for at := offset.Queue(0); ; {
			buf, batch, err := p.store.Read(store.Query{Topic: mortal, Queue: queue, From: at, MaxMessages: 1}, nil)
			if err != nil || batch.Next <= at {
				break
			}
			at = batch.Next
			r, err := message.Parse(buf)
			if batch.Status != store.Found || err != nil {
				continue
			}
			found[idOf(r.Body)] = true
			if l.wasDeleted(&r) {
				l.violate("BACK", "host %d has %s in %s/%d:%d, which was deleted", p.n.host, idOf(r.Body), mortal, queue, r.QueueOffset)
			}
		}
	}
	l.read(p)
	p.walked.mu.Lock()
	defer p.walked.mu.Unlock()
	for _, r := range p.walked.records {
		if r.topic == mortal && r.at >= l.deleted && !found[r.id] {
			l.violate("GONE", "host %d has %s at %s in its log, and no reader finds it", p.n.host, r.id, r.place)
		}
	}
}

// TestActs plays acting seeds.
func TestActs(t *testing.T) { playSeeds(t, 300, acting) }

// failedActs have broken a promise once.
var failedActs = []struct {
	seed  uint64
	found string
}{
	{356, "delayed messages were delivered while the role was being handed over"},
	{362, "a delayed message that was filled into a gap was never delivered"},
	{373, "the same"},
	{3599, "a level of delayed messages went back when the end of its queue was lost"},
	{20792, "a reset that was answered was lost by a power cut, while a slave had it"},
}

func TestActsThatFailed(t *testing.T) {
	for _, f := range failedActs {
		t.Run(fmt.Sprint(f.seed), func(t *testing.T) {
			t.Parallel()
			if lines, broken := play(t, f.seed, none, acting, false); len(broken) > 0 {
				t.Errorf("%s\n%s\nonce found: %s", strings.Join(lines, "\n"), strings.Join(broken, "\n"), f.found)
			}
		})
	}
}
