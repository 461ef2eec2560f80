package store

import (
	"context"
	"fmt"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/internal/vfs/vfstest"
	"github.com/ratchetmq/ratchet/message"
)

func TestExamine(t *testing.T) {
	seg := Span{From: 1000, To: 2000}
	rec := func(pos offset.Physical, body, props string) []byte {
		return message.AppendRecord(nil, &message.Record{
			PhysicalOffset: pos, Topic: []byte("T"), Body: []byte(body), Properties: []byte(props),
			BornHost: testHost, StoreHost: testHost,
		})
	}
	good := rec(1100, "body", "TAGS\x01a\x02")
	change := func(at int, v byte) []byte {
		b := append([]byte(nil), good...)
		b[at] = v
		return b
	}
	for name, c := range map[string]struct {
		b    []byte
		pos  offset.Physical
		want kind
	}{
		"record":                    {good, 1100, isRecord},
		"bytes behind do not count": {append(append([]byte(nil), good...), 1, 2, 3), 1100, isRecord},
		"wrong place":               {good, 1101, isDamaged},
		"up to the end":             {rec(2000-92-4, "body", ""), 2000 - 92 - 4, isRecord},
		"over the end":              {rec(2000-92-3, "body", ""), 2000 - 92 - 3, isDamaged},
		"head cut":                  {good[:7], 1100, isCut},
		"before own position":       {good[:35], 1100, isCut},
		"cut":                       {good[:len(good)-1], 1100, isCut},
		"nothing at all":            {nil, 1100, isCut},
		"never written":             {make([]byte, 100), 1100, isNothing},
		"blank":                     {[]byte{0, 0, 3, 132, 0xCB, 0xD4, 0x31, 0x94}, 1100, isBlank},
		"blank of another size":     {[]byte{0, 0, 3, 131, 0xCB, 0xD4, 0x31, 0x94}, 1100, isDamaged},
		"too near the end":          {nil, 1993, isBlank},
		"magic":                     {change(4, 0), 1100, isDamaged},
		"size":                      {change(3, 100), 1100, isDamaged},
		"negative size":             {change(0, 0x80), 1100, isDamaged},
		"body":                      {change(len(good)-13, 'x'), 1100, isDamaged},
		"zero at the end":           {change(len(good)-1, 0), 1100, isDamaged},
		"zero in a property":        {change(len(good)-2, 0), 1100, isRecord},
	} {
		require.Equal(t, c.want, examine(c.b, c.pos, seg).kind, name)
	}
	// A sector in the middle of long properties never came to the disk; sectors count from the file's first byte.
	long := rec(1100, "", strings.Repeat("p", 1500))
	seg.To = 4000
	require.Equal(t, isRecord, examine(long, 1100, seg).kind)
	clear(long[512-100 : 1024-100])
	require.Equal(t, isDamaged, examine(long, 1100, seg).kind)
	long[600] = 'p'
	require.Equal(t, isRecord, examine(long, 1100, seg).kind, "zeros in a sector are let pass")
}

func TestWhereRecoveryBegins(t *testing.T) {
	at := func(start offset.Physical, ts int64) head {
		return head{start: start, present: ts > 0, record: message.Record{StoreTimestamp: ts, PhysicalOffset: start}}
	}
	heads := []head{at(0, 10), at(100, 20), at(200, 30), at(300, 0), at(400, 0)}
	for covered, want := range map[offset.Physical]int{0: 0, 99: 0, 100: 1, 150: 1, 250: 2, 350: 2, 1000: 2} {
		require.Equal(t, want, cleanStart(heads, covered), "clean, covered %d", covered)
	}
	require.Zero(t, cleanStart([]head{at(0, 0)}, 1000))
	all := func(*message.Record) (bool, error) { return true, nil }
	for safe, want := range map[int64]int{0: 0, 9: 0, 10: 0, 20: 1, 29: 1, 30: 2, 99: 2} {
		got, err := uncleanStart(heads, safe, all)
		require.NoError(t, err)
		require.Equal(t, want, got, "unclean, safe %d", safe)
	}
	for written, want := range map[offset.Physical]int{0: 1, 100: 1, 200: 2, 300: 2} {
		got, err := keptStart(heads, 1, func(r *message.Record) (bool, error) { return r.PhysicalOffset <= written, nil })
		require.NoError(t, err)
		require.Equal(t, want, got, "killed in the same boot, entries up to %d", written)
	}
	got, err := uncleanStart(heads, 99, func(r *message.Record) (bool, error) { return r.PhysicalOffset < 200, nil })
	require.NoError(t, err)
	require.Equal(t, 1, got, "a head that its queue does not know")
}

