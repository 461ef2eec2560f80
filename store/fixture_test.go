package store

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/internal/vfs"
	"github.com/ratchetmq/ratchet/message"
)

// The stores in testdata were written by RocketMQ's own brokers: commit log files of 65536 bytes, consume queue files
// of 100 entries. SENT.txt is what the client was answered, DUMP.txt what stands in the log.
var javaStores = []string{"java-4.9.7", "java-5.4.0", "java-5.4.0-crc-ext"}

// fixture is a copy of a store in testdata, as its options.
func fixture(t *testing.T, name string) Options {
	t.Helper()
	root := t.TempDir()
	require.NoError(t, os.CopyFS(root, os.DirFS(filepath.Join("testdata", name))))
	return Options{FS: vfs.OS{}, Root: root, SegmentSize: 65536, ConsumeQueueUnits: 100, StoreHost: testHost}
}

// dumped is a line of DUMP.txt.
type dumped struct {
	phy     offset.Physical
	size    int32
	topic   string
	queue   int32
	offset  offset.Queue
	sysFlag int32
}

func dump(t *testing.T, name string) (list []dumped) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name, "DUMP.txt"))
	require.NoError(t, err)
	number := func(s string) int64 {
		n, err := strconv.ParseInt(s, 10, 64)
		require.NoError(t, err)
		return n
	}
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if len(f) < 9 {
			continue // a blank record, the end
		}
		list = append(list, dumped{
			offset.Physical(number(f[0])), int32(number(f[1])), f[3], int32(number(f[4])), offset.Queue(number(f[5])),
			int32(number(f[6])),
		})
	}
	require.NotEmpty(t, list)
	return list
}

// hashes are the checksums of all files of a store.
func hashes(t *testing.T, root string) map[string]string {
	t.Helper()
	sums := map[string]string{}
	require.NoError(t, filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		sum := sha256.Sum256(data)
		sums[strings.TrimPrefix(path, root)] = hex.EncodeToString(sum[:4])
		return err
	}))
	return sums
}

func readOne(t *testing.T, s *Store, topic string, queue int32, at offset.Queue) message.Record {
	t.Helper()
	b, batch, err := s.Read(Query{Topic: topic, Queue: queue, From: at, MaxMessages: 1}, nil)
	require.NoError(t, err)
	require.Equal(t, Found, batch.Status, "%s/%d offset %d", topic, queue, at)
	return records(t, b)[0]
}

// checkDump wants every record of the dump by position, and in its queue at its offset.
func checkDump(t *testing.T, s *Store, name string) {
	t.Helper()
	counts := map[queueKey]int{}
	for _, d := range dump(t, name) {
		b, err := s.Record(d.phy, nil)
		require.NoError(t, err)
		require.Len(t, b, int(d.size))
		if d.sysFlag&message.FlagInnerBatch != 0 {
			continue
		}
		r := readOne(t, s, d.topic, d.queue, d.offset)
		require.Equal(t, d.phy, r.PhysicalOffset)
		counts[queueKey{d.topic, d.queue}]++
	}
	for key, n := range counts {
		require.Len(t, readQueue(t, s, key.topic, key.id), n)
		b, _ := s.Bounds(key.topic, key.id)
		require.Equal(t, Bounds{0, offset.Queue(n)}, b)
	}
}

var sentLine = regexp.MustCompile(`^(\w+) SEND_OK q=(\d+) qoff=(\d+) offsetMsgId=(\S+) msgId=(\S+)`)

func TestJavaStoreReadsAsItWasSent(t *testing.T) {
	for _, name := range javaStores {
		t.Run(name, func(t *testing.T) {
			s := mustOpen(t, fixture(t, name))
			checkDump(t, s, name)
			data, err := os.ReadFile(filepath.Join("testdata", name, "SENT.txt"))
			require.NoError(t, err)
			seen := 0
			for line := range strings.Lines(string(data)) {
				m := sentLine.FindStringSubmatch(line)
				if m == nil {
					continue
				}
				keys := strings.Split(m[5], ",")
				for i, id := range strings.Split(m[4], ",") {
					_, phy, err := message.ParseID(id)
					require.NoError(t, err)
					b, err := s.Record(phy, nil)
					require.NoError(t, err, line)
					r := records(t, b)[0]
					key, _ := message.Property(r.Properties, message.PropertyUniqueKey)
					require.Equal(t, keys[i], string(key))
					want, err := strconv.Atoi(m[3])
					require.NoError(t, err)
					require.EqualValues(t, want+i, r.QueueOffset)
					seen++
				}
			}
			require.Greater(t, seen, 30)
		})
	}
}

