package namesrv

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/protocol"
)

// bed is a table with a clock that stands still until told.
type bed struct {
	*testing.T
	*Table
	clock time.Time
}

func newBed(t *testing.T) *bed {
	b := &bed{T: t, clock: time.UnixMilli(1_700_000_000_000)}
	b.Table = NewTable(func() time.Time { return b.clock })
	return b
}

func (b *bed) pass(d time.Duration) { b.clock = b.clock.Add(d) }

// body makes a registration of broker b in cluster c by a master at 10.0.0.1:10911 over connection 1.
func body(counter int64, topics ...string) Registration {
	r := Registration{
		Cluster: "c", Broker: "b", Addr: "10.0.0.1:10911", HAAddr: "10.0.0.1:10912", Conn: 1,
		Version: protocol.DataVersion{Timestamp: 1000, Counter: counter},
	}
	for _, name := range topics {
		r.Topics = append(r.Topics, TopicEntry{Name: name, ReadQueues: 4, WriteQueues: 4, Perm: 6})
	}
	return r
}

// full makes a registration that holds the whole table: the topics given and the broker's own.
func full(counter int64, topics ...string) Registration {
	return body(counter, append([]string{selfTestTopic, "b", "c"}, topics...)...)
}

// as changes a registration's sender.
func as(r Registration, broker string, id int64, addr string, conn uint64) Registration {
	for i := range r.Topics {
		if r.Topics[i].Name == r.Broker {
			r.Topics[i].Name = broker
		}
	}
	r.Broker, r.ID, r.Addr, r.HAAddr, r.Conn = broker, id, addr, "ha-"+addr, conn
	return r
}

func (b *bed) register(r Registration) Registered {
	b.Helper()
	res, err := b.Register(r)
	require.NoError(b, err)
	return res
}

type routeData struct {
	BrokerDatas []struct {
		BrokerAddrs                   map[string]string
		BrokerName, Cluster, ZoneName string
		EnableActingMaster            bool
	}
	QueueDatas []struct {
		BrokerName                                        string
		Perm, ReadQueueNums, WriteQueueNums, TopicSysFlag int32
	}
	FilterServerTable map[string][]string
	OrderTopicConf    string
}

func (b *bed) route(topic string) *routeData {
	b.Helper()
	body, ok := b.Route(topic, true)
	if !ok {
		return nil
	}
	return parseRoute(b, body)
}

func parseRoute(t require.TestingT, body []byte) *routeData {
	var d routeData
	require.NoError(t, json.Unmarshal(body, &d), "%s", body)
	return &d
}

// brokers lists who has the topic, as name:perm/id@addr,…
func (d *routeData) brokers() []string {
	var all []string
	if d == nil {
		return all
	}
	for i, bd := range d.BrokerDatas {
		ids := []string{}
		for id, addr := range bd.BrokerAddrs {
			ids = append(ids, id+"@"+addr)
		}
		slices.Sort(ids)
		all = append(all, fmt.Sprintf("%s:%d/%s", bd.BrokerName, d.QueueDatas[i].Perm, strings.Join(ids, ",")))
	}
	return all
}

func (b *bed) topicNames() []string {
	b.Helper()
	var l struct{ TopicList []string }
	require.NoError(b, json.Unmarshal(b.TopicList(), &l))
	slices.Sort(l.TopicList)
	return l.TopicList
}

func TestRegisterMakesARoute(t *testing.T) {
	b := newBed(t)
	require.False(t, b.Registered())
	res := b.register(full(1, "T"))
	require.True(t, res.First)
	require.Equal(t, 4, res.Added)
	require.True(t, b.Registered())

	bare, ok := b.Route("T", false)
	require.True(t, ok)
	require.Equal(t, `{"brokerDatas":[{"brokerAddrs":{0:"10.0.0.1:10911"},"brokerName":"b","cluster":"c",`+
		`"enableActingMaster":false}],"filterServerTable":{},"queueDatas":[{"brokerName":"b","perm":6,`+
		`"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}`, string(bare))
	quoted, _ := b.Route("T", true)
	require.Equal(t, strings.Replace(string(bare), "{0:", `{"0":`, 1), string(quoted))

	_, ok = b.Route("U", true)
	require.False(t, ok)
	require.Equal(t, []string{"SELF_TEST_TOPIC", "T", "b", "c"}, b.topicNames())

	res = b.register(full(1, "T"))
	require.Equal(t, Registered{}, res, "the same again changes nothing")
	again, _ := b.Route("T", true)
	require.Same(t, &quoted[0], &again[0], "an unchanged route is encoded once")
}

