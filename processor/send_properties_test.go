package processor

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/message"
)

// Where the keys were noted to be is where they are in what is stored, whatever was added or left out.
func TestKeysOfStoredProperties(t *testing.T) {
	p := &Processor{
		uniqueIDs: message.NewUniqueIDs(netip.MustParseAddr("127.0.0.1"), 1, time.Now),
		sendMarks: []byte("MSG_REGION\x01DefaultRegion\x02TRACE_ON\x01true\x02"),
	}
	for _, sent := range []string{
		"",
		"TAGS\x01a",
		"KEYS\x01k1 k2\x02TAGS\x01a\x02",
		"UNIQ_KEY\x01u\x02WAIT\x01true\x02TAGS\x01a\x02",
		"INNER_MULTI_DISPATCH\x01%LMQ%a\x02INNER_MULTI_QUEUE_OFFSET\x013\x02",
		"POP_CK\x01gone\x02UNIQ_KEY\x01u\x02KEYS\x01k\x02TAGS\x01a",
	} {
		for _, unique := range []bool{true, false} {
			_, stored, found := p.appendSendProperties([]byte("of another message\x02"), []byte(sent), unique)
			noted := message.Record{Properties: append([]byte(nil), stored...), Keys: found.keys}
			read := message.Record{Properties: stored}
			a, b, c := noted.FindKeys()
			x, y, z := read.FindKeys()
			require.Equal(t, []string{string(x), string(y), string(z)}, []string{string(a), string(b), string(c)}, "%q", sent)
			require.Equal(t, string(found.unique), string(a))
			require.Equal(t, read.Multi(), noted.Multi())
		}
	}
}
