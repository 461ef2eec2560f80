package state

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/ratchetmq/ratchet/protocol"
)

// Errors of Topics. A name that is illegal is protocol.ErrTopicName or protocol.ErrGroupName.
var (
	ErrNoTopic     = errors.New("topic does not exist")
	ErrSystemTopic = errors.New("topic is reserved")
	ErrTopicConfig = errors.New("topic settings are illegal")
)

// maxQueues bounds the queues of a topic: more would be a mistyped number, and each costs a folder and open files.
const maxQueues = 65535

// TopicOptions is what Topics needs to know of the broker.
type TopicOptions struct {
	Files
	Broker, Cluster string
	AutoCreate      func() bool // whether a send may create its topic; asked at each such send
	DefaultQueues   int32       // of TBW102, the topic that those are copied from
	DelayLevels     int32       // queues of SCHEDULE_TOPIC_XXXX
	TraceTopic      string      // empty: no trace topic
	ReviveQueues    int32       // 0: no revive topic
	ClusterTopic    bool        // a topic named like the cluster
	BrokerTopic     bool        // a topic named like the broker
}

// Topics is the broker's topic table, kept in topics.json.
type Topics struct {
	table[protocol.TopicConfig]
	opts TopicOptions

	hookMu sync.Mutex
	hooks  []func(TopicChange) // guarded by hookMu
}

// TopicChange is one change of the table, for whoever must tell the name servers.
type TopicChange struct {
	Put     []*protocol.TopicConfig // new or altered
	Deleted []string
	Version protocol.DataVersion
}

// OpenTopics loads topics.json and adds the broker's own topics. A damaged file with a damaged backup is an error
// (atomicfile.ErrDamaged) that names the file; two missing files are an empty table.
func OpenTopics(o TopicOptions) (*Topics, error) {
	o.complete()
	t := &Topics{opts: o}
	t.files = o.Files
	t.path = filepath.Join(o.Dir, "topics.json")
	t.encode = encodeTopics
	var file protocol.TopicConfigSerializeWrapper
	found, err := readJSON(o.Files, t.path, &file, func(w *protocol.TopicConfigSerializeWrapper) bool { return w.TopicConfigTable != nil })
	if err := errors.Join(o.makeDir(), err); err != nil {
		return nil, fmt.Errorf("load topics: %w", err)
	}
	v := &view[protocol.TopicConfig]{entries: make(map[string]*protocol.TopicConfig, len(file.TopicConfigTable)), version: file.DataVersion}
	if !found {
		v.version.Timestamp = o.Now().UnixMilli()
	}
	for name, c := range file.TopicConfigTable {
		if !safeName(name) {
			o.Logger.Warn("topic with an unsafe name left out", "topic", name, "path", t.path)
			continue
		}
		c.TopicName = name
		v.entries[name] = normal(c)
	}
	t.loaded(v)
	if _, err := t.change(t.addSystemTopics); err != nil {
		return nil, fmt.Errorf("save topics: %w", err)
	}
	return t, nil
}

// safeName tells whether a name may be that of a folder. It admits more than protocol.ValidateTopic: brokers and
// clusters, which have topics too, may have dots in their names.
func safeName(name string) bool {
	return name != "" && name != "." && name != ".." && len(name) <= protocol.MaxOwnTopic && !strings.ContainsAny(name, "/\\\x00")
}

// normal returns what is stored: no shared map, no missing filter type.
func normal(c protocol.TopicConfig) *protocol.TopicConfig {
	if c.TopicFilterType == "" {
		c.TopicFilterType = protocol.SingleTag
	}
	c.Attributes = maps.Clone(c.Attributes)
	if c.Attributes == nil {
		c.Attributes = map[string]string{}
	}
	return &c
}

func newTopic(name string, queues, perm int32) *protocol.TopicConfig {
	return normal(protocol.TopicConfig{TopicName: name, ReadQueueNums: queues, WriteQueueNums: queues, Perm: perm})
}

const (
	permRW  = protocol.PermRead | protocol.PermWrite
	permRWX = permRW | protocol.PermInherit
)

