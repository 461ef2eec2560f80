package state

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/internal/atomicfile"
	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/internal/vfs/vfstest"
	"github.com/ratchetmq/ratchet/protocol"
)

func fixture(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	require.NoError(t, err)
	return data
}

func at(name string) string { return filepath.Join(dir, name) }

func TestOffsetsOfJavaBrokersAreRead(t *testing.T) {
	for name, want := range map[string]offset.Queue{"4.9.7": 1746, "5.4.0": 5748} {
		fsys := vfstest.New()
		fsys.WriteFile(at(offsetsName), fixture(t, "consumerOffset-"+name+".json"))
		o := openOffsets(t, fsys, nil)
		requireOffset(t, o, "G1", "T", 2, want)
		requireOffset(t, o, "G1", "%RETRY%G1", 0, 0)
		require.Len(t, o.Queues("G1", "T"), 4)
	}
	// A Java broker with LMQ on keeps them in another file.
	fsys := vfstest.New()
	fsys.WriteFile(at(lmqOffsetsName), fixture(t, "lmqConsumerOffset-4.9.7.json"))
	o := openOffsets(t, fsys, nil)
	requireOffset(t, o, "GFix", "FxNormal", 1, 3)
}

// The form of the file is that of a Java broker: bare numbers as keys, and no key that it would choke on.
func TestTheOffsetFileIsJavas(t *testing.T) {
	fsys, c := vfstest.New(), newClock()
	o := openOffsets(t, fsys, c.Now)
	commit(t, o, "g", "t", 10, 5)
	commit(t, o, "g", "t", 2, 7)
	require.NoError(t, o.Save())
	got, err := fsys.ReadFile(at(offsetsName))
	require.NoError(t, err)
	require.Equal(t, `{
"dataVersion":{"counter":2,"stateVersion":0,"timestamp":1700000000000},
"offsetTable":{
"t@g":{2:7,10:5}
},
"groupTopicMap":{"g":["t"]},
"ratchet":{"journal":2,"resets":[]}
}
`, string(got))
}

func journals(fsys *vfstest.Mem) (names []string) {
	for _, f := range fsys.Files() {
		if strings.Contains(f, journalPrefix) {
			names = append(names, f)
		}
	}
	return names
}

func TestACleanStopLeavesTwoFullFilesAndNoJournal(t *testing.T) {
	fsys := vfstest.New()
	o := openOffsets(t, fsys, nil)
	commit(t, o, "g", "t", 0, 5)
	require.NoError(t, o.Reset("g", "t", 1, 9))
	require.NoError(t, o.Close())
	require.Empty(t, journals(fsys))
	for _, name := range []string{offsetsName, offsetsName + ".bak"} {
		data, err := fsys.ReadFile(at(name))
		require.NoError(t, err)
		require.Contains(t, string(data), `"t@g":{0:5,1:9}`)
	}
	for range 3 { // and from here the generations go on rising
		o = openOffsets(t, fsys, nil)
		requireOffset(t, o, "g", "t", 0, 5)
		require.Equal(t, int64(1), o.Stats().PendingResets)
		commit(t, o, "h", "t", 0, 5)
		fsys = killed(fsys)
		fsys.WriteFile(at(offsetsName), nil) // the main file is lost: the backup and the journals have it all
	}
	o = openOffsets(t, fsys, nil)
	requireOffset(t, o, "h", "t", 0, 5)
	require.ErrorIs(t, func() error {
		require.NoError(t, o.Close())
		_, err := o.Commit(Commit{Group: "g", Topic: "t", Offset: 6, Known: -1})
		return err
	}(), errJournalClosed)
}

