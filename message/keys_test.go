package message

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// What was noted when the text was read is what is found in it later, in whatever memory it stands by then.
func TestNotedKeysAreThoseOfTheText(t *testing.T) {
	for _, text := range []string{
		"",
		"TAGS\x01a\x02",
		"TAGS\x01a",
		"TAGS\x01\x02KEYS\x02\x02",
		"A\x01b\x02UNIQ_KEY\x01u1\x02KEYS\x01k1 k2\x02TAGS\x01a\x02UNIQ_KEY\x01u2\x02TAGS\x01bc\x02Z\x01\x01\x02",
		"KEYS\x01a\x01b\x02TAGS\x01x",
		"INNER_MULTI_DISPATCH\x01%LMQ%a\x02INNER_MULTI_QUEUE_OFFSET\x013\x02",
	} {
		r := Record{Properties: []byte(text)}
		unique, user, tags := r.FindKeys()
		for name, got := range map[string][]byte{PropertyUniqueKey: unique, PropertyKeys: user, PropertyTags: tags} {
			want, _ := Property(r.Properties, name)
			require.Equal(t, string(want), string(got), "%s in %q", name, text)
		}
		require.Equal(t, string(tags), string(r.Tags()))

		var k Keys
		k.Begin()
		props := []byte("before" + text)[len("before"):]
		EachProperty(props, func(name, value []byte) bool {
			k.Note(props, name, value)
			return true
		})
		moved := Record{Properties: append([]byte(nil), props...), Keys: k}
		require.Equal(t, string(tags), string(moved.Tags()))
		request, movedRequest := r.DispatchRequest(0), moved.DispatchRequest(0)
		require.Equal(t, request.Multi(), movedRequest.Multi())
		movedUnique, movedUser, movedTags := moved.FindKeys()
		require.Equal(t, string(unique), string(movedUnique))
		require.Equal(t, string(user), string(movedUser))
		require.Equal(t, string(tags), string(movedTags))
	}
}

func TestRecordWithoutKeysIsNotReadForThem(t *testing.T) {
	r := Record{Properties: []byte("TAGS\x01a\x02")}
	r.Keys.Begin()
	require.Empty(t, r.Tags(), "it was said that there are none")
}

// What Match takes for the same reads as the same.
func FuzzMatch(f *testing.F) {
	for _, pair := range [][2]string{
		{"", ""},
		{"UNIQ_KEY\x01u1\x02KEYS\x01k1\x02TAGS\x01a\x02", "UNIQ_KEY\x01u2\x02KEYS\x01k2\x02TAGS\x01a\x02"},
		{"KEYS\x01k1\x02TAGS\x01a\x02UNIQ_KEY\x01u1", "KEYS\x01k2\x02TAGS\x01a\x02UNIQ_KEY\x01u2"},
		{"UNIQ_KEY\x01u1\x02TAGS\x01a\x02", "UNIQ_KEY\x01u1\x02TAGS\x01b\x02"},
		{"UNIQ_KEY\x0112345678\x02", "UNIQ_KEY\x011234567\x02\x02"},
		{"UNIQ_KEY\x01u\x02UNIQ_KEY\x01v\x02", "UNIQ_KEY\x01w\x02UNIQ_KEY\x01x\x02"},
	} {
		f.Add([]byte(pair[0]), []byte(pair[1]))
	}
	note := func(props []byte) (k Keys, values []string) {
		k.Begin()
		EachProperty(props, func(name, value []byte) bool {
			k.Note(props, name, value)
			switch string(name) {
			case PropertyUniqueKey, PropertyKeys:
				value = nil
			}
			values = append(values, string(name)+"="+string(value))
			return true
		})
		return k, values
	}
	f.Fuzz(func(t *testing.T, text, props []byte) {
		k, values := note(text)
		if !k.Match(text, props) {
			return
		}
		same, others := note(props)
		require.Equal(t, k, same)
		require.Equal(t, values, others)
		require.Equal(t, same.Unique(props), k.Unique(props))
	})
}

func TestMatch(t *testing.T) {
	var k Keys
	k.Begin()
	text := []byte("UNIQ_KEY\x01u1\x02WAIT\x01true\x02KEYS\x01k1 k2\x02TAGS\x01a\x02")
	EachProperty(text, func(name, value []byte) bool {
		k.Note(text, name, value)
		return true
	})
	require.True(t, k.Match(text, text))
	require.True(t, k.Match(text, []byte("UNIQ_KEY\x01u2\x02WAIT\x01true\x02KEYS\x01k3 k4\x02TAGS\x01a\x02")))
	require.False(t, k.Match(text, []byte("UNIQ_KEY\x01u2\x02WAIT\x01true\x02KEYS\x01k3 k4\x02TAGS\x01b\x02")))
	require.False(t, k.Match(text, []byte("UNIQ_KEY\x01\x02u\x02WAIT\x01true\x02KEYS\x01k3 k4\x02TAGS\x01a\x02")))
	require.False(t, k.Match(text, text[:len(text)-1]))
}