func TestHistory(t *testing.T) {
	rec := func(q offset.Queue, ts int64) *message.Record {
		return &message.Record{Topic: []byte("T"), QueueOffset: q, StoreTimestamp: ts}
	}
	h := newHistory()
	require.True(t, h.continues(rec(5, 0)))
	h.add(rec(5, 100))
	require.True(t, h.continues(rec(6, 100)))
	require.True(t, h.continues(rec(6, 50)), "clock set back")
	require.True(t, h.continues(rec(0, 101)), "topic made anew")
	require.False(t, h.continues(rec(5, 99)), "left over")
	require.False(t, h.resumes(rec(6, 99)))
	require.True(t, h.resumes(rec(6, 100)))
	other := rec(0, 50)
	other.Topic = []byte("U")
	require.True(t, h.continues(other))
	tx := rec(0, 50)
	tx.SysFlag = message.FlagPrepared
	require.True(t, h.continues(tx))
}

// Cutting the log at any byte of its last records leaves exactly those in front of the cut, and the numbers go on.
func TestLogCutAtEveryByte(t *testing.T) {
	disk := vfstest.New()
	s := mustOpen(t, small(disk))
	var ends []offset.Physical
	for i := range 8 {
		ends = append(ends, put(t, s, tagged("T", int32(i%2), "tag", fmt.Sprint("body", i))).End)
	}
	data, err := disk.ReadFile(logFile(0))
	require.NoError(t, err)
	image := kill(disk)
	for cut := ends[4]; cut <= ends[7]; cut++ {
		broken := image.CrashClone(vfstest.KeepAll, 0)
		patch(t, broken, logFile(0), int64(cut), make([]byte, len(data)-int(cut)))
		s := mustOpen(t, small(broken))
		whole := 5
		for whole < 8 && ends[whole] <= cut {
			whole++
		}
		require.Equal(t, ends[whole-1], s.Written(), "cut at %d", cut)
		require.Equal(t, s.Written(), s.Dispatched())
		require.Len(t, append(readQueue(t, s, "T", 0), readQueue(t, s, "T", 1)...), whole)
		checkZeroBehind(t, s)
		for i := range 2 {
			q := (whole + i) % 2
			require.EqualValues(t, (whole+i)/2, put(t, s, text("T", int32(q), "next")).Queue)
		}
		require.NoError(t, s.Close())
	}
}

// Scenario: one damaged byte in the middle, other messages behind it.
func TestDamagedRecordIsSkipped(t *testing.T) {
	for _, clean := range []bool{true, false} {
		disk := vfstest.New()
		o := small(disk)
		o.SegmentSize = 1 << 16
		s := mustOpen(t, o)
		var victim Appended
		for i := range 200 {
			a := put(t, s, text("T", 0, fmt.Sprint("t", i)))
			if i == 100 {
				victim = a
			}
			put(t, s, text("U", 0, fmt.Sprint("u", i)))
		}
		if clean {
			require.NoError(t, s.Close())
		}
		disk = kill(disk)
		flip(t, disk, logFile(0), int64(victim.End)-4)
		o.FS = disk
		s = mustOpen(t, o)
		require.Equal(t, []Span{{From: victim.Physical, To: victim.End}}, s.Damaged())
		require.Len(t, readQueue(t, s, "U", 0), 200)
		got := readQueue(t, s, "T", 0)
		require.Len(t, got, 199)
		require.EqualValues(t, 101, got[100].QueueOffset)
		_, batch, err := s.Read(Query{Topic: "T", From: 100, MaxMessages: 1}, nil)
		require.NoError(t, err)
		require.Equal(t, Found, batch.Status)
		require.EqualValues(t, 102, batch.Next)
		require.Equal(t, 1, batch.Holes)
		require.EqualValues(t, 200, put(t, s, text("T", 0, "next")).Queue)
	}
}

