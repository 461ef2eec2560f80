package protocol

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzDecode: any bytes decode or fail as a frame; what decodes can be written and decodes to the same. An index changes
// nothing of it, even one that was used before.
func FuzzDecode(f *testing.F) {
	for _, g := range goldenFrames(f) {
		f.Add(g.bytes)
	}
	f.Add(frame(JSON, `{'code':1,x:[{}],"extFields":{"a":"\u0001\\","b":1,"c":null,},}`, "body"))
	for _, n := range []int{maxIndexed, maxIndexed + 1} { // all that an index has room for, and more
		many := raw{}
		for i := range n {
			many[fmt.Sprint("k", i)] = strings.Repeat("\x02v", i)
		}
		for _, codec := range []Codec{JSON, Binary} {
			f.Add(AppendRequest(nil, codec, 1, 1, false, many, nil, nil))
			f.Add(AppendRequest(nil, codec, 1, 1, false, raw{"a": "b", "c": strings.Repeat("v", n<<12), "d": "e"}, nil, nil))
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		b = b[:len(b):len(b)] // reading on would panic
		size, err := FrameSize(b)
		if err == nil && size > 0 && size <= len(b) {
			b = b[:size:size]
		}
		before := bytes.Clone(b)
		c, err := Decode(b)
		require.Equal(t, before, b, "Decode must not write")
		requireSameWithIndex(t, b, c, err)
		requireSameByModel(t, b, b)
		if err != nil {
			require.ErrorIs(t, err, ErrFrame)
			require.Zero(t, c)
			return
		}
		require.Equal(t, len(b), size)
		fields := raw{}
		collect := func(key, value []byte) error { return fields.SetField(string(key), value) }
		if err := c.Fields.Each(collect); err != nil && c.Codec == Binary {
			t.Fatal("a field of a binary header passed Decode but not Each:", err)
		} else if err != nil {
			return
		}
		if c.Code != int32(int16(c.Code)) {
			return
		}
		reply := &Reply{Code: ResponseCode(c.Code), Remark: c.Remark, Header: fields, Body: c.Body}
		again, err := Decode(AppendReply(nil, c.Codec, c.Opaque, reply))
		require.NoError(t, err)
		for key, value := range fieldsOf(t, c) {
			got, ok := again.Fields.Get(key)
			if c.Codec == JSON && !validUTF8(key) {
				continue // several such keys may have become one
			}
			require.True(t, ok, "field %q", key)
			require.Equal(t, sanitize(c.Codec, value), got)
		}
		require.Equal(t, c.Body, again.Body)
		require.Equal(t, sanitize(c.Codec, c.Remark), again.Remark)
		require.Equal(t, []int32{c.Code, c.Opaque}, []int32{again.Code, again.Opaque})
	})
}

// requireSameWithIndex demands that b, which decoded to c and err, does so with an index, too.
func requireSameWithIndex(t *testing.T, b []byte, c Command, err error) {
	x := FieldIndex{n: maxIndexed + 1, escaped: math.MaxUint32}
	var indexed Command
	errIndexed := indexed.Decode(b, &x)
	require.Equal(t, fmt.Sprint(err), fmt.Sprint(errIndexed))
	list := func(f Fields) (all []string, err error) {
		err = f.Each(func(key, value []byte) error {
			all = append(all, string(key), string(value))
			return nil
		})
		return all, err
	}
	want, err := list(c.Fields)
	got, errIndexed := list(indexed.Fields)
	require.Equal(t, want, got)
	require.Equal(t, err, errIndexed)
	if err == nil && len(want) > 0 {
		require.Equal(t, len(want) <= 2*maxIndexed && len(c.Fields.raw) <= math.MaxUint16, x.complete())
	}
	var h, hIndexed SendMessageRequest
	require.Equal(t, c.ReadHeader(&h), indexed.ReadHeader(&hIndexed))
	require.Equal(t, h, hIndexed)
	indexed.Fields.index = nil
	require.Equal(t, c, indexed)
}

func validUTF8(s string) bool { return sanitize(JSON, s) == s }

// sanitize is what a text becomes in a JSON header of ours.
func sanitize(codec Codec, s string) string {
	if codec == Binary {
		return s
	}
	out := []rune(s) // each byte that is none becomes U+FFFD
	return string(out)
}

// FuzzHeader: whatever fields come, each header struct reads them or names one; what it then writes it reads again.
func FuzzHeader(f *testing.F) {
	var codes []RequestCode
	for code := range headersOf {
		codes = append(codes, code)
	}
	for _, g := range goldenFrames(f) {
		c := g.decode(f)
		f.Add(uint32(requestCodeOf(f, g)), c.IsResponse(), c.Codec == Binary, c.Fields.raw)
	}
	f.Fuzz(func(t *testing.T, n uint32, response, binary bool, block []byte) {
		pair, ok := headersOf[RequestCode(n)]
		if !ok {
			pair = headersOf[codes[int(n)%len(codes)]]
		}
		newHeader := pair[0]
		if response {
			newHeader = pair[1]
		}
		c := Command{Fields: Fields{raw: block[:len(block):len(block)], present: true}}
		if binary {
			c.Fields.codec = Binary
		}
		h := newHeader()
		if err := c.ReadHeader(h); err != nil {
			return
		}
		for _, codec := range []Codec{JSON, Binary} {
			again, err := Decode(AppendRequest(nil, codec, 1, 1, false, h, nil, nil))
			require.NoError(t, err)
			second := newHeader()
			if err := again.ReadHeader(second); codec == Binary && err != nil {
				continue // a required text that is empty is null there
			} else {
				require.NoError(t, err)
			}
			third, err := Decode(AppendRequest(nil, codec, 1, 1, false, second, nil, nil))
			require.NoError(t, err)
			require.Equal(t, again, third)
		}
	})
}

