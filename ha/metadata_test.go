package ha

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/delay"
	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/internal/state"
	"github.com/ratchetmq/ratchet/internal/vfs/vfstest"
	"github.com/ratchetmq/ratchet/protocol"
	"github.com/ratchetmq/ratchet/remoting"
	"github.com/ratchetmq/ratchet/store"
)

// tables are those of one broker, on a disk in memory.
type tables struct {
	t       *testing.T
	store   *store.Store
	meta    *Metadata
	removed []string
	log     bytes.Buffer
}

func newTables(t *testing.T) *tables {
	t.Helper()
	s := &tables{t: t}
	fsys := vfstest.New()
	logger := slog.New(slog.NewTextHandler(&s.log, nil))
	files := state.Files{FS: fsys, Dir: "/store/config"}
	yes := func() bool { return true }
	topics, err := state.OpenTopics(state.TopicOptions{
		Files: files, Broker: "b", Cluster: "c", AutoCreate: yes, DefaultQueues: 8, DelayLevels: 18,
	})
	require.NoError(t, err)
	groups, err := state.OpenGroups(state.GroupOptions{Files: files, AutoCreate: yes})
	require.NoError(t, err)
	offsets, err := state.OpenOffsets(state.OffsetOptions{Files: files})
	require.NoError(t, err)
	s.store, err = store.Open(store.Options{FS: fsys, Root: "/store", SegmentSize: 1 << 20, ConsumeQueueUnits: 1000, StoreHost: netip.MustParseAddrPort("127.0.0.1:10911")})
	require.NoError(t, err)
	scheduler, err := delay.Open(delay.Options{Store: s.store, FS: fsys, Path: "/store/config/delayOffset.json"})
	require.NoError(t, err)
	s.meta = &Metadata{
		Topics: topics, Groups: groups, Offsets: offsets, Delay: scheduler, Logger: logger, Written: s.store.Written,
		Removed: func(topic string) error {
			s.removed = append(s.removed, topic)
			return offsets.RemoveTopic(topic)
		},
	}
	t.Cleanup(func() {
		require.NoError(t, errors.Join(offsets.Close(), groups.Close(), topics.Close(), s.store.Close()))
	})
	return s
}

func (s *tables) fetch(adopt Adopt) {
	s.t.Helper()
	require.NoError(s.t, s.meta.Fetch(s.t.Context(), "peer", adopt))
}

func (s *tables) topic(name string, queues int32) {
	s.t.Helper()
	_, err := s.meta.Topics.Put(protocol.TopicConfig{TopicName: name, ReadQueueNums: queues, WriteQueueNums: queues, Perm: 6})
	require.NoError(s.t, err)
}

func (s *tables) group(name string) {
	s.t.Helper()
	_, err := s.meta.Groups.Put(protocol.NewSubscriptionGroupConfig(name))
	require.NoError(s.t, err)
}

func (s *tables) commit(group, topic string, to offset.Queue) {
	s.t.Helper()
	_, err := s.meta.Offsets.Commit(state.Commit{Group: group, Topic: topic, Offset: to, Known: -1})
	require.NoError(s.t, err)
}

func (s *tables) at(group, topic string) offset.Queue {
	if at, ok := s.meta.Offsets.Query(group, topic, 0); ok {
		return at
	}
	return -1
}

func (s *tables) has(topic string) bool {
	_, ok := s.meta.Topics.Get(topic)
	return ok
}

// append writes a message, so that the log has an end.
func (s *tables) append(size int) {
	s.t.Helper()
	_, err := s.store.Append(store.Message{Topic: "T", Body: make([]byte, size), BornHost: netip.MustParseAddrPort("10.0.0.1:1")})
	require.NoError(s.t, err)
}

// answers stand for a broker: each is asked in place of the network.
type answers struct {
	*tables
	pageSize int  // of topics and groups; 0: all at once, as 4.9
	ours     bool // with marks
	changing int  // so often the topics change after a page
	bodies   map[protocol.RequestCode]string
	delays   string
	end      offset.Physical // of the log; 0: the store's

	mu     sync.Mutex
	asked  map[protocol.RequestCode]int // with a table in the answer
	refuse map[protocol.RequestCode]bool
}

func newPeer(t *testing.T, s *tables) *answers {
	t.Helper()
	return &answers{
		tables: s, delays: `{"offsetTable":{}}`, asked: map[protocol.RequestCode]int{},
		refuse: map[protocol.RequestCode]bool{}, bodies: map[protocol.RequestCode]string{},
	}
}