// addSystemTopics puts in what is missing. What the file says stays, but for two: TBW102 follows the configuration
// (without auto-create its route must not attract producers), and the delay topic gets a queue for each level.
func (t *Topics) addSystemTopics(e *edit[protocol.TopicConfig]) {
	o := &t.opts
	add := func(name string, queues, perm int32) {
		if _, ok := e.entries[name]; !ok && safeName(name) {
			e.put(name, newTopic(name, queues, perm))
		}
	}
	add(protocol.TopicSelfTest, 1, permRW)
	add(protocol.TopicBenchmark, 1024, permRW)
	add(protocol.TopicOffsetMoved, 1, permRW)
	add(protocol.TopicHalf, 1, permRW)
	add(protocol.TopicOpHalf, 1, permRW)
	add(protocol.TopicTimer, 1, permRW)
	add(o.Cluster+protocol.ReplyTopicSuffix, 1, permRW)
	if o.ClusterTopic {
		add(o.Cluster, 16, permRWX)
	}
	if o.BrokerTopic {
		add(o.Broker, 1, permRWX)
	}
	if o.TraceTopic != "" {
		add(o.TraceTopic, 1, permRW)
	}
	if o.ReviveQueues > 0 {
		add(reviveTopic(o.Cluster), o.ReviveQueues, permRW)
	}
	if c, ok := e.entries[protocol.TopicSchedule]; !ok || c.ReadQueueNums < o.DelayLevels || c.WriteQueueNums < o.DelayLevels {
		e.put(protocol.TopicSchedule, newTopic(protocol.TopicSchedule, o.DelayLevels, permRW))
	}
	t.setDefault(e)
}

func (t *Topics) setDefault(e *edit[protocol.TopicConfig]) {
	c, ok := e.entries[protocol.TopicDefault]
	switch auto := t.opts.AutoCreate(); {
	case !auto && ok:
		e.remove(protocol.TopicDefault)
	case auto && (!ok || c.WriteQueueNums != t.opts.DefaultQueues || c.Perm != permRWX):
		e.put(protocol.TopicDefault, newTopic(protocol.TopicDefault, t.opts.DefaultQueues, permRWX))
	}
}

// SwitchAutoCreate gives producers TBW102, or takes it from them, after auto-create was switched at run time.
func (t *Topics) SwitchAutoCreate() {
	before, had := t.Get(protocol.TopicDefault)
	v, err := t.changeForClient(t.setDefault)
	if err != nil {
		t.files.Logger.Error("topics not saved", "err", err)
	}
	change := TopicChange{Version: v.version}
	switch after, has := v.entries[protocol.TopicDefault]; {
	case has && after != before:
		change.Put = []*protocol.TopicConfig{after}
	case had && !has:
		change.Deleted = []string{protocol.TopicDefault}
	}
	t.tell(change)
}

func reviveTopic(cluster string) string { return "rmq_sys_REVIVE_LOG_" + cluster }

// IsSystem tells whether a topic is the broker's own: tools may neither create nor delete it.
func (t *Topics) IsSystem(name string) bool {
	o := &t.opts
	return protocol.IsSystemTopic(name) || name == o.Cluster || name == o.Broker || name == o.Cluster+protocol.ReplyTopicSuffix ||
		o.TraceTopic != "" && name == o.TraceTopic
}

// OnChange has fn called after each change, by the goroutine that made it, with no lock held. It may be called twice at
// the same time; the later change has the larger version.
func (t *Topics) OnChange(fn func(TopicChange)) {
	t.hookMu.Lock()
	defer t.hookMu.Unlock()
	t.hooks = append(t.hooks, fn)
}

func (t *Topics) tell(c TopicChange) {
	if len(c.Put) == 0 && len(c.Deleted) == 0 {
		return
	}
	t.hookMu.Lock()
	hooks := slices.Clone(t.hooks)
	t.hookMu.Unlock()
	for _, fn := range hooks {
		fn(c)
	}
}

// Put creates or alters topics, all or none of them; it is for tools. changed is false when everything was so already.
// Errors: protocol.ErrTopicName, ErrSystemTopic, ErrTopicConfig, and those of the disk, after which the change is in
// force but a crash may take it back.
func (t *Topics) Put(configs ...protocol.TopicConfig) (changed bool, err error) {
	for i := range configs {
		if err := t.check(&configs[i]); err != nil {
			return false, err
		}
	}
	return t.put(configs...)
}

func (t *Topics) check(c *protocol.TopicConfig) error {
	if err := protocol.ValidateTopic(c.TopicName); err != nil {
		return err
	}
	switch {
	case t.IsSystem(c.TopicName):
		return fmt.Errorf("topic %s: %w", c.TopicName, ErrSystemTopic)
	case !legalQueues(c):
		return fmt.Errorf("%w: topic %s with %d read and %d write queues, each must be 0 to %d", ErrTopicConfig, c.TopicName, c.ReadQueueNums, c.WriteQueueNums, maxQueues)
	case c.Perm < 0 || c.Perm > 15:
		return fmt.Errorf("%w: topic %s with permission %d, must be 0 to 15", ErrTopicConfig, c.TopicName, c.Perm)
	}
	return nil
}

func legalQueues(c *protocol.TopicConfig) bool {
	return c.ReadQueueNums >= 0 && c.ReadQueueNums <= maxQueues && c.WriteQueueNums >= 0 && c.WriteQueueNums <= maxQueues
}