// What Java wrote stays as it is, byte for byte, when nothing is appended; after a clean stop and after a crash.
func TestJavaStoreIsNotChangedByOpening(t *testing.T) {
	for _, name := range javaStores {
		for _, abort := range []bool{false, true} {
			for range 2 { // our own stop is no different from Java's
				o := fixture(t, name)
				o.TagsCode = scheduleTags
				if abort {
					require.NoError(t, os.WriteFile(filepath.Join(o.Root, abortFile), nil, 0o600))
				}
				before := hashes(t, o.Root)
				s := mustOpen(t, o)
				require.NoError(t, s.Close())
				after := hashes(t, o.Root)
				delete(before, "/"+checkpointFile)
				delete(after, "/"+checkpointFile)
				delete(before, "/"+abortFile)
				delete(after, "/"+lockFile)
				require.Equal(t, before, after)
			}
		}
	}
}

func TestJavaStoreGoesOn(t *testing.T) {
	for _, name := range javaStores {
		t.Run(name, func(t *testing.T) {
			o := fixture(t, name)
			s := mustOpen(t, o)
			last := dump(t, name)[len(dump(t, name))-1]
			require.Equal(t, last.phy+offset.Physical(last.size), s.Written())
			for i := range 40 {
				a, err := s.Append(tagged("FxNormal", 0, "TagA", strings.Repeat("x", 4000)))
				require.NoError(t, err)
				require.EqualValues(t, 12+i, a.Queue)
			}
			require.NoError(t, s.Close())
			s = mustOpen(t, o)
			require.Len(t, readQueue(t, s, "FxNormal", 0), 52)
			require.Equal(t, "%RETRY%GFix", string(readOne(t, s, "%RETRY%GFix", 0, 0).Topic))
		})
	}
}

// A consumequeue folder that somebody removed is rebuilt from the log, with the same bytes.
func TestJavaQueuesAreRebuiltAsJavaWroteThem(t *testing.T) {
	for _, name := range []string{"java-4.9.7", "java-5.4.0"} { // the other has addresses in place of tags codes
		for _, abort := range []bool{false, true} {
			o := fixture(t, name)
			o.TagsCode = scheduleTags
			folder := filepath.Join(o.Root, queueFolder)
			before := hashes(t, folder)
			require.NoError(t, os.RemoveAll(folder))
			if abort {
				require.NoError(t, os.WriteFile(filepath.Join(o.Root, abortFile), nil, 0o600))
			}
			s := mustOpen(t, o)
			require.Equal(t, before, hashes(t, folder))
			checkDump(t, s, name)
		}
	}
}

// scheduleTags is what RocketMQ writes for delayed messages: the time of delivery, by the levels 3 and 18 alone, which
// are those in the fixtures.
func scheduleTags(r *message.Record) int64 {
	if string(r.Topic) != "SCHEDULE_TOPIC_XXXX" {
		return tagsCode(r)
	}
	delay := map[int32]int64{2: 10_000, 17: 7_200_000}[r.QueueID]
	return r.StoreTimestamp + delay
}

func TestLightQueuesOfJavaAreRead(t *testing.T) {
	for _, name := range javaStores {
		s := mustOpen(t, fixture(t, name))
		for _, topic := range []string{"%LMQ%alpha", "%LMQ%beta"} {
			got := readQueue(t, s, topic, 0)
			require.Len(t, got, 2)
			require.Equal(t, "FxLmq", string(got[0].Topic))
		}
	}
}

// With enableConsumeQueueExt the entries have an address in place of the tags code; the filter then asks the record.
func TestFilterWithoutTagsCode(t *testing.T) {
	for _, name := range javaStores {
		s := mustOpen(t, fixture(t, name))
		want := message.TagsCode([]byte("TagA"))
		b, batch, err := s.Read(Query{Topic: "FxNormal", Match: func(c int64) bool { return c == want }}, nil)
		require.NoError(t, err)
		require.Equal(t, Found, batch.Status)
		require.EqualValues(t, 12, batch.Next)
		require.Len(t, records(t, b), 6)
		for _, r := range records(t, b) {
			require.Zero(t, r.QueueOffset%2)
		}
	}
}

func TestWrongFileSizesAreRefused(t *testing.T) {
	o := fixture(t, "java-4.9.7")
	before := hashes(t, o.Root)
	for _, change := range []func(*Options){
		func(o *Options) { o.SegmentSize = 1 << 30 },
		func(o *Options) { o.SegmentSize = 32768 },
		func(o *Options) { o.ConsumeQueueUnits = 300_000 },
		func(o *Options) { o.ConsumeQueueUnits = 50 },
	} {
		wrong := o
		change(&wrong)
		_, err := Open(wrong)
		require.ErrorIs(t, err, ErrLayout)
		after := hashes(t, o.Root)
		delete(after, "/"+lockFile)
		require.Equal(t, before, after)
	}
}