// serve puts the peer behind a real server, and returns its address.
func (a *answers) serve() string {
	server, err := remoting.NewServer(remoting.ServerConfig{Addrs: []string{"127.0.0.1:0"}, Handler: a})
	require.NoError(a.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = server.Run(ctx) })
	a.t.Cleanup(func() { cancel(); running.Wait() })
	return server.Addrs()[0].String()
}

func (a *answers) Serve(_ context.Context, r *remoting.Request) {
	fields := map[string]string{}
	_ = r.Fields.Each(func(k, v []byte) error { fields[string(k)] = string(v); return nil })
	r.Reply(a.reply(protocol.RequestCode(r.Code), fields))
}

func (a *answers) reply(code protocol.RequestCode, fields map[string]string) protocol.Reply {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.refuse[code] {
		return protocol.Reply{Code: protocol.SystemError, Remark: "not now"}
	}
	var table any
	var h protocol.Header
	var mark string
	switch code { //nolint:exhaustive // the rest is not asked
	case protocol.GetAllTopicConfig:
		all, version := a.meta.Topics.Snapshot()
		part, total := cut(all, fields["topicSeq"], a.pageSize)
		table = map[string]any{"dataVersion": version, "topicConfigTable": part}
		if a.pageSize > 0 {
			h = &protocol.GetAllTopicConfigResponse{TotalTopicNum: protocol.Some(total)}
		}
		mark = version.Mark()
		if a.changing > 0 {
			a.changing--
			a.topic(fmt.Sprintf("Changing%d", a.changing), 1)
		}
	case protocol.GetAllSubscriptionGroupConfig:
		all, version := a.meta.Groups.Snapshot()
		part, total := cut(all, fields["groupSeq"], a.pageSize)
		table = map[string]any{"dataVersion": version, "subscriptionGroupTable": part, "forbiddenTable": a.meta.Groups.Forbidden()}
		if a.pageSize > 0 {
			h = &protocol.GetAllSubscriptionGroupConfigResponse{TotalGroupNum: protocol.Some(total)}
		}
		mark = version.Mark()
	case protocol.GetAllConsumerOffset:
		mark = a.meta.Offsets.Mark()
		table = a.meta.Offsets.Table()
	case protocol.GetAllDelayOffset:
		a.asked[code]++
		return protocol.Reply{Body: []byte(a.delays)}
	case protocol.GetBrokerRuntimeInfo:
		end := a.end
		if end == 0 {
			end = a.store.Written()
		}
		table = protocol.KVTable{Table: map[string]string{"commitLogMaxOffset": fmt.Sprint(end)}}
	}
	body, err := protocol.Marshal(table)
	if err != nil {
		panic(err)
	}
	rep := protocol.Reply{Header: h, Body: body}
	if text, ok := a.bodies[code]; ok {
		rep.Body = []byte(text)
	}
	if a.ours && mark != "" {
		rep.Extra = []protocol.KV{{Key: protocol.FieldMark, Value: mark}}
		if fields[protocol.FieldUnless] == mark {
			rep.Body, rep.Extra = nil, append(rep.Extra, protocol.KV{Key: protocol.FieldUnchanged, Value: "true"})
			return rep
		}
	}
	a.asked[code]++
	return rep
}

func cut[V any](all map[string]*V, seq string, size int) (map[string]*V, int32) {
	if size == 0 {
		return all, int32(len(all))
	}
	var names []string
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	from := 0
	_, _ = fmt.Sscan(seq, &from)
	part := map[string]*V{}
	for _, name := range names[min(from, len(names)):min(from+size, len(names))] {
		part[name] = all[name]
	}
	return part, int32(len(all))
}

// Call makes the peer a Caller without a network.
func (a *answers) Call(_ context.Context, _ string, code protocol.RequestCode, h protocol.Header, extra []protocol.KV, body []byte) (
	*remoting.Response, error,
) {
	request, err := protocol.Decode(protocol.AppendRequest(nil, protocol.JSON, code, 1, false, h, extra, body))
	if err != nil {
		return nil, err
	}
	fields := map[string]string{}
	_ = request.Fields.Each(func(k, v []byte) error { fields[string(k)] = string(v); return nil })
	rep := a.reply(code, fields)
	answer, err := protocol.Decode(protocol.AppendReply(nil, protocol.JSON, 1, &rep))
	return &remoting.Response{Command: answer}, err
}

