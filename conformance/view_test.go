//go:build conformance

package conformance

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/message"
	"github.com/ratchetmq/ratchet/protocol"
)

// A view is everything that a broker tells about its folder, asked in one way whoever the broker is.
type view struct {
	owner   owner
	topics  map[string]protocol.TopicConfig
	groups  map[string]protocol.SubscriptionGroupConfig
	queues  map[place]*queueView
	commits map[progress]int64
	keys    map[key][]int64 // the positions of all messages with the key, ascending
}

type place struct {
	topic string
	queue int32
}

type progress struct {
	group, topic string
	queue        int32
}

// key is what messages are looked for by; kind is empty, or T for tags.
type key struct{ topic, kind, key string }

// queueView is one queue from end to end.
type queueView struct {
	low, high int64
	told      int64            // where the queue ends, as the last pull's answer says
	earliest  int64            // store time of its first message, -1 for none
	times     map[moment]int64 // offset at a time
	records   []message.Record // all messages; Properties and all else as stored
	raw       map[int64]string // the bytes of each message, by position
}

type moment struct {
	ms       int64
	boundary string
}

// end is behind the last message that the view holds.
func (v *view) end() int64 {
	var end int64
	for _, q := range v.queues {
		for _, r := range q.records {
			end = max(end, int64(r.PhysicalOffset)+int64(r.Size))
		}
	}
	return end
}

// see waits until nothing moves in the folder any more and asks the owner for everything.
func (f *folder) see(t *testing.T) *view {
	t.Helper()
	begin := time.Now()
	v := &view{owner: f.owner}
	v.tables(t, f)
	v.settle(t, f)
	v.queues = map[place]*queueView{}
	v.keys = map[key][]int64{}
	for _, p := range v.places() {
		v.queues[p] = f.queue(t, p)
		for _, r := range v.queues[p].records {
			for _, k := range keysOf(r) {
				v.keys[key{p.topic, "", k}] = nil
			}
			if f.version != "4.9.7" { // which does not index tags
				if tags, ok := message.Property(r.Properties, message.PropertyTags); ok {
					v.keys[key{p.topic, "T", string(tags)}] = nil
				}
			}
		}
	}
	for k := range v.keys {
		v.keys[k] = f.byKey(t, k)
	}
	t.Logf("%s was asked for %d queues, up to position %d, and %d keys in %.1f s", f.owner, len(v.queues), v.end(),
		len(v.keys), time.Since(begin).Seconds())
	return v
}

// tables asks for topics and groups.
func (v *view) tables(t *testing.T, f *folder) {
	t.Helper()
	var topics protocol.TopicConfigSerializeWrapper
	require.NoError(t, protocol.Unmarshal(f.call(t, protocol.GetAllTopicConfig, nil, nil).Body, &topics))
	v.topics = topics.TopicConfigTable
	var groups protocol.SubscriptionGroupWrapper
	require.NoError(t, protocol.Unmarshal(f.call(t, protocol.GetAllSubscriptionGroupConfig, nil, nil).Body, &groups))
	v.groups = groups.SubscriptionGroupTable
}

// places are all queues of all topics, in order.
func (v *view) places() []place {
	var all []place
	for _, topic := range slices.Sorted(maps.Keys(v.topics)) {
		c := v.topics[topic]
		queues := max(c.ReadQueueNums, c.WriteQueueNums)
		switch topic {
		case protocol.TopicDefault, protocol.TopicSelfTest, protocol.TopicBenchmark:
			continue // 1024 empty queues and the like
		case protocol.TopicSchedule:
			queues = int32(len(strings.Fields(delays))) // whatever its table entry says
		}
		for q := range queues {
			all = append(all, place{topic, q})
		}
	}
	return all
}