func (t *Topics) put(configs ...protocol.TopicConfig) (changed bool, err error) {
	var put []*protocol.TopicConfig
	v, err := t.change(func(e *edit[protocol.TopicConfig]) {
		for i := range configs {
			c := normal(configs[i])
			if old, ok := e.entries[c.TopicName]; ok && sameTopic(old, c) {
				continue
			}
			e.put(c.TopicName, c)
			put = append(put, c)
		}
	})
	t.tell(TopicChange{Put: put, Version: v.version})
	return len(put) > 0, err
}

func sameTopic(a, b *protocol.TopicConfig) bool {
	return a.ReadQueueNums == b.ReadQueueNums && a.WriteQueueNums == b.WriteQueueNums && a.Perm == b.Perm && a.Order == b.Order &&
		a.TopicFilterType == b.TopicFilterType && a.TopicSysFlag == b.TopicSysFlag && maps.Equal(a.Attributes, b.Attributes)
}

// Delete removes a topic from the table. Its messages and offsets are the caller's to remove.
func (t *Topics) Delete(name string) (existed bool, err error) {
	if t.IsSystem(name) {
		return false, fmt.Errorf("topic %s: %w", name, ErrSystemTopic)
	}
	v, err := t.change(func(e *edit[protocol.TopicConfig]) {
		if _, existed = e.entries[name]; existed {
			e.remove(name)
		}
	})
	if existed {
		t.tell(TopicChange{Deleted: []string{name}, Version: v.version})
	}
	return existed, err
}

// MarkOrder sets the order flag of exactly the topics named, as the name servers list them.
func (t *Topics) MarkOrder(topics map[string]string) error {
	var put []*protocol.TopicConfig
	v, err := t.change(func(e *edit[protocol.TopicConfig]) {
		for name, old := range e.entries {
			if _, order := topics[name]; order != old.Order {
				c := *old
				c.Order = order
				put = append(put, &c)
			}
		}
		for _, c := range put {
			e.put(c.TopicName, c)
		}
	})
	t.tell(TopicChange{Put: put, Version: v.version})
	return err
}

// Renew gives the table a new version although it stays as it is: for name servers, which would not look at it otherwise.
// After an error the new version is in force all the same.
func (t *Topics) Renew() error {
	_, err := t.change(func(e *edit[protocol.TopicConfig]) { e.own() })
	return err
}

// Lacking names the topics here, but the broker's own, that another broker's table has not, sorted.
func (t *Topics) Lacking(other map[string]protocol.TopicConfig) (names []string) {
	for _, name := range t.Names() {
		if _, ok := other[name]; !ok && !t.IsSystem(name) {
			names = append(names, name)
		}
	}
	return names
}

// Adopt takes over another broker's table with its version, as a replica does from its master, and removes those of the
// topics named that the other table lacks. The broker's own topics stay as they are.
func (t *Topics) Adopt(other map[string]protocol.TopicConfig, version protocol.DataVersion, remove []string) error {
	var put []*protocol.TopicConfig
	var removed []string
	v, err := t.changeTo(&version, func(e *edit[protocol.TopicConfig]) {
		for name, c := range other {
			old, known := e.entries[name]
			if !t.foreign(name, &c) || known && t.IsSystem(name) {
				continue
			}
			if n := normal(c); !known || !sameTopic(old, n) {
				e.put(name, n)
				put = append(put, n)
			}
		}
		for _, name := range remove {
			_, known := e.entries[name]
			if _, theirs := other[name]; known && !theirs && !t.IsSystem(name) {
				e.remove(name)
				removed = append(removed, name)
			}
		}
	})
	t.tell(TopicChange{Put: put, Deleted: removed, Version: v.version})
	return err
}

// AddMissing takes over the topics of another broker's table that are missing here, and changes no other. The version
// here becomes the newer of the two, so that replicas of the other follow.
func (t *Topics) AddMissing(other map[string]protocol.TopicConfig, version protocol.DataVersion) (added []string, err error) {
	var put []*protocol.TopicConfig
	v, err := t.change(func(e *edit[protocol.TopicConfig]) {
		e.follow(t.Version(), version)
		for name, c := range other {
			if _, known := e.entries[name]; !known && t.foreign(name, &c) {
				n := normal(c)
				e.put(name, n)
				put = append(put, n)
				added = append(added, name)
			}
		}
	})
	t.tell(TopicChange{Put: put, Version: v.version})
	slices.Sort(added)
	return added, err
}

// foreign tells whether an entry of another broker's table may be taken, and completes it. TBW102 follows the
// configuration of this broker.
func (t *Topics) foreign(name string, c *protocol.TopicConfig) bool {
	c.TopicName = name
	return safeName(name) && name != protocol.TopicDefault && legalQueues(c)
}

// Close writes the table and its backup for a clean stop.
func (t *Topics) Close() error { return t.close() }

func encodeTopics(v *view[protocol.TopicConfig]) ([]byte, error) {
	var j jsonFile
	j.field("dataVersion", v.version)
	writeEntries(&j, "topicConfigTable", v.entries)
	return j.end()
}