// Scenario 2-05, for all three files.
func TestDamagedFiles(t *testing.T) {
	files := map[string]struct {
		open func(f Files) error
		good []byte
	}{
		"topics.json": {func(f Files) error {
			o, err := OpenTopics(TopicOptions{Files: f, Cluster: "C", Broker: "B", AutoCreate: yes, DefaultQueues: 8, DelayLevels: 18})
			if err == nil {
				if _, ok := o.Get("T"); !ok {
					return errors.New("T is missing")
				}
			}
			return err
		}, fixture(t, "topics-4.9.7.json")},
		"subscriptionGroup.json": {func(f Files) error {
			g, err := OpenGroups(GroupOptions{Files: f, AutoCreate: yes})
			if err == nil {
				if _, ok := g.Get("G1"); !ok {
					return errors.New("G1 is missing")
				}
			}
			return err
		}, fixture(t, "subscriptionGroup-4.9.7.json")},
		"consumerOffset.json": {func(f Files) error {
			o, err := OpenOffsets(OffsetOptions{Files: f})
			if err == nil {
				if q, _ := o.Query("G1", "T", 0); q != 1750 {
					return errors.New("1750 is missing")
				}
			}
			return err
		}, fixture(t, "consumerOffset-4.9.7.json")},
	}
	for name, file := range files {
		bad := map[string][]byte{
			"empty": nil, "half": file.good[:len(file.good)/2], "NULs": make([]byte, 500), "null": []byte("null"),
			"another object": []byte(`{"x":1}`), "no object": []byte("[]"),
		}
		for what, content := range bad {
			t.Run(name+" "+what, func(t *testing.T) {
				fsys := vfstest.New()
				fsys.WriteFile(at(name), content)
				fsys.WriteFile(at(name+".bak"), file.good)
				require.NoError(t, file.open(Files{FS: fsys, Dir: dir}))

				fsys = vfstest.New()
				fsys.WriteFile(at(name), content)
				fsys.WriteFile(at(name+".bak"), content)
				err := file.open(Files{FS: fsys, Dir: dir})
				require.ErrorIs(t, err, atomicfile.ErrDamaged)
				require.ErrorContains(t, err, at(name))
			})
		}
		t.Run(name+" both missing", func(t *testing.T) {
			require.ErrorContains(t, file.open(Files{FS: vfstest.New(), Dir: dir}), "is missing")
		})
	}
}

func yes() bool { return true }
func no() bool  { return false }

// Kill -9 or a power cut at any operation of the disk, while offsets are saved: what was committed before is never lost.
func TestACrashAtAnyMomentOfASave(t *testing.T) {
	for stop := 1; ; stop++ {
		fsys := vfstest.New()
		o := openOffsets(t, fsys, nil)
		commit(t, o, "g", "t", 0, 5)
		require.NoError(t, o.Save())
		commit(t, o, "g", "t", 0, 6)
		commit(t, o, "h", "t", 0, 1)
		require.NoError(t, o.journal.sync())
		var clones []*vfstest.Mem
		n := 0
		fsys.SetFault(func(op vfstest.Op) *vfstest.Fault {
			n++
			return vfstest.FailNth(1, func(vfstest.Op) bool { return n >= stop }, syscall.EIO)(op)
		})
		err := o.Save()
		fsys.SetFault(nil)
		for seed := range uint64(8) {
			clones = append(clones, fsys.CrashClone(vfstest.KeepSome, seed))
		}
		clones = append(clones, fsys.CrashClone(vfstest.KeepAll, 0), fsys.CrashClone(vfstest.KeepNothing, 0))
		for _, m := range clones {
			again := openOffsets(t, m, nil)
			requireOffset(t, again, "g", "t", 0, 6)
			requireOffset(t, again, "h", "t", 0, 1)
		}
		// And the broker that met the error goes on.
		commit(t, o, "g", "t", 0, 7)
		require.NoError(t, o.Save())
		again := openOffsets(t, killed(fsys), nil)
		requireOffset(t, again, "g", "t", 0, 7)
		if err == nil {
			require.Greater(t, stop, 5)
			return
		}
	}
}

func TestAJavaBrokerWroteTheFileMeanwhile(t *testing.T) {
	fsys := vfstest.New()
	o := openOffsets(t, fsys, nil)
	commit(t, o, "G1", "T", 0, 1)    // Java went on from here
	commit(t, o, "G1", "T", 1, 9000) // Java never knew
	require.NoError(t, o.Reset("G1", "T", 2, 3))
	fsys = killed(fsys)
	fsys.WriteFile(at(offsetsName), fixture(t, "consumerOffset-4.9.7.json"))
	o = openOffsets(t, fsys, nil)
	requireOffset(t, o, "G1", "T", 0, 1750)
	requireOffset(t, o, "G1", "T", 1, 9000)
	requireOffset(t, o, "G1", "T", 2, 1746)
}