// settle waits until no queue has grown and nobody has committed for a moment.
func (v *view) settle(t *testing.T, f *folder) {
	t.Helper()
	var before map[place]int64
	quiet := 0
	require.Eventually(t, func() bool {
		ends := map[place]int64{}
		for _, p := range v.places() {
			ends[p] = f.maxOffset(t, p.topic, p.queue)
		}
		commits := f.committed(t, v)
		if quiet++; !maps.Equal(before, ends) || !maps.Equal(v.commits, commits) {
			quiet = 0
		}
		before, v.commits = ends, commits
		return quiet == 3
	}, 30*time.Second, 50*time.Millisecond)
}

// committed asks for the progress of all groups that are known to have one.
func (f *folder) committed(t *testing.T, v *view) map[progress]int64 {
	t.Helper()
	all := map[progress]int64{}
	for _, a := range f.asked {
		for q := range v.topics[a.topic].ReadQueueNums {
			h := &protocol.QueryConsumerOffsetRequest{ConsumerGroup: a.group, Topic: a.topic, QueueID: q}
			answer := f.call(t, protocol.QueryConsumerOffset, h, nil, protocol.QueryNotFound)
			if protocol.ResponseCode(answer.Code) == protocol.QueryNotFound {
				continue
			}
			var at protocol.QueryConsumerOffsetResponse
			require.NoError(t, answer.ReadHeader(&at))
			all[progress{a.group, a.topic, q}] = at.Offset
		}
	}
	return all
}

// queue reads one queue from end to end, anew when it grew meanwhile: a delayed message may fall due at any time.
func (f *folder) queue(t *testing.T, p place) *queueView {
	t.Helper()
	for range 100 {
		q := f.queueOnce(t, p)
		if q.told == q.high && f.maxOffset(t, p.topic, p.queue) == q.high {
			return q
		}
	}
	require.Failf(t, "the queue does not come to rest", "%v", p)
	return nil
}

func (f *folder) queueOnce(t *testing.T, p place) *queueView {
	t.Helper()
	q := &queueView{times: map[moment]int64{}, raw: map[int64]string{}}
	var low protocol.GetMinOffsetResponse
	answer := f.call(t, protocol.GetMinOffset, &protocol.GetMinOffsetRequest{Topic: p.topic, QueueID: p.queue}, nil)
	require.NoError(t, answer.ReadHeader(&low))
	q.low, q.high = low.Offset, f.maxOffset(t, p.topic, p.queue)
	q.told, q.earliest = q.high, -1
	if q.high == q.low {
		return q
	}
	q.pull(t, f, p)
	var first protocol.GetEarliestMsgStoreTimeResponse
	answer = f.call(t, protocol.GetEarliestMsgStoreTime,
		&protocol.GetEarliestMsgStoreTimeRequest{Topic: p.topic, QueueID: p.queue}, nil)
	require.NoError(t, answer.ReadHeader(&first))
	q.earliest = first.Timestamp
	q.search(t, f, p)
	for phy, raw := range q.raw {
		answer := f.call(t, protocol.ViewMessageByID, &protocol.ViewMessageRequest{Offset: phy, Topic: p.topic}, nil)
		require.Equal(t, raw, string(answer.Body), "%s %d by its id, position %d", p.topic, p.queue, phy)
	}
	return q
}

func (q *queueView) pull(t *testing.T, f *folder, p place) {
	t.Helper()
	for next := q.low; next < q.high; {
		h := &protocol.PullMessageRequest{
			ConsumerGroup: "interop-reader", Topic: p.topic, QueueID: p.queue, QueueOffset: next,
			MaxMsgNums: 32, SysFlag: 4, Subscription: "*", ExpressionType: "TAG",
		}
		answer := f.call(t, protocol.PullMessage, h, nil)
		var at protocol.PullMessageResponse
		require.NoError(t, answer.ReadHeader(&at))
		for body := answer.Body; len(body) > 0; next++ {
			r, err := message.Parse(body)
			require.NoError(t, err)
			require.NoError(t, r.CheckBody())
			require.Equal(t, next, int64(r.QueueOffset), "%s %d", p.topic, p.queue)
			require.Equal(t, p.topic, string(r.Topic))
			require.Equal(t, p.queue, r.QueueID)
			q.records = append(q.records, r)
			q.raw[int64(r.PhysicalOffset)] = string(body[:r.Size])
			body = body[r.Size:]
		}
		require.Equal(t, next, at.NextBeginOffset)
		require.Equal(t, q.low, at.MinOffset)
		q.told = at.MaxOffset
	}
}