// The last message of a queue is damaged: its number stays used.
func TestNumberOfADamagedLastMessageStaysUsed(t *testing.T) {
	disk := vfstest.New()
	s := mustOpen(t, small(disk))
	put(t, s, text("T", 0, "a"))
	victim := put(t, s, text("T", 0, "b"))
	put(t, s, text("U", 0, "c"))
	require.NoError(t, s.writeTails()) // the queue is the only one to know
	disk = kill(disk)
	flip(t, disk, logFile(0), int64(victim.End)-4)
	s = mustOpen(t, small(disk))
	b, _ := s.Bounds("T", 0)
	require.Equal(t, Bounds{0, 2}, b)
	_, batch, err := s.Read(Query{Topic: "T", From: 1}, nil)
	require.NoError(t, err)
	require.Equal(t, Hole, batch.Status)
	require.EqualValues(t, 2, batch.Next)
	require.EqualValues(t, 2, put(t, s, text("T", 0, "d")).Queue)
}

// If the last file ends in a blank record the log goes on in the next file; RocketMQ would write over the blank.
func TestLogThatEndsInABlankRecord(t *testing.T) {
	for _, clean := range []bool{true, false} {
		disk := vfstest.New()
		s := mustOpen(t, small(disk))
		end := put(t, s, text("T", 0, strings.Repeat("a", 3000))).End
		put(t, s, text("T", 0, strings.Repeat("b", 3000)))
		before, err := disk.ReadFile(logFile(0))
		require.NoError(t, err)
		if clean {
			require.NoError(t, s.Close())
		}
		disk = kill(disk)
		require.NoError(t, disk.Remove(logFile(4096)))
		s = mustOpen(t, small(disk))
		require.EqualValues(t, 4096, s.Written())
		a := put(t, s, text("T", 0, "next"))
		require.EqualValues(t, 4096, a.Physical)
		after, err := disk.ReadFile(logFile(0))
		require.NoError(t, err)
		require.Equal(t, before, after, "record ended at %d", end)
		if !clean { // else the queue says that there was a message
			require.EqualValues(t, 1, a.Queue)
		}
	}
}

// What RocketMQ leaves behind a cut end may look like the log's next record once new ones have grown up to it.
func TestLeftOverRecordsAreNotTaken(t *testing.T) {
	disk := vfstest.New()
	o := small(disk)
	now := time.UnixMilli(1_000_000)
	o.Now = func() time.Time { return now }
	s := mustOpen(t, o)
	for i := range 6 {
		put(t, s, text("T", 0, fmt.Sprint("old", i)))
	}
	require.NoError(t, s.Close())
	old, err := disk.ReadFile(logFile(0))
	require.NoError(t, err)

	// Another life of the same log: two messages as before, then, a minute later, one as large as two.
	disk = vfstest.New()
	o.FS = disk
	s = mustOpen(t, o)
	put(t, s, text("T", 0, "old0"))
	end := put(t, s, text("T", 0, "old1")).End
	now = now.Add(time.Minute)
	large := strings.Repeat("n", 4+int(end)/2)
	require.Equal(t, 2*end, put(t, s, text("T", 0, large)).End)
	end *= 2
	for _, clean := range []bool{true, false} {
		image := kill(disk)
		if clean {
			require.NoError(t, image.Remove(testRoot+"/abort"))
		}
		patch(t, image, logFile(0), int64(end), old[end:])
		o.FS = image
		s := mustOpen(t, o)
		require.Equal(t, end, s.Written())
		require.Equal(t, []string{"old0", "old1", large}, bodies(readQueue(t, s, "T", 0)))
		checkZeroBehind(t, s)
		aside := ""
		for _, f := range image.Files() {
			if path.Dir(f) == testRoot+"/damaged" {
				aside = f
			}
		}
		kept, err := image.ReadFile(aside)
		require.NoError(t, err)
		require.Equal(t, old[end:int(end)+len(kept)], kept)
		require.True(t, isZero(old[int(end)+len(kept):]))
		require.EqualValues(t, 3, put(t, s, text("T", 0, "next")).Queue)
	}
}