// FuzzJSON: a body is refused, or turned into JSON that needs no further change and that each type reads or refuses;
// what a type read can be written and read.
func FuzzJSON(f *testing.F) {
	var types []func() any
	byCode := map[string]uint8{} // of code and side
	for _, code := range slices.Sorted(maps.Keys(bodiesOf)) {
		for side, fn := range bodiesOf[code] {
			if fn != nil {
				byCode[fmt.Sprint(code, side)] = uint8(len(types))
				types = append(types, fn)
			}
		}
	}
	for _, g := range goldenFrames(f) {
		if b := g.body(); len(b) > 0 && b[0] == '{' {
			side := 0
			if g.Side == "response" {
				side = 1
			}
			f.Add(b, byCode[fmt.Sprint(requestCodeOf(f, g), side)])
		}
	}
	for _, in := range []string{`{{1:'x'}:[1,],true:"\'"}`, `{'a"':"\u00e9",}`, `[+1,-0.5e3]`, "{\"a\":\"\x01\"}"} {
		f.Add([]byte(in), uint8(0))
	}
	f.Fuzz(func(t *testing.T, in []byte, which uint8) {
		in = in[:len(in):len(in)]
		strict, err := strictJSON(in)
		if err != nil {
			require.ErrorIs(t, err, ErrJSON)
			return
		}
		require.True(t, json.Valid(strict), "%q became %q", in, strict)
		again, err := strictJSON(strict)
		require.NoError(t, err)
		require.Equal(t, string(strict), string(again))
		if json.Valid(in) {
			require.Equal(t, string(in), string(strict))
		}
		newBody := types[int(which)%len(types)]
		v := newBody()
		if Unmarshal(in, v) != nil {
			return
		}
		out, err := Marshal(v)
		require.NoError(t, err, "%T of %q", v, in)
		require.NoError(t, Unmarshal(out, newBody()), "%T of %q", v, out)
	})
}

// FuzzRegisterBody: no bytes hurt, and what is read is written so that it reads the same.
func FuzzRegisterBody(f *testing.F) {
	for _, version := range []int32{36, 407, 493} {
		for _, compressed := range []bool{false, true} {
			body, err := EncodeRegisterBody(someRegistration(), compressed, version)
			require.NoError(f, err)
			f.Add(body, compressed, version)
		}
	}
	f.Add(goldenFrame(f, "register-broker-full", "request").body(), false, int32(493))
	f.Add(parts(`{"counter":1}`, 1, `A 1 2 6 SINGLE_TAG {"x":"y"}`, "[]", 1, `{"topic":"A",1:2}`), true, int32(413))
	f.Fuzz(func(t *testing.T, body []byte, compressed bool, version int32) {
		var r *RegisterBrokerBody
		var err error
		if compressed && (len(body) == 0 || body[0] != 0x78) { // past zlib, which no fuzzer gets through
			r = new(RegisterBrokerBody)
			err = r.parse(body, version >= versionMapping)
		} else {
			r, err = DecodeRegisterBody(body, compressed, version)
		}
		if err != nil {
			return
		}
		out, err := EncodeRegisterBody(r, compressed, version)
		require.NoError(t, err)
		second, err := DecodeRegisterBody(out, compressed, version)
		require.NoError(t, err)
		require.Len(t, second.TopicConfigSerializeWrapper.TopicConfigTable, len(r.TopicConfigSerializeWrapper.TopicConfigTable))
		require.Equal(t, r.TopicConfigSerializeWrapper.DataVersion, second.TopicConfigSerializeWrapper.DataVersion)
	})
}

// FuzzBatch: what is read as a batch is the batch, byte for byte but magic and checksum.
func FuzzBatch(f *testing.F) {
	for _, name := range []string{"send-batch", "send-batch-go", "send-batch-rocketmq"} {
		f.Add(goldenFrame(f, name, "request").body())
	}
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, body []byte) {
		var again []byte
		err := EachBatchMessage(body[:len(body):len(body)], func(m BatchMessage) error {
			at := len(again)
			again = AppendBatchMessage(again, m)
			copy(again[at+4:at+12], body[at+4:])
			return nil
		})
		if err != nil {
			require.ErrorIs(t, err, ErrBatch)
			return
		}
		require.True(t, bytes.Equal(body, again))
	})
}