// search asks for the time of each message. What 4.9 answers where no message, or several, have that time is its own, and
// of several files it looks into one, chosen by when the file was last written to.
func (q *queueView) search(t *testing.T, f *folder, p place) {
	t.Helper()
	if f.version == "4.9.7" && q.high > 1000 {
		return
	}
	count := map[int64]int{}
	for _, r := range q.records {
		count[r.StoreTimestamp]++
	}
	ask := func(m moment) {
		var at protocol.SearchOffsetResponse
		require.NoError(t, f.call(t, protocol.SearchOffsetByTimestamp, &protocol.SearchOffsetRequest{
			Topic: p.topic, QueueID: p.queue, Timestamp: m.ms, BoundaryType: m.boundary,
		}, nil).ReadHeader(&at))
		q.times[m] = at.Offset
	}
	last := q.records[len(q.records)-1].StoreTimestamp
	for ms, n := range count {
		if n == 1 || f.version != "4.9.7" {
			ask(moment{ms, ""})
		}
		if f.version != "4.9.7" {
			ask(moment{ms, "UPPER"})
			if ms < last {
				ask(moment{ms + 1, "LOWER"})
			}
		}
	}
	ask(moment{q.records[0].StoreTimestamp - 1000, ""})
}

// keysOf are the keys that a message must be found by.
func keysOf(r message.Record) []string {
	var all []string
	if unique, ok := message.Property(r.Properties, message.PropertyUniqueKey); ok {
		all = append(all, string(unique))
	}
	if keys, ok := message.Property(r.Properties, message.PropertyKeys); ok {
		all = append(all, strings.Fields(string(keys))...)
	}
	return all
}

// byKey asks for all messages with a key.
func (f *folder) byKey(t *testing.T, k key) []int64 {
	t.Helper()
	h := &protocol.QueryMessageRequest{
		Topic: k.topic, Key: k.key, MaxNum: 64, IndexType: k.kind,
		EndTimestamp: time.Now().Add(time.Hour).UnixMilli(),
	}
	answer := f.call(t, protocol.QueryMessage, h, nil, protocol.QueryNotFound)
	var found []int64
	for body := answer.Body; len(body) > 0; {
		r, err := message.Parse(body)
		require.NoError(t, err)
		found = append(found, int64(r.PhysicalOffset))
		body = body[r.Size:]
	}
	slices.Sort(found)
	once, again := slices.Compact(slices.Clone(found)), 0
	if f.owner != ratchet {
		again = 1 // after a kill, Java puts the last message that is in the index into it again
	}
	require.LessOrEqual(t, len(found)-len(once), again, "%v", k)
	return once
}

// problems collects what is wrong; a test shows the first few.
type problems []string

func (p *problems) add(format string, args ...any) { *p = append(*p, fmt.Sprintf(format, args...)) }

func (p problems) require(t *testing.T, what string) {
	t.Helper()
	if len(p) > 0 {
		require.Failf(t, what, "%d problems, the first:\n%s", len(p), strings.Join(p[:min(len(p), 20)], "\n"))
	}
}

