package state

import (
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/ratchetmq/ratchet/internal/offset"
)

// Reasons for which Commit and Reset refuse a number. They are compared with errors.Is.
var (
	ErrNegativeOffset = errors.New("offset is negative")
	ErrOffsetBeyond   = errors.New("offset is beyond the end of the queue")
	ErrOffsetName     = errors.New("topic or group can't be kept")
)

const shardCount = 64

// Offsets is how far each consumer group has come in each queue: the offset of the next message it wants. What Commit
// answered for is on disk (see journal.go), and survives the end of the process at any moment.
type Offsets struct {
	opts    OffsetOptions
	opened  int64 // when, in ns since 1970
	seed    maphash.Seed
	shards  [shardCount]shard // by topic
	index   groupIndex
	journal *journal

	pending atomic.Int64 // resets that their group has not seen; 0 spares each pull the look-up
	dirty   atomic.Int64 // changes since the last snapshot began
	counts  struct{ commits, wentBack, refused, ignored, resets atomic.Uint64 }
	save    saver
	untold  untold
}

type shard struct {
	mu     sync.RWMutex
	topics map[string]*topicOffsets // guarded by mu, with all below it
	_      [32]byte                 // two shards do not share a cache line
}

type topicOffsets struct {
	groups  map[string]map[int32]*position
	highest map[int32]offset.Queue // by queue: the largest ever committed by any group
}

type position struct {
	offset offset.Queue
	reset  *reset // nil unless an operator ever reset this position
}

// reset remembers an operator's act, which must win over what is still under way from before it.
type reset struct {
	epoch   int64        // ms since 1970 of the reset; grows with each reset of this position
	prior   offset.Queue // where the group was before: a replica that says no more than this may just not know yet
	pending bool         // the group has not been seen to follow
	toldAt  int64        // ms since 1970 when a pull was first told; 0: not yet
	toldNow int64        // and when one was told last
}

// groupIndex knows the topics of each group.
type groupIndex struct {
	mu     sync.RWMutex
	topics map[string]map[string]struct{} // guarded by mu
}

func (x *groupIndex) add(group, topic string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	topics, ok := x.topics[group]
	if !ok {
		topics = map[string]struct{}{}
		x.topics[group] = topics
	}
	topics[topic] = struct{}{}
}

func (x *groupIndex) remove(group, topic string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.topics[group], topic)
	if len(x.topics[group]) == 0 {
		delete(x.topics, group)
	}
}

func (x *groupIndex) of(group string) []string {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return slices.Sorted(maps.Keys(x.topics[group]))
}

func (o *Offsets) shard(topic string) *shard {
	return &o.shards[maphash.String(o.seed, topic)%shardCount]
}

// at returns a position of the locked shard, nil when there is none.
func (s *shard) at(group, topic string, queue int32) *position {
	t, ok := s.topics[topic]
	if !ok {
		return nil
	}
	return t.groups[group][queue]
}

// place returns a position of the locked shard, a new one with offset -1 when there is none.
func (o *Offsets) place(s *shard, group, topic string, queue int32) (*topicOffsets, *position) {
	t, ok := s.topics[topic]
	if !ok {
		t = &topicOffsets{groups: map[string]map[int32]*position{}, highest: map[int32]offset.Queue{}}
		topic = strings.Clone(topic) // what comes in may borrow from a request
		s.topics[topic] = t
	}
	queues, ok := t.groups[group]
	if !ok {
		queues = map[int32]*position{}
		group = strings.Clone(group)
		t.groups[group] = queues
		o.index.add(group, strings.Clone(topic))
	}
	p, ok := queues[queue]
	if !ok {
		p = &position{offset: -1}
		queues[queue] = p
	}
	return t, p
}

func (t *topicOffsets) saw(queue int32, off offset.Queue) {
	if h, ok := t.highest[queue]; !ok || off > h {
		t.highest[queue] = off
	}
}

// Commit is a group's progress in a queue, as a client reports it.
type Commit struct {
	Group, Topic string
	Queue        int32
	Offset       offset.Queue // of the next message the group wants
	// Known is the highest offset that the queue is known to have had as its end; more is refused. Negative: not known,
	// all is stored, as when this broker may be behind its replicas.
	Known offset.Queue
	// Slave: another broker is the master, and is to be told; see TellMaster.
	Slave bool
}

// Committed is what became of a Commit.
type Committed struct {
	Stored   bool         // the position is now the one committed
	WentBack bool         // and it was larger before; the group's own clients may do that
	Ignored  bool         // an operator's reset is pending, which this client has not seen yet; answer success
	Before   offset.Queue // -1: there was none
}

