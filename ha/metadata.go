package ha

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ratchetmq/ratchet/delay"
	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/internal/state"
	"github.com/ratchetmq/ratchet/protocol"
	"github.com/ratchetmq/ratchet/remoting"
)

// Adopt says what becomes of another broker's topics and groups. Offsets only rise, whatever it is.
type Adopt uint8

const (
	// AsSlave makes topics and groups those of the master; what it deleted goes here too.
	AsSlave Adopt = iota + 1
	// AsMaster adds what is missing here and leaves the rest: for a master that returns.
	AsMaster
)

// Metadata takes over what other brokers of the group know besides messages: topics, groups, consumer offsets, delay
// offsets. Java brokers of 4.9 and 5.x give it as ours do; ours spare what has not changed.
type Metadata struct {
	Topics  *state.Topics
	Groups  *state.Groups
	Offsets *state.Offsets
	Delay   *delay.Scheduler
	Client  Caller
	Logger  *slog.Logger
	// Written is the end of this broker's log.
	Written func() offset.Physical
	// Removed drops the queues and offsets of a topic that a Java master has deleted, before the topic goes. Masters of ours
	// tell of it before what comes later, see intake.adoptDeleted.
	Removed func(topic string) error
	// Deleted are the topics that were deleted, as the store has noted; nil: its log does not come with what others have noted.
	Deleted func() map[string]offset.Physical
	// Changed has a token when the master has said that its tables changed; may be nil.
	Changed chan struct{}
	// Every is the pause between two rounds of a slave, [10 s]; EveryOwn that below a master of ours, [1 s].
	Every, EveryOwn time.Duration

	turn turn // of a Fetch

	peer    string                  // guarded by turn: whom the rest is about
	own     atomic.Bool             // it is one of ours
	offsets string                  // guarded by turn: mark of its consumer offsets that are merged
	ahead   *delayTable             // guarded by turn: waits for the log
	stale   bool                    // guarded by turn: it was found to have less than is here
	ended   func(topic string) bool // guarded by turn: what it has of a topic is from before that was deleted; nil: nothing is
}

// delayTable is a table of delay offsets, and where its broker's log ended when it was given.
type delayTable struct {
	text []byte
	end  offset.Physical
}

const (
	tableTimeout = 30 * time.Second
	pageSize     = 2000 // topics or groups, as 5.x asks for them
	// retries is how often a table that changes while its pages are read is begun anew.
	retries = 5
	// dropPatience is how long a round waits for the log before a topic that the master deleted goes.
	dropPatience = 3 * time.Second
	dropLook     = 10 * time.Millisecond
)

var (
	// ErrTable is another broker's table that can't be used.
	ErrTable = errors.New("table not valid")
	// errLogBehind says that the log has not come to where a table counts deliveries, or topics were deleted.
	errLogBehind = errors.New("log not far enough for the table")
)

// Fetch takes over the tables of the broker at addr. It goes on after an error of one of them. Call it as a master
// before the delivery of delayed messages runs: one that runs keeps its own progress.
func (m *Metadata) Fetch(ctx context.Context, addr string, adopt Adopt) error {
	if err := m.turn.take(ctx); err != nil {
		return err
	}
	defer m.turn.give()
	m.ended = nil
	if addr != m.peer {
		m.peer, m.offsets, m.ahead, m.stale = addr, "", nil, false
		m.own.Store(false)
	}
	if adopt == AsMaster {
		return errors.Join(m.addTopics(ctx), m.addGroups(ctx), m.mergeOffsets(ctx), m.mergeDelays(ctx, adopt))
	}
	return errors.Join(m.copyTopics(ctx), m.copyGroups(ctx), m.mergeDelays(ctx, adopt))
}

// Merge is Fetch for a master that returns, or is given back what it had lost.
func (m *Metadata) Merge(ctx context.Context, addr string) error { return m.Fetch(ctx, addr, AsMaster) }

// Committed calls fn with the highest offset that any group ever committed, for each queue.
func (m *Metadata) Committed(fn func(topic string, queue int32, next offset.Queue)) {
	type place struct {
		topic string
		queue int32
	}
	told := map[place]bool{}
	m.Offsets.Each(func(p state.Position) bool {
		at := place{p.Topic, p.Queue}
		if highest, ok := m.Offsets.Highest(p.Topic, p.Queue); ok && !told[at] {
			told[at] = true
			fn(p.Topic, p.Queue, highest)
		}
		return true
	})
}