// pair is a broker and the peer that it takes tables from.
func pair(t *testing.T) (self *tables, peer *answers) {
	self, peer = newTables(t), newPeer(t, newTables(t))
	self.meta.Client = peer
	return self, peer
}

func TestASlaveTakesItsMastersTablesOver(t *testing.T) {
	slave, master := newTables(t), newPeer(t, newTables(t))
	addr := master.serve()
	client, err := remoting.NewClient(remoting.ClientConfig{})
	require.NoError(t, err)
	t.Cleanup(client.Close)
	slave.meta.Client = client
	fetch := func() {
		t.Helper()
		require.NoError(t, slave.meta.Fetch(t.Context(), addr, AsSlave))
	}
	for i := range 30 {
		master.topic(fmt.Sprintf("T%d", i), int32(i+1))
		master.group(fmt.Sprintf("G%d", i))
	}
	require.NoError(t, master.meta.Groups.SetReadable("G1", "T1", false))
	master.commit("G1", "T1", 7)
	for _, size := range []int{0, 4, 1000} { // as 4.9, as 5.x in pages, as 5.x
		master.pageSize = size
		master.topic("Again", int32(size+1))
		master.group(fmt.Sprintf("Again%d", size))
		fetch()
		ours, version := slave.meta.Topics.Snapshot()
		theirs, want := master.meta.Topics.Snapshot()
		require.Equal(t, theirs, ours)
		require.Equal(t, want, version)
		groups, groupVersion := slave.meta.Groups.Snapshot()
		theirGroups, wantGroups := master.meta.Groups.Snapshot()
		require.Equal(t, theirGroups, groups)
		require.Equal(t, wantGroups, groupVersion)
		require.False(t, slave.meta.Groups.Readable("G1", "T1"))
		require.Equal(t, offset.Queue(7), slave.at("G1", "T1"))
	}
}

func TestATableThatChangesWhileItIsReadIsReadAgain(t *testing.T) {
	slave, master := pair(t)
	master.pageSize = 3
	master.changing = retries - 1
	slave.fetch(AsSlave)
	require.Equal(t, master.meta.Topics.Names(), slave.meta.Topics.Names())
	master.changing = 1000
	master.topic("Last", 1)
	require.ErrorIs(t, slave.meta.Fetch(t.Context(), "peer", AsSlave), ErrTable)
	require.False(t, slave.has("Last"))
}

// What the master deletes goes on the slave, with its offsets and before the topic itself; and the log must be there.
func TestWhatTheMasterDeletesGoesOnTheSlave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slave, master := pair(t)
		for _, name := range []string{"Kept", "Gone", "Late"} {
			master.topic(name, 1)
			master.group(name)
			master.commit("Kept", name, 5)
			master.commit(name, "Kept", 6)
		}
		slave.fetch(AsSlave)
		require.Equal(t, offset.Queue(5), slave.at("Kept", "Gone"))
		remove := func(topic string) {
			t.Helper()
			_, err := master.meta.Topics.Delete(topic)
			require.NoError(t, errors.Join(err, master.meta.Offsets.RemoveTopic(topic)))
			_, err = master.meta.Groups.Delete(topic)
			require.NoError(t, err)
		}
		remove("Gone") // with the group's offsets kept
		slave.fetch(AsSlave)
		require.Equal(t, []string{"Gone"}, slave.removed)
		require.False(t, slave.has("Gone"))
		require.Equal(t, offset.Queue(-1), slave.at("Kept", "Gone"))
		_, ok := slave.meta.Groups.Get("Gone")
		require.False(t, ok)
		require.Equal(t, offset.Queue(6), slave.at("Gone", "Kept"))
		require.Equal(t, master.meta.Topics.Version(), slave.meta.Topics.Version())

		remove("Late")
		require.NoError(t, master.meta.Offsets.RemoveGroup("Late"))
		master.end = 1000
		require.ErrorIs(t, slave.meta.Fetch(t.Context(), "peer", AsSlave), errLogBehind, "messages from before may still come")
		require.True(t, slave.has("Late"))
		require.Equal(t, offset.Queue(-1), slave.at("Late", "Kept"), "the rest is taken over all the same")
		slave.append(2000)
		master.end = slave.store.Written()
		failing := errors.New("disk")
		drop := slave.meta.Removed
		slave.meta.Removed = func(string) error { return failing }
		require.ErrorIs(t, slave.meta.Fetch(t.Context(), "peer", AsSlave), failing)
		require.True(t, slave.has("Late"), "it is tried again")
		slave.meta.Removed = drop
		slave.fetch(AsSlave)
		require.Equal(t, []string{"Gone", "Late"}, slave.removed)
		require.False(t, slave.has("Late"))
		require.True(t, slave.has("Kept"))
		require.Equal(t, offset.Queue(6), slave.at("Kept", "Kept"))
	})
}

