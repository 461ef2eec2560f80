package protocol

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// requireSameByModel demands that b is decoded to the same with models that know first, and with those that know b itself.
func requireSameByModel(t *testing.T, first, b []byte) {
	models := new(Models)
	var x, y FieldIndex
	_ = models.Decode(new(Command), first, &x)
	for range 2 {
		var want, got Command
		wantErr := want.Decode(b, &x)
		gotErr := models.Decode(&got, b, &y)
		require.Equal(t, fmt.Sprint(wantErr), fmt.Sprint(gotErr))
		if want.Fields.index != nil {
			require.Equal(t, x.n, y.n)
			if x.complete() {
				require.Equal(t, x.at[:x.n], y.at[:y.n])
				require.Equal(t, x.escaped, y.escaped)
			}
			want.Fields.index, got.Fields.index = nil, nil
		}
		require.Equal(t, want, got)
	}
}

// TestModelsChangeNothing: one byte after the other of a header is changed, to each of those that mean something; what comes
// of it is the same as without a model.
func TestModelsChangeNothing(t *testing.T) {
	for _, header := range []string{
		`{"code":310,"flag":0,"language":"JAVA","opaque":1999999999,"version":493,` +
			`"extFields":{"a":"group","b":"","e":"1","i":"K\u0001v\u0002\\","n":"x","z":7}}`,
		`{"code":310,"extFields":{"a":"group","g":"1700000000000","i":"a\"b"},"flag":0,"opaque":7,` +
			`"serializeTypeCurrentRPC":"JSON"}`,
		`{"opaque":1,"code":10,"opaque":2,'opaque':3,` +
			`"extFields":{"k":"v","opaque":"4","k":"w","o":{"p":"q"},"s":'t'},"remark":"r","opaque":"5"}`,
		`{"extFields":{"a":"b"},"opaque":12,"extFields":{"c":"d"},"language":"GO"}`,
		`{"extFields":{"a":"b"},"opaque":12,"extFields":null}`,
		`{"opaque":12,"extFields":{"long":"` + strings.Repeat("0123456789", 20) + `","short":"s"},"code":1}`,
	} {
		first := frame(JSON, header, "body")
		for i := range len(header) {
			for _, c := range []byte(`"\,:{}[]' 019anul` + "\x01\xff") {
				b := bytes.Clone(first)
				b[headSize+i] = c
				requireSameByModel(t, first, b)
			}
		}
		requireSameByModel(t, first, frame(JSON, header, "another body"))
		requireSameByModel(t, first, frame(Binary, header, "body"))
	}
}

// TestWhatAModelIsGoodFor: a send with another opaque and other texts of the same length is decoded by the model, which is
// kept; with another flag it is not, and becomes the model itself.
func TestWhatAModelIsGoodFor(t *testing.T) {
	send := func(opaque int32, oneway bool, properties string) []byte {
		return AppendRequest(nil, JSON, SendMessageV2, opaque, oneway, raw{"a": "group", "i": properties}, nil, nil)
	}
	kept := func(m *Models, b []byte) string {
		size := len(b) - headSize
		require.NoError(t, m.Decode(new(Command), b, new(FieldIndex)))
		return string(m.kept[size%len(m.kept)].header)
	}
	first := send(1_000_000_000, false, "UNIQ_KEY\x0101\x02")
	models := new(Models)
	require.Equal(t, string(first[headSize:]), kept(models, first))
	require.Equal(t, string(first[headSize:]), kept(models, send(1_000_000_001, false, "UNIQ_KEY\x0102\x02")))
	other := send(1_000_000_001, true, "UNIQ_KEY\x0102\x02")
	require.Equal(t, string(other[headSize:]), kept(models, other))
}

// TestOneModelForManyHeaders: the headers of many peers, of the same length and not, don't get mixed up.
func TestOneModelForManyHeaders(t *testing.T) {
	models := new(Models)
	pick := func(texts ...string) string { return texts[rand.IntN(len(texts))] }
	for range 5_000 {
		codec := Codec(rand.IntN(2))
		fields := raw{
			pick("a", "b", "topic"): pick("", "T1", "T2", "\x01\x02", strings.Repeat("long", 1<<rand.IntN(12))),
			"e":                     pick("0", "1", "12"),
		}
		b := AppendRequest(nil, codec, RequestCode(rand.IntN(3)*150+10), rand.Int32N(200)-20, rand.IntN(2) == 0, fields,
			nil, make([]byte, rand.IntN(3)))
		var x, y FieldIndex
		var want, got Command
		require.NoError(t, want.Decode(b, &x))
		require.NoError(t, models.Decode(&got, b, &y))
		require.Equal(t, fieldsOf(t, want), fieldsOf(t, got))
		want.Fields, got.Fields = Fields{}, Fields{}
		require.Equal(t, want, got)
	}
}

// TestAHeaderReadFromWhatDiffers: of two headers after each other, whatever they have in common, the second is read as if
// it were the first.
func TestAHeaderReadFromWhatDiffers(t *testing.T) {
	models := new(Models)
	decode := func(codec Codec, fields []KV) *Command {
		c := new(Command)
		require.NoError(t, models.Decode(c, AppendRequest(nil, codec, SendMessageV2, 1, false, nil, fields, nil), new(FieldIndex)))
		return c
	}
	complete := []KV{{"a", "g"}, {"b", "t"}, {"c", "d"}, {"d", "8"}, {"e", "0"}, {"f", "0"}, {"g", "1"}, {"h", "0"}}
	read, alike := 0, 0
	for range 15_000 {
		codec := Codec(rand.IntN(2))
		before := slices.Clone(complete)
		for _, more := range []KV{{"i", "K\x01v"}, {"j", "3"}, {"l", "16"}, {"m", "true"}, {"e", "2"}, {"x", "y"}} {
			if rand.IntN(2) == 0 {
				before = append(before, more)
			}
		}
		if rand.IntN(4) == 0 {
			rand.Shuffle(len(before), func(i, j int) { before[i], before[j] = before[j], before[i] })
		}
		after := slices.Clone(before)
		for range rand.IntN(3) {
			after[rand.IntN(len(after))].Value = []string{"", "0", "1", "77", "word", "true"}[rand.IntN(6)]
		}
		switch rand.IntN(8) {
		case 0:
			after = append(after, KV{"n", "broker"})
		case 1:
			after = after[:len(after)-1]
		case 2:
			i := rand.IntN(len(after))
			after[i].Key = string('a' + rune(rand.IntN(14)))
		}
		first, second := decode(codec, before), decode(codec, after)
		var h SendMessageRequest
		if first.ReadHeader(&h) != nil {
			continue
		}
		kept := h
		ok, err := second.ReadHeaderAfter(first, &h)
		if !ok {
			require.Equal(t, kept, h)
			continue
		}
		var want SendMessageRequest
		wantErr := second.ReadHeader(&want)
		require.Equal(t, wantErr, err, "%v, %v", before, after)
		if wantErr != nil {
			continue
		}
		read++
		if m := second.Fields.index.model; m != 0 && m == first.Fields.index.model {
			alike++
		}
		if len(h.Properties) == 0 {
			h.Properties = nil
		}
		if len(want.Properties) == 0 {
			want.Properties = nil
		}
		require.Equal(t, want, h, "%v, %v", before, after)
	}
	require.Greater(t, read, 2_000)
	require.Greater(t, alike, 500, "of one model")
}