// Queues calls fn for each queue that the topics have.
func (m *Metadata) Queues(fn func(topic string, queue int32)) {
	topics, _ := m.Topics.Snapshot()
	for name, topic := range topics {
		for queue := range max(topic.ReadQueueNums, topic.WriteQueueNums) {
			fn(name, queue)
		}
	}
}

// lookForMaster is how often a slave looks whether its master is known by now.
const lookForMaster = 200 * time.Millisecond

// Follow fetches as a slave until ctx is done: as soon as the master is known, then again and again. master names the
// broker to ask; empty: none is known.
func (m *Metadata) Follow(ctx context.Context, master func() string) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		case <-m.Changed:
		}
		begin := time.Now()
		addr := master()
		if addr == "" {
			pause.Reset(lookForMaster)
			continue
		}
		switch err := errors.Join(m.Fetch(ctx, addr, AsSlave), m.tellOffsets(ctx, addr)); {
		case ctx.Err() != nil:
			return
		case err != nil && !failing:
			failing = true
			m.Logger.Warn("tables of the master not taken over", "component", "ha", "addr", addr, "err", err)
		case err == nil && failing:
			failing = false
			m.Logger.Info("tables of the master taken over again", "component", "ha", "addr", addr)
		}
		pause.Reset(m.pause(time.Since(begin)))
	}
}

// pause is how long to wait after a round. One that takes long, as that with a table that is large and changes all the
// time, does not come as often.
func (m *Metadata) pause(took time.Duration) time.Duration {
	const share = 5
	every := cmp.Or(m.Every, 10*time.Second)
	if !m.own.Load() {
		return every
	}
	own := cmp.Or(m.EveryOwn, time.Second)
	return max(own, min(share*took, every))
}

// call asks the peer. What it answers but success is an error.
func (m *Metadata) call(ctx context.Context, code protocol.RequestCode, h protocol.Header, has string) (*remoting.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, tableTimeout)
	defer cancel()
	var extra []protocol.KV
	if has != "" {
		extra = []protocol.KV{{Key: protocol.FieldUnless, Value: has}}
	}
	resp, err := m.Client.Call(ctx, m.peer, code, h, extra, nil)
	if err != nil {
		return nil, err
	}
	if resp.Code != int32(protocol.Success) {
		return nil, fmt.Errorf("%s of %s: %s: %s", code, m.peer, protocol.ResponseCode(resp.Code), resp.Remark)
	}
	if _, ours := resp.Fields.Get(protocol.FieldMark); ours {
		m.own.Store(true)
	}
	return resp, nil
}

func unchanged(resp *remoting.Response) bool {
	_, ok := resp.Fields.Get(protocol.FieldUnchanged)
	return ok
}

// invalid is an answer that makes no table.
func (m *Metadata) invalid(code protocol.RequestCode, why any) error {
	return fmt.Errorf("%s of %s: %w: %v", code, m.peer, ErrTable, why)
}

// page is a part of a table, or all of it.
type page[V any] struct {
	entries map[string]V
	version protocol.DataVersion
	total   protocol.Opt[int32] // of all pages; not set: there is only this one
	deleted map[string]int64    // topics, each below a position of the log
}

// readPages asks for pages until it has the whole table in one version. ok = false: the peer says that nothing has
// changed.
func readPages[V any](ask func(seq int32, version string) (page[V], bool, error)) (whole page[V], ok bool, err error) {
	for range retries {
		if whole, ok, err = ask(0, ""); err != nil || !ok {
			return whole, ok, err
		}
		text, err := protocol.Marshal(whole.version)
		if err != nil {
			return whole, false, err
		}
		same := true
		for seq := len(whole.entries); same && seq < int(whole.total.Or(0)); {
			next, ok, err := ask(int32(seq), string(text))
			if err != nil {
				return whole, false, err
			}
			seq += len(next.entries)
			same = ok && next.version == whole.version && len(next.entries) > 0
			maps.Copy(whole.entries, next.entries)
		}
		if same {
			return whole, true, nil
		}
	}
	return whole, false, fmt.Errorf("%w: it changed %d times while its pages were read", ErrTable, retries)
}

