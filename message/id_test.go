package message

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/internal/offset"
)

func TestMessageIDs(t *testing.T) {
	for id, want := range map[string]struct {
		host string
		phy  offset.Physical
	}{
		"7F00000200002E870000000000000000":                         {"127.0.0.2:11911", 0}, // from an answer of 5.4.0
		"7F00000200002E87000000000000051E":                         {"127.0.0.2:11911", 1310},
		"0A010203000000500123456789ABCDEF":                         {"10.1.2.3:80", 0x0123456789ABCDEF},
		"0A0102030000FFFF7FFFFFFFFFFFFFFF":                         {"10.1.2.3:65535", 1<<63 - 1},
		"20010DB800000000000000000000000100002A9F0000000000000010": {"[2001:db8::1]:10911", 16},
	} {
		host := netip.MustParseAddrPort(want.host)
		require.Equal(t, "x"+id, string(NewIDs(host).Append([]byte("x"), want.phy)))
		for _, text := range []string{id, strings.ToLower(id), " " + id + " "} {
			gotHost, phy, err := ParseID(text)
			require.NoError(t, err, text)
			require.Equal(t, host, gotHost)
			require.Equal(t, want.phy, phy)
		}
	}
	require.Equal(t, "0A0102030000000100000000000000FF", string(NewIDs(netip.MustParseAddrPort("[::ffff:10.1.2.3]:1")).Append(nil, 255)),
		"an IPv4 address is one however it came")
}

func TestWhatIsNoMessageID(t *testing.T) {
	for _, id := range []string{
		"", "x", "7F00000200002E87000000000000000", "7F00000200002E8700000000000000000", "7F00000200002E87000000000000000G",
		"7F00000200012E870000000000000000", // port 77447
		strings.Repeat("0", 34), strings.Repeat("0", 40), strings.Repeat("0", 58),
	} {
		_, _, err := ParseID(id)
		require.Error(t, err, id)
	}
}

func TestUniqueIDs(t *testing.T) {
	now := time.Date(2026, 11, 2, 0, 0, 1, 0, time.UTC) // a day and a second into the month
	ids := NewUniqueIDs(netip.MustParseAddr("10.1.2.3"), 0xABCD, func() time.Time { return now })
	first, second := ids.Next(), ids.Next()
	require.Len(t, first, 32)
	require.Equal(t, "0A010203", first[:8])
	require.Equal(t, "0000ABCD"+"05265FE8"+"0001", first[12:]) // 86,401,000 ms
	require.Equal(t, "0002", second[28:])
	require.Len(t, NewUniqueIDs(netip.IPv6Loopback(), 0, time.Now).Next(), 56)
}