// A master that comes up with an empty disk does not empty its slaves.
func TestAMasterThatLostItsTablesTakesNothingAway(t *testing.T) {
	slave, master := pair(t)
	for i := range 9 {
		master.topic(fmt.Sprintf("T%d", i), 1)
		master.group(fmt.Sprintf("G%d", i))
	}
	master.commit("G1", "T1", 5)
	slave.fetch(AsSlave)
	version := slave.meta.Topics.Version()

	fresh := newPeer(t, newTables(t))
	fresh.topic("New", 1)
	slave.meta.Client = fresh
	for range 2 {
		slave.fetch(AsSlave)
	}
	require.Empty(t, slave.removed)
	require.True(t, slave.has("T1"))
	require.True(t, slave.has("New"))
	require.Contains(t, slave.meta.Groups.Names(), "G1")
	require.Equal(t, offset.Queue(5), slave.at("G1", "T1"))
	require.Equal(t, version, slave.meta.Topics.Version(), "nor does it after its next change")
	require.Equal(t, 1, strings.Count(slave.log.String(), "nothing is removed"))

	for _, code := range []protocol.RequestCode{protocol.GetAllTopicConfig, protocol.GetAllSubscriptionGroupConfig, protocol.GetAllConsumerOffset, protocol.GetAllDelayOffset} {
		for _, body := range []string{"", "{}", `{"offsetTable":[]}`, "<html>"} {
			if code == protocol.GetAllDelayOffset {
				fresh.delays = "<html>"
			}
			fresh.bodies = map[protocol.RequestCode]string{code: body}
			require.ErrorIs(t, slave.meta.Fetch(t.Context(), "peer", AsSlave), ErrTable, "%s %q", code, body)
		}
	}
	require.True(t, slave.has("T1"))
}

// A Java 4.9 master counts the changes of its groups from 0 again with each start, and those of consumers that come back as new: its
// version says nothing of what it has lost.
func TestAMasterWithLessLogTakesNothingAway(t *testing.T) {
	for _, ours := range []bool{false, true} {
		slave, master := pair(t)
		master.topic("T", 1)
		master.group("G")
		master.commit("G", "T", 5)
		slave.fetch(AsSlave)
		slave.append(1000)
		slave.append(1000)
		end := slave.store.Written()

		older := newPeer(t, newTables(t))
		older.ours = ours
		for i := range 9 {
			older.topic(fmt.Sprintf("T%d", i), 1)
			older.group(fmt.Sprintf("G%d", i))
		}
		older.end = end - 1
		slave.meta.Client = older
		slave.fetch(AsSlave)
		require.Empty(t, slave.removed)
		require.True(t, slave.has("T"))
		require.True(t, slave.has("T8"))
		require.Contains(t, slave.meta.Groups.Names(), "G")
		require.Contains(t, slave.meta.Groups.Names(), "G8")
		require.Equal(t, offset.Queue(5), slave.at("G", "T"))
		require.Equal(t, 1, strings.Count(slave.log.String(), "nothing is removed"))

		older.refuse[protocol.GetBrokerRuntimeInfo] = true
		require.Error(t, slave.meta.Fetch(t.Context(), "peer", AsSlave), "who does not say takes nothing away")
		require.True(t, slave.has("T"))
		require.Contains(t, slave.meta.Groups.Names(), "G")

		older.refuse[protocol.GetBrokerRuntimeInfo] = false
		older.end = end // it has all there is here, and has deleted them
		slave.fetch(AsSlave)
		require.False(t, slave.has("T"))
		require.NotContains(t, slave.meta.Groups.Names(), "G")
	}
}