// readTopics reads the peer's topics; ok = false: they are those with the mark.
func (m *Metadata) readTopics(ctx context.Context, has string) (page[protocol.TopicConfig], bool, error) {
	const code = protocol.GetAllTopicConfig
	return readPages(func(seq int32, version string) (p page[protocol.TopicConfig], ok bool, err error) {
		resp, err := m.call(ctx, code, &protocol.GetAllTopicConfigRequest{
			TopicSeq: protocol.Some(seq), MaxTopicNum: pageSize, DataVersion: version,
		}, has)
		if err != nil || unchanged(resp) {
			return p, false, err
		}
		var h protocol.GetAllTopicConfigResponse
		var w protocol.TopicConfigSerializeWrapper
		if err := errors.Join(resp.ReadHeader(&h), protocol.Unmarshal(resp.Body, &w)); err != nil {
			return p, false, m.invalid(code, err)
		}
		if w.TopicConfigTable == nil {
			return p, false, m.invalid(code, "no topics")
		}
		p = page[protocol.TopicConfig]{entries: w.TopicConfigTable, version: w.DataVersion, total: h.TotalTopicNum}
		if w.Ratchet != nil {
			p.deleted = w.Ratchet.Deleted
		}
		return p, true, nil
	})
}

// readGroups reads the peer's groups; ok = false: they are those with the mark.
func (m *Metadata) readGroups(ctx context.Context, has string) (w protocol.SubscriptionGroupWrapper, ok bool, err error) {
	const code = protocol.GetAllSubscriptionGroupConfig
	var forbidden map[string]map[string]int32
	whole, ok, err := readPages(func(seq int32, version string) (p page[protocol.SubscriptionGroupConfig], ok bool, err error) {
		resp, err := m.call(ctx, code, &protocol.GetAllSubscriptionGroupConfigRequest{
			GroupSeq: protocol.Some(seq), MaxGroupNum: pageSize, DataVersion: version,
		}, has)
		if err != nil || unchanged(resp) {
			return p, false, err
		}
		var h protocol.GetAllSubscriptionGroupConfigResponse
		var w protocol.SubscriptionGroupWrapper
		if err := errors.Join(resp.ReadHeader(&h), protocol.Unmarshal(resp.Body, &w)); err != nil {
			return p, false, m.invalid(code, err)
		}
		if w.SubscriptionGroupTable == nil {
			return p, false, m.invalid(code, "no groups")
		}
		if seq == 0 || forbidden == nil {
			forbidden = w.ForbiddenTable
		} else {
			maps.Copy(forbidden, w.ForbiddenTable)
		}
		return page[protocol.SubscriptionGroupConfig]{entries: w.SubscriptionGroupTable, version: w.DataVersion, total: h.TotalGroupNum}, true, nil
	})
	return protocol.SubscriptionGroupWrapper{
		DataVersion: whole.version, ForbiddenTable: forbidden, SubscriptionGroupTable: whole.entries,
	}, ok, err
}

func (m *Metadata) addTopics(ctx context.Context) error {
	table, _, err := m.readTopics(ctx, "")
	if err != nil {
		return err
	}
	if m.own.Load() && m.Deleted != nil {
		deleted := m.Deleted()
		m.ended = func(topic string) bool { return int64(deleted[topic]) > table.deleted[topic] }
		maps.DeleteFunc(table.entries, func(topic string, _ protocol.TopicConfig) bool { return m.ended(topic) })
	}
	added, err := m.Topics.AddMissing(table.entries, table.version)
	if len(added) > 0 {
		m.Logger.Info("topics taken over", "component", "ha", "addr", m.peer, "topics", added)
	}
	return err
}

func (m *Metadata) addGroups(ctx context.Context) error {
	table, _, err := m.readGroups(ctx, "")
	if err != nil {
		return err
	}
	added, err := m.Groups.AddMissing(&table)
	if len(added) > 0 {
		m.Logger.Info("consumer groups taken over", "component", "ha", "addr", m.peer, "groups", added)
	}
	return err
}

// copyTopics makes the topics here those of the master. What it has deleted goes first, with all that belongs to it:
// if this process ends in between the topic is still there, and goes in the next round.
func (m *Metadata) copyTopics(ctx context.Context) error {
	own := m.Topics.Version()
	table, ok, err := m.readTopics(ctx, own.Mark())
	if err != nil || !ok || table.version == own {
		return err
	}
	remove := m.Topics.Lacking(table.entries)
	if len(remove) == 0 {
		return m.Topics.Adopt(table.entries, table.version, nil)
	}
	kept, err := m.refuses(ctx, table.version, own, "topics", remove)
	if !kept && err == nil {
		err = m.drop(ctx, remove)
	}
	if kept || err != nil {
		return errors.Join(err, m.Topics.Adopt(table.entries, own, nil))
	}
	return m.Topics.Adopt(table.entries, table.version, remove)
}

