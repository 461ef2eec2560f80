package protocol

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func someRegistration() *RegisterBrokerBody {
	return &RegisterBrokerBody{
		FilterServerList: []string{"127.0.0.1:1"},
		TopicConfigSerializeWrapper: TopicConfigSerializeWrapper{
			DataVersion: DataVersion{Counter: 3, StateVersion: 1, Timestamp: 1795961496689},
			TopicConfigTable: map[string]TopicConfig{
				"T":  {TopicName: "T", ReadQueueNums: 4, WriteQueueNums: 8, Perm: 6, TopicFilterType: SingleTag, Attributes: map[string]string{"message.type": "FIFO x"}},
				"T2": {TopicName: "T2", ReadQueueNums: 1, WriteQueueNums: 1, Perm: 7, TopicFilterType: MultiTag},
			},
			TopicQueueMappingInfoMap: map[string]Raw{"T2": Raw(`{"bname":"b","currIdMap":{"0":0},"topic":"T2"}`)},
		},
	}
}

func deflate(t testing.TB, plain []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	z := zlib.NewWriter(&out)
	_, err := z.Write(plain)
	require.NoError(t, err)
	require.NoError(t, z.Close())
	return out.Bytes()
}

func parts(texts ...any) []byte {
	var b []byte
	for _, text := range texts {
		switch text := text.(type) {
		case int:
			b = binary.BigEndian.AppendUint32(b, uint32(int32(text)))
		case string:
			b = appendPart(b, []byte(text))
		}
	}
	return b
}

func TestRegisterBodyInEveryVersion(t *testing.T) {
	for name, test := range map[string]struct {
		compressed bool
		version    int32
		lose       func(*RegisterBrokerBody)
	}{
		"before 3.0.11":       {false, 36, func(r *RegisterBrokerBody) { r.FilterServerList = nil }},
		"JSON":                {false, 407, func(*RegisterBrokerBody) {}},
		"compressed by 4.9":   {true, 407, func(r *RegisterBrokerBody) { dropMapping(r) }},
		"compressed by 5.0":   {true, 413, func(*RegisterBrokerBody) {}},
		"compressed by 5.4":   {true, 493, func(*RegisterBrokerBody) {}},
		"JSON by 5.4":         {false, 493, func(*RegisterBrokerBody) {}},
		"the last before 5.0": {true, 412, func(r *RegisterBrokerBody) { dropMapping(r) }},
	} {
		want := someRegistration()
		body, err := EncodeRegisterBody(want, test.compressed, test.version)
		require.NoError(t, err, name)
		got, err := DecodeRegisterBody(body, test.compressed, test.version)
		require.NoError(t, err, name)
		test.lose(want)
		for topic, c := range got.TopicConfigSerializeWrapper.TopicConfigTable {
			if len(c.Attributes) == 0 {
				c.Attributes = nil // {} and none are the same
				got.TopicConfigSerializeWrapper.TopicConfigTable[topic] = c
			}
		}
		require.Equal(t, want, got, name)
	}
	got, err := DecodeRegisterBody(nil, true, 493)
	require.NoError(t, err)
	require.Equal(t, &RegisterBrokerBody{}, got)
}

// dropMapping takes away what the compressed form of 4.9 has no place for.
func dropMapping(r *RegisterBrokerBody) {
	w := &r.TopicConfigSerializeWrapper
	w.TopicQueueMappingInfoMap = nil
	topic := w.TopicConfigTable["T"]
	topic.Attributes = nil
	w.TopicConfigTable["T"] = topic
}

