package namesrv

import (
	"slices"
	"sort"
)

// listing is the encoded list of all topics at one topicsGen.
type listing struct {
	gen  uint64
	body []byte
}

// Bits of a topic's sysFlag.
const (
	flagUnit    = 1
	flagUnitSub = 2
)

// TopicList returns the encoded list of all topics (body of code 206), encoded anew only when a topic has come or gone.
// The bytes belong to the table.
func (t *Table) TopicList() []byte {
	gen := t.topicsGen.Load()
	if l := t.listing.Load(); l != nil && l.gen == gen {
		return l.body
	}
	names := t.topicNames(func(*topic) bool { return true })
	l := &listing{gen: gen, body: encodeTopicList(names, "")}
	t.listing.Store(l)
	return l.body
}

// topicNames returns the names of the topics that keep wants, unsorted. keep runs under mu.
func (t *Table) topicNames(keep func(*topic) bool) []string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	names := make([]string, 0, len(t.topics))
	for name, tp := range t.topics {
		if keep(tp) {
			names = append(names, name)
		}
	}
	return names
}

// ClusterTopics returns the encoded list of the topics that any broker of the cluster has (body of code 224).
func (t *Table) ClusterTopics(cluster string) []byte {
	return encodeTopicList(t.topicNames(func(tp *topic) bool {
		return slices.ContainsFunc(tp.queues, func(q *queue) bool { return q.group.cluster == cluster })
	}), "")
}

// UnitTopics returns the encoded list of the unit topics (body of code 311).
func (t *Table) UnitTopics() []byte {
	return t.flagTopics(func(flag int32) bool { return flag&flagUnit != 0 })
}

// UnitSubTopics returns the encoded list of the topics that units subscribe to (body of code 312), without the unit
// topics among them if nonUnit is set (code 313).
func (t *Table) UnitSubTopics(nonUnit bool) []byte {
	return t.flagTopics(func(flag int32) bool {
		return flag&flagUnitSub != 0 && !(nonUnit && flag&flagUnit != 0)
	})
}

func (t *Table) flagTopics(keep func(sysFlag int32) bool) []byte {
	return encodeTopicList(t.topicNames(func(tp *topic) bool {
		return len(tp.queues) > 0 && keep(tp.queues[0].sysFlag)
	}), "")
}

// SystemTopics returns the encoded list of the topics that stand for brokers and clusters, with the address of one
// broker to ask for the others (body of code 304).
func (t *Table) SystemTopics() []byte {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var names []string
	addr := ""
	for _, g := range t.sortedGroups() {
		if !slices.Contains(names, g.name) { // a cluster may have the name of a broker
			names = append(names, g.name)
		}
		if !slices.Contains(names, g.cluster) {
			names = append(names, g.cluster)
		}
		for _, m := range g.sorted() {
			if addr == "" {
				addr = m.addr
			}
		}
	}
	return encodeTopicList(names, addr)
}

// encodeTopicList writes names in the order given: sorting 60,000 takes longer than all the rest, and nobody needs it.
func encodeTopicList(names []string, brokerAddr string) []byte {
	size := 40 + len(brokerAddr)
	for _, n := range names {
		size += len(n) + 3
	}
	dst := append(make([]byte, 0, size), '{')
	if brokerAddr != "" {
		dst = append(dst, `"brokerAddr":`...)
		dst = appendString(dst, brokerAddr)
		dst = append(dst, ',')
	}
	dst = append(dst, `"topicList":`...)
	dst = appendStrings(dst, names)
	return append(dst, '}')
}

// ClusterInfo returns the encoded table of all brokers (body of code 106). Ids are quoted: all readers take that, and
// bare ones are not JSON.
func (t *Table) ClusterInfo() []byte {
	t.mu.RLock()
	defer t.mu.RUnlock()
	dst := []byte(`{"brokerAddrTable":{`)
	groups := t.sortedGroups()
	clusters := map[string][]string{}
	var clusterNames []string
	for i, g := range groups {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendString(dst, g.name)
		dst = append(dst, ':')
		dst = g.append(dst, true, -1)
		if clusters[g.cluster] == nil {
			clusterNames = append(clusterNames, g.cluster)
		}
		clusters[g.cluster] = append(clusters[g.cluster], g.name)
	}
	dst = append(dst, `},"clusterAddrTable":{`...)
	sort.Strings(clusterNames)
	for i, c := range clusterNames {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendString(dst, c)
		dst = append(dst, ':')
		dst = appendStrings(dst, clusters[c])
	}
	return append(dst, "}}"...)
}

// MemberGroup returns the encoded brokers of one name (body of code 901). A name that is not known has no addresses.
func (t *Table) MemberGroup(cluster, broker string) []byte {
	t.mu.RLock()
	defer t.mu.RUnlock()
	dst := []byte(`{"brokerMemberGroup":{"brokerAddrs":`)
	if g := t.groups[broker]; g != nil {
		dst = g.appendAddrs(dst, true, -1)
	} else {
		dst = append(dst, "{}"...)
	}
	dst = append(dst, `,"brokerName":`...)
	dst = appendString(dst, broker)
	dst = append(dst, `,"cluster":`...)
	dst = appendString(dst, cluster)
	return append(dst, "}}"...)
}

// sortedGroups returns the groups by name. Call it with mu held.
func (t *Table) sortedGroups() []*group {
	gs := make([]*group, 0, len(t.groups))
	for _, g := range t.groups {
		gs = append(gs, g)
	}
	sort.Slice(gs, func(i, j int) bool { return gs[i].name < gs[j].name })
	return gs
}