// Commit stores a group's progress, and returns when it is in the journal. Errors: ErrNegativeOffset, ErrOffsetBeyond
// and ErrOffsetName, when nothing is stored; any other is one of the disk: the offset is then in memory only, until
// the next snapshot succeeds.
func (o *Offsets) Commit(c Commit) (Committed, error) {
	if err := checkCommit(&c); err != nil {
		o.counts.refused.Add(1)
		return Committed{Before: -1}, err
	}
	o.counts.commits.Add(1)
	s := o.shard(c.Topic)
	s.mu.Lock()
	t, p := o.place(s, c.Group, c.Topic, c.Queue)
	before := p.offset
	if p.reset != nil && p.reset.pending && !o.follows(p, &c) {
		s.mu.Unlock()
		o.counts.ignored.Add(1)
		return Committed{Ignored: true, Before: before}, nil
	}
	first, ticket := uint64(0), o.journal.last() // what it says may be anywhere before
	if before != c.Offset {
		p.offset = c.Offset
		t.saw(c.Queue, c.Offset)
		ticket = o.journal.put(record{op: opCommit, group: c.Group, topic: c.Topic, queue: c.Queue, offset: c.Offset})
		first = ticket
		o.dirty.Add(1)
	}
	s.mu.Unlock()
	if c.Slave {
		o.untold.add(untoldPlace{strings.Clone(c.Group), strings.Clone(c.Topic), c.Queue})
	}
	if c.Offset < before {
		o.counts.wentBack.Add(1)
	}
	return Committed{Stored: true, WentBack: c.Offset < before, Before: before}, o.journal.wait(first, ticket)
}

func checkCommit(c *Commit) error {
	switch {
	case c.Offset < 0:
		return fmt.Errorf("commit %d of group %s for %s/%d: %w", c.Offset, c.Group, c.Topic, c.Queue, ErrNegativeOffset)
	case c.Known >= 0 && c.Offset > c.Known:
		return fmt.Errorf("commit %d of group %s for %s/%d, which ends at %d: %w", c.Offset, c.Group, c.Topic, c.Queue, c.Known, ErrOffsetBeyond)
	}
	return checkNames(c.Group, c.Topic, c.Queue)
}

// checkNames refuses what the file's "topic@group" keys can't hold.
func checkNames(group, topic string, queue int32) error {
	if group == "" || topic == "" || queue < 0 || len(group)+len(topic) > math.MaxUint16 || strings.Contains(topic, "@") {
		return fmt.Errorf("group %q, topic %q, queue %d: %w", group, topic, queue, ErrOffsetName)
	}
	return nil
}

// Query returns where the group is in the queue. With a reset pending that is where it shall be.
func (o *Offsets) Query(group, topic string, queue int32) (offset.Queue, bool) {
	s := o.shard(topic)
	s.mu.RLock()
	defer s.mu.RUnlock()
	if p := s.at(group, topic, queue); p != nil {
		return p.offset, true
	}
	return 0, false
}

// Highest is the largest offset that any group ever committed in the queue, since it exists; ok = false: none did.
// An offset up to it was given out once, whatever the log holds now.
func (o *Offsets) Highest(topic string, queue int32) (offset.Queue, bool) {
	s := o.shard(topic)
	s.mu.RLock()
	defer s.mu.RUnlock()
	if t, ok := s.topics[topic]; ok {
		h, ok := t.highest[queue]
		return h, ok
	}
	return 0, false
}

// Queues is the group's progress in all queues of a topic.
func (o *Offsets) Queues(group, topic string) map[int32]offset.Queue {
	s := o.shard(topic)
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := map[int32]offset.Queue{}
	if t, ok := s.topics[topic]; ok {
		for queue, p := range t.groups[group] {
			out[queue] = p.offset
		}
	}
	return out
}

// GroupTopics lists the topics in which the group has progress, sorted.
func (o *Offsets) GroupTopics(group string) []string { return o.index.of(group) }

// TopicGroups lists the groups with progress in a topic, sorted.
func (o *Offsets) TopicGroups(topic string) []string {
	s := o.shard(topic)
	s.mu.RLock()
	defer s.mu.RUnlock()
	if t, ok := s.topics[topic]; ok {
		return slices.Sorted(maps.Keys(t.groups))
	}
	return nil
}

// Position is one entry of the table.
type Position struct {
	Group, Topic string
	Queue        int32
	Offset       offset.Queue
	Epoch        int64 // ms since 1970 of the operator's last reset of it; 0: never
	Pending      bool  // the group has not been seen to follow that reset
	Plain        bool  // from a broker that knows of no resets
}

// Each calls fn for every position until it returns false. The positions of one group in one topic belong to the same
// moment; others may have moved meanwhile. fn is called with no lock held.
func (o *Offsets) Each(fn func(Position) bool) {
	var chunk []Position
	for i := range o.shards {
		for _, ref := range o.shards[i].refs() {
			chunk = o.shards[i].chunk(ref, chunk[:0])
			for _, p := range chunk {
				if !fn(p) {
					return
				}
			}
		}
	}
}

type pair struct{ topic, group string }

// refs lists what the shard has, so that a long walk needs its lock for one group at a time only.
func (s *shard) refs() []pair {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var out []pair
	for topic, t := range s.topics {
		for group := range t.groups {
			out = append(out, pair{topic, group})
		}
	}
	return out
}