func TestMissingSegmentIsAHole(t *testing.T) {
	disk := vfstest.New()
	s := mustOpen(t, small(disk))
	for i := range 60 {
		put(t, s, text("T", 0, fmt.Sprint(i, strings.Repeat("x", 100))))
	}
	require.NoError(t, s.Close())
	for _, clean := range []bool{true, false} {
		disk := kill(disk)
		if !clean {
			disk.WriteFile(testRoot+"/abort", nil)
		}
		require.NoError(t, disk.Remove(logFile(4096)))
		s := mustOpen(t, small(disk))
		got := readQueue(t, s, "T", 0)
		require.Less(t, len(got), 60)
		require.Greater(t, len(got), 30)
		require.EqualValues(t, 59, got[len(got)-1].QueueOffset)
		require.EqualValues(t, 60, put(t, s, text("T", 0, "next")).Queue)
		require.NoError(t, s.Close())
	}
}

// All numbers and positions stay used when somebody removes the log.
func TestLogIsGoneButQueuesAreThere(t *testing.T) {
	disk := vfstest.New()
	s := mustOpen(t, small(disk))
	var end offset.Physical
	for range 60 {
		end = put(t, s, text("T", 0, strings.Repeat("x", 100))).End
	}
	require.NoError(t, s.Close())
	require.NoError(t, disk.RemoveAll(testRoot+"/commitlog"))
	s = mustOpen(t, small(disk))
	require.GreaterOrEqual(t, s.Written(), end)
	b, ok := s.Bounds("T", 0)
	require.True(t, ok)
	require.Equal(t, Bounds{60, 60}, b)
	require.EqualValues(t, 60, put(t, s, text("T", 0, "next")).Queue)
	require.Equal(t, []string{"next"}, bodies(readQueue(t, s, "T", 0)))
}

// The queues begin where the log does, when they are rebuilt after its beginning was cleaned.
func TestYoungQueue(t *testing.T) {
	disk := vfstest.New()
	s := mustOpen(t, small(disk))
	for i := range 120 {
		put(t, s, text("T", 0, fmt.Sprint(i, strings.Repeat("x", 100))))
	}
	require.NoError(t, s.Close())
	require.NoError(t, disk.RemoveAll(testRoot+"/consumequeue"))
	require.NoError(t, disk.Remove(logFile(0)))
	s = mustOpen(t, small(disk))
	require.EqualValues(t, 4096, s.Low())
	b, ok := s.Bounds("T", 0)
	require.True(t, ok)
	require.Positive(t, b.Low)
	require.NotZero(t, b.Low%16, "or there is no blank entry")
	require.EqualValues(t, 120, b.High)
	require.Len(t, readQueue(t, s, "T", 0), int(b.High-b.Low))
	require.Equal(t, b.Low, s.SearchByTime("T", 0, 0, false))
	// RocketMQ fills the places before in the first file like that.
	first := int64(b.Low) / 16 * 16
	data, err := disk.ReadFile(queueFile("T", 0, first))
	require.NoError(t, err)
	blank := []byte{0, 0, 0, 0, 0, 0, 0, 0, 0x7F, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0, 0, 0, 0, 0}
	for i := range int64(b.Low) - first {
		require.Equal(t, blank, data[i*entrySize:(i+1)*entrySize])
	}
	require.NoError(t, s.Close())
	s = mustOpen(t, small(disk))
	again, _ := s.Bounds("T", 0)
	require.Equal(t, b, again)
}