func TestFirstContactMustNotBeAnIncrement(t *testing.T) {
	b := newBed(t)
	_, err := b.Register(body(5, "T"))
	require.ErrorIs(t, err, ErrFirstContact)
	require.False(t, b.Registered())
	topics, brokers := b.Size()
	require.Zero(t, topics+brokers, "nothing is left of a refused registration")

	b.register(body(5)) // no topic at all is fine
	b.register(body(6, "T"))
	require.Equal(t, []string{"b:6/0@10.0.0.1:10911"}, b.route("T").brokers())

	_, err = b.Register(as(body(6, "T"), "b", 1, "10.0.0.2:10911", 2))
	require.ErrorIs(t, err, ErrFirstContact, "the rule is per broker id")
	b.register(as(body(6, "T", "U"), "b", 1, "10.0.0.2:10911", 2))
}

func TestSlaveMakesNoRoutesAndLearnsItsMaster(t *testing.T) {
	b := newBed(t)
	slave := as(full(1, "T"), "b", 1, "10.0.0.2:10911", 2)
	res := b.register(slave)
	require.Empty(t, res.MasterAddr)
	require.Nil(t, b.route("T"))

	b.register(full(1, "T"))
	require.Equal(t, []string{"b:6/0@10.0.0.1:10911,1@10.0.0.2:10911"}, b.route("T").brokers())
	res = b.register(slave)
	require.Equal(t, "10.0.0.1:10911", res.MasterAddr)
	require.Equal(t, "10.0.0.1:10912", res.HAServerAddr)

	// Only the master died: the slave stays readable.
	b.ConnClosed(1)
	require.Equal(t, []string{"b:6/1@10.0.0.2:10911"}, b.route("T").brokers())
	require.Empty(t, b.register(slave).MasterAddr)
	b.ConnClosed(2)
	require.Nil(t, b.route("T"))
	require.Empty(t, b.topicNames())
}

func TestSameAddressUnderAnotherID(t *testing.T) {
	b := newBed(t)
	b.register(full(1, "T"))
	slave := as(full(1, "T"), "b", 1, "10.0.0.2:10911", 2)
	b.register(slave)
	b.ConnClosed(1)

	slave.ID = masterID // promoted
	res := b.register(slave)
	require.Equal(t, "b:1", res.Evicted)
	require.Equal(t, []string{"b:6/0@10.0.0.2:10911"}, b.route("T").brokers())
	b.ConnClosed(2)
	require.Nil(t, b.route("T"))
}

func TestStateVersionDecidesWhoHasAnID(t *testing.T) {
	b := newBed(t)
	r := full(1, "T")
	r.Version.StateVersion = 3
	b.register(r)
	other := as(full(9, "T"), "b", 0, "10.0.0.2:10911", 2)
	other.Version.StateVersion = 2
	require.True(t, b.register(other).Stood)
	require.Equal(t, []string{"b:6/0@10.0.0.1:10911"}, b.route("T").brokers())

	other.Version.StateVersion = 3 // equal is enough
	require.False(t, b.register(other).Stood)
	require.Equal(t, []string{"b:6/0@10.0.0.2:10911"}, b.route("T").brokers())

	b.ConnClosed(1) // of the one that was replaced
	require.Equal(t, []string{"b:6/0@10.0.0.2:10911"}, b.route("T").brokers())
}

func TestIncrementAddsAndChangesOnly(t *testing.T) {
	b := newBed(t)
	b.register(full(1, "T"))
	b.register(body(2, "U"))
	require.NotNil(t, b.route("T"))
	require.NotNil(t, b.route("U"))

	r := body(3, "U")
	r.Topics[0].WriteQueues, r.Topics[0].Perm = 8, 4
	require.Equal(t, 1, b.register(r).Changed)
	require.EqualValues(t, 8, b.route("U").QueueDatas[0].WriteQueueNums)
	require.Equal(t, []string{"b:4/0@10.0.0.1:10911"}, b.route("U").brokers())
}

func TestFullBodyOvertakenByAnIncrement(t *testing.T) {
	b := newBed(t)
	b.register(full(10, "T"))
	b.register(body(11, "U"))
	b.pass(time.Minute)

	b.register(full(10, "T")) // taken before U was made, sent after
	require.NotNil(t, b.route("U"))
	b.register(full(12, "T", "U", "V"))
	b.register(full(13, "T", "V"))
	require.Nil(t, b.route("U"))
	require.NotNil(t, b.route("V"))
}

