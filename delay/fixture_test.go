package delay

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/message"
	"github.com/ratchetmq/ratchet/store"
)

// javasLog are the records of a log that a Java broker has written, by their position.
func javasLog(t *testing.T, version string) map[int]message.Record {
	t.Helper()
	log, err := os.ReadFile(filepath.Join("..", "store", "index", "testdata", version, "commitlog"))
	require.NoError(t, err)
	records := map[int]message.Record{}
	for pos := 0; ; {
		size, magic, ok := message.Peek(log[pos:])
		if !ok || size == 0 {
			return records
		}
		if magic != message.MagicBlank {
			records[pos], err = message.Parse(log[pos:])
			require.NoError(t, err)
		}
		pos += int(size)
	}
}

// pairs are where a delayed message, and what was delivered of it, stand in the logs, and the time in the entry that
// the first has in its consume queue.
var pairs = []struct {
	version            string
	waiting, delivered int
	due                int64
	checksummed        bool
}{
	{"4.9.7", 4993, 7993, 0x1a227ca589d, false},
	{"4.9.7", 7615, 8259, 0x1a227ca6dc5, false},
	{"5.4.0", 5649, 13451, 0x1a227cb7ca7, false},
	{"5.4.0", 13033, 13757, 0x1a227cb97e6, false},
	{"5.4.0-crc-ext", 6049, 14271, 0, true},
}

// What is delivered is what Java delivers, byte for byte but for what the log gives each record.
func TestDeliversWhatJavaDelivers(t *testing.T) {
	levels := defaults(t)
	for _, p := range pairs {
		log := javasLog(t, p.version)
		waiting, delivered := log[p.waiting], log[p.delivered]
		require.Equal(t, Topic, string(waiting.Topic))
		if p.due != 0 {
			require.Equal(t, p.due, levels.TagsCode(&waiting))
			require.GreaterOrEqual(t, delivered.StoreTimestamp, p.due)
		}
		m, err := restore(&waiting)
		require.NoError(t, err)
		props := delivered.Properties
		if p.checksummed { // it is over the record, and Java makes a new one
			props = message.AppendWithout(nil, props, propertyCRC)
		}
		require.Equal(t, string(props), string(m.Properties))
		if p.checksummed {
			continue
		}
		r := message.Record{
			QueueID: m.QueueID, Flag: m.Flag, QueueOffset: delivered.QueueOffset, PhysicalOffset: delivered.PhysicalOffset,
			SysFlag: m.SysFlag, BornTimestamp: m.BornTimestamp, BornHost: m.BornHost,
			StoreTimestamp: delivered.StoreTimestamp, StoreHost: delivered.StoreHost, ReconsumeTimes: m.ReconsumeTimes,
			PreparedTransactionOffset: m.PreparedTransactionOffset, Body: m.Body, Topic: []byte(m.Topic),
			Properties: m.Properties,
		}
		require.Equal(t, message.AppendRecord(nil, &delivered), message.AppendRecord(nil, &r))
	}
}

// What is stored for a delay is what Java 5.4 stores.
func TestStoresWhatJavaStores(t *testing.T) {
	levels := defaults(t)
	log := javasLog(t, "5.4.0")
	for _, at := range []int{5649, 5967} { // levels 3 and 18
		want := log[at]
		end := bytes.Index(want.Properties, []byte(message.PropertyRealTopic))
		real, err := restore(&want)
		require.NoError(t, err)
		m := store.Message{Topic: real.Topic, QueueID: real.QueueID, Properties: want.Properties[:end]}
		_, delayed, err := levels.Rewrite(&m, make([]byte, 0, 1000))
		require.NoError(t, err)
		require.True(t, delayed)
		require.Equal(t, string(want.Properties), string(m.Properties))
		require.Equal(t, want.QueueID, m.QueueID)
		require.Equal(t, string(want.Topic), m.Topic)
	}
}
