package message

import (
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/internal/offset"
)

// goldenRecords are records from answers of real brokers (4.9.7, 5.4.0) to real clients, by the name of the capture.
func goldenRecords(t testing.TB) map[string][][]byte {
	t.Helper()
	text, err := os.ReadFile("testdata/records.txt")
	require.NoError(t, err)
	all := map[string][][]byte{}
	for line := range strings.Lines(string(text)) {
		name, digits, _ := strings.Cut(strings.TrimSpace(line), " ")
		b, err := hex.DecodeString(digits)
		require.NoError(t, err)
		all[name] = append(all[name], b)
	}
	require.Greater(t, len(all), 12)
	return all
}

func TestGoldenRecordsReadAndWrite(t *testing.T) {
	for name, records := range goldenRecords(t) {
		for _, b := range records {
			r, err := Parse(b)
			require.NoError(t, err, name)
			require.NoError(t, r.CheckBody(), name)
			require.Equal(t, b, AppendRecord(nil, &r), name)
			require.Equal(t, len(b), r.EncodedSize(), name)
			size, magic, ok := Peek(b)
			require.True(t, ok)
			require.Equal(t, int32(len(b)), size)
			require.Equal(t, MagicV1, magic)
			again, err := Parse(append(slices.Clone(b), 0xFF, 0xFF))
			require.NoError(t, err, "bytes behind the record don't matter")
			require.Equal(t, r, again)
		}
	}
}

func TestGoldenRecordFieldByField(t *testing.T) {
	b := goldenRecords(t)["view-message"][0]
	r, err := Parse(b)
	require.NoError(t, err)
	require.Equal(t, Record{
		Size: 256, Magic: MagicV1, BodyCRC: 0x6241472a, QueueID: 1, BornTimestamp: 0x1a227a5a429, BornHost: netip.MustParseAddrPort("127.0.0.1:48920"),
		StoreTimestamp: 0x1a227a5a4b2, StoreHost: netip.MustParseAddrPort("127.0.0.2:11911"),
		Body: []byte("hello-1"), Topic: []byte("T_j54"), Properties: r.Properties,
	}, r)
	value, ok := Property(r.Properties, PropertyTags)
	require.True(t, ok)
	require.Equal(t, "TagA", string(value))
	require.Len(t, r.Properties, 0x99)

	be := binary.BigEndian
	require.Equal(t, r.Magic, be.Uint32(b[PosMagic:]))
	require.Equal(t, r.BodyCRC, be.Uint32(b[PosBodyCRC:]))
	require.Equal(t, uint32(r.QueueID), be.Uint32(b[PosQueueID:]))
	require.Equal(t, uint32(r.Flag), be.Uint32(b[PosFlag:]))
	require.Equal(t, uint64(r.QueueOffset), be.Uint64(b[PosQueueOffset:]))
	require.Equal(t, uint64(r.PhysicalOffset), be.Uint64(b[PosPhysicalOffset:]))
	require.Equal(t, uint32(r.SysFlag), be.Uint32(b[PosSysFlag:]))
	require.Equal(t, uint64(r.BornTimestamp), be.Uint64(b[PosBornTimestamp:]))
	require.Equal(t, "\x7f\x00\x00\x01", string(b[PosBornHost:PosBornHost+4]))
	require.Equal(t, []uint32{0xDAA320A7, 0xDAA320AB, 0xCBD43194}, []uint32{MagicV1, MagicV2, MagicBlank})
}