// A broker copies its topics first and reads the version after: the body claims a version that has more.
func TestFullBodyThatClaimsTooNewAVersion(t *testing.T) {
	b := newBed(t)
	b.register(full(10, "T"))
	b.register(body(11, "U"))
	b.register(body(12, "V"))
	b.register(full(12, "T"))
	require.NotNil(t, b.route("U"))
	require.NotNil(t, b.route("V"))

	b.pass(30 * time.Second)
	b.register(full(12, "T", "U", "V"))
	require.NotNil(t, b.route("U"))
}

// A broker that says that it copies both at once is believed: what was made and deleted in the same moment is gone.
func TestFullBodyOfOneMoment(t *testing.T) {
	b := newBed(t)
	b.register(full(10, "T"))
	b.register(body(11, "U"))
	b.register(body(12, "V"))
	r := full(13, "T", "V")
	r.OneMoment = true
	require.Equal(t, 1, b.register(r).Removed)
	require.Nil(t, b.route("U"))
	r = full(11, "T", "U") // overtaken
	r.OneMoment = true
	b.register(r)
	require.NotNil(t, b.route("V"))
}

func TestIncrementsInAnyOrder(t *testing.T) {
	b := newBed(t)
	b.register(full(1))
	newer := body(3, "T")
	newer.Topics[0].WriteQueues = 16
	b.register(newer)
	b.register(body(2, "T")) // the change before that one, 4 queues
	require.EqualValues(t, 16, b.route("T").QueueDatas[0].WriteQueueNums)
	b.register(body(2, "U")) // unknown topics are taken from any version
	require.NotNil(t, b.route("U"))
}

// An increment that got lost does not hide behind a later one.
func TestDataVersionIsOnlyReportedWhenComplete(t *testing.T) {
	b := newBed(t)
	version := func() int64 {
		v, ok := b.DataVersion("c", "10.0.0.1:10911", 1)
		require.True(t, ok)
		return v.Counter
	}
	_, ok := b.DataVersion("c", "10.0.0.1:10911", 1)
	require.False(t, ok)
	b.register(full(10))
	require.EqualValues(t, 10, version())
	b.register(body(11, "T"))
	require.EqualValues(t, 11, version())
	b.register(body(13, "V"))
	require.EqualValues(t, 11, version(), "12 is missing")
	b.register(full(13, "T", "U", "V"))
	require.EqualValues(t, 13, version())
	b.register(full(12, "T", "U"))
	require.EqualValues(t, 13, version(), "an overtaken body")
}

func TestBrokerThatWentBackToAnOlderTable(t *testing.T) {
	b := newBed(t)
	b.register(full(10, "T", "U"))
	b.register(full(4, "T"))
	require.NotNil(t, b.route("U"), "once may be an overtaken body")
	b.register(full(4, "T"))
	require.Nil(t, b.route("U"), "twice is what the broker has")
	v, _ := b.DataVersion("c", "10.0.0.1:10911", 1)
	require.EqualValues(t, 4, v.Counter)

	// Over another connection it is another process, and its first word counts.
	b.register(full(10, "T", "U"))
	r := full(2, "T")
	r.Conn = 9
	b.register(r)
	require.Nil(t, b.route("U"))
}

func TestSplitRegistration(t *testing.T) {
	for _, size := range []int{splitRegistrationSize, 500} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			b := newBed(t)
			var first, second []string
			for i := range size - 3 {
				first = append(first, fmt.Sprintf("A%04d", i))
			}
			for i := range 20 {
				second = append(second, fmt.Sprintf("B%04d", i))
			}
			counter := int64(0)
			round := func(second []string) {
				counter++
				b.register(full(counter, first...))
				counter++
				b.register(body(counter, second...))
				b.pass(30 * time.Second)
			}
			for range 4 {
				round(second)
				counter++
				b.register(full(counter, first...))
				for _, name := range second {
					require.NotNil(t, b.route(name), "%s is in the other part", name)
				}
				counter++
				b.register(body(counter, second...))
			}
			round(second[1:])
			round(second[1:])
			round(second[1:])
			require.Nil(t, b.route(second[0]), "two rounds without it")
			require.NotNil(t, b.route(second[1]))
		})
	}
}