func TestAnOperatorTookTheFileAway(t *testing.T) {
	fsys := vfstest.New()
	o := openOffsets(t, fsys, nil)
	commit(t, o, "g", "t", 0, 5)
	require.NoError(t, o.Save())
	commit(t, o, "g", "t", 0, 6)
	fsys = killed(fsys)
	require.NoError(t, fsys.Remove(at(offsetsName)))
	require.NoError(t, fsys.Remove(at(offsetsName+".bak")))
	for range 2 {
		o = openOffsets(t, fsys, nil)
		_, ok := o.Query("g", "t", 0)
		require.False(t, ok)
		fsys = killed(fsys)
	}
}

func TestAFullDiskAndItsEnd(t *testing.T) {
	fsys, c := vfstest.New(), newClock()
	o := openOffsets(t, fsys, c.Now)
	commit(t, o, "g", "t", 0, 5)
	fsys.SetFault(func(op vfstest.Op) *vfstest.Fault {
		if op.Kind == vfstest.OpWrite {
			return &vfstest.Fault{Err: syscall.ENOSPC}
		}
		return nil
	})
	got, err := o.Commit(Commit{Group: "g", Topic: "t", Offset: 6, Known: -1})
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.True(t, got.Stored, "it counts as long as the process lives")
	requireOffset(t, o, "g", "t", 0, 6)
	c.advance(time.Hour)
	for range 10 {
		require.ErrorIs(t, o.Tick(), syscall.ENOSPC)
	}
	require.LessOrEqual(t, len(journals(fsys)), 2, "a full disk does not breed empty journals")
	fsys.SetFault(nil)
	require.NoError(t, o.Tick())
	requireOffset(t, openOffsets(t, killed(fsys), nil), "g", "t", 0, 6)
	commit(t, o, "g", "t", 0, 7)
	requireOffset(t, openOffsets(t, killed(fsys), nil), "g", "t", 0, 7)
	require.Positive(t, o.Stats().JournalErrors)
	version := o.save.version.Counter
	require.NoError(t, o.Tick())
	require.Equal(t, version, o.save.version.Counter, "all is as it was: the next save is not due yet")
}

// What is in memory alone is not answered as stored when it comes again, though what came in between has found room.
func TestACommitThatFailedFailsAgainUntilItIsWritten(t *testing.T) {
	fsys := vfstest.New()
	o := openOffsets(t, fsys, nil)
	commit(t, o, "g", "t", 0, 5)
	full := func(op vfstest.Op) *vfstest.Fault {
		if op.Kind == vfstest.OpWrite {
			return &vfstest.Fault{Err: syscall.ENOSPC}
		}
		return nil
	}
	again := Commit{Group: "g", Topic: "t", Offset: 6, Known: -1}
	fsys.SetFault(full)
	_, err := o.Commit(again)
	require.ErrorIs(t, err, syscall.ENOSPC)
	fsys.SetFault(nil)
	commit(t, o, "h", "t", 0, 1)
	if _, err = o.Commit(again); err == nil {
		requireOffset(t, openOffsets(t, killed(fsys), nil), "g", "t", 0, 6)
	}
	if _, err = o.MergeMax([]Position{{Group: "g", Topic: "t", Offset: 6}}); err == nil {
		requireOffset(t, openOffsets(t, killed(fsys), nil), "g", "t", 0, 6)
	}
	require.NoError(t, o.Save())
	_, err = o.Commit(again)
	require.NoError(t, err)
	requireOffset(t, openOffsets(t, killed(fsys), nil), "g", "t", 0, 6)
}

// The journal was begun, and then the file could not be replaced: commits go on in that journal.
func TestAJournalIsDurableWithoutItsSnapshot(t *testing.T) {
	fsys := vfstest.New()
	o := openOffsets(t, fsys, nil)
	commit(t, o, "g", "t", 0, 5)
	fsys.SetFault(func(op vfstest.Op) *vfstest.Fault {
		if op.Kind == vfstest.OpRename {
			return &vfstest.Fault{Err: syscall.EIO}
		}
		return nil
	})
	require.ErrorIs(t, o.Save(), syscall.EIO)
	commit(t, o, "g", "t", 0, 6)
	require.NoError(t, o.journal.sync())
	requireOffset(t, openOffsets(t, fsys.CrashClone(vfstest.KeepNothing, 0), nil), "g", "t", 0, 6)
}

