package store

import (
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/internal/vfs"
	"github.com/ratchetmq/ratchet/internal/vfs/vfstest"
)

// syncCounter counts how many syncs of queue files are under way.
type syncCounter struct {
	*vfstest.Mem
	now, most atomic.Int32
	enough    int32 // each waits until there are so many
}

type countedFile struct {
	vfs.File
	counter *syncCounter
}

func (c *syncCounter) Open(name string) (vfs.File, error) { return c.counted(c.Mem.Open(name)) }
func (c *syncCounter) Make(name string, fill func(vfs.File) error) (vfs.File, error) {
	return c.counted(c.Mem.Make(name, fill))
}

func (c *syncCounter) counted(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return countedFile{f, c}, nil
}

func (f countedFile) Sync() error {
	c := f.counter
	if strings.Contains(f.Name(), queueFolder) {
		now := c.now.Add(1)
		for most := c.most.Load(); now > most && !c.most.CompareAndSwap(most, now); {
			most = c.most.Load()
		}
		for range 100 {
			runtime.Gosched()
		}
		for c.most.Load() < c.enough {
			runtime.Gosched()
		}
		defer c.now.Add(-1)
	}
	return f.File.Sync()
}

// TestCheckpointIsPoliteToProducers: with SyncFlush, in which they wait for the disk, it syncs few files at once, until the store stops.
func TestCheckpointIsPoliteToProducers(t *testing.T) {
	disk := &syncCounter{Mem: vfstest.New()}
	o := small(disk)
	o.Flush = SyncFlush
	s := mustOpen(t, o)
	all := func() {
		for i := range int32(40) {
			put(t, s, text("T", i, "x"))
		}
	}
	all()
	require.NoError(t, s.saveCheckpoint())
	require.LessOrEqual(t, disk.most.Load(), int32(politeSyncers))
	all()
	disk.enough = politeSyncers + 1 // else Close does not end
	require.NoError(t, s.Close())
}