// TestCompressedRegisterBodyAsJavaWritesIt reads bytes put together by hand, after the layout that was seen.
func TestCompressedRegisterBodyAsJavaWritesIt(t *testing.T) {
	topics := []any{`{"counter":1,"stateVersion":0,"timestamp":5}`, 3, "A 1 2 6 SINGLE_TAG", "B 3 4 7 MULTI_TAG {}", `C 5 6 2 SINGLE_TAG {"+a":"x y"}`, "[]"}
	plain := parts(topics...)
	for name, test := range map[string]struct {
		plain   []byte
		version int32
		mapping map[string]Raw
	}{
		"4.9":                   {plain, 407, nil},
		"5.0":                   {parts(append(topics, 1, `{"topic":"C","currIdMap":{0:1}}`)...), 413, map[string]Raw{"C": Raw(`{"topic":"C","currIdMap":{"0":1}}`)}},
		"5.0 without mappings":  {parts(append(topics, 0)...), 493, map[string]Raw{}},
		"5.0 without a section": {plain, 493, nil},
	} {
		r, err := DecodeRegisterBody(deflate(t, test.plain), true, test.version)
		require.NoError(t, err, name)
		require.Equal(t, TopicConfigSerializeWrapper{
			DataVersion: DataVersion{Counter: 1, Timestamp: 5},
			TopicConfigTable: map[string]TopicConfig{
				"A": {TopicName: "A", ReadQueueNums: 1, WriteQueueNums: 2, Perm: 6, TopicFilterType: SingleTag},
				"B": {TopicName: "B", ReadQueueNums: 3, WriteQueueNums: 4, Perm: 7, TopicFilterType: MultiTag, Attributes: map[string]string{}},
				"C": {TopicName: "C", ReadQueueNums: 5, WriteQueueNums: 6, Perm: 2, TopicFilterType: SingleTag, Attributes: map[string]string{"+a": "x y"}},
			},
			TopicQueueMappingInfoMap: test.mapping,
		}, r.TopicConfigSerializeWrapper, name)
	}
}

func TestRegisterBodyRefuses(t *testing.T) {
	version := `{"counter":1}`
	for name, plain := range map[string][]byte{
		"nothing":               {},
		"version beyond":        parts(100),
		"negative length":       parts(-1),
		"version is no JSON":    parts("x", 0, "[]"),
		"no topics":             parts(version),
		"negative count":        parts(version, -1, "[]"),
		"huge count":            parts(version, 1<<30, "[]"),
		"topic cut":             parts(version, 2, "A 1 1 6 SINGLE_TAG"),
		"topic without type":    parts(version, 1, "A 1 1 6", "[]"),
		"topic with a word":     parts(version, 1, "A x 1 6 SINGLE_TAG", "[]"),
		"attributes no JSON":    parts(version, 1, "A 1 1 6 SINGLE_TAG {", "[]"),
		"no filter servers":     parts(version, 0),
		"filter servers object": parts(version, 0, "{}"),
		"mappings cut":          parts(version, 0, "[]", 1),
		"mapping no object":     parts(version, 0, "[]", 1, "[]"),
		"half a count":          append(parts(version, 0, "[]"), 0),
	} {
		_, err := DecodeRegisterBody(deflate(t, plain), true, 493)
		require.Error(t, err, name)
	}
	good := deflate(t, parts(version, 0, "[]", 0))
	_, err := DecodeRegisterBody(good, true, 493)
	require.NoError(t, err)
	for n := 1; n < len(good); n++ {
		_, err := DecodeRegisterBody(good[:n], true, 493)
		require.ErrorIs(t, err, ErrRegister, "cut at %d", n)
	}
	_, err = DecodeRegisterBody([]byte("{}"), true, 493)
	require.ErrorIs(t, err, ErrRegister, "not compressed")
	bomb := deflate(t, make([]byte, 1<<20))
	plain, err := inflate(bomb, 1<<20)
	require.NoError(t, err)
	require.Len(t, plain, 1<<20)
	_, err = inflate(bomb, 1<<20-1)
	require.ErrorIs(t, err, ErrRegister)
	require.ErrorContains(t, err, "inflates to more than 1048575 bytes")
}

func TestBodyCRCIsTheOneThatBrokersSend(t *testing.T) {
	seen := 0
	for _, g := range goldenFrames(t) {
		c := g.decode(t)
		var h RegisterBrokerRequest
		if g.Side != "request" || RequestCode(g.Code) != RegisterBroker {
			continue
		}
		require.NoError(t, c.ReadHeader(&h), g)
		require.Equal(t, h.BodyCRC32, BodyCRC(c.Body), g)
		r, err := DecodeRegisterBody(c.Body, h.Compressed, c.Version)
		require.NoError(t, err, g)
		require.NotEmpty(t, r.TopicConfigSerializeWrapper.TopicConfigTable, g)
		for name, topic := range r.TopicConfigSerializeWrapper.TopicConfigTable {
			require.Equal(t, name, topic.TopicName)
			require.True(t, strings.HasSuffix(string(topic.TopicFilterType), "_TAG"), topic)
		}
		seen++
	}
	require.Equal(t, 5, seen)
}