func TestAFailedSyncIsAnsweredByASnapshot(t *testing.T) {
	fsys := vfstest.New()
	o := openOffsets(t, fsys, nil)
	commit(t, o, "g", "t", 0, 5)
	failed := false
	fsys.SetFault(func(op vfstest.Op) *vfstest.Fault {
		if failed || op.Kind != vfstest.OpSync {
			return nil
		}
		failed = true
		return &vfstest.Fault{Err: syscall.EIO}
	})
	require.ErrorIs(t, o.Tick(), syscall.EIO)
	requireOffset(t, openOffsets(t, fsys.CrashClone(vfstest.KeepNothing, 0), nil), "g", "t", 0, 5)
}

func TestWhenItIsTimeForASnapshot(t *testing.T) {
	c := newClock()
	o, err := OpenOffsets(OffsetOptions{Files: Files{FS: vfstest.New(), Dir: dir, Now: c.Now}, Large: 3, JournalLimit: 300})
	require.NoError(t, err)
	saved := func() bool {
		before := o.save.version.Counter
		require.NoError(t, o.Tick())
		return o.save.version.Counter > before
	}
	c.advance(time.Hour)
	require.False(t, saved(), "nothing changed")
	commit(t, o, "g", "t", 0, 1)
	require.True(t, saved(), "a small table, after 5 s")
	commit(t, o, "g", "t", 0, 2)
	c.advance(4 * time.Second)
	require.False(t, saved())
	c.advance(time.Second)
	require.True(t, saved())

	commit(t, o, "g", "t", 1, 1)
	commit(t, o, "g", "t", 2, 1)
	c.advance(5 * time.Second)
	require.True(t, saved())
	commit(t, o, "g", "t", 0, 3)
	c.advance(59 * time.Second)
	require.False(t, saved(), "a large table")
	c.advance(time.Second)
	require.True(t, saved())
	for i := range 10 {
		commit(t, o, "g", "t", 0, offset.Queue(10+i))
	}
	require.True(t, saved(), "a large table with a long journal")
}

func TestRunSavesByItselfAndAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := vfstest.New()
		o := openOffsets(t, fsys, nil)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- o.Run(ctx) }()
		commit(t, o, "g", "t", 0, 5)
		time.Sleep(1500 * time.Millisecond) // of the bubble's clock
		requireOffset(t, openOffsets(t, fsys.CrashClone(vfstest.KeepNothing, 0), nil), "g", "t", 0, 5)
		time.Sleep(5 * time.Second)
		data, err := fsys.ReadFile(at(offsetsName))
		require.NoError(t, err)
		require.Contains(t, string(data), "{0:5}")
		commit(t, o, "g", "t", 0, 6)
		cancel()
		require.NoError(t, <-done)
		data, err = fsys.ReadFile(at(offsetsName))
		require.NoError(t, err)
		require.Contains(t, string(data), "{0:6}")
	})
}

// A journal that ends anywhere gives all records that are whole, and no error.
func TestATornJournal(t *testing.T) {
	fsys := vfstest.New()
	o := openOffsets(t, fsys, nil)
	for i := range 4 {
		commit(t, o, "g", "t", 0, offset.Queue(i+1))
	}
	name := journals(fsys)[0]
	whole, err := fsys.ReadFile(name)
	require.NoError(t, err)
	size := len(whole) / 4
	for cut := range len(whole) + 1 {
		for _, tail := range [][]byte{nil, make([]byte, 100), []byte("waste that is longer than the head of a record is, by some bytes more")} {
			m := killed(fsys)
			m.WriteFile(name, append(append([]byte(nil), whole[:cut]...), tail...))
			again := openOffsets(t, m, nil)
			got, ok := again.Query("g", "t", 0)
			require.Equal(t, cut >= size, ok, "%d of %d bytes, then %q", cut, len(whole), tail)
			require.Equal(t, offset.Queue(cut/size), got)
			commit(t, again, "g", "t", 0, 50)
			requireOffset(t, openOffsets(t, killed(m), nil), "g", "t", 0, 50)
		}
	}
	// Behind a write that failed halfway, older records may follow newer ones.
	older := appendRecord(nil, 3, record{op: opCommit, group: "g", topic: "t", offset: 2})
	newer := appendRecord(nil, 9, record{op: opCommit, group: "g", topic: "t", offset: 8})
	m := killed(fsys)
	m.WriteFile(name, append(newer, older...))
	requireOffset(t, openOffsets(t, m, nil), "g", "t", 0, 8)
}

