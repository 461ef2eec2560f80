package state

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/ratchetmq/ratchet/protocol"
)

// ErrNoGroup says that the consumer group does not exist, and may not be created on demand.
var ErrNoGroup = errors.New("consumer group does not exist")

// GroupOptions is what Groups needs to know of the broker.
type GroupOptions struct {
	Files
	AutoCreate func() bool // whether an unknown group is created on demand; asked each time
}

// Groups is the broker's table of consumer groups, kept in subscriptionGroup.json.
type Groups struct {
	table[protocol.SubscriptionGroupConfig]
	opts GroupOptions

	// forbidden: group, topic, bits. Replaced as a whole, under the table's lock, and saved in the same file.
	forbidden atomic.Pointer[map[string]map[string]int32]
}

// ownGroups are there from the start, as in RocketMQ.
var ownGroups = []string{
	protocol.GroupTools, "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "CID_ONS-HTTP-PROXY",
	"CID_ONSAPI_PULL", "CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER", "CID_RMQ_SYS_TRANS",
}

// OpenGroups loads subscriptionGroup.json and adds the broker's own groups. Damaged and missing files are as in
// OpenTopics.
func OpenGroups(o GroupOptions) (*Groups, error) {
	o.complete()
	g := &Groups{opts: o}
	g.files = o.Files
	g.path = filepath.Join(o.Dir, "subscriptionGroup.json")
	g.encode = g.encodeGroups
	var file protocol.SubscriptionGroupWrapper
	found, err := readJSON(o.Files, g.path, &file, func(w *protocol.SubscriptionGroupWrapper) bool { return w.SubscriptionGroupTable != nil })
	if err := errors.Join(o.makeDir(), err); err != nil {
		return nil, fmt.Errorf("load consumer groups: %w", err)
	}
	v := &view[protocol.SubscriptionGroupConfig]{entries: make(map[string]*protocol.SubscriptionGroupConfig, len(file.SubscriptionGroupTable)), version: file.DataVersion}
	if !found {
		v.version.Timestamp = o.Now().UnixMilli()
	}
	for name, c := range file.SubscriptionGroupTable {
		if !safeName(protocol.RetryTopic(name)) {
			o.Logger.Warn("consumer group with an unsafe name left out", "group", name, "path", g.path)
			continue
		}
		c.GroupName = name
		v.entries[name] = normalGroup(c)
	}
	if file.ForbiddenTable == nil {
		file.ForbiddenTable = map[string]map[string]int32{}
	}
	g.forbidden.Store(&file.ForbiddenTable)
	g.loaded(v)
	_, err = g.change(func(e *edit[protocol.SubscriptionGroupConfig]) {
		for _, name := range ownGroups {
			if _, ok := e.entries[name]; !ok {
				e.put(name, normalGroup(protocol.NewSubscriptionGroupConfig(name)))
			}
		}
	})
	if err != nil {
		return nil, fmt.Errorf("save consumer groups: %w", err)
	}
	return g, nil
}

func normalGroup(c protocol.SubscriptionGroupConfig) *protocol.SubscriptionGroupConfig {
	c.Attributes = maps.Clone(c.Attributes)
	if c.Attributes == nil {
		c.Attributes = map[string]string{}
	}
	return &c
}

// GetOrCreate is Get that creates an unknown group when that is allowed; the transaction checker's and other groups of
// the system always may be. Errors: protocol.ErrGroupName, ErrNoGroup. A failed save is logged.
func (g *Groups) GetOrCreate(name string) (*protocol.SubscriptionGroupConfig, error) {
	if c, ok := g.Get(name); ok {
		return c, nil
	}
	if err := protocol.ValidateGroup(name); err != nil {
		return nil, err
	}
	if !g.opts.AutoCreate() && !strings.HasPrefix(name, protocol.SystemGroupPrefix) {
		return nil, fmt.Errorf("consumer group %s, and autoCreateSubscriptionGroup is false: %w", name, ErrNoGroup)
	}
	c, created := normalGroup(protocol.NewSubscriptionGroupConfig(name)), false
	v, err := g.changeForClient(func(e *edit[protocol.SubscriptionGroupConfig]) {
		if _, ok := e.entries[name]; !ok {
			e.put(name, c)
			created = true
		}
	})
	if err != nil {
		g.files.Logger.Error("consumer groups not saved", "group", name, "err", err)
	}
	if created {
		g.files.Logger.Info("consumer group created", "group", name)
		return c, nil
	}
	if there, ok := v.entries[name]; ok {
		return there, nil
	}
	return c, nil
}

// Put creates or alters groups, all or none of them; it is for tools. Errors: protocol.ErrGroupName, and those of the
// disk, after which the change is in force but a crash may take it back.
func (g *Groups) Put(configs ...protocol.SubscriptionGroupConfig) (changed bool, err error) {
	for i := range configs {
		if err := protocol.ValidateAdminGroup(configs[i].GroupName); err != nil {
			return false, err
		}
	}
	_, err = g.change(func(e *edit[protocol.SubscriptionGroupConfig]) {
		for i := range configs {
			c := normalGroup(configs[i])
			if old, ok := e.entries[c.GroupName]; ok && sameGroup(old, c) {
				continue
			}
			e.put(c.GroupName, c)
			changed = true
		}
	})
	return changed, err
}

