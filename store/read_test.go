package store

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/internal/vfs/vfstest"
	"github.com/ratchetmq/ratchet/message"
)

func TestLocate(t *testing.T) {
	type answer struct {
		status Status
		next   offset.Queue
	}
	for want, c := range map[answer]struct {
		at offset.Queue
		b  Bounds
	}{
		{Found, 5}:      {5, Bounds{5, 10}},
		{Found, 9}:      {9, Bounds{5, 10}},
		{AtEnd, 10}:     {10, Bounds{5, 10}},
		{BeyondEnd, 10}: {11, Bounds{5, 10}},
		{BelowLow, 5}:   {4, Bounds{5, 10}},
		{AtEnd, 0}:      {0, Bounds{}},
		{BeyondEnd, 0}:  {1, Bounds{}},
		{BelowLow, 7}:   {0, Bounds{7, 7}},
		{AtEnd, 7}:      {7, Bounds{7, 7}},
	} {
		status, next := locate(c.at, c.b)
		require.Equal(t, want, answer{status, next}, "%d in %v", c.at, c.b)
	}
	require.Equal(t, "hole", Hole.String())
	require.Equal(t, "unknown", Status(99).String())
}

func TestReadStatuses(t *testing.T) {
	s := mustOpen(t, small(vfstest.New()))
	for i := range 10 {
		put(t, s, tagged("T", 0, []string{"a", "b"}[i%2], fmt.Sprint(i)))
	}
	prefix := []byte("prefix")
	for name, c := range map[string]struct {
		q     Query
		want  Status
		next  offset.Queue
		count int
	}{
		"all":         {Query{Topic: "T"}, Found, 10, 10},
		"limit":       {Query{Topic: "T", From: 2, MaxMessages: 3}, Found, 5, 3},
		"bytes":       {Query{Topic: "T", From: 2, MaxBytes: 1}, Found, 3, 1},
		"end":         {Query{Topic: "T", From: 10}, AtEnd, 10, 0},
		"beyond":      {Query{Topic: "T", From: 11}, BeyondEnd, 10, 0},
		"below":       {Query{Topic: "T", From: -1}, BelowLow, 0, 0},
		"no queue":    {Query{Topic: "T", Queue: 1}, NoQueue, 0, 0},
		"no topic":    {Query{Topic: "U"}, NoQueue, 0, 0},
		"match":       {Query{Topic: "T", Match: func(c int64) bool { return c == 'b' }}, Found, 10, 5},
		"match limit": {Query{Topic: "T", MaxMessages: 2, Match: func(c int64) bool { return c == 'b' }}, Found, 4, 2},
		"no match":    {Query{Topic: "T", Match: func(int64) bool { return false }}, NoMatch, 10, 0},
	} {
		got, batch, err := s.Read(c.q, prefix)
		require.NoError(t, err, name)
		require.Equal(t, c.want, batch.Status, name)
		require.Equal(t, c.next, batch.Next, name)
		require.Equal(t, c.count, batch.Count, name)
		require.Equal(t, "prefix", string(got[:6]), name)
		list := records(t, got[6:])
		require.Len(t, list, c.count, name)
		if c.count > 0 {
			require.Equal(t, list[c.count-1].PhysicalOffset, batch.LastPhysical, name)
		}
		if c.want != NoQueue {
			require.Equal(t, Bounds{0, 10}, batch.Bounds, name)
		}
	}
}

func TestReadKeepsToTheByteLimit(t *testing.T) {
	s := mustOpen(t, small(vfstest.New()))
	for i := range 30 {
		put(t, s, text("T", int32(i%2), strings.Repeat("x", i)))
	}
	for limit := 1; limit < 2000; limit += 7 {
		b, batch, err := s.Read(Query{Topic: "T", From: 3, MaxBytes: limit}, nil)
		require.NoError(t, err)
		require.Positive(t, batch.Count)
		require.True(t, batch.Count == 1 || len(b) <= limit)
		more, _, err := s.Read(Query{Topic: "T", From: 3, MaxMessages: batch.Count + 1, MaxBytes: 1 << 20}, nil)
		require.NoError(t, err)
		require.True(t, len(more) == len(b) || len(more) > limit, "one more would have fitted")
		require.EqualValues(t, 3+batch.Count, batch.Next)
	}
}