func TestAReturningMasterOnlyAdds(t *testing.T) {
	master, slave := pair(t)
	master.topic("Both", 4)
	master.topic("Mine", 4)
	master.group("Mine")
	master.commit("G", "Both", 5)
	master.commit("G", "Mine", 9)
	slave.topic("Both", 1)
	slave.topic("Theirs", 2)
	slave.group("Theirs")
	slave.commit("G", "Both", 8)
	slave.commit("G", "Mine", 3)
	for range 20 {
		slave.topic("Both", int32(slave.meta.Topics.Version().Counter)) // so that its version is the newer
	}
	require.NoError(t, master.meta.Merge(t.Context(), "peer"))
	require.Equal(t, slave.meta.Topics.Version().Counter+1, master.meta.Topics.Version().Counter, "its slaves follow")
	c, _ := master.meta.Topics.Get("Both")
	require.Equal(t, int32(4), c.ReadQueueNums)
	require.True(t, master.has("Mine"))
	require.True(t, master.has("Theirs"))
	require.Contains(t, master.meta.Groups.Names(), "Mine")
	require.Contains(t, master.meta.Groups.Names(), "Theirs")
	require.Equal(t, offset.Queue(8), master.at("G", "Both"))
	require.Equal(t, offset.Queue(9), master.at("G", "Mine"))
	require.Empty(t, master.removed)
	committed := map[string]offset.Queue{}
	master.meta.Committed(func(topic string, queue int32, next offset.Queue) {
		require.NotContains(t, committed, topic)
		require.Zero(t, queue)
		committed[topic] = next
	})
	require.Equal(t, map[string]offset.Queue{"Both": 8, "Mine": 9}, committed)
}

// Whatever is fetched, by whom and in which order: no offset falls but by an operator's reset.
func TestAFetchNeverLowersAnOffset(t *testing.T) {
	for _, adopt := range []Adopt{AsSlave, AsMaster} {
		self, peer := pair(t)
		peer.topic("T", 1)
		peer.commit("G", "T", 5)
		self.commit("G", "T", 9)
		peer.commit("G", "Deleted", 3)
		self.fetch(adopt)
		require.Equal(t, offset.Queue(-1), self.at("G", "Deleted"), "it would count for a new topic of that name")
		require.Equal(t, offset.Queue(9), self.at("G", "T"))
		peer.commit("G", "T", 20)
		self.fetch(adopt)
		require.Equal(t, offset.Queue(20), self.at("G", "T"))
		peer.commit("G", "T", 2)
		self.fetch(adopt)
		require.Equal(t, offset.Queue(20), self.at("G", "T"))
		peer.bodies[protocol.GetAllConsumerOffset] = `{"offsetTable":{"T@G":{0:7,1:-5},"noGroup":{0:3},"@":{0:1},"T@H":{-1:3}}}`
		self.fetch(adopt)
		require.Equal(t, offset.Queue(20), self.at("G", "T"))
		require.Equal(t, []string{"G"}, self.meta.Offsets.TopicGroups("T"))
		delete(peer.bodies, protocol.GetAllConsumerOffset)
		require.NoError(t, peer.meta.Offsets.Reset("G", "T", 0, 1))
		self.fetch(adopt)
		require.Equal(t, offset.Queue(1), self.at("G", "T"), "but an operator's word counts")
	}
}

func TestDelayOffsetsAreMergedWhenTheLogIsThere(t *testing.T) {
	self, peer := pair(t)
	peer.delays = `{"offsetTable":{1:5,2:3}}`
	table := func() string { return string(self.meta.Delay.Table()) }
	peer.end = 1000
	self.fetch(AsSlave)
	require.NotContains(t, table(), "1:5", "what it counts is not in the log yet")
	peer.delays = `{"offsetTable":{1:50}}`
	peer.end = 1 << 20
	self.fetch(AsSlave)
	self.append(2000)
	self.fetch(AsSlave)
	require.NotContains(t, table(), "1:5", "a power cut could take it again")
	running, stop := context.WithCancel(t.Context())
	var run sync.WaitGroup
	run.Go(func() { _ = self.store.Run(running) })
	require.NoError(t, flush(t.Context(), self.store, self.store.Written()))
	stop()
	run.Wait()
	self.fetch(AsSlave)
	require.Contains(t, table(), "1:5,", "the table that was kept")
	require.NotContains(t, table(), "1:50")
	self.meta.ahead = nil
	require.ErrorIs(t, self.meta.Merge(t.Context(), "peer"), delay.ErrAhead, "a master is told")
	peer.end = 1500
	peer.delays = `{"offsetTable":{1:4,3:9}}`
	require.NoError(t, self.meta.Merge(t.Context(), "peer"))
	require.Contains(t, table(), "1:5,\n\t\t2:3,\n\t\t3:9")

	peer.delays = `{"deliveredTo":1200,"offsetTable":{1:6}}`
	peer.refuse[protocol.GetBrokerRuntimeInfo] = true
	self.fetch(AsSlave)
	require.Contains(t, table(), "1:6,", "one of ours says itself how far it goes")
}