// sound says what of the view contradicts itself: positions that are used twice, offsets that are missing, messages that
// their keys do not find, ...
func (v *view) sound() (p problems) {
	used := map[int64]place{}
	for at, q := range v.queues {
		if int64(len(q.records)) != q.high-q.low {
			p.add("%v has offsets %d to %d, but %d messages", at, q.low, q.high, len(q.records))
		}
		if len(q.records) > 0 && q.earliest != q.records[0].StoreTimestamp {
			p.add("%v: the earliest store time is said to be %d, is %d", at, q.earliest, q.records[0].StoreTimestamp)
		}
		for _, r := range q.records {
			phy := int64(r.PhysicalOffset)
			if other, ok := used[phy]; ok {
				p.add("position %d is used by %v and %v", phy, at, other)
			}
			used[phy] = at
		}
	}
	return p
}

// unfound are the messages that their keys do not find.
func (v *view) unfound() (p problems) {
	for at, q := range v.queues {
		for _, r := range q.records {
			for _, k := range keysOf(r) {
				if !slices.Contains(v.keys[key{at.topic, "", k}], int64(r.PhysicalOffset)) {
					p.add("%v, offset %d, position %d, is not found by its key %s", at, r.QueueOffset, r.PhysicalOffset, k)
				}
			}
		}
	}
	return p
}

// changed says what a view that comes after v does not tell as v did. Messages may have been added.
func (v *view) changed(after *view, compareKeys bool) (p problems) {
	for name, c := range v.topics {
		if got, ok := after.topics[name]; !ok {
			p.add("topic %s is lost", name)
		} else if fmt.Sprintf("%+v", normalTopic(c)) != fmt.Sprintf("%+v", normalTopic(got)) {
			p.add("topic %s was %+v, is %+v", name, c, got)
		}
	}
	for name, c := range v.groups {
		if got, ok := after.groups[name]; !ok {
			p.add("group %s is lost", name)
		} else if fmt.Sprintf("%+v", normalGroup(c)) != fmt.Sprintf("%+v", normalGroup(got)) {
			p.add("group %s was %+v, is %+v", name, c, got)
		}
	}
	for at, n := range v.commits {
		if got, ok := after.commits[at]; !ok || got != n {
			p.add("%v had committed %d, has %d (%v)", at, n, got, ok)
		}
	}
	for at, q := range v.queues {
		if got := after.queues[at]; got == nil {
			p.add("queue %v is lost", at)
		} else {
			q.changed(&p, at, got)
		}
	}
	if compareKeys {
		end := v.end()
		for k, found := range v.keys {
			got := slices.DeleteFunc(slices.Clone(after.keys[k]), func(phy int64) bool { return phy >= end })
			if !slices.Equal(found, got) {
				p.add("%v had found %v, finds %v", k, found, got)
			}
		}
	}
	return p
}

func (q *queueView) changed(p *problems, at place, after *queueView) {
	if q.low != after.low {
		p.add("%v began at %d, begins at %d", at, q.low, after.low)
	}
	if after.high < q.high {
		p.add("%v ended at %d, ends at %d", at, q.high, after.high)
	}
	for i, r := range q.records {
		phy := int64(r.PhysicalOffset)
		if i >= len(after.records) {
			break
		}
		if got := after.raw[int64(after.records[i].PhysicalOffset)]; got != q.raw[phy] {
			p.add("%v, offset %d, was\n%q, is\n%q", at, r.QueueOffset, q.raw[phy], got)
		}
	}
	for m, n := range q.times {
		if got, ok := after.times[m]; ok && got != n {
			p.add("%v at time %v was %d, is %d of %d", at, m, n, got, after.high)
		}
	}
}

// normalTopic leaves out what a release does not have.
func normalTopic(c protocol.TopicConfig) protocol.TopicConfig {
	if len(c.Attributes) == 0 {
		c.Attributes = nil
	}
	return c
}

func normalGroup(c protocol.SubscriptionGroupConfig) protocol.SubscriptionGroupConfig {
	if len(c.Attributes) == 0 {
		c.Attributes = nil
	}
	c.GroupRetryPolicy, c.SubscriptionDataSet = nil, nil
	return c
}