// someRecords differ in everything that the layout depends on.
func someRecords() map[string]Record {
	v4, v6 := netip.MustParseAddrPort("10.1.2.3:10911"), netip.MustParseAddrPort("[2001:db8::1]:65535")
	full := Record{
		QueueID: -3, Flag: -1, QueueOffset: 1 << 40, PhysicalOffset: 1 << 50, SysFlag: FlagCompressed | FlagZstd, BornTimestamp: 1, StoreTimestamp: 2,
		ReconsumeTimes: 3, PreparedTransactionOffset: 4, BornHost: v4, StoreHost: v4,
		Body: []byte("body"), Topic: []byte("T"), Properties: []byte("A\x01b\x02"),
	}
	edit := func(fn func(*Record)) Record {
		r := full
		fn(&r)
		return r
	}
	return map[string]Record{
		"IPv4":                 full,
		"nothing":              {},
		"born on IPv6":         edit(func(r *Record) { r.BornHost = v6 }),
		"stored on IPv6":       edit(func(r *Record) { r.StoreHost = v6 }),
		"both on IPv6":         edit(func(r *Record) { r.BornHost, r.StoreHost = v6, v6 }),
		"IPv4 in IPv6":         edit(func(r *Record) { r.BornHost = netip.MustParseAddrPort("[::ffff:10.1.2.3]:1") }),
		"stale flags":          edit(func(r *Record) { r.SysFlag |= FlagBornHostV6 | FlagStoreHostV6 }),
		"no body":              edit(func(r *Record) { r.Body = nil }),
		"no properties":        edit(func(r *Record) { r.Properties = nil }),
		"topic of 127":         edit(func(r *Record) { r.Topic = []byte(strings.Repeat("t", 127)) }),
		"topic of 128":         edit(func(r *Record) { r.Topic = []byte(strings.Repeat("t", 128)) }),
		"topic of 255":         edit(func(r *Record) { r.Topic = []byte(strings.Repeat("t", 255)) }),
		"most properties":      edit(func(r *Record) { r.Properties = make([]byte, MaxPropertiesSize) }),
		"body of 4 MiB":        edit(func(r *Record) { r.Body = make([]byte, 4<<20) }),
		"offsets at their end": edit(func(r *Record) { r.QueueOffset, r.PhysicalOffset = 1<<63-1, offset.Physical(1<<63-1) }),
	}
}

func TestRecordsOfEveryLayout(t *testing.T) {
	for name, r := range someRecords() {
		b := AppendRecord([]byte("before"), &r)[6:]
		require.Len(t, b, r.EncodedSize(), name)
		got, err := Parse(b)
		require.NoError(t, err, name)
		require.NoError(t, got.CheckBody(), name)
		require.Equal(t, len(r.Topic) > MaxTopicV1, got.Magic == MagicV2, name)
		require.Equal(t, r.BornHost.Addr().Is6() && !r.BornHost.Addr().Is4In6(), got.SysFlag&FlagBornHostV6 != 0, name)
		require.Equal(t, r.StoreHost.Addr().Is6(), got.SysFlag&FlagStoreHostV6 != 0, name)
		require.Equal(t, r.SysFlag&^(FlagBornHostV6|FlagStoreHostV6), got.SysFlag&^(FlagBornHostV6|FlagStoreHostV6), name)
		if r.BornHost.IsValid() {
			require.Equal(t, r.BornHost.Port(), got.BornHost.Port(), name)
			require.Equal(t, r.BornHost.Addr().Unmap(), got.BornHost.Addr(), name)
			require.Equal(t, r.StoreHost, got.StoreHost, name)
		}
		require.Equal(t, []any{
			r.QueueID, r.Flag, r.QueueOffset, r.PhysicalOffset, r.BornTimestamp, r.StoreTimestamp, r.ReconsumeTimes,
			r.PreparedTransactionOffset, string(r.Body), string(r.Topic), string(r.Properties),
		},
			[]any{
				got.QueueID, got.Flag, got.QueueOffset, got.PhysicalOffset, got.BornTimestamp, got.StoreTimestamp, got.ReconsumeTimes,
				got.PreparedTransactionOffset, string(got.Body), string(got.Topic), string(got.Properties),
			}, name)
	}
	require.Equal(t, 91, (&Record{}).EncodedSize())
}

func TestRecordCutAnywhereIsCorrupt(t *testing.T) {
	for name, r := range someRecords() {
		b := AppendRecord(nil, &r)
		if len(b) > 1000 {
			continue
		}
		for n := range b {
			_, err := Parse(b[:n:n])
			require.ErrorIs(t, err, ErrCorrupt, "%s cut at %d", name, n)
			if n < 8 {
				continue
			}
			short := slices.Clone(b[:n:n]) // the same cut, with a size that agrees with it
			binary.BigEndian.PutUint32(short, uint32(n))
			_, err = Parse(short)
			require.ErrorIs(t, err, ErrCorrupt, "%s of size %d", name, n)
		}
	}
}

