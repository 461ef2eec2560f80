package store

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/internal/vfs"
	"github.com/ratchetmq/ratchet/message"
)

// FlushMode says when an append counts as safe.
type FlushMode uint8

const (
	// AsyncFlush syncs the log from time to time; consumers see a message as soon as it is written.
	AsyncFlush FlushMode = iota
	// SyncFlush syncs the log for whoever waits, many appends at once; consumers see a message when it is synced.
	SyncFlush
)

// Options are the settings of a store. The zero value of each field but Root means the default in brackets.
type Options struct {
	FS   vfs.FS // [vfs.OS]
	Root string // folder of the store; made when missing

	// Folders of the log's segments, used in turn; one whose disk is fuller than Retention.Force is passed over while
	// another has room. [Root/commitlog]
	CommitLogDirs []string
	// Folders with segments that are read like the others, and never written. No new ones are made there, even if they
	// are among CommitLogDirs too. [none]
	ReadOnlyCommitLogDirs []string

	SegmentSize       int64 // bytes of a commit log file; must be that of the files there are [1 GiB]
	ConsumeQueueUnits int   // entries of a consume queue file, likewise [300,000]
	MaxOpenQueueFiles int   // consume queue files kept open [512]

	Flush              FlushMode     // [AsyncFlush]
	FlushInterval      time.Duration // AsyncFlush: pause between syncs [500 ms]
	FlushLeastBytes    int64         // AsyncFlush: with less than that the sync waits for another round [16 KiB]
	FlushThorough      time.Duration // AsyncFlush: but no longer than that [10 s]
	CheckpointInterval time.Duration // pause between checkpoints; longer when one takes long [10 s]
	// Appends wait while more than that is written and not synced: what a power cut can take. [no bound]
	MaxUnflushedBytes    int64
	MaxUnflushedMessages int64

	// Confirmed bounds what dispatch shows to readers, beside Flush: on a master that answers for its replicas a message
	// is seen when they have it. It is asked at each step; WakeDispatch says that it has risen. [no bound]
	Confirmed func() offset.Physical

	Retention     func() Retention // asked at each look, so that it can change at run time [nothing goes, nothing is refused]
	CleanInterval time.Duration    // between looks [10 s]
	OnExpire      func(Expired)    // told of each queue whose oldest messages go, just before they do; it must not block

	// SameBoot says that whoever had the store before ran under the kernel that still runs, and had come through its Open: if it
	// was killed, the kernel has all that it wrote. [false]
	SameBoot bool

	OpenWorkers int // goroutines that check and load what is there while the store opens [GOMAXPROCS]

	MaxMessageSize int            // bytes of a body [4 MiB]
	StoreHost      netip.AddrPort // this broker's address, part of every record

	Index Indexer // [none]
	// OpenIndex makes the Index once the folder is locked, so that a second process can't touch its files. clean says
	// that the last stop was; else what is about messages stored up to synced (ms, by the checkpoint; 0: not known) can
	// be relied on. Whoever made the index closes it, before the store. [Index as it is]
	OpenIndex func(clean bool, synced int64) (Indexer, error)
	// TagsCode is what a message's consume queue entry carries for filters. It must depend on the record alone, for
	// it is called again when queues are rebuilt. [message.TagsCode of the TAGS property]
	TagsCode func(r *message.Record) int64

	Logger *slog.Logger     // [discard]
	Now    func() time.Time // [time.Now]
}

// Indexer is the key index as the store feeds it. It is called from one goroutine at a time, but for Run.
type Indexer interface {
	// Put takes the next record in log order. Below End it does nothing. r and its bytes are borrowed.
	Put(r *message.Record) error
	// PutAll is Put for what dispatch has of records one after the other, up to the first error.
	PutAll(requests []message.DispatchRequest) error
	// Run does what Put and PutAll would else take time for now and then, until ctx is done.
	Run(ctx context.Context) error
	// Flush makes durable what was put.
	Flush() error
	// End says that records below that position need not be put again.
	End() offset.Physical
	// Lost says that the whole log is to be put again, though End is 0, which else means that there never was an index.
	Lost() bool
	// DeleteBefore may remove what is only about records below a position: the log begins there now.
	DeleteBefore(low offset.Physical) error
	// Reset forgets everything at or behind a position: the log ends there.
	Reset(end offset.Physical) error
}

func (o Options) withDefaults() (Options, error) {
	if o.Root == "" {
		return o, fmt.Errorf("%w: no root folder", ErrLayout)
	}
	if o.FS == nil {
		o.FS = vfs.OS{}
	}
	if len(o.CommitLogDirs) == 0 {
		o.CommitLogDirs = []string{filepath.Join(o.Root, "commitlog")}
	}
	o.CommitLogDirs = slices.DeleteFunc(slices.Clone(o.CommitLogDirs), func(dir string) bool {
		return slices.Contains(o.ReadOnlyCommitLogDirs, dir)
	})
	if len(o.CommitLogDirs) == 0 {
		return o, fmt.Errorf("%w: all folders of the commit log are read-only", ErrLayout)
	}
	orDefault(&o.SegmentSize, 1<<30)
	orDefault(&o.ConsumeQueueUnits, 300_000)
	orDefault(&o.MaxOpenQueueFiles, 512)
	orDefault(&o.FlushInterval, 500*time.Millisecond)
	orDefault(&o.FlushLeastBytes, 16<<10)
	orDefault(&o.FlushThorough, 10*time.Second)
	orDefault(&o.CheckpointInterval, 10*time.Second)
	orDefault(&o.MaxMessageSize, 4<<20)
	orDefault(&o.CleanInterval, 10*time.Second)
	orDefault(&o.OpenWorkers, runtime.GOMAXPROCS(0))
	if o.TagsCode == nil {
		o.TagsCode = tagsCode
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.SegmentSize < minSegment || o.ConsumeQueueUnits < 0 {
		return o, fmt.Errorf("%w: segment size %d, %d units a consume queue file", ErrLayout, o.SegmentSize,
			o.ConsumeQueueUnits)
	}
	return o, nil
}

// passedOver says whether a folder's disk is so full that another one should take the next segment.
func (o *Options) passedOver(dir string) bool {
	if o.Retention == nil {
		return false
	}
	u, err := o.FS.Usage(dir)
	return err == nil && u.Total > 0 && u.Ratio() > o.Retention().Force
}

func orDefault[T int | int64 | time.Duration](v *T, def T) {
	if *v == 0 {
		*v = def
	}
}

func tagsCode(r *message.Record) int64 { return message.TagsCode(r.Tags()) }