// refuses says whether a table is not to remove anything. A master that lost its disk, or got an old one back, would else take
// the topics, groups and offsets of its slaves, too. It shows by a version that counts less changes than the one here, which came
// from this or another master; or, since the count of 4.9's groups begins anew with each of its starts, by a log that ends before
// the one here.
func (m *Metadata) refuses(ctx context.Context, theirs, own protocol.DataVersion, what string, lacking []string) (bool, error) {
	less := "version"
	if cmp.Or(cmp.Compare(theirs.StateVersion, own.StateVersion), cmp.Compare(theirs.Counter, own.Counter)) >= 0 {
		here := m.Written() // before the master is asked, whose log may grow meanwhile
		end, err := m.logEnd(ctx)
		if err != nil || end >= here {
			return false, err
		}
		less = "log"
	}
	if !m.stale {
		m.stale = true
		m.Logger.Error("the master has less than is here: nothing is removed", "component", "ha", "addr", m.peer, "less", less,
			"table", what, "lacking", lacking, "counter", own.Counter, "counter_master", theirs.Counter)
	}
	return true, nil
}

// drop removes what belongs to topics that the master has deleted, when the log is as far as the master's was then: a
// message from before the deletion would begin the topic's queues anew.
func (m *Metadata) drop(ctx context.Context, topics []string) error {
	remove := m.Offsets.RemoveTopic
	if !m.own.Load() || m.Deleted == nil {
		remove = m.Removed
		end, err := m.logEnd(ctx)
		if err != nil {
			return err
		}
		if err := m.awaitLog(ctx, end); err != nil {
			return err
		}
	}
	for _, topic := range topics {
		if err := remove(topic); err != nil {
			return fmt.Errorf("topic %s, deleted by the master: %w", topic, err)
		}
		m.Logger.Info("topic deleted, as the master has", "component", "ha", "topic", topic, "addr", m.peer)
	}
	return nil
}

func (m *Metadata) awaitLog(ctx context.Context, end offset.Physical) error {
	if m.Written() >= end {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, dropPatience)
	defer cancel()
	look := time.NewTicker(dropLook)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: ends at %d, the master's at %d", errLogBehind, m.Written(), end)
		case <-look.C:
			if m.Written() >= end {
				return nil
			}
		}
	}
}

// logEnd is the end of the peer's log.
func (m *Metadata) logEnd(ctx context.Context) (offset.Physical, error) {
	const code = protocol.GetBrokerRuntimeInfo
	resp, err := m.call(ctx, code, nil, "")
	if err != nil {
		return 0, err
	}
	var kv protocol.KVTable
	if err := protocol.Unmarshal(resp.Body, &kv); err != nil {
		return 0, m.invalid(code, err)
	}
	end, err := strconv.ParseInt(kv.Table["commitLogMaxOffset"], 10, 64)
	if err != nil {
		return 0, m.invalid(code, err)
	}
	return offset.Physical(end), nil
}

// copyGroups makes the groups here those of the master, and takes its consumer offsets. A group that the master has
// deleted takes its offsets along unless the master kept them.
func (m *Metadata) copyGroups(ctx context.Context) error {
	own := m.Groups.Version()
	table, changed, err := m.readGroups(ctx, own.Mark())
	if err != nil {
		return errors.Join(err, m.mergeOffsets(ctx))
	}
	if changed = changed && table.DataVersion != own; !changed {
		return m.mergeOffsets(ctx)
	}
	remove := m.Groups.Lacking(table.SubscriptionGroupTable)
	if len(remove) == 0 {
		return errors.Join(m.Groups.Adopt(&table, table.DataVersion, nil), m.mergeOffsets(ctx))
	}
	if kept, err := m.refuses(ctx, table.DataVersion, own, "groups", remove); kept || err != nil {
		return errors.Join(err, m.Groups.Adopt(&table, own, nil), m.mergeOffsets(ctx))
	}
	m.offsets = "" // all of it must be seen
	offsets, err := m.readOffsets(ctx)
	if err != nil {
		return errors.Join(err, m.Groups.Adopt(&table, own, nil))
	}
	kept := map[string]bool{}
	for key := range offsets.OffsetTable {
		_, group, _ := strings.Cut(key, "@")
		kept[group] = true
	}
	for _, group := range remove {
		if !kept[group] {
			if err := m.Offsets.RemoveGroup(group); err != nil {
				return fmt.Errorf("group %s, deleted by the master: %w", group, err)
			}
		}
		m.Logger.Info("consumer group deleted, as the master has", "component", "ha", "group", group, "offsets", !kept[group])
	}
	return errors.Join(m.merge(offsets), m.Groups.Adopt(&table, table.DataVersion, remove))
}