func TestRecordsThatDisagreeWithThemselvesAreCorrupt(t *testing.T) {
	r := someRecords()["IPv4"]
	good := AppendRecord(nil, &r)
	bodyAt := 84 // of its length
	for name, change := range map[string]func(b []byte){
		"size 0":                   func(b []byte) { copy(b, "\x00\x00\x00\x00") },
		"size negative":            func(b []byte) { b[0] = 0x80 },
		"size one less":            func(b []byte) { b[3]-- },
		"magic":                    func(b []byte) { b[PosMagic]++ },
		"blank":                    func(b []byte) { binary.BigEndian.PutUint32(b[PosMagic:], MagicBlank) },
		"magic of a longer topic":  func(b []byte) { binary.BigEndian.PutUint32(b[PosMagic:], MagicV2) },
		"IPv6 flag":                func(b []byte) { b[PosSysFlag+3] |= byte(FlagBornHostV6) },
		"body negative":            func(b []byte) { b[bodyAt] = 0xFF },
		"body too long":            func(b []byte) { b[bodyAt+2] = 1 },
		"body one more":            func(b []byte) { b[bodyAt+3]++ },
		"topic of negative length": func(b []byte) { b[bodyAt+4+4] = 0x80 },
		"topic too long":           func(b []byte) { b[bodyAt+4+4] = 100 },
		"properties one less":      func(b []byte) { b[len(b)-5]-- },
		"properties negative":      func(b []byte) { b[len(b)-6] = 0x80 },
	} {
		b := slices.Clone(good)
		change(b)
		_, err := Parse(b)
		require.ErrorIs(t, err, ErrCorrupt, name)
	}
	good[bodyAt+4]++
	damaged, err := Parse(good)
	require.NoError(t, err, "the CRC is a question of its own")
	require.ErrorIs(t, damaged.CheckBody(), ErrCorrupt)
}

func TestAppendRecordAllocatesNothing(t *testing.T) {
	r := someRecords()["both on IPv6"]
	buf := make([]byte, 0, 4096)
	require.Zero(t, testing.AllocsPerRun(1000, func() { AppendRecord(buf, &r) }))
	b := AppendRecord(nil, &r)
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		if _, err := Parse(b); err != nil {
			panic("impossible: just written")
		}
	}))
}

// FuzzRecord: no bytes make Parse read on or fail otherwise than with ErrCorrupt, and what it reads is written so that
// it reads the same.
func FuzzRecord(f *testing.F) {
	for _, records := range goldenRecords(f) {
		for _, b := range records {
			f.Add(b)
		}
	}
	for _, r := range someRecords() {
		if b := AppendRecord(nil, &r); len(b) < 1000 {
			f.Add(b)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := Parse(b[:len(b):len(b)])
		if err != nil {
			require.ErrorIs(t, err, ErrCorrupt)
			return
		}
		require.LessOrEqual(t, int(r.Size), len(b))
		if len(r.Topic) > MaxTopic {
			return // can be read, but nobody writes it
		}
		again, err := Parse(AppendRecord(nil, &r))
		require.NoError(t, err)
		require.NoError(t, again.CheckBody())
		// What is derived may differ: the CRC of a damaged body, the magic of a short topic with two bytes of length, and
		// an IPv4 address that was written as IPv6.
		again.Size, again.Magic, again.BodyCRC = r.Size, r.Magic, r.BodyCRC
		again.SysFlag, r.SysFlag = again.SysFlag&^(FlagBornHostV6|FlagStoreHostV6), r.SysFlag&^(FlagBornHostV6|FlagStoreHostV6)
		for _, host := range []*netip.AddrPort{&r.BornHost, &r.StoreHost} {
			*host = netip.AddrPortFrom(host.Addr().Unmap(), host.Port())
		}
		require.Equal(t, r, again)
	})
}