func TestFilesThatAKilledMakerLeft(t *testing.T) {
	disk := vfstest.New()
	s := mustOpen(t, small(disk))
	for i := range 16 {
		put(t, s, text("T", 0, fmt.Sprint(i)))
	}
	image := kill(disk)
	image.WriteFile(logFile(4096), make([]byte, 100))          // cut while it was made
	image.WriteFile(queueFile("T", 0, 16), nil)                // likewise
	image.WriteFile(queueFile("U", 0, 0), make([]byte, 30))    // likewise
	image.WriteFile(testRoot+"/consumequeue/V/x/y", []byte{1}) // not ours
	image.WriteFile(testRoot+"/consumequeue/file", []byte{1})
	image.WriteFile(testRoot+"/timerlog/00000000000000000000", []byte{1})
	s = mustOpen(t, small(image))
	require.Len(t, readQueue(t, s, "T", 0), 16)
	for i := range 40 {
		require.EqualValues(t, 16+i, put(t, s, text("T", 0, strings.Repeat("x", 100))).Queue)
	}
	require.EqualValues(t, 0, put(t, s, text("U", 0, "x")).Queue)
	for _, f := range []string{"/consumequeue/V/x/y", "/consumequeue/file", "/timerlog/00000000000000000000"} {
		require.Contains(t, image.Files(), testRoot+f)
	}
	image = kill(disk)
	image.WriteFile(logFile(4096), nil)
	s = mustOpen(t, small(image))
	require.NotContains(t, image.Files(), logFile(4096))
	require.Len(t, readQueue(t, s, "T", 0), 16)
}

// A checkpoint of garbage costs time and nothing else; one that is in order spares reading old segments.
func TestCheckpointSaysWhereRecoveryBegins(t *testing.T) {
	disk := vfstest.New()
	o := small(disk)
	now := time.UnixMilli(1_000_000_000)
	o.Now = func() time.Time { return now }
	s := mustOpen(t, o)
	for i := range 100 {
		now = now.Add(time.Second)
		put(t, s, text("T", 0, fmt.Sprint(i, strings.Repeat("x", 100))))
	}
	require.NoError(t, s.saveCheckpoint())
	opened := func(image *vfstest.Mem) int {
		o.FS = image
		s := mustOpen(t, o)
		require.Len(t, readQueue(t, s, "T", 0), 100)
		require.NoError(t, s.Close())
		return image.Count(vfstest.OpRead)
	}
	good := opened(kill(disk))
	for _, garbage := range [][]byte{nil, []byte("short"), []byte(strings.Repeat("\xFF", 4096)), make([]byte, 4096)} {
		image := kill(disk)
		image.WriteFile(testRoot+"/checkpoint", garbage)
		require.Greater(t, opened(image), good)
	}
}

// The fields of the checkpoint that a Java broker uses and this one does not are kept.
func TestCheckpointBytes(t *testing.T) {
	disk := vfstest.New()
	theirs := make([]byte, 4096)
	for i := range theirs {
		theirs[i] = byte(i)
	}
	disk.WriteFile(testRoot+"/checkpoint", theirs)
	o := small(disk)
	o.Now = func() time.Time { return time.UnixMilli(0x0102030405) }
	s := mustOpen(t, o)
	put(t, s, text("T", 0, "x"))
	require.NoError(t, s.Close())
	ours, err := disk.ReadFile(testRoot + "/checkpoint")
	require.NoError(t, err)
	want := []byte{0, 0, 0, 1, 2, 3, 4, 5}
	require.Equal(t, append(append(want, want...), theirs[16:]...), ours)
}

// recordingIndex is an Indexer that keeps positions.
type recordingIndex struct {
	put     []offset.Physical
	lost    bool
	failing error
	end     offset.Physical
	reset   offset.Physical
	runs    chan bool // gets what Run begins and ends with
}

func (x *recordingIndex) Put(r *message.Record) error {
	if r.PhysicalOffset >= x.end {
		x.put = append(x.put, r.PhysicalOffset)
	}
	return nil
}

func (x *recordingIndex) PutAll(requests []message.DispatchRequest) error {
	for i := range requests {
		_ = x.Put(&message.Record{PhysicalOffset: requests[i].PhysicalOffset})
	}
	return nil
}

func (x *recordingIndex) Run(ctx context.Context) error {
	if x.runs != nil {
		x.runs <- true
		<-ctx.Done()
		x.runs <- false
	}
	return nil
}

func (x *recordingIndex) Flush() error                       { return x.failing }
func (x *recordingIndex) Lost() bool                         { return x.lost }
func (x *recordingIndex) End() offset.Physical               { return x.end }
func (x *recordingIndex) DeleteBefore(offset.Physical) error { return nil }

func (x *recordingIndex) Reset(to offset.Physical) error {
	x.reset = to
	return nil
}