// A broker's table has just grown to two parts, and no part has been seen yet.
func TestFirstSplitRegistration(t *testing.T) {
	b := newBed(t)
	var names []string
	for i := range splitRegistrationSize {
		names = append(names, fmt.Sprintf("T%04d", i))
	}
	b.register(full(1, names[:splitRegistrationSize-4]...))
	for i := range 4 {
		b.register(body(int64(2+i), names[splitRegistrationSize-4+i]))
	}
	b.pass(time.Minute)
	b.register(full(10, names[:splitRegistrationSize-3]...))
	for _, name := range names {
		require.NotNil(t, b.route(name), "%s", name)
	}
}

func TestBodyWithoutTheBirthTopicsDeletesNothing(t *testing.T) {
	b := newBed(t)
	b.register(body(1, "T", "U"))
	b.pass(time.Minute)
	b.register(body(2, "T", "V"))
	require.Equal(t, []string{"T", "U", "V"}, b.topicNames())
}

func TestBrokerNamedLikeItsCluster(t *testing.T) {
	r := body(1, selfTestTopic, "b")
	r.Cluster = "b"
	require.True(t, isFull(&r))
	require.False(t, isFull(&Registration{Broker: "b", Cluster: "b", Topics: []TopicEntry{{Name: "b"}}}))
	r = full(1)
	require.True(t, isFull(&r))
	r.Topics = r.Topics[1:]
	require.False(t, isFull(&r))
}

func TestLiveness(t *testing.T) {
	b := newBed(t)
	const scan = 5 * time.Second
	tick := func(d time.Duration) (gone []Gone) {
		for ; d > 0; d -= scan {
			b.pass(scan)
			gone = append(gone, b.Expire(scan)...)
		}
		return gone
	}
	b.register(full(1, "T"))
	short := as(full(1, "T"), "short", 0, "10.0.0.9:1", 9)
	short.Timeout = 20 * time.Second
	b.register(short)
	require.Empty(t, tick(20*time.Second))
	gone := tick(5 * time.Second)
	require.Len(t, gone, 1)
	require.Equal(t, Gone{Cluster: "c", Broker: "short", Addr: "10.0.0.9:1", Conn: 9, LastConn: true}, gone[0])

	require.Empty(t, tick(90*time.Second))
	require.True(t, b.Heartbeat("c", "10.0.0.1:10911", 1))
	require.False(t, b.Heartbeat("x", "10.0.0.1:10911", 1))
	require.False(t, b.Heartbeat("c", "10.0.0.1:1", 1))
	require.Empty(t, tick(120*time.Second))
	_, ok := b.DataVersion("c", "10.0.0.1:10911", 1)
	require.True(t, ok)
	require.Empty(t, tick(120*time.Second))
	b.register(full(1, "T"))
	require.Empty(t, tick(120*time.Second))
	require.Len(t, tick(5*time.Second), 1)
	require.Nil(t, b.route("T"))
}

func TestNobodyExpiresWhileTheProcessStoodStill(t *testing.T) {
	b := newBed(t)
	b.register(full(1, "T"))
	b.Expire(5 * time.Second)
	b.pass(10 * time.Minute)
	require.Empty(t, b.Expire(5*time.Second))
	b.pass(5 * time.Second)
	require.Empty(t, b.Expire(5*time.Second))
	for range 24 {
		b.pass(5 * time.Second)
		b.Expire(5 * time.Second)
	}
	require.Nil(t, b.route("T"))
}

func TestUnregister(t *testing.T) {
	b := newBed(t)
	b.register(full(1, "T"))
	b.register(as(full(1, "T"), "b2", 0, "10.0.0.2:10911", 2))
	for _, who := range [][3]string{{"x", "b", "10.0.0.1:10911"}, {"c", "x", "10.0.0.1:10911"}, {"c", "b", "10.0.0.2:10911"}} {
		_, ok := b.Unregister(who[0], who[1], who[2])
		require.False(t, ok)
	}
	gone, ok := b.Unregister("c", "b", "10.0.0.1:10911")
	require.True(t, ok)
	require.Equal(t, "b", gone.Broker)
	require.Equal(t, []string{"b2:6/0@10.0.0.2:10911"}, b.route("T").brokers())
	require.Nil(t, b.route("b"))
	require.Empty(t, b.ConnClosed(1))
	_, err := b.Register(body(2, "T"))
	require.ErrorIs(t, err, ErrFirstContact)
}

