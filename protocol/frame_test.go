package protocol

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// frame builds one around any header.
func frame(codec Codec, header, body string) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(4+len(header)+len(body)))
	b = binary.BigEndian.AppendUint32(b, uint32(codec)<<24|uint32(len(header)))
	return append(append(b, header...), body...)
}

func fieldsOf(t testing.TB, c Command) map[string]string {
	t.Helper()
	fields := map[string]string{}
	require.NoError(t, c.Fields.Each(func(key, value []byte) error {
		fields[string(key)] = string(value)
		return nil
	}))
	return fields
}

func TestGoldenFramesDecode(t *testing.T) {
	for _, g := range goldenFrames(t) {
		c := g.decode(t)
		want := *g
		got := golden{
			Name: g.Name, Side: g.Side, Client: g.Client, Server: g.Server, Language: g.Language, Hex: g.Hex, bytes: g.bytes,
			Codec: c.Codec.String(), Code: c.Code, Version: c.Version, Opaque: c.Opaque, Flag: c.Flag, Remark: c.Remark,
			Fields: fieldsOf(t, c), BodyLen: len(c.Body),
		}
		require.Equal(t, want, got, g)
		if language := string(g.Language); c.Codec == Binary {
			require.Equal(t, language, fmt.Sprint(uint8(c.Language)), g)
		} else {
			require.Equal(t, language, `"`+c.Language.String()+`"`, g)
		}
		require.Equal(t, g.body(), append([]byte{}, c.Body...), g)
		require.Equal(t, g.Side == "response", c.IsResponse(), g)
	}
}

func TestFrameSizeAtEverySplitPoint(t *testing.T) {
	for _, g := range goldenFrames(t) {
		for n := range g.bytes {
			want := len(g.bytes)
			if n < 4 {
				want = 0
			}
			if size, err := FrameSize(g.bytes[:n:n]); err != nil || size != want {
				t.Fatalf("%s split at %d: %d, %v", g, n, size, err)
			}
		}
		size, err := FrameSize(append(slices.Clone(g.bytes), 0xFF, 0xFF, 0xFF)) // the next frame's bytes don't matter
		require.NoError(t, err, g)
		require.Equal(t, len(g.bytes), size, g)
	}
}

func TestDecodeRefusesEveryCutFrame(t *testing.T) {
	for _, g := range goldenFrames(t) {
		headerEnd := len(g.bytes) - g.BodyLen
		for n := range g.bytes {
			if _, err := Decode(g.bytes[:n:n]); !errors.Is(err, ErrFrame) {
				t.Fatalf("%s cut at %d: %v", g, n, err)
			}
			if n <= headSize || n >= headerEnd {
				continue
			}
			// The same cut, with lengths that agree with it. In the binary header, only a cut in its last field shows.
			short := slices.Clone(g.bytes[:n:n])
			binary.BigEndian.PutUint32(short, uint32(n-4))
			word := binary.BigEndian.Uint32(short[4:])
			binary.BigEndian.PutUint32(short[4:], word&0xFF000000|uint32(n-headSize))
			if _, err := Decode(short); !errors.Is(err, ErrFrame) {
				t.Fatalf("%s with a header cut at %d: %v", g, n, err)
			}
		}
	}
}