func TestRecordsReadBackAsWritten(t *testing.T) {
	for _, r := range []record{
		{op: opCommit, group: "g", topic: "t", queue: 7, offset: 1 << 40},
		{op: opReset, group: "g", topic: "%RETRY%g", offset: 1, prior: -1, epoch: 1_700_000_000_000},
		{op: opRemoveTopic, topic: strings.Repeat("t", 255)},
		{op: opSettle, group: "g", topic: "é"},
	} {
		b := append(appendRecord([]byte("head"), 42, r), 1, 2, 3)
		got, seq, rest, ok := readRecord(b[4:])
		require.True(t, ok)
		require.Equal(t, r, got)
		require.Equal(t, uint64(42), seq)
		require.Equal(t, []byte{1, 2, 3}, rest)
	}
}

// The layout in journal.go, byte for byte.
func TestTheJournalsLayoutIsPinned(t *testing.T) {
	b := appendRecord(nil, 0x0102030405060708, record{op: opCommit, group: "gg", topic: "t", queue: 3, offset: 0x1122334455667788, prior: -1, epoch: 5})
	require.Equal(t, "\x40\x36\x08\x72\x00\x00\x00\x2a\x01\x02\x03\x04\x05\x06\x07\x08\x01\x11\x22\x33\x44\x55\x66\x77\x88"+
		"\xff\xff\xff\xff\xff\xff\xff\xff\x00\x00\x00\x00\x00\x00\x00\x05\x00\x00\x00\x03\x00\x01tgg", string(b))
}

func FuzzJournal(f *testing.F) {
	f.Add(appendRecord(appendRecord(nil, 1, record{op: opCommit, group: "g", topic: "t", offset: 1}), 2, record{op: opReset, group: "g", topic: "t"}))
	f.Add(appendRecord(nil, 1, record{op: opSettle, group: "g", topic: "t"}))
	f.Add(appendRecord(nil, 1, record{op: 77, group: "g", topic: "t"}))
	f.Add([]byte("\x00\x00\x00\x00\x00\x00\x00\x2a"))
	f.Fuzz(func(t *testing.T, data []byte) {
		n := 0
		_, unused := readRecords(data, func(record) { n++ })
		require.LessOrEqual(t, unused+n*(recordHead+recordBody), len(data))
		fsys := vfstest.New()
		fsys.WriteFile(at(offsetsName), []byte(`{"offsetTable":{},"ratchet":{"journal":1}}`))
		fsys.WriteFile(at(journalPrefix+"000001"), data)
		o := openOffsets(t, fsys, nil)
		require.Equal(t, o.Table().OffsetTable, openOffsets(t, killed(fsys), nil).Table().OffsetTable)
	})
}

func TestAnOddNameInTheFileIsLeftOutNotFatal(t *testing.T) {
	fsys := vfstest.New()
	fsys.WriteFile(at(offsetsName), []byte(`{"offsetTable":{"nogroup":{0:1},"t@g@h":{0:1},"t@g":{0:-1,1:4},"@g":{0:1}}}`))
	o := openOffsets(t, fsys, nil)
	require.Equal(t, map[string]map[int32]int64{"t@g@h": {0: 1}, "t@g": {1: 4}}, o.Table().OffsetTable)
	// And what is written for odd names is JSON, but for the bare numbers.
	commit(t, o, "g\"\x01é", "t\\", 0, 1)
	require.NoError(t, o.Save())
	data, err := fsys.ReadFile(at(offsetsName))
	require.NoError(t, err)
	var table protocol.ConsumerOffsetTable
	require.NoError(t, protocol.Unmarshal(data, &table))
	require.Equal(t, int64(1), table.OffsetTable["t\\@g\"\x01é"][0])
	require.False(t, json.Valid(data))
}

func TestAnUnreadableFolderStopsTheStart(t *testing.T) {
	fsys := vfstest.New()
	fsys.SetFault(func(op vfstest.Op) *vfstest.Fault {
		if op.Kind == vfstest.OpOpen {
			return &vfstest.Fault{Err: fs.ErrPermission}
		}
		return nil
	})
	_, err := OpenOffsets(OffsetOptions{Files: Files{FS: fsys, Dir: dir}})
	require.ErrorIs(t, err, fs.ErrPermission)
}