func sameGroup(a, b *protocol.SubscriptionGroupConfig) bool {
	ta, errA := protocol.Marshal(a)
	tb, errB := protocol.Marshal(b)
	return errA == nil && errB == nil && string(ta) == string(tb)
}

// Delete removes a group, and what it was forbidden. Whether its offsets go too is the caller's decision.
func (g *Groups) Delete(name string) (existed bool, err error) {
	_, err = g.change(func(e *edit[protocol.SubscriptionGroupConfig]) {
		if _, existed = e.entries[name]; existed {
			e.remove(name)
		}
		if _, ok := (*g.forbidden.Load())[name]; ok {
			table := maps.Clone(*g.forbidden.Load())
			delete(table, name)
			g.forbidden.Store(&table)
			e.own()
		}
	})
	return existed, err
}

// readBit is the bit of the forbidden table that forbids reading: 1 shifted by the place of the read permission.
const readBit int32 = 1 << 2

// Readable tells whether the group may read the topic. It takes no lock.
func (g *Groups) Readable(group, topic string) bool {
	return (*g.forbidden.Load())[group][topic]&readBit == 0
}

// SetReadable forbids the group to read the topic, or allows it again.
func (g *Groups) SetReadable(group, topic string, readable bool) error {
	_, err := g.change(func(e *edit[protocol.SubscriptionGroupConfig]) {
		old := *g.forbidden.Load()
		bits := old[group][topic] | readBit
		if readable {
			bits &^= readBit
		}
		if bits == old[group][topic] {
			return
		}
		table := maps.Clone(old)
		topics := maps.Clone(old[group])
		if topics == nil {
			topics = map[string]int32{}
		}
		topics[topic] = bits
		if bits == 0 {
			delete(topics, topic)
		}
		table[group] = topics
		if len(topics) == 0 {
			delete(table, group)
		}
		g.forbidden.Store(&table)
		e.own()
	})
	return err
}

// Forbidden is the whole forbidden table: group, topic, bits. It is shared and must not be changed.
func (g *Groups) Forbidden() map[string]map[string]int32 { return *g.forbidden.Load() }

// Lacking names the groups here, but the broker's own, that another broker's table has not, sorted.
func (g *Groups) Lacking(other map[string]protocol.SubscriptionGroupConfig) (names []string) {
	for _, name := range g.Names() {
		if _, ok := other[name]; !ok && !slices.Contains(ownGroups, name) {
			names = append(names, name)
		}
	}
	return names
}

// Adopt takes over another broker's table with the version given, as a replica does from its master, and removes those
// of the groups named that the other table lacks. The broker's own groups stay.
func (g *Groups) Adopt(other *protocol.SubscriptionGroupWrapper, version protocol.DataVersion, remove []string) error {
	_, err := g.changeTo(&version, func(e *edit[protocol.SubscriptionGroupConfig]) {
		for name, c := range other.SubscriptionGroupTable {
			n, ok := foreignGroup(name, c)
			if old, known := e.entries[name]; ok && !(known && sameGroup(old, n)) {
				e.put(name, n)
			}
		}
		for _, name := range remove {
			_, known := e.entries[name]
			if _, theirs := other.SubscriptionGroupTable[name]; known && !theirs && !slices.Contains(ownGroups, name) {
				e.remove(name)
			}
		}
		if now := *g.forbidden.Load(); other.ForbiddenTable != nil && !maps.EqualFunc(now, other.ForbiddenTable, maps.Equal[map[string]int32, map[string]int32]) {
			g.forbidden.Store(&other.ForbiddenTable)
			e.own()
		}
	})
	return err
}

// AddMissing takes over the groups of another broker's table that are missing here, and changes no other. The version
// here becomes the newer of the two, so that replicas of the other follow.
func (g *Groups) AddMissing(other *protocol.SubscriptionGroupWrapper) (added []string, err error) {
	_, err = g.change(func(e *edit[protocol.SubscriptionGroupConfig]) {
		e.follow(g.Version(), other.DataVersion)
		forbidden := maps.Clone(*g.forbidden.Load())
		for name, c := range other.SubscriptionGroupTable {
			n, ok := foreignGroup(name, c)
			if _, known := e.entries[name]; known || !ok {
				continue
			}
			e.put(name, n)
			added = append(added, name)
			if topics, ok := other.ForbiddenTable[name]; ok {
				forbidden[name] = topics
			}
		}
		if len(added) > 0 {
			g.forbidden.Store(&forbidden)
		}
	})
	slices.Sort(added)
	return added, err
}

// foreignGroup is an entry of another broker's table as it is stored here, if it may be.
func foreignGroup(name string, c protocol.SubscriptionGroupConfig) (*protocol.SubscriptionGroupConfig, bool) {
	c.GroupName = name
	return normalGroup(c), name != "" && safeName(protocol.RetryTopic(name))
}

// Close writes the table and its backup for a clean stop.
func (g *Groups) Close() error { return g.close() }

func (g *Groups) encodeGroups(v *view[protocol.SubscriptionGroupConfig]) ([]byte, error) {
	var j jsonFile
	j.field("dataVersion", v.version)
	j.field("forbiddenTable", *g.forbidden.Load())
	writeEntries(&j, "subscriptionGroupTable", v.entries)
	return j.end()
}