func (s *shard) chunk(ref pair, dst []Position) []Position {
	s.mu.RLock()
	defer s.mu.RUnlock()
	t, ok := s.topics[ref.topic]
	if !ok {
		return dst
	}
	for queue, p := range t.groups[ref.group] {
		dst = append(dst, p.position(ref.group, ref.topic, queue))
	}
	return dst
}

func (p *position) position(group, topic string, queue int32) Position {
	q := Position{Group: group, Topic: topic, Queue: queue, Offset: p.offset}
	if p.reset != nil {
		q.Epoch, q.Pending = p.reset.epoch, p.reset.pending
	}
	return q
}

// MergeMax takes over what another replica knows: per position the larger offset, unless an operator's reset stands
// between the two. Of two reset positions the one reset later counts. A replica that knows of no resets (a Java
// broker) can raise a position that was reset here only above where the group was before it; less may be the state before the
// reset. A commit that never reached the other is thus never taken back. When the group has followed a reset anywhere, it has.
func (o *Offsets) MergeMax(positions []Position) (raised int, err error) {
	for _, in := range positions {
		if in.Offset < 0 || in.Epoch < 0 || checkNames(in.Group, in.Topic, in.Queue) != nil {
			continue
		}
		s := o.shard(in.Topic)
		s.mu.Lock()
		t, p := o.place(s, in.Group, in.Topic, in.Queue)
		if rec, ok := merge(p, in); ok {
			o.replay(t, p, rec)
			o.journal.put(rec)
			o.dirty.Add(1)
			raised++
		}
		s.mu.Unlock()
	}
	return raised, o.journal.wait(0, o.journal.last())
}

// merge decides what a replica's position changes here, as the record to apply.
func merge(p *position, in Position) (record, bool) {
	rec := record{op: opCommit, group: in.Group, topic: in.Topic, queue: in.Queue, offset: in.Offset}
	var epoch int64
	if p.reset != nil {
		epoch = p.reset.epoch
	}
	switch {
	case in.Epoch > epoch:
		rec.op, rec.epoch, rec.prior = opAdopt, in.Epoch, p.offset
		if in.Pending {
			rec.op = opReset
		}
		return rec, true
	case in.Epoch < epoch && (!in.Plain || p.reset.pending || in.Offset <= p.reset.prior):
		return record{}, false
	case in.Epoch == epoch && in.Offset <= p.offset && !in.Pending && p.reset != nil && p.reset.pending:
		rec.op = opSettle
		return rec, true
	}
	return rec, in.Offset > p.offset
}

// RemoveGroup forgets all progress of a group, its retry topics' too, and all resets of it.
func (o *Offsets) RemoveGroup(group string) error {
	first, last := uint64(math.MaxUint64), uint64(0)
	for _, topic := range o.index.of(group) {
		last = o.removePair(topic, group)
		first = min(first, last)
	}
	return o.journal.wait(first, last)
}

// Remove forgets the progress of a group in one topic.
func (o *Offsets) Remove(group, topic string) error {
	ticket := o.removePair(topic, group)
	return o.journal.wait(ticket, ticket)
}

func (o *Offsets) removePair(topic, group string) (ticket uint64) {
	s := o.shard(topic)
	s.mu.Lock()
	defer s.mu.Unlock()
	o.dropPair(s, topic, group)
	o.dirty.Add(1)
	return o.journal.put(record{op: opRemovePair, group: group, topic: topic})
}

func (o *Offsets) dropPair(s *shard, topic, group string) {
	t, ok := s.topics[topic]
	if !ok {
		return
	}
	o.dropResets(t.groups[group])
	delete(t.groups, group)
	o.index.remove(group, topic)
}

func (o *Offsets) dropResets(queues map[int32]*position) {
	for _, p := range queues {
		if p.reset != nil && p.reset.pending {
			o.pending.Add(-1)
		}
	}
}

// RemoveTopic forgets all progress in a topic, and that offsets of it were ever given out: should it be created again,
// its queues start anew.
func (o *Offsets) RemoveTopic(topic string) error {
	s := o.shard(topic)
	s.mu.Lock()
	o.dropTopic(s, topic)
	o.dirty.Add(1)
	ticket := o.journal.put(record{op: opRemoveTopic, topic: topic})
	s.mu.Unlock()
	return o.durable(ticket)
}

func (o *Offsets) dropTopic(s *shard, topic string) {
	t, ok := s.topics[topic]
	if !ok {
		return
	}
	for group, queues := range t.groups {
		o.dropResets(queues)
		o.index.remove(group, topic)
	}
	delete(s.topics, topic)
}

// OffsetStats counts what happened since the start.
type OffsetStats struct {
	Commits, WentBack, Refused, Ignored, Resets uint64
	PendingResets                               int64
	JournalErrors                               uint64
}

// Stats returns the counts; Refused are not in Commits.
func (o *Offsets) Stats() OffsetStats {
	return OffsetStats{
		Commits: o.counts.commits.Load(), WentBack: o.counts.wentBack.Load(), Refused: o.counts.refused.Load(),
		Ignored: o.counts.ignored.Load(), Resets: o.counts.resets.Load(), PendingResets: o.pending.Load(),
		JournalErrors: o.journal.failures.Load(),
	}
}
