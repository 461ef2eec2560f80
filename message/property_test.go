package message

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func pairs(props string) []string {
	var all []string
	EachProperty([]byte(props), func(name, value []byte) bool {
		all = append(all, string(name)+"="+string(value))
		return true
	})
	return all
}

func TestPropertiesReadAsInJava(t *testing.T) {
	for props, want := range map[string][]string{
		"":                               nil,
		"A\x01b\x02":                     {"A=b"},
		"A\x01b":                         {"A=b"}, // as clients before 5.0 end it
		"A\x01b\x02C\x01d":               {"A=b", "C=d"},
		"A\x01b\x02A\x01c\x02":           {"A=b", "A=c"},
		"A\x01\x02B\x01c\x02":            {"B=c"}, // no value
		"\x01b\x02B\x01c\x02":            {"B=c"}, // no name
		"A\x02B\x01c\x02":                {"B=c"}, // no separator
		"\x02\x02B\x01c\x02\x02":         {"B=c"},
		"A\x01b\x01c\x02":                {"A=b\x01c"}, // the first separator counts
		"K é\x01中 =,\x02":                {"K é=中 =,"},
		"\x01":                           nil,
		"\x02":                           nil,
		"\x01\x02":                       nil,
		"TRAN_MSG\x01true\x02X\x01 \x02": {"TRAN_MSG=true", "X= "},
	} {
		require.Equal(t, want, pairs(props), "%q", props)
	}
	var first []string
	EachProperty([]byte("A\x01b\x02C\x01d\x02"), func(name, _ []byte) bool {
		first = append(first, string(name))
		return false
	})
	require.Equal(t, []string{"A"}, first, "fn says when to stop")
}

func TestPropertyIsTheLastOfItsName(t *testing.T) {
	props := []byte("A\x01b\x02AA\x01x\x02A\x01c\x02")
	value, ok := Property(props, "A")
	require.True(t, ok)
	require.Equal(t, "c", string(value))
	_, ok = Property(props, "B")
	require.False(t, ok)
}

// TestPropertyIsOneOfEachProperty: both ways to read the text agree, whatever is asked for.
func TestPropertyIsOneOfEachProperty(t *testing.T) {
	alphabet, random := "AAB\x01\x01\x02\x02", rand.New(rand.NewPCG(3, 4))
	found := 0
	for range 200_000 {
		text, name := make([]byte, random.IntN(12)), make([]byte, random.IntN(4))
		for _, b := range [][]byte{text, name} {
			for i := range b {
				b[i] = alphabet[random.IntN(len(alphabet))]
			}
		}
		var want []byte
		EachProperty(text, func(n, v []byte) bool {
			if bytes.Equal(n, name) {
				want = v
			}
			return true
		})
		got, ok := Property(text, string(name))
		require.Equal(t, want != nil, ok, "%q in %q", name, text)
		require.Equal(t, string(want), string(got), "%q in %q", name, text)
		if ok {
			found++
		}
	}
	require.Greater(t, found, 1000)
}

func TestAppendProperty(t *testing.T) {
	for _, test := range []struct{ before, name, value, want string }{
		{"", "A", "b", "A\x01b\x02"},
		{"X\x01y\x02", "A", "b", "X\x01y\x02A\x01b\x02"},
		{"X\x01y", "A", "b", "X\x01y\x02A\x01b\x02"},
		{"X\x01y", "A", "", "X\x01y"},
		{"X\x01y", "", "b", "X\x01y"},
		{"", "A", "b\x02c", ""},
		{"", "A", "b\x01c", ""},
		{"", "A\x01", "b", ""},
		{"", "A\x02", "b", ""},
	} {
		require.Equal(t, test.want, string(AppendProperty([]byte(test.before), test.name, test.value)), "%q", test)
	}
}

func TestAppendWithout(t *testing.T) {
	props := []byte("A\x01b\x02C\x01d\x02A\x01e\x02F\x01g")
	for _, test := range []struct {
		before string
		names  []string
		want   string
	}{
		{"", nil, "A\x01b\x02C\x01d\x02A\x01e\x02F\x01g\x02"},
		{"", []string{"A"}, "C\x01d\x02F\x01g\x02"},
		{"", []string{"A", "C", "F"}, ""},
		{"", []string{"B", ""}, "A\x01b\x02C\x01d\x02A\x01e\x02F\x01g\x02"},
		{"X\x01y", []string{"A", "C"}, "X\x01y\x02F\x01g\x02"},
		{"X\x01y\x02", []string{"A", "C"}, "X\x01y\x02F\x01g\x02"},
	} {
		require.Equal(t, test.want, string(AppendWithout([]byte(test.before), props, test.names...)), "%q", test)
	}
}

func TestGoldenPropertiesHaveNoRest(t *testing.T) {
	for name, records := range goldenRecords(t) {
		for _, b := range records {
			r, err := Parse(b)
			require.NoError(t, err)
			closed := closeLast(slices.Clone(r.Properties))
			require.Equal(t, string(closed), string(AppendWithout(nil, r.Properties)), name)
			value, ok := Property(r.Properties, PropertyUniqueKey)
			require.True(t, ok, name)
			require.Contains(t, []int{32, 56}, len(value), name)
		}
	}
}

// FuzzProperties: names and values come out as they are in the text, and those that can be stored survive another trip.
func FuzzProperties(f *testing.F) {
	f.Add([]byte("A\x01b\x02C\x01d"), "TAGS", "TagA")
	f.Add([]byte("\x01\x02\x02\x01"), "", "\x01")
	for _, records := range goldenRecords(f) {
		r, err := Parse(records[0])
		require.NoError(f, err)
		f.Add(r.Properties, "KEYS", "k1 k2")
	}
	f.Fuzz(func(t *testing.T, props []byte, name, value string) {
		before := bytes.Clone(props)
		all := pairs(string(props))
		copied := AppendWithout(nil, props)
		require.Equal(t, all, pairs(string(copied)))
		EachProperty(AppendWithout(nil, props, name), func(n, _ []byte) bool {
			require.NotEqual(t, name, string(n))
			return true
		})
		added := AppendProperty(slices.Clone(props), name, value)
		if name != "" && value != "" && !strings.ContainsAny(name+value, "\x01\x02") {
			got, ok := Property(added, name)
			require.True(t, ok)
			require.Equal(t, value, string(got))
			require.Equal(t, append(all, name+"="+value), pairs(string(added)))
		} else {
			require.True(t, bytes.Equal(props, added))
		}
		require.Equal(t, before, props)
	})
}