// An entry that does not mean a record of the queue is stepped over, wherever it stands; nothing else is lost.
func TestUnreadableEntriesAreSteppedOver(t *testing.T) {
	for name, bad := range map[string]func(own entry, other entry) entry{
		"place in the middle": func(own, _ entry) entry { own.phy++; return own },
		"place behind":        func(own, _ entry) entry { own.phy = 1 << 40; return own },
		"huge place":          func(own, _ entry) entry { own.phy = 1<<63 - 1; return own },
		"other size":          func(own, _ entry) entry { own.size--; return own },
		"huge size":           func(own, _ entry) entry { own.size = 1<<31 - 2; return own },
		"other topic":         func(_, other entry) entry { return other },
		"blank":               func(entry, entry) entry { return entry{size: blankSize} },
		"zero":                func(entry, entry) entry { return entry{} },
		"negative":            func(own, _ entry) entry { own.phy = -own.phy; return own },
	} {
		for _, at := range []int64{1, 5, 19} {
			disk := vfstest.New()
			s := mustOpen(t, small(disk))
			other := entry{size: 93, phy: put(t, s, text("U", 0, "x")).Physical}
			for i := range 20 {
				put(t, s, text("T", 0, fmt.Sprint(i)))
			}
			require.NoError(t, s.writeTails())
			q := s.queues.get("T", 0)
			own, err := s.files.entry(q, at)
			require.NoError(t, err)
			require.NoError(t, s.files.write(q, at, appendEntry(nil, bad(own, other))))
			got := readQueue(t, s, "T", 0)
			require.Len(t, got, 19, "%s at %d", name, at)
			for _, r := range got {
				require.NotEqualValues(t, at, r.QueueOffset)
			}
			_, batch, err := s.Read(Query{Topic: "T", From: offset.Queue(at), MaxMessages: 1}, nil)
			require.NoError(t, err)
			require.Equal(t, 1, batch.Holes)
			if at == 19 {
				require.Equal(t, Hole, batch.Status)
				require.EqualValues(t, 20, batch.Next)
			}
		}
	}
}

func TestDamagedBodyIsNotReturned(t *testing.T) {
	disk := vfstest.New()
	s := mustOpen(t, small(disk))
	put(t, s, text("T", 0, "a"))
	a := put(t, s, text("T", 0, "b"))
	put(t, s, text("T", 0, "c"))
	flip(t, disk, logFile(0), int64(a.End)-5)
	require.Equal(t, []string{"a", "c"}, bodies(readQueue(t, s, "T", 0)))
	_, err := s.Record(a.Physical, nil)
	require.ErrorIs(t, err, ErrNotFound)
}

func TestSearchByTime(t *testing.T) {
	now := time.UnixMilli(0)
	o := small(vfstest.New())
	o.Now = func() time.Time { return now }
	s := mustOpen(t, o)
	times := []int64{100, 100, 200, 200, 200, 300, 500, 500}
	for _, ms := range times {
		now = time.UnixMilli(ms)
		put(t, s, text("T", 0, strings.Repeat("x", 1000)))
	}
	check := func(skip offset.Queue) {
		for ms := int64(0); ms < 600; ms += 50 {
			lower, upper := offset.Queue(len(times)), offset.Queue(-1)
			for i := len(times) - 1; i >= 0; i-- {
				if at := offset.Queue(i); at != skip && times[i] >= ms {
					lower = at
				} else if at != skip && upper < 0 {
					upper = at
				}
			}
			for i, v := range times {
				if at := offset.Queue(i); at != skip && v <= ms {
					upper = at
				}
			}
			require.Equal(t, lower, s.SearchByTime("T", 0, ms, false), "lower %d", ms)
			got := s.SearchByTime("T", 0, ms, true)
			if skip >= 0 && upper+1 == skip {
				require.Contains(t, []offset.Queue{upper, skip}, got) // a hole says nothing
			} else {
				require.Equal(t, max(0, upper), got, "upper %d", ms)
			}
		}
	}
	check(-1)
	q := s.queues.get("T", 0)
	require.NoError(t, s.files.write(q, 3, appendBlanks(nil, 1)))
	check(3)
	require.Zero(t, s.SearchByTime("U", 0, 1, false))
	ms, ok := s.EarliestStoreTime("T", 0)
	require.True(t, ok)
	require.EqualValues(t, 100, ms)
	require.NoError(t, s.files.write(q, 0, appendBlanks(nil, 2)))
	ms, _ = s.EarliestStoreTime("T", 0)
	require.EqualValues(t, 200, ms)
	_, ok = s.EarliestStoreTime("U", 0)
	require.False(t, ok)
}