// offsetTable is what the peer knows of its consumers; nil when nothing has changed.
type offsetTable struct {
	*protocol.ConsumerOffsetTable
	mark string
}

func (m *Metadata) readOffsets(ctx context.Context) (table offsetTable, err error) {
	const code = protocol.GetAllConsumerOffset
	resp, err := m.call(ctx, code, nil, m.offsets)
	if err != nil || unchanged(resp) {
		return table, err
	}
	table.ConsumerOffsetTable = &protocol.ConsumerOffsetTable{}
	if err := protocol.Unmarshal(resp.Body, table.ConsumerOffsetTable); err != nil {
		return table, m.invalid(code, err)
	}
	if table.OffsetTable == nil {
		return table, m.invalid(code, "no offsets")
	}
	table.mark, _ = resp.Fields.Get(protocol.FieldMark)
	return table, nil
}

func (m *Metadata) mergeOffsets(ctx context.Context) error {
	table, err := m.readOffsets(ctx)
	if err != nil || table.ConsumerOffsetTable == nil {
		return err
	}
	return m.merge(table)
}

// merge takes the offsets of topics that exist: those of deleted ones stay for a while on a Java broker, and would count
// for a new topic of that name.
func (m *Metadata) merge(table offsetTable) error {
	all := state.Positions(table.ConsumerOffsetTable)
	known := slices.DeleteFunc(slices.Clone(all), func(p state.Position) bool {
		_, ok := m.Topics.Get(p.Topic)
		return !ok || m.ended != nil && m.ended(p.Topic)
	})
	if _, err := m.Offsets.MergeMax(known); err != nil {
		return fmt.Errorf("consumer offsets of %s: %w", m.peer, err)
	}
	if m.offsets = ""; len(known) == len(all) { // else the topics may be known the next time
		m.offsets = table.mark
	}
	return nil
}

// mergeDelays takes the progress of delayed messages. A table ahead of the log here is kept until the log has come that
// far, which for a slave is no error: the next one would be ahead again while messages come in.
func (m *Metadata) mergeDelays(ctx context.Context, adopt Adopt) error {
	if m.ahead != nil && adopt == AsSlave {
		err := m.mergeDelay(m.ahead)
		if errors.Is(err, delay.ErrAhead) {
			return nil
		}
		m.ahead = nil
		if err != nil {
			return err
		}
	}
	table, err := m.readDelays(ctx)
	if err != nil {
		return err
	}
	err = m.mergeDelay(table)
	if errors.Is(err, delay.ErrAhead) && adopt == AsSlave {
		m.ahead = table
		return nil
	}
	return err
}

func (m *Metadata) mergeDelay(table *delayTable) error {
	err := m.Delay.MergeMax(table.text, table.end)
	if err == nil || errors.Is(err, delay.ErrRunning) { // its own progress is the newer
		return nil
	}
	return fmt.Errorf("delay offsets of %s: %w", m.peer, err)
}

func (m *Metadata) readDelays(ctx context.Context) (*delayTable, error) {
	const code = protocol.GetAllDelayOffset
	resp, err := m.call(ctx, code, nil, "")
	if err != nil {
		return nil, err
	}
	table := &delayTable{text: slices.Clone(resp.Body)}
	var own struct {
		DeliveredTo *int64 `json:"deliveredTo"`
	}
	if err := protocol.Unmarshal(table.text, &own); err != nil {
		return nil, m.invalid(code, err)
	}
	if own.DeliveredTo == nil { // a Java broker's, which does not say up to where in the log it counts
		table.end, err = m.logEnd(ctx)
	}
	return table, err
}