func TestFrameSizeRefusesBadLengthsAtOnce(t *testing.T) {
	head := func(length, word uint32, n int) []byte {
		b := binary.BigEndian.AppendUint32(nil, length)
		return binary.BigEndian.AppendUint32(b, word)[:n]
	}
	for name, b := range map[string][]byte{
		"zero":                    head(0, 0, 4),
		"three":                   head(3, 0, 4),
		"four":                    head(4, 0, 4),
		"minus one":               head(math.MaxUint32, 0, 4),
		"smallest int32":          head(1<<31, 0, 4),
		"one over the limit":      head(MaxFrame-4+1, 0, 4),
		"HTTP":                    []byte("GET / HTTP/1.1\r\n"),
		"TLS":                     {0x16, 0x03, 0x01, 0x02, 0x00},
		"header over the frame":   head(20, 17, 8),
		"header of zero":          head(20, 0, 8),
		"encoding 2":              head(20, 2<<24|10, 8),
		"encoding 255":            head(20, 255<<24|10, 8),
		"binary header too short": head(100, 1<<24|20, 8),
	} {
		size, err := FrameSize(b)
		require.ErrorIs(t, err, ErrFrame, name)
		require.Zero(t, size, name)
		_, err = Decode(b)
		require.ErrorIs(t, err, ErrFrame, name)
	}
	size, err := FrameSize(head(MaxFrame-4, 2, 8))
	require.NoError(t, err)
	require.Equal(t, MaxFrame, size)
}

func TestDecodeTakesWhatJavaReadersTake(t *testing.T) {
	plain := Command{Code: 34, Version: 1, Opaque: 7}
	for name, test := range map[string]struct {
		header string
		want   Command
		fields map[string]string
	}{
		"order and white space": {"{ \"opaque\" : 7 ,\n\t\"version\":1,\r\"code\":34 }\n", plain, nil},
		"numbers as strings":    {`{"code":"34","opaque":"7","version":"1"}`, plain, nil},
		"unknown keys":          {`{"x":[1,{"code":9},"}"],"code":34,"y":{"z":{"code":8}},"opaque":7,"version":1,"z":-1.5e3}`, plain, nil},
		"trailing commas":       {`{"code":34,"x":[1,],"opaque":7,"version":1,}`, plain, nil},
		"single quotes":         {`{'code':34,'language':'GO','opaque':7,"version":1}`, Command{Code: 34, Version: 1, Opaque: 7, Language: LanguageGo}, nil},
		"keys without quotes":   {`{code:34,opaque:7,version:1}`, plain, nil},
		"the last of two":       {`{"code":1,"code":34,"opaque":7,"version":1}`, plain, nil},
		"nulls":                 {`{"code":34,"opaque":7,"version":1,"flag":null,"remark":null,"language":null,"extFields":null}`, plain, nil},
		"plus sign":             {`{"code":+34,"opaque":7,"version":1}`, plain, nil},
		"negative opaque":       {`{"code":34,"opaque":-7}`, Command{Code: 34, Opaque: -7}, nil},
		"no key at all":         {`{}`, Command{}, nil},
		"code over 16 bits":     {`{"code":200050}`, Command{Code: 200050}, nil},
		"language as number":    {`{"language":9}`, Command{Language: LanguageGo}, nil},
		"language as text":      {`{"language":"9"}`, Command{Language: LanguageGo}, nil},
		"unknown language":      {`{"language":"ZIG"}`, Command{Language: LanguageOther}, nil},
		"language out of range": {`{"language":99}`, Command{Language: LanguageOther}, nil},
		"escapes in the remark": {`{"remark":"a\u00e9\n\"\\\/\ud83d\ude00"}`, Command{Remark: "aé\n\"\\/😀"}, nil},
		"half a surrogate pair": {`{"remark":"\ud83dx\ude00\ud83d\u0041"}`, Command{Remark: "\uFFFDx\uFFFD\uFFFDA"}, nil},
		"fields that are no text": {
			`{"extFields":{"queueId":3,"b":true,"n":null,"f":-1.5,"s":"","o":{"x":[1]},}}`,
			Command{},
			map[string]string{"queueId": "3", "b": "true", "f": "-1.5", "s": "", "o": `{"x":[1]}`},
		},
		"escapes in fields": {
			`{"extFields":{"i":"K\u0001v\u0002","\u0061'b":'"\'','q"':"'"}}`,
			Command{},
			map[string]string{"i": "K\x01v\x02", "a'b": `"'`, `q"`: "'"},
		},
		"control characters": {"{\"extFields\":{\"i\":\"K\x01v\x02\"}}", Command{}, map[string]string{"i": "K\x01v\x02"}},
		"fields, then none":  {`{"extFields":{"a":"1"},"extFields":null}`, Command{}, nil},
		"key twice":          {`{"extFields":{"a":"1","a":"2"}}`, Command{}, map[string]string{"a": "2"}},
	} {
		c, err := Decode(frame(JSON, test.header, "body"))
		require.NoError(t, err, name)
		require.Equal(t, "body", string(c.Body), name)
		if test.fields != nil {
			require.True(t, c.Fields.Present(), name)
			require.Equal(t, test.fields, fieldsOf(t, c), name)
		} else {
			require.False(t, c.Fields.Present(), name)
		}
		c.Body, c.Fields = nil, Fields{}
		require.Equal(t, test.want, c, name)
	}
}