// One of ours gives a table only when it has changed.
func TestWhatHasNotChangedIsNotTransferred(t *testing.T) {
	slave, master := pair(t)
	master.ours = true
	master.pageSize = 1000
	master.topic("T", 1)
	master.group("G")
	master.commit("G", "T", 1)
	count := func() []int {
		return []int{
			master.asked[protocol.GetAllTopicConfig], master.asked[protocol.GetAllSubscriptionGroupConfig],
			master.asked[protocol.GetAllConsumerOffset],
		}
	}
	for range 3 {
		slave.fetch(AsSlave)
	}
	require.Equal(t, []int{1, 1, 1}, count())
	master.commit("G", "T", 2)
	slave.fetch(AsSlave)
	require.Equal(t, []int{1, 1, 2}, count())
	require.Equal(t, offset.Queue(2), slave.at("G", "T"))
	master.topic("U", 1)
	slave.fetch(AsSlave)
	require.Equal(t, []int{2, 1, 2}, count())
	require.True(t, slave.has("U"))
	master.group("H")
	slave.fetch(AsSlave)
	require.Equal(t, []int{2, 2, 2}, count())
	_, err := master.meta.Groups.Delete("H")
	require.NoError(t, err)
	slave.fetch(AsSlave)
	require.Equal(t, []int{2, 3, 3}, count(), "whether the group's offsets go is to be seen")
	require.NoError(t, slave.meta.Fetch(t.Context(), "another", AsSlave))
	require.Equal(t, []int{2, 3, 4}, count(), "the mark is good for one peer")
	slave.fetch(AsMaster)
	require.Equal(t, []int{3, 4, 5}, count())
}

func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slave, master := pair(t)
		var addr atomic.Value
		addr.Store("")
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { slave.meta.Follow(ctx, func() string { return addr.Load().(string) }) })
		wait := func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
		}
		set := func(fn func()) {
			master.mu.Lock()
			defer master.mu.Unlock()
			fn()
		}
		asked := func() (n int) {
			set(func() { n = master.asked[protocol.GetAllTopicConfig] })
			return n
		}
		master.topic("T", 1)
		wait(4 * time.Second)
		require.False(t, slave.has("T"), "no master is known")
		addr.Store("peer")
		wait(10 * time.Second)
		require.True(t, slave.has("T"))
		require.Equal(t, 1, asked())
		wait(30 * time.Second)
		require.Equal(t, 4, asked())

		set(func() { master.refuse[protocol.GetAllTopicConfig] = true })
		master.commit("G", "T", 3)
		wait(30 * time.Second)
		require.Equal(t, offset.Queue(3), slave.at("G", "T"), "the others are taken over")
		set(func() { master.refuse[protocol.GetAllTopicConfig] = false })
		wait(30 * time.Second)

		set(func() { master.ours = true })
		wait(11 * time.Second)
		master.commit("G", "T", 4)
		wait(1100 * time.Millisecond)
		require.Equal(t, offset.Queue(4), slave.at("G", "T"), "one of ours is asked more often")
		cancel()
		running.Wait()
		require.Equal(t, 1, strings.Count(slave.log.String(), "not taken over"))
		require.Equal(t, 1, strings.Count(slave.log.String(), "taken over again"))
	})
}

func TestALongRoundIsNotRepeatedAtOnce(t *testing.T) {
	m := &Metadata{}
	require.Equal(t, 10*time.Second, m.pause(time.Hour))
	m.own.Store(true)
	require.Equal(t, time.Second, m.pause(time.Millisecond))
	require.Equal(t, 4*time.Second, m.pause(800*time.Millisecond))
	require.Equal(t, 10*time.Second, m.pause(time.Minute))
	m.Every = 500 * time.Millisecond
	require.Equal(t, time.Second, m.pause(time.Minute))
}
