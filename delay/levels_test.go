package delay

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/message"
	"github.com/ratchetmq/ratchet/store"
)

func defaults(t testing.TB) Levels {
	t.Helper()
	levels, err := ParseLevels(DefaultLevels)
	require.NoError(t, err)
	return levels
}

func TestDefaultLevels(t *testing.T) {
	s, m := time.Second, time.Minute
	require.Equal(t, Levels{
		s, 5 * s, 10 * s, 30 * s, m, 2 * m, 3 * m, 4 * m, 5 * m, 6 * m, 7 * m, 8 * m, 9 * m, 10 * m,
		20 * m, 30 * m, time.Hour, 2 * time.Hour,
	}, defaults(t))
	require.Len(t, defaults(t), QueueCount)
}

func TestParseLevels(t *testing.T) {
	levels, err := ParseLevels("  0s  1d\t3h ")
	require.NoError(t, err)
	require.Equal(t, Levels{0, 24 * time.Hour, 3 * time.Hour}, levels)
	for _, bad := range []string{"", " ", "1", "s", "1x", "-1s", "1.5s", "1ms", "1s,5s", "9223372036854775807d", "1s 2"} {
		_, err := ParseLevels(bad)
		require.ErrorIs(t, err, ErrLevel, "%q", bad)
	}
}

func props(pairs ...string) (b []byte) {
	for i := 0; i < len(pairs); i += 2 {
		b = message.AppendProperty(b, pairs[i], pairs[i+1])
	}
	return b
}

func TestLevelOfProperties(t *testing.T) {
	levels := defaults(t)
	for text, want := range map[string]int{"1": 1, "18": 18, "19": 18, "2147483647": 18, "0": 0, "-1": 0} {
		got, err := levels.Of(props("DELAY", text))
		require.NoError(t, err)
		require.Equal(t, want, got, text)
	}
	got, err := levels.Of(props("KEYS", "1"))
	require.NoError(t, err)
	require.Zero(t, got)
	for _, bad := range []string{"x", "1s", "99999999999999999999", " 1"} {
		_, err := levels.Of(props("DELAY", bad))
		require.ErrorIs(t, err, ErrLevel, bad)
	}
}

func TestRewrite(t *testing.T) {
	levels := defaults(t)
	for name, c := range map[string]struct {
		in, want []byte
		queue    int32
	}{
		"adds the real topic and queue": {
			props("UNIQ_KEY", "u", "DELAY", "3", "TAGS", "t"),
			props("UNIQ_KEY", "u", "DELAY", "3", "TAGS", "t", "REAL_TOPIC", "T", "REAL_QID", "7"), 2,
		},
		"clamps the level": {
			props("DELAY", "99", "KEYS", "k"), props("DELAY", "18", "KEYS", "k", "REAL_TOPIC", "T", "REAL_QID", "7"), 17,
		},
		"believes no real topic that is there already": {
			props("REAL_TOPIC", "old", "DELAY", "1", "REAL_QID", "0"), props("DELAY", "1", "REAL_TOPIC", "T", "REAL_QID", "7"),
			0,
		},
		"keys behind what is left out": {
			props("REAL_TOPIC", "old", "UNIQ_KEY", "u", "TIMER_DELAY_SEC", "1", "KEYS", "k", "DELAY", "1", "TAGS", "t"),
			props("UNIQ_KEY", "u", "KEYS", "k", "DELAY", "1", "TAGS", "t", "REAL_TOPIC", "T", "REAL_QID", "7"), 0,
		},
		"wins over timers": {
			props("TIMER_DELAY_SEC", "1", "DELAY", "1", "TIMER_DELIVER_MS", "5", "TIMER_DELAY_MS", "9"),
			props("DELAY", "1", "REAL_TOPIC", "T", "REAL_QID", "7"), 0,
		},
		"an old client's text without the last separator": {
			[]byte("DELAY\x015"), props("DELAY", "5", "REAL_TOPIC", "T", "REAL_QID", "7"), 4,
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := store.Message{Topic: "T", QueueID: 7, Properties: c.in, Body: []byte("b"), Keys: noted(c.in)}
			buf, delayed, err := levels.Rewrite(&m, []byte("before"))
			require.NoError(t, err)
			require.True(t, delayed)
			require.Equal(t, Topic, m.Topic)
			require.Equal(t, c.queue, m.QueueID)
			require.Equal(t, string(c.want), string(m.Properties))
			require.Equal(t, "before"+string(c.want), string(buf))
			unique, user, tags := (&message.Record{Properties: m.Properties, Keys: m.Keys}).FindKeys()
			for name, got := range map[string][]byte{message.PropertyUniqueKey: unique, message.PropertyKeys: user, message.PropertyTags: tags} {
				want, _ := message.Property(c.want, name)
				require.Equal(t, string(want), string(got), name)
			}
		})
	}
}

// noted are the keys of a text as the sender's request has it.
func noted(text []byte) (k message.Keys) {
	k.Begin()
	message.EachProperty(text, func(name, value []byte) bool {
		k.Note(text, name, value)
		return true
	})
	return k
}

func TestRewriteLeavesOthersAlone(t *testing.T) {
	levels := defaults(t)
	for name, m := range map[string]store.Message{
		"no level":    {Topic: "T", Properties: props("KEYS", "k")},
		"level 0":     {Topic: "T", Properties: props("DELAY", "0")},
		"half":        {Topic: "T", Properties: props("DELAY", "1"), SysFlag: message.FlagPrepared},
		"rolled back": {Topic: "T", Properties: props("DELAY", "1"), SysFlag: message.FlagRollback},
		"delayed":     {Topic: Topic, Properties: props("DELAY", "1")},
	} {
		before := m
		_, delayed, err := levels.Rewrite(&m, nil)
		require.NoError(t, err, name)
		require.False(t, delayed, name)
		require.Equal(t, before, m, name)
	}
	m := store.Message{Topic: "T", Properties: props("DELAY", "soon")}
	_, _, err := levels.Rewrite(&m, nil)
	require.ErrorIs(t, err, ErrLevel)
	m = store.Message{Topic: "T", Properties: props("DELAY", "1"), SysFlag: message.FlagCommit}
	_, delayed, err := levels.Rewrite(&m, nil)
	require.NoError(t, err)
	require.True(t, delayed, "a committed message waits like any other")
}

func TestTagsCode(t *testing.T) {
	levels := defaults(t)
	r := message.Record{Topic: []byte("T"), StoreTimestamp: 5000, Properties: props("DELAY", "3", "TAGS", "TagA")}
	require.Equal(t, int64(2598919), levels.TagsCode(&r))
	r.Topic, r.QueueID = []byte(Topic), 2
	require.Equal(t, int64(15_000), levels.TagsCode(&r))
	r.Properties = props("TAGS", "TagA") // no level: the queue says it
	require.Equal(t, int64(15_000), levels.TagsCode(&r))
	r.Properties = nil
	r.Topic = []byte("T")
	require.Zero(t, levels.TagsCode(&r))
}