func TestDecodeRefusesBadJSONHeaders(t *testing.T) {
	for _, header := range []string{
		" ", "[]", `["code",1]`, "null", `"code"`, "1", "{", "}", "{}x", "{}{}", `{"code"}`, `{"code":}`, `{"code":1`, `{"code":1 "flag":2}`,
		`{"code":"x"}`, `{"code":1.5}`, `{"code":2147483648}`, `{"code":""}`, `{"code":{}}`, `{"code":true}`, `{"flag":-2147483649}`,
		`{"extFields":[]}`, `{"extFields":"x"}`, `{"extFields":1}`, `{"extFields":{"a"}}`, `{"extFields":{"a":1]}`, `{"remark":"\x"}`,
		`{"remark":"\u12"}`, `{"remark":"abc`, `{"remark":"abc\`, `{"x":tru}`, `{"x":nul}`, `{"x":[1 2]}`, `{"x":[,]}`, `{,}`, `{"a":1,,"b":2}`,
		"{\"x\":\x00}", strings.Repeat(`{"x":`, 5000), `{"x":` + strings.Repeat("[", 5000), `{"x":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + "}",
	} {
		_, err := Decode(frame(JSON, header, ""))
		require.ErrorIs(t, err, ErrFrame, header[:min(len(header), 80)])
	}
}

func TestDecodeRefusesBadBinaryHeaders(t *testing.T) {
	fixed := "\x00\x0a\x09\x01\xed\x00\x00\x00\x07\x00\x00\x00\x00"
	for name, rest := range map[string]string{
		"remark beyond":    "\x00\x00\x00\x05abc\x00\x00\x00\x00",
		"negative remark":  "\xff\xff\xff\xff\x00\x00\x00\x00",
		"no fields length": "\x00\x00\x00\x04abcd",
		"fields beyond":    "\x00\x00\x00\x00\x00\x00\x00\x09\x00\x01a\x00\x00\x00\x01b",
		"negative fields":  "\x00\x00\x00\x00\x80\x00\x00\x00",
		"key beyond":       "\x00\x00\x00\x00\x00\x00\x00\x08\x00\x09a\x00\x00\x00\x01b",
		"negative key":     "\x00\x00\x00\x00\x00\x00\x00\x08\xff\xffa\x00\x00\x00\x01b",
		"value beyond":     "\x00\x00\x00\x00\x00\x00\x00\x08\x00\x01a\x00\x00\x00\x02b",
		"negative value":   "\x00\x00\x00\x00\x00\x00\x00\x08\x00\x01a\xff\xff\xff\xffb",
		"half a field":     "\x00\x00\x00\x00\x00\x00\x00\x09\x00\x01a\x00\x00\x00\x01bx",
		"no value":         "\x00\x00\x00\x00\x00\x00\x00\x03\x00\x01a",
	} {
		_, err := Decode(frame(Binary, fixed+rest, ""))
		require.ErrorIs(t, err, ErrFrame, name)
	}
	c, err := Decode(frame(Binary, fixed+"\x00\x00\x00\x02hi\x00\x00\x00\x15\x00\x01a\x00\x00\x00\x01b\x00\x01n\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00", "xyz"))
	require.NoError(t, err)
	require.Equal(t, map[string]string{"a": "b"}, fieldsOf(t, c), "empty key and value are null")
	require.Equal(t, "hi", c.Remark)
	require.Equal(t, "xyz", string(c.Body))
	require.Equal(t, LanguageGo, c.Language)
}

func TestBinaryNumbersAreSigned(t *testing.T) {
	c, err := Decode(frame(Binary, "\xfc\x18\xff\xff\xfe\xff\xff\xff\xff\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00", ""))
	require.NoError(t, err)
	require.Equal(t, Command{Code: -1000, Language: LanguageOther, Version: -2, Opaque: -1, Flag: 1, Codec: Binary}, c)
}

// raw is a header of any fields.
type raw map[string]string

func (r raw) WriteFields(w *FieldWriter) {
	for _, key := range slices.Sorted(maps.Keys(r)) {
		w.String(key, r[key])
	}
}

func (r raw) SetField(key string, value []byte) error {
	r[strings.Clone(key)] = string(value)
	return nil
}
func (r raw) Missing() string { return "" }

func TestAppendReplyWritesWhatDecodeReads(t *testing.T) {
	nasty := "a\"\\/\n\t\x00\x01\x02\x1f\x7fé中😀\u2028<>&"
	reply := &Reply{
		Code: TopicNotExist, Remark: "r " + nasty, Header: raw{"k1": nasty, nasty: "v"},
		Extra: []KV{{"TRACE_ON", "true"}}, Body: []byte("body"),
	}
	for _, codec := range []Codec{JSON, Binary} {
		b := AppendReply([]byte("before"), codec, -5, reply)
		require.Equal(t, "before", string(b[:6]))
		b = b[6:]
		size, err := FrameSize(b)
		require.NoError(t, err)
		require.Len(t, b, size)
		c, err := Decode(b)
		require.NoError(t, err)
		require.Equal(t, map[string]string{"k1": nasty, nasty: "v", "TRACE_ON": "true"}, fieldsOf(t, c))
		require.Equal(t, Command{
			Code: 17, Language: LanguageGo, Version: 493, Opaque: -5, Flag: 1, Remark: reply.Remark, Codec: codec, Fields: c.Fields, Body: []byte("body"),
		}, c)
		head := AppendReplyHead(nil, codec, -5, reply, len(reply.Body))
		require.Equal(t, b[:len(b)-4], head)
	}
}

func TestAppendReplyIsStrictJSON(t *testing.T) {
	b := AppendReply(nil, JSON, 1, &Reply{Remark: "bad \xff\xc3 text", Header: raw{"k": "\xed\xa0\x80"}})
	require.Equal(t, `{"code":0,"flag":1,"language":"GO","opaque":1,"remark":"bad �� text","version":493,`+
		`"extFields":{"k":"���"}}`, string(b[headSize:]))
	b = AppendReply(nil, JSON, 1, &Reply{Code: SystemBusy})
	require.Equal(t, `{"code":2,"flag":1,"language":"GO","opaque":1,"version":493,"extFields":{}}`, string(b[headSize:]),
		"Java's producers need a set of fields, if an empty one")
}

func TestAppendRequest(t *testing.T) {
	b := AppendRequest(nil, JSON, GetBrokerClusterInfo, 3, false, nil, nil, nil)
	require.Equal(t, `{"code":106,"flag":0,"language":"GO","opaque":3,"version":493}`, string(b[headSize:]))
	b = AppendRequest(nil, Binary, NotifyConsumerIDsChanged, 3, true, &NotifyConsumerIDsChangedRequest{ConsumerGroup: "g"}, nil, []byte("x"))
	c, err := Decode(b)
	require.NoError(t, err)
	require.True(t, c.IsOneway())
	require.False(t, c.IsResponse())
	require.Equal(t, Binary, c.Codec)
	require.Equal(t, map[string]string{"consumerGroup": "g"}, fieldsOf(t, c))

	b = AppendRequest(nil, Binary, PopMessage, 3, false, &PopMessageRequest{ConsumerGroup: "g"}, nil, nil)
	c, err = Decode(b)
	require.NoError(t, err)
	require.Equal(t, JSON, c.Codec, "200050 has no room in the binary header")
	require.Equal(t, int32(200050), c.Code)
}

// TestBinaryHeadersAreInJavasOrder demands the bytes of Java's fast codec, but for the language and what hooks added.
func TestBinaryHeadersAreInJavasOrder(t *testing.T) {
	for name, side := range map[string]string{"pull-rocketmq": "both", "send-v2-rocketmq": "both"} {
		request, answer := goldenFrame(t, name, "request"), goldenFrame(t, name, "response")
		var h, r Header = new(PullMessageRequest), new(PullMessageResponse)
		if request.Code != int32(PullMessage) {
			h, r = new(SendMessageRequestV2), new(SendMessageResponse)
		}
		for g, header := range map[*golden]Header{request: h, answer: r} {
			c := g.decode(t)
			require.NoError(t, c.ReadHeader(header), side)
			var got []string
			again, err := Decode(AppendReply(nil, Binary, 1, &Reply{Header: header}))
			require.NoError(t, err)
			require.NoError(t, again.Fields.Each(func(key, _ []byte) error {
				got = append(got, string(key))
				return nil
			}))
			var want []string
			require.NoError(t, c.Fields.Each(func(key, value []byte) error {
				if slices.Contains(got, string(key)) {
					want = append(want, string(key))
				}
				return nil
			}))
			require.Equal(t, want, got, g)
			require.Greater(t, len(got), 3, g)
		}
	}
}

func TestEncodingAllocatesNothing(t *testing.T) {
	buf := make([]byte, 0, 4096)
	reply := &Reply{Remark: "FOUND", Header: &PullMessageResponse{NextBeginOffset: 12345}, Extra: []KV{{"TRACE_ON", "true"}}}
	request := &SendMessageRequestV2{ProducerGroup: "g", Topic: "t", Properties: []byte("TAGS\x01TagA\x02"), BrokerName: "é"}
	for _, codec := range []Codec{JSON, Binary} {
		require.LessOrEqual(t, testing.AllocsPerRun(1000, func() { AppendReply(buf, codec, 7, reply) }), 0.01+poolAllocs)
		require.LessOrEqual(t, testing.AllocsPerRun(1000, func() {
			AppendRequest(buf, codec, SendMessageV2, 7, false, request, nil, nil)
		}), 0.01+poolAllocs)
	}
}

// TestACommandMovesWithItsFrame: it refers to the copy alone, and to the index that it is given.
func TestACommandMovesWithItsFrame(t *testing.T) {
	for _, name := range []string{"send-v2", "send-v2-rocketmq"} {
		frame := goldenFrame(t, name, "request").bytes
		want, err := Decode(frame)
		require.NoError(t, err)
		for _, indexed := range []bool{true, false} {
			from := slices.Concat([]byte("others"), frame, []byte("others"))
			var c Command
			var x FieldIndex
			require.NoError(t, c.Decode(from[6:6+len(frame)], &x))
			to, kept := slices.Clone(from), x
			if indexed {
				c.Move(from, to, &kept)
			} else {
				c.Move(from, to, nil)
			}
			clear(from)
			x = FieldIndex{}
			var h, wanted SendMessageRequestV2
			require.NoError(t, c.ReadHeader(&h))
			require.NoError(t, want.ReadHeader(&wanted))
			require.Equal(t, wanted, h)
			require.Equal(t, want.Body, c.Body)
		}
	}
	c, err := Decode(AppendRequest(nil, Binary, 1, 1, false, nil, nil, nil))
	require.NoError(t, err)
	c.Move([]byte{}, []byte{}, new(FieldIndex))
	require.Nil(t, c.Body)
	require.False(t, c.Fields.Present())
}