func TestEntryBytes(t *testing.T) {
	b := appendEntry(nil, entry{phy: 0x0102030405060708, size: 0x090A0B0C, tags: -2})
	require.Equal(t, []byte{
		1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFE,
	}, b)
	require.Equal(t, entry{phy: 0x0102030405060708, size: 0x090A0B0C, tags: -2}, parseEntry(b))
	require.True(t, entry{size: blankSize}.blank())
	require.True(t, entry{tags: -1 << 63}.extTags())
	require.False(t, entry{tags: -1 << 31}.extTags())
}

// A consume queue file has full length and the entries of its range; a message's tags are there as their hash.
func TestConsumeQueueFiles(t *testing.T) {
	disk := vfstest.New()
	s := mustOpen(t, small(disk))
	var at []Appended
	for i := range 40 {
		at = append(at, put(t, s, tagged("T", 2, "TagA", fmt.Sprint(i))))
	}
	require.NoError(t, s.writeTails())
	for _, first := range []int64{0, 16, 32} {
		data, err := disk.ReadFile(queueFile("T", 2, first))
		require.NoError(t, err)
		require.Len(t, data, 16*entrySize)
		for i := range int64(16) {
			unit := data[i*entrySize : (i+1)*entrySize]
			if first+i >= 40 {
				require.True(t, isZero(unit))
				continue
			}
			a := at[first+i]
			require.Equal(t, entry{a.Physical, int32(a.End - a.Physical), 2598919}, parseEntry(unit))
		}
	}
}

// A record may be in queues of another topic, with other numbers.
func TestLightQueuesAreDispatched(t *testing.T) {
	s := mustOpen(t, small(vfstest.New()))
	m := text("T", 0, "x")
	for i := range 3 {
		m.Properties = message.AppendProperty(nil, message.PropertyMultiDispatch, "%LMQ%a,%LMQ%b,other,%LMQ%x/y")
		m.Properties = message.AppendProperty(m.Properties, message.PropertyMultiQueueOffset, fmt.Sprintf("%d,%d,0,0", i, i))
		put(t, s, m)
	}
	for _, topic := range []string{"T", "%LMQ%a", "%LMQ%b"} {
		require.Len(t, readQueue(t, s, topic, 0), 3)
	}
	_, ok := s.Bounds("other", 0)
	require.False(t, ok)
}

// A header whose numbers make no sense must not make files without end.
func TestFarNumberMakesOneFile(t *testing.T) {
	disk := vfstest.New()
	s := mustOpen(t, small(disk))
	a := put(t, s, text("T", 0, "first"))
	b := put(t, s, text("T", 0, "far"))
	disk = kill(disk)
	far := binary.BigEndian.AppendUint64(nil, 1_000_000_005)
	patch(t, disk, logFile(0), int64(a.End)+message.PosQueueOffset, far)
	require.NoError(t, disk.RemoveAll(testRoot+"/consumequeue"))
	s = mustOpen(t, small(disk))
	require.Equal(t, b.End, s.Written())
	bounds, _ := s.Bounds("T", 0)
	require.Equal(t, Bounds{0, 1_000_000_006}, bounds)
	require.Len(t, *s.queues.get("T", 0).files.Load(), 2)
	require.Equal(t, "far", string(readOne(t, s, "T", 0, 1_000_000_005).Body))
	require.Equal(t, []string{"first", "far"}, bodies(readQueue(t, s, "T", 0)))
	require.EqualValues(t, 1_000_000_005, s.SearchByTime("T", 0, 1<<50, true))
	require.NoError(t, s.Close())
	s = mustOpen(t, small(disk))
	again, _ := s.Bounds("T", 0)
	require.Equal(t, bounds, again)
}