// added are the messages that came between v and the view after it, in the order of the log.
func (v *view) added(after *view) []message.Record {
	var all []message.Record
	for at, q := range after.queues {
		known := 0
		if before := v.queues[at]; before != nil {
			known = len(before.records)
		}
		all = append(all, q.records[min(known, len(q.records)):]...)
	}
	slices.SortFunc(all, func(a, b message.Record) int { return cmp.Compare(a.PhysicalOffset, b.PhysicalOffset) })
	return all
}

// A delivery is how a delayed message and what became of it are recognised.
type delivery struct {
	topic, queue, unique string
	attempt              int32
}

// delayed are the messages that wait or waited, by what they are to become, and for how long they have to.
func (v *view) delayed() map[delivery]message.Record {
	all := map[delivery]message.Record{}
	for at, q := range v.queues {
		if at.topic != protocol.TopicSchedule {
			continue
		}
		for _, r := range q.records {
			real, _ := message.Property(r.Properties, message.PropertyRealTopic)
			queue, _ := message.Property(r.Properties, message.PropertyRealQueueID)
			unique, _ := message.Property(r.Properties, message.PropertyUniqueKey)
			all[delivery{string(real), string(queue), string(unique), r.ReconsumeTimes}] = r
		}
	}
	return all
}

// arrived are the deliveries that the view holds: how many times each.
func (v *view) arrived() map[delivery][]message.Record {
	all := map[delivery][]message.Record{}
	wanted := v.delayed()
	for at, q := range v.queues {
		for _, r := range q.records {
			unique, _ := message.Property(r.Properties, message.PropertyUniqueKey)
			d := delivery{at.topic, itoa(int(at.queue)), string(unique), r.ReconsumeTimes}
			if _, ok := wanted[d]; ok {
				all[d] = append(all[d], r)
			}
		}
	}
	return all
}

// delivered is, by delay level, how many messages have been delivered.
func (v *view) delivered() map[int32]int64 {
	all := map[int32]int64{}
	arrived := v.arrived()
	for d, r := range v.delayed() {
		if len(arrived[d]) > 0 {
			all[r.QueueID+1]++
		}
	}
	return all
}

// delayOf is how long messages of a queue of SCHEDULE_TOPIC_XXXX wait.
func delayOf(queue int32) time.Duration {
	text := strings.Fields(delays)[queue]
	d, err := time.ParseDuration(text)
	if err != nil {
		panic(err)
	}
	return d
}

// late is how long after its time a delayed message may come; a JVM among others has pauses.
const late = 20 * time.Second

// waiting says whether a delayed message is still to come within a minute, or is due and not yet late.
func (v *view) waiting(now time.Time) bool {
	arrived := v.arrived()
	for d, r := range v.delayed() {
		due := time.UnixMilli(r.StoreTimestamp).Add(delayOf(r.QueueID))
		if len(arrived[d]) == 0 && due.Before(now.Add(time.Minute)) && due.After(now.Add(-late)) {
			return true
		}
	}
	return false
}

// undelivered says what is wrong with the delayed messages of the view: one that came too early or twice, or is late.
func (v *view) undelivered(now time.Time) (p problems) {
	arrived := v.arrived()
	for d, r := range v.delayed() {
		due := time.UnixMilli(r.StoreTimestamp).Add(delayOf(r.QueueID))
		got := arrived[d]
		switch {
		case len(got) > 1:
			p.add("%v was delivered %d times", d, len(got))
		case len(got) == 0 && now.After(due.Add(late)):
			p.add("%v was due at %v, has not come by %v", d, due, now)
		case len(got) == 1 && time.UnixMilli(got[0].StoreTimestamp).Before(due.Add(-50*time.Millisecond)):
			p.add("%v was due at %v, came at %v", d, due, time.UnixMilli(got[0].StoreTimestamp))
		}
	}
	return p
}
