package store

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/internal/vfs/vfstest"
)

func TestMisnumbered(t *testing.T) {
	yes, no, unknown := witness{confirms: true}, witness{denies: true}, witness{}
	for name, c := range map[string]struct {
		number, next, again offset.Queue
		w                   witness
		want                bool
	}{
		"due":                                {9, 9, 0, unknown, false},
		"messages before it are lost":        {12, 9, 0, unknown, false},
		"ahead, the queue has it elsewhere":  {12, 9, 0, no, true},
		"back":                               {5, 9, 0, unknown, true},
		"twice":                              {8, 9, 0, unknown, true},
		"back, but the queue says so":        {5, 9, 0, yes, false},
		"topic made anew":                    {0, 9, 0, unknown, false},
		"0, but the queue has it elsewhere":  {0, 9, 0, no, true},
		"topic made anew, its first is lost": {6, 9, 6, unknown, false},
		"back, where nobody is":              {5, 9, 0, witness{free: true}, false},
		"nobody is there, but elsewhere":     {5, 9, 0, witness{denies: true, free: true}, true},
	} {
		require.Equal(t, c.want, misnumbered(c.number, c.next, c.again, c.w), name)
	}
}

// TestALostQueueFileDeniesNoRecord: a power cut took a file of a queue, but not the one behind it. What is missing reads as blank, and
// so the queue seems to go on behind the record.
func TestALostQueueFileDeniesNoRecord(t *testing.T) {
	fsys := vfstest.New()
	o := small(fsys)
	o.ConsumeQueueUnits = 4
	now := time.UnixMilli(1_000_000_000)
	o.Now = func() time.Time { return now }
	s := mustOpen(t, o)
	put(t, s, text("T", 0, "first"))
	put(t, s, text("U", 0, strings.Repeat("x", 3800)))
	now = now.Add(time.Hour)
	put(t, s, text("U", 0, strings.Repeat("y", 3800)))
	now = now.Add(time.Minute)
	put(t, s, text("U", 0, "behind"))
	level(t, s)
	require.NoError(t, s.saveCheckpoint())
	_, err := s.Leave(Lost{Queue: func(_ string, _ int32, next offset.Queue) offset.Queue { return next + 6 }})
	require.NoError(t, err)
	require.EqualValues(t, 7, put(t, s, text("T", 0, "last of its file")).Queue)
	put(t, s, text("T", 0, "in the next file"))
	level(t, s)

	o.FS = fsys.CrashClone(vfstest.KeepAll, 0)
	require.NoError(t, o.FS.Remove(queueFile("T", 0, 4)))
	again := mustOpen(t, o)
	require.Empty(t, again.Damaged())
	require.Equal(t, []string{"first", "last of its file", "in the next file"}, bodies(readQueue(t, again, "T", 0)))
}