func TestSeveralBrokersOnOneConnection(t *testing.T) {
	b := newBed(t)
	b.register(full(1, "T"))
	b.register(as(full(1, "T"), "b2", 0, "10.0.0.2:10911", 1))
	gone, _ := b.Unregister("c", "b", "10.0.0.1:10911")
	require.False(t, gone.LastConn)
	require.Len(t, b.ConnClosed(1), 1)
	require.Nil(t, b.route("T"))
}

func TestSignsOfLifeMoveABrokerToTheirConnection(t *testing.T) {
	b := newBed(t)
	b.register(full(1, "T"))
	b.Heartbeat("c", "10.0.0.1:10911", 2)
	require.Empty(t, b.ConnClosed(1))
	b.DataVersion("c", "10.0.0.1:10911", 3)
	require.Empty(t, b.ConnClosed(2))
	require.NotNil(t, b.route("T"))
	require.Len(t, b.ConnClosed(3), 1)
}

func TestWritePermission(t *testing.T) {
	b := newBed(t)
	b.register(full(1, "T"))
	require.Equal(t, 4, b.SetWritable("b", false))
	require.Equal(t, 0, b.SetWritable("x", false))
	require.Equal(t, []string{"b:4/0@10.0.0.1:10911"}, b.route("T").brokers())

	b.register(full(1, "T"))
	b.register(full(2, "T", "U"))
	b.Invalidate()
	require.Equal(t, []string{"b:4/0@10.0.0.1:10911"}, b.route("T").brokers(), "other topics' changes do not undo it")
	require.Equal(t, []string{"b:6/0@10.0.0.1:10911"}, b.route("U").brokers())
	r := full(3, "T", "U")
	r.Topics[3].WriteQueues = 5
	b.register(r)
	require.Equal(t, []string{"b:6/0@10.0.0.1:10911"}, b.route("T").brokers(), "a change of the topic does")

	b.SetWritable("b", false)
	require.Equal(t, 5, b.SetWritable("b", true))
	require.Equal(t, []string{"b:6/0@10.0.0.1:10911"}, b.route("T").brokers())

	b.SetWritable("b", false)
	b.ConnClosed(1)
	b.register(full(3, "T"))
	require.Equal(t, []string{"b:6/0@10.0.0.1:10911"}, b.route("T").brokers(), "and so does a new connection")
}

func acting(r Registration) Registration {
	r.ActingMaster = protocol.Some(true)
	return r
}

func TestActingMaster(t *testing.T) {
	b := newBed(t)
	slave := acting(as(full(1, "T", syncMemberPrefix+"b"), "b", 2, "10.0.0.2:10911", 2))
	b.register(acting(full(1, "T", syncMemberPrefix+"b")))
	b.register(slave)
	require.Equal(t, []string{"b:6/0@10.0.0.1:10911,2@10.0.0.2:10911"}, b.route("T").brokers())
	require.True(t, b.route("T").BrokerDatas[0].EnableActingMaster)

	b.ConnClosed(1)
	require.Equal(t, []string{"b:4/2@10.0.0.2:10911"}, b.route("T").brokers(), "shown as a slave, closed for writes")
	b.SetOptions(Options{SupportActingMaster: true})
	require.Equal(t, []string{"b:4/0@10.0.0.2:10911"}, b.route("T").brokers())
	require.Equal(t, []string{"b:4/2@10.0.0.2:10911"}, b.route(syncMemberPrefix+"b").brokers())

	b.register(acting(as(full(2, "T", "U"), "b", 2, "10.0.0.2:10911", 2)))
	require.Equal(t, []string{"b:4/0@10.0.0.2:10911"}, b.route("U").brokers(), "the prime slave makes routes")
	b.register(acting(as(full(2, "T", "U", "V"), "b", 3, "10.0.0.3:10911", 3)))
	require.Nil(t, b.route("V"), "another slave does not")

	b.register(acting(full(3, "T", "U")))
	require.Equal(t, []string{"b:6/0@10.0.0.1:10911,2@10.0.0.2:10911,3@10.0.0.3:10911"}, b.route("T").brokers())
}

func TestSlaveOfAnOldBrokerNeverActs(t *testing.T) {
	b := newBed(t)
	b.SetOptions(Options{SupportActingMaster: true})
	b.register(full(1, "T"))
	b.register(as(full(1, "T"), "b", 1, "10.0.0.2:10911", 2))
	b.ConnClosed(1)
	require.Equal(t, []string{"b:6/1@10.0.0.2:10911"}, b.route("T").brokers())
	b.register(as(full(2, "T", "U"), "b", 1, "10.0.0.2:10911", 2))
	require.Nil(t, b.route("U"))
}
