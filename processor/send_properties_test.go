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
	texts := []string{
		"",
		"TAGS\x01a",
		"KEYS\x01k1 k2\x02TAGS\x01a\x02",
		"UNIQ_KEY\x01u\x02WAIT\x01true\x02TAGS\x01a\x02",
		"INNER_MULTI_DISPATCH\x01%LMQ%a\x02INNER_MULTI_QUEUE_OFFSET\x013\x02",
		"POP_CK\x01gone\x02UNIQ_KEY\x01u\x02KEYS\x01k\x02TAGS\x01a",
	}
	for _, sent := range texts {
		for _, unique := range []bool{true, false} {
			var found traits
			_, stored := p.appendSendProperties([]byte("of another message\x02"), []byte(sent), unique, &found)
			noted := message.Record{Properties: append([]byte(nil), stored...), Keys: found.keys}
			read := message.Record{Properties: stored}
			a, b, c := noted.FindKeys()
			x, y, z := read.FindKeys()
			require.Equal(t, []string{string(x), string(y), string(z)}, []string{string(a), string(b), string(c)}, "%q", sent)
			require.Equal(t, string(found.unique), string(a))
			readRequest, notedRequest := read.DispatchRequest(0), noted.DispatchRequest(0)
			require.Equal(t, readRequest.Multi(), notedRequest.Multi())
		}
	}
}

// What a message is like does not depend on the messages that were read before it.
func TestTraitsOfOneTextAfterAnother(t *testing.T) {
	p := &Processor{uniqueIDs: message.NewUniqueIDs(netip.MustParseAddr("127.0.0.1"), 1, time.Now)}
	texts := []string{
		"",
		"UNIQ_KEY\x01u1\x02WAIT\x01true\x02TAGS\x01a\x02",
		"UNIQ_KEY\x01u2\x02WAIT\x01true\x02TAGS\x01a\x02",
		"UNIQ_KEY\x01u2\x02WAIT\x01true\x02TAGS\x01a",
		"UNIQ_KEY\x01\x02a\x02WAIT\x01true\x02TAGS\x01a\x02",
		"UNIQ_KEY\x01u3\x02WAIT\x01false\x02KEYS\x01k1\x02",
		"UNIQ_KEY\x01u4\x02WAIT\x01false\x02KEYS\x01k2\x02",
		"UNIQ_KEY\x01u5\x02WAIT\x01false\x02KEYS\x01\x02k\x02",
		"KEYS\x01k1\x02DELAY\x013\x02",
		"KEYS\x01k2\x02DELAY\x013\x02",
		"KEYS\x01k2\x02TRAN_MSG\x01true\x02",
		"KEYS\x01k3\x02TRAN_MSG\x01true\x02",
		"POP_CK\x01gone\x02UNIQ_KEY\x01u1\x02",
		"UNIQ_KEY\x01u7\x02",
	}
	for _, first := range texts {
		for _, second := range texts {
			for _, unique := range []bool{true, false} {
				var alone, after traits
				_, want := p.appendSendProperties(nil, []byte(second), unique, &alone)
				dst, _ := p.appendSendProperties(nil, []byte(first), unique, &after)
				_, stored := p.appendSendProperties(dst, []byte(second), unique, &after)
				require.Equal(t, string(alone.text), string(after.text))
				if alone.text == nil { // the unique key is the broker's
					alone.unique, after.unique = nil, nil
				} else {
					require.Equal(t, string(want), string(stored))
				}
				alone.text, after.text = nil, nil
				require.Equal(t, alone, after, "%q after %q", second, first)
			}
		}
	}
}