// An index that has failed to flush, be it once, must be looked at by the next start: a sync that fails is not made good by
// the next.
func TestFailedIndexMakesTheStopUnclean(t *testing.T) {
	disk := vfstest.New()
	o := small(disk)
	x := &recordingIndex{}
	o.Index = x
	now := time.UnixMilli(1_000_000)
	o.Now = func() time.Time {
		now = now.Add(time.Second)
		return now
	}
	s := mustOpen(t, o)
	put(t, s, text("T", 0, "a"))
	require.NoError(t, s.saveCheckpoint())
	vouched := s.checkpoint.index
	require.NotZero(t, vouched)
	x.failing = errDisk
	put(t, s, text("T", 0, "b"))
	require.NoError(t, s.saveCheckpoint(), "messages and queues are safe all the same")
	x.failing = nil
	put(t, s, text("T", 0, "c"))
	require.NoError(t, s.saveCheckpoint())
	require.Equal(t, vouched, s.checkpoint.index)
	require.ErrorIs(t, s.Close(), errDisk)
	require.Contains(t, disk.Files(), testRoot+"/abort")
	clean := true
	o.OpenIndex = func(was bool, synced int64) (Indexer, error) {
		clean = was
		require.Equal(t, vouched, synced)
		return &recordingIndex{}, nil
	}
	s = mustOpen(t, o)
	require.False(t, clean)
	require.NoError(t, s.Close())
	require.NotContains(t, disk.Files(), testRoot+"/abort")
}

func TestIndexRunsAsLongAsTheStore(t *testing.T) {
	o := small(vfstest.New())
	x := &recordingIndex{runs: make(chan bool, 2)}
	o.Index = x
	s := running(t, mustOpen(t, o))
	require.True(t, <-x.runs)
	require.Empty(t, x.runs)
	require.NoError(t, s.Close())
	require.False(t, <-x.runs)
}

func TestIndexIsFedFromItsEnd(t *testing.T) {
	disk := vfstest.New()
	o := small(disk)
	all := &recordingIndex{}
	o.Index = all
	s := mustOpen(t, o)
	for range 100 {
		put(t, s, text("T", 0, strings.Repeat("x", 100)))
	}
	require.Len(t, all.put, 100)
	require.NoError(t, s.Close())
	for _, n := range []int{10, 50, 99} {
		late := &recordingIndex{end: all.put[n]}
		o.FS, o.Index = kill(disk), late
		require.NoError(t, mustOpen(t, o).Close())
		require.Equal(t, all.put[n:], late.put)
	}
	lost := &recordingIndex{lost: true}
	o.FS, o.Index = kill(disk), lost
	require.NoError(t, mustOpen(t, o).Close())
	require.Equal(t, all.put, lost.put, "from the log's beginning")
	ahead := &recordingIndex{end: 1 << 40}
	o.FS, o.Index = kill(disk), ahead
	s = mustOpen(t, o)
	require.Equal(t, s.Written(), ahead.reset)
}

// TestAQueueWithAGapIsSyncedAfterAKill: its entries in front of the gap, too, which the checkpoint does not vouch for either.
func TestAQueueWithAGapIsSyncedAfterAKill(t *testing.T) {
	disk := vfstest.New()
	o := small(disk)
	now := time.UnixMilli(1_000_000_000)
	o.Now = func() time.Time { return now }
	s := mustOpen(t, o)
	require.NoError(t, s.saveCheckpoint()) // makes the file
	put(t, s, text("T", 0, "in front of the gap"))
	_, err := s.Leave(Lost{Queue: func(_ string, _ int32, next offset.Queue) offset.Queue { return next + 24 }})
	require.NoError(t, err)
	n := 1
	for ; s.Written() < 3*4096; n++ {
		now = now.Add(time.Second)
		put(t, s, text("T", 0, "behind it"))
	}
	o.FS = kill(disk)
	o.SameBoot = true
	again := mustOpen(t, o)
	require.NoError(t, again.saveCheckpoint())
	o.FS = o.FS.(*vfstest.Mem).CrashClone(vfstest.KeepNothing, 1)
	o.SameBoot = false
	require.Len(t, readQueue(t, mustOpen(t, o), "T", 0), n)
}
