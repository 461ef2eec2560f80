package config

import (
	"testing"

	"github.com/stretchr/testify/require"
)

type kv struct{ k, v string }

func parse(t *testing.T, text string) []kv {
	t.Helper()
	pairs, err := ParseProperties("test.properties", []byte(text))
	require.NoError(t, err)
	out := []kv{}
	for _, p := range pairs {
		out = append(out, kv{p.Key, p.Value})
	}
	return out
}

// The expectations are what java.util.Properties makes of the same text.
func TestPropertiesSyntaxIsJavas(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []kv
	}{
		{"equals", "a=1", []kv{{"a", "1"}}},
		{"colon", "a:1", []kv{{"a", "1"}}},
		{"blank", "a 1", []kv{{"a", "1"}}},
		{"tab and form feed", "a\t\f1", []kv{{"a", "1"}}},
		{"blanks around the separator", "  a  =  1", []kv{{"a", "1"}}},
		{"only one separator is taken", "a = = 1", []kv{{"a", "= 1"}}},
		{"url value", "a http://h:1/x", []kv{{"a", "http://h:1/x"}}},
		{"trailing blanks belong to the value", "a=1  ", []kv{{"a", "1  "}}},
		{"bare key", "a", []kv{{"a", ""}}},
		{"empty value", "a=", []kv{{"a", ""}}},
		{"comments", "# a=1\n  ! b=2\nc=3 # no comment", []kv{{"c", "3 # no comment"}}},
		{"a comment does not go on", "# x \\\na=1", []kv{{"a", "1"}}},
		{"blank lines", "\n\n \t\n a=1\n\n", []kv{{"a", "1"}}},
		{"line ends", "a=1\r\nb=2\rc=3\n", []kv{{"a", "1"}, {"b", "2"}, {"c", "3"}}},
		{"continued line", "a=1,\\\n    2,\\\r\n\t3", []kv{{"a", "1,2,3"}}},
		{"continued before the value", "a = \\\n  1", []kv{{"a", "1"}}},
		{"continued before the separator", "a\\\n  = 1", []kv{{"a", "1"}}},
		{"continued key", "ab\\\n  cd=1", []kv{{"abcd", "1"}}},
		{"a continued line may look like a comment", "a=1\\\n#2", []kv{{"a", "1#2"}}},
		{"even backslashes end the line", "a=1\\\\\nb=2", []kv{{"a", `1\`}, {"b", "2"}}},
		{"continued into the end", "a=1\\", []kv{{"a", "1"}}},
		{"continued by an empty line", "a=1\\\n\nb=2", []kv{{"a", "1"}, {"b", "2"}}},
		{"escaped separators", `a\ b\=c\:d=1`, []kv{{"a b=c:d", "1"}}},
		{"escapes", `a=\t\n\r\f\q\\`, []kv{{"a", "\t\n\r\fq\\"}}},
		{"unicode", `caf\u00e9=\u20AC`, []kv{{"café", "€"}}},
		{"surrogate pair", `a=\uD83D\uDE00`, []kv{{"a", "😀"}}},
		{"lone surrogate", `a=\uD83Dx`, []kv{{"a", "\uFFFDx"}}},
		{"utf-8", "a=é", []kv{{"a", "é"}}},
		{"latin-1", "a=\xe9", []kv{{"a", "é"}}},
		{"duplicates are all there", "a=1\nb=2\na=3", []kv{{"a", "1"}, {"b", "2"}, {"a", "3"}}},
		{"empty key", "=1", []kv{{"", "1"}}},
		{"nothing", "", []kv{}},
	} {
		t.Run(c.name, func(t *testing.T) { require.Equal(t, c.want, parse(t, c.text)) })
	}
}

func TestOfDuplicateKeysTheLastCounts(t *testing.T) {
	pairs, err := ParseProperties("f", []byte("a=1\nb=2\na=3\n"))
	require.NoError(t, err)
	p, ok := pairs.Last("a")
	require.True(t, ok)
	require.Equal(t, "3", p.Value)
	require.Equal(t, 3, p.Line)
	_, ok = pairs.Last("c")
	require.False(t, ok)
	effective := pairs.Effective()
	require.Len(t, effective, 2)
	require.Equal(t, "b", effective[0].Key)
	require.Equal(t, "a", effective[1].Key)
}

func TestLineNumbersCountContinuationsAndEveryLineEnd(t *testing.T) {
	pairs, err := ParseProperties("f", []byte("# c\n\na=1,\\\n  2\r\nb=2\rc=3"))
	require.NoError(t, err)
	lines := map[string]int{}
	for _, p := range pairs {
		lines[p.Key] = p.Line
	}
	require.Equal(t, map[string]int{"a": 3, "b": 5, "c": 6}, lines)
}

func TestMalformedUnicodeEscapeNamesFileAndLine(t *testing.T) {
	for _, text := range []string{`\u12`, `\u12g4`, `\u`} {
		_, err := ParseProperties("broker.conf", []byte("a=1\nb="+text))
		require.EqualError(t, err, `broker.conf:2: \u is not followed by four hex digits`)
	}
}

func TestEditChangesOneLineOnly(t *testing.T) {
	for _, c := range []struct{ name, text, key, value, want string }{
		{"plain", "# c\na=1\nb=2\n", "a", "9", "# c\na=9\nb=2\n"},
		{"the writing of key and separator stays", "  a : 1\nb=2", "a", "9", "  a : 9\nb=2"},
		{"the last duplicate", "a=1\na=2\n", "a", "9", "a=1\na=9\n"},
		{"continued lines are one", "a=1,\\\n 2\nb=2\n", "a", "9", "a=9\nb=2\n"},
		{"bare key", "a\nb=2\n", "a", "9", "a=9\nb=2\n"},
		{"key with an escaped colon", "a\\:\nb=2\n", "a:", "9", "a\\:=9\nb=2\n"},
		{"empty value", "a=\nb=2\n", "a", "9", "a=9\nb=2\n"},
		{"to an empty value", "a=1\nb=2\n", "a", "", "a=\nb=2\n"},
		{"new key", "# c\nb=2\n", "a", "9", "# c\nb=2\na=9\n"},
		{"new key behind an unfinished line", "b=2", "a", "9", "b=2\na=9\n"},
		{"new key behind a line that would go on", "b=2\\", "a", "9", "b=2\\\n\na=9\n"},
		{"crlf stays", "a=1\r\nb=2\r\n", "c", "9", "a=1\r\nb=2\r\nc=9\r\n"},
		{"empty file", "", "a", "9", "a=9\n"},
		{"no line is forged", "a=1\n", "a", "9\nb=2", "a=9\\nb=2\n"},
		{"a comment is not the key", "#a=1\n", "a", "9", "#a=1\na=9\n"},
		{"value that starts like a separator", "a 1\n", "a", "=x", "a \\=x\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Edit([]byte(c.text), c.key, c.value)
			require.NoError(t, err)
			require.Equal(t, c.want, string(got))
		})
	}
}

// What Edit writes must read back as it was meant, and every other pair must be as before, for any text.
func FuzzProperties(f *testing.F) {
	for _, text := range []string{"a=1", "a:1\n#c\nb 2\\\n 3", "a=\\u00e9\r\n", "\\\n\\", "a\\ b==\\=", "a=1\\", "\xff=\xfe", "=:", "\f\t\\\r\nx"} {
		f.Add([]byte(text), "a", "v")
	}
	f.Add([]byte("k v"), "k", " = lead and trail ")
	f.Add([]byte(""), "#k", "é😀\x00\\")
	f.Fuzz(func(t *testing.T, text []byte, key, value string) {
		before, err := ParseProperties("f", text)
		if err != nil {
			return
		}
		after, err := Edit(text, key, value)
		if key == "" {
			return // an empty key with an empty value is no pair at all
		}
		require.NoError(t, err)
		got, err := ParseProperties("f", after)
		require.NoError(t, err)
		p, ok := got.Last(key)
		if !validText(key) || !validText(value) {
			return // comes back with U+FFFD in it
		}
		require.True(t, ok, "%q", after)
		require.Equal(t, value, p.Value, "%q", after)
		if _, had := before.Last(key); !had {
			require.Len(t, got, len(before)+1, "%q", after)
		} else {
			require.Len(t, got, len(before), "%q", after)
		}
		for i := range before {
			if before[i].Key != key {
				require.Equal(t, before[i].Value, got[i].Value, "%q", after)
			}
		}
	})
}
