package index

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/internal/vfs"
	"github.com/ratchetmq/ratchet/message"
)

// RocketMQ's sizes (maxHashSlotNum, maxIndexNum): 420,000,040 bytes a file.
const (
	DefaultSlots   = 5_000_000
	DefaultEntries = 20_000_000
)

const (
	// enough is how many entries Run writes together. That takes some milliseconds, in which nobody waits for it.
	enough = 128 * 1024
	// maxList is how many are kept before Put writes them itself. Twice as many, 24 bytes each, can be in memory: one list
	// filling while the other is written.
	maxList = 2 * enough

	firstBackoff = time.Second
	lastBackoff  = time.Minute
	logEvery     = time.Minute
)

var (
	// ErrUnavailable means that the index can't be written at present. The log says why, once a minute.
	ErrUnavailable = errors.New("index unavailable")
	// ErrClosed means that Close was called.
	ErrClosed = errors.New("index closed")
)

// Options are what Open needs to know. The zero value is RocketMQ's default.
type Options struct {
	Slots, Entries int // of a file; a store's files must all have been made with the same numbers
	// WithoutTags leaves TAGS out, as brokers before 5.x do.
	WithoutTags bool
	// Unclean says that the store was not closed, or that Close failed. Then the files that a power cut may have damaged
	// are read through, and cut before the first entry that can't be right. What is behind is to be Put again: see End.
	Unclean bool
	// SameBoot says that the kernel still runs that had what the store wrote: if Unclean, a process was killed, and nothing is damaged.
	SameBoot bool
	// SyncedTime is what Index.SyncedTime last returned, as the checkpoint kept it; 0 = not known.
	SyncedTime int64
	Logger     *slog.Logger
	Now        func() time.Time
}

// Index is a folder of index files. All methods may be called from several goroutines; records must be Put in the
// order of the log. It starts no goroutine: the owner calls Run in one, and Flush every few seconds.
type Index struct {
	fs   vfs.FS
	dir  string
	opts Options
	layout
	log *slog.Logger

	// Locks are taken in the order put, syncing, flush, mu. Only mu is taken by queries, and no I/O is done under it.

	put struct {
		sync.Mutex
		hashes  []uint32 // scratch: one record's hashes
		prefix  prefix   // of the last record's
		backoff backoff  // of making files
	}
	syncing sync.Mutex // held for a Flush; a sync may take seconds, and Put does not wait for it
	flush   struct {
		sync.Mutex
		writer
		dirty   bool    // the active file was written to since it was synced
		sealed  []*file // full, not yet synced
		backoff backoff // of writing
	}

	long chan struct{} // tells Run that there is enough to write

	mu         sync.Mutex
	files      []*file // by age; guarded by mu
	foreign    []foreign
	active     *file  // the one that is written to, the last of files; nil = to be made. guarded by mu
	head       header // the active file's header with all that was Put; guarded by mu
	frozenHead header // head when frozen was taken
	// frozen is being written, fresh grows; together they are the entries from active.disk.next to head.next-1.
	frozen, fresh []entry         // guarded by mu
	end           offset.Physical // changes under put and mu
	resume        offset.Physical // the record whose keys may be there in part, -1 = none; guarded by mu
	syncedTime    int64           // guarded by mu
	closed        bool            // guarded by mu
	lost          bool            // see Lost
	lastErr       error           // nil = can be written; guarded by mu
	skipped       int             // records that were not indexed, guarded by mu
}

// foreign is a file whose size is not the configured one: it can't be read, but it can be deleted in its time.
type foreign struct {
	path   string
	endPhy offset.Physical
}

// Open opens the index files in dir. A missing or unusable folder is no error: it is made, or looked for again, when
// there is something to write. Errors are those of damaged or unreadable files, and of senseless options.
func Open(fsys vfs.FS, dir string, opts Options) (*Index, error) {
	if opts.Slots == 0 {
		opts.Slots = DefaultSlots
	}
	if opts.Entries == 0 {
		opts.Entries = DefaultEntries
	}
	if opts.Slots < 1 || opts.Entries < 2 || opts.Slots > math.MaxInt32 || opts.Entries > math.MaxInt32 {
		return nil, fmt.Errorf("index of %d slots and %d entries", opts.Slots, opts.Entries)
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	x := &Index{
		fs: fsys, dir: dir, opts: opts, log: opts.Logger, resume: -1,
		layout: layout{uint32(opts.Slots), uint32(opts.Entries)}, long: make(chan struct{}, 1),
	}
	x.head.next = 1
	if err := x.load(); err != nil {
		for _, f := range x.files {
			err = errors.Join(err, f.release())
		}
		return nil, err
	}
	return x, nil
}

// End is the place in the log below which every record is indexed, as far as it was not skipped for ErrUnavailable;
// 0 without any file. After Open the record that starts there may be indexed in part: dispatch begins with it. What is
// below is ignored by Put.
func (x *Index) End() offset.Physical {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.end
}

// Lost says that Open found files and nothing in them that could be kept, or, after an unclean stop, nothing at all: every
// record is to be Put again that the log has.
func (x *Index) Lost() bool { return x.lost }

// SyncedTime is the store timestamp in ms up to which full files are safe on disk, 0 at first: the value that the
// checkpoint keeps as indexMsgTimestamp.
func (x *Index) SyncedTime() int64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.syncedTime
}

// Err is nil while the index can be written, or the error that prevents it.
func (x *Index) Err() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.lastErr
}

// Skipped is how many records were not indexed because the index could not be written. They are safe in the log, but
// not found by their keys.
func (x *Index) Skipped() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.skipped
}

// Put adds the keys of a record, which is borrowed. Records below End are passed over. While the index can't be written
// (see Err) records are skipped as soon as the memory for them is used up, without an error and without a system call:
// nobody is to wait for an index. The only error is ErrClosed.
func (x *Index) Put(r *message.Record) error {
	request := [...]message.DispatchRequest{r.DispatchRequest(0)}
	return x.PutAll(request[:])
}

// PutAll is Put for records one after the other, up to the first error.
func (x *Index) PutAll(requests []message.DispatchRequest) error {
	x.put.Lock()
	defer x.put.Unlock()
	x.mu.Lock()
	defer x.mu.Unlock()
	for i := range requests {
		if err := x.putLocked(&requests[i]); err != nil {
			return err
		}
	}
	if len(x.fresh) >= enough {
		select {
		case x.long <- struct{}{}:
		default: // Run knows
		}
	}
	return nil
}

// Run writes the list whenever there is enough in it, until ctx is done. Without it a Put that finds the list full does that.
func (x *Index) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-x.long:
		}
		_ = x.write() // what went wrong is in the log and in Err; the list is put by
	}
}

// putLocked is Put for a caller that has put and mu. It lets go of mu while it does I/O.
func (x *Index) putLocked(r *message.DispatchRequest) error {
	switch {
	case r.PhysicalOffset < x.end:
		return nil // after a crash that is most of the log: spare the hashes
	case x.closed:
		return ErrClosed
	}
	hashes := x.put.hashes[:0]
	if r.SysFlag&message.FlagTransactionMask != message.FlagRollback {
		hashes = x.put.prefix.appendHashes(hashes, r, !x.opts.WithoutTags)
	}
	x.put.hashes = hashes
	if r.PhysicalOffset == x.resume {
		x.mu.Unlock()
		hashes = x.missing(hashes, r.PhysicalOffset)
		x.mu.Lock()
	}
	for {
		hashes = x.add(hashes, r)
		if len(hashes) == 0 {
			x.end, x.resume = r.PhysicalOffset+offset.Physical(max(r.Size, 1)), -1
			return nil
		}
		x.mu.Unlock()
		err := x.makeRoom()
		x.mu.Lock()
		// A list that can't be written is put by, and there is room in the other one.
		if err != nil && (x.active == nil || len(x.fresh) >= maxList || x.full(&x.head)) {
			x.skipped++
			return nil
		}
	}
}

// add appends what there is room for and returns the rest. The caller has mu.
func (x *Index) add(hashes []uint32, r *message.DispatchRequest) []uint32 {
	for len(hashes) > 0 && x.active != nil && len(x.fresh) < maxList && !x.full(&x.head) {
		_, seconds := x.head.add(r.PhysicalOffset, r.StoreTimestamp)
		x.fresh = append(x.fresh, entry{phy: r.PhysicalOffset, hash: hashes[0], seconds: seconds})
		hashes = hashes[1:]
	}
	return hashes
}

// missing is what is left of the hashes of a record after those that are in the files already.
func (x *Index) missing(hashes []uint32, phy offset.Physical) []uint32 {
	return slices.DeleteFunc(hashes, func(hash uint32) (found bool) {
		err := x.each(hash, math.MinInt64, math.MaxInt64, func(at offset.Physical) bool {
			found = at == phy
			return at > phy
		})
		return found && err == nil
	})
}

// makeRoom writes the list when it is full, and goes to a new file when the present one is. The caller has put and
// nothing else.
func (x *Index) makeRoom() error {
	if err := x.write(); err != nil {
		return err
	}
	x.mu.Lock()
	full := x.active != nil && x.full(&x.head)
	x.mu.Unlock()
	if full {
		x.seal()
	}
	x.mu.Lock()
	made := x.active != nil
	x.mu.Unlock()
	if made {
		return nil
	}
	return x.create()
}

// seal ends the active file, all of which is written. The caller has put.
func (x *Index) seal() {
	x.flush.Lock()
	defer x.flush.Unlock()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.flush.sealed = append(x.flush.sealed, x.active.hold())
	x.active, x.head = nil, header{next: 1}
}

// write writes everything that is in the lists.
func (x *Index) write() error {
	x.flush.Lock()
	defer x.flush.Unlock()
	return x.writeLocked()
}

// writeLocked is write for a caller that has flush.
func (x *Index) writeLocked() error {
	rounds := 1
	x.mu.Lock()
	if len(x.frozen) > 0 {
		rounds = 2 // a list that could not be written before, and then the other
	}
	x.mu.Unlock()
	for range rounds {
		if done, err := x.writeList(); err != nil || done {
			return err
		}
	}
	return nil
}

// writeList writes one list; done says that there was none. The caller has flush.
func (x *Index) writeList() (done bool, err error) {
	x.mu.Lock()
	if len(x.frozen) == 0 {
		x.frozen, x.fresh, x.frozenHead = x.fresh, x.frozen, x.head
	}
	f, list, h := x.active, x.frozen, x.frozenHead
	x.mu.Unlock()
	if len(list) == 0 {
		return true, nil
	}
	var now time.Time
	if x.flush.backoff.pause > 0 {
		if now = x.opts.Now(); x.flush.backoff.waiting(now) {
			return false, ErrUnavailable
		}
	}
	newSlots, err := x.flush.writer.write(f, f.disk.next, list, h)
	if err != nil {
		now = x.opts.Now()
		x.flush.backoff.failed(now)
		return false, x.fail(now, &x.flush.backoff, fmt.Errorf("index file %s: %w", f.Name(), err))
	}
	retried := x.flush.backoff.pause > 0
	x.flush.backoff = backoff{}
	x.mu.Lock()
	h.usedSlots = f.disk.usedSlots + newSlots
	f.disk = h
	x.flush.dirty = true
	x.head.usedSlots = h.usedSlots
	x.frozen = x.frozen[:0]
	x.mu.Unlock()
	if retried {
		x.recovered()
	}
	return false, nil
}

// Flush makes durable what was Put. An error means that not all of it is; messages can go on nevertheless.
func (x *Index) Flush() error {
	x.mu.Lock()
	closed := x.closed
	x.mu.Unlock()
	if closed {
		return ErrClosed
	}
	return x.makeDurable()
}

// makeDurable writes the lists and syncs the files. A file whose sync fails is not synced again for the same pages, which
// are gone: after a power cut it is found out and written anew.
func (x *Index) makeDurable() error {
	x.syncing.Lock()
	defer x.syncing.Unlock()
	x.flush.Lock()
	errs := x.writeLocked()
	files := x.flush.sealed
	x.flush.sealed = nil
	x.mu.Lock()
	if x.flush.dirty && x.active != nil {
		files = append(files, x.active.hold())
	}
	x.flush.dirty = false
	times := make([]int64, len(files))
	for i, f := range files {
		times[i] = f.disk.endTime
	}
	x.mu.Unlock()
	x.flush.Unlock()

	for i, f := range files {
		if err := f.Sync(); err != nil {
			x.log.Error("index file not synced", "path", f.Name(), "err", err)
			errs = errors.Join(errs, err)
		} else if errs == nil {
			x.mu.Lock()
			x.syncedTime = max(x.syncedTime, times[i])
			x.mu.Unlock()
		}
		errs = errors.Join(errs, f.release())
	}
	return errs
}

// DeleteBefore removes the files that only have records below phy, except the one that is written to.
func (x *Index) DeleteBefore(phy offset.Physical) error {
	x.put.Lock()
	defer x.put.Unlock()
	x.mu.Lock()
	var old []*file
	x.files = slices.DeleteFunc(x.files, func(f *file) bool {
		if f == x.active || f.disk.empty() || !f.disk.below(phy) {
			return false
		}
		old = append(old, f)
		return true
	})
	var paths []string
	x.foreign = slices.DeleteFunc(x.foreign, func(f foreign) bool {
		if f.endPhy >= phy {
			return false
		}
		paths = append(paths, f.path)
		return true
	})
	x.mu.Unlock()
	var errs error
	for _, f := range old {
		errs = errors.Join(errs, f.release())
		paths = append(paths, filepath.Join(x.dir, f.name))
	}
	for _, path := range paths {
		errs = errors.Join(errs, x.fs.Remove(path))
	}
	return errs
}

// Reset forgets every record at or above phy: the log was cut back to there. The next Put may be of phy. It reads the
// file in which phy falls from end to end.
func (x *Index) Reset(phy offset.Physical) error {
	x.put.Lock()
	defer x.put.Unlock()
	x.flush.Lock()
	defer x.flush.Unlock()
	unwritten := x.writeLocked()
	x.mu.Lock()
	defer x.mu.Unlock() // I/O under mu, for once: nobody may see the files half-way
	if x.closed {
		return ErrClosed
	}
	if unwritten != nil {
		x.log.Error("index entries dropped", "entries", len(x.frozen)+len(x.fresh), "err", unwritten)
	}
	x.frozen, x.fresh = x.frozen[:0], x.fresh[:0]
	before := x.end
	var errs error
	for n := len(x.files); n > 0; n = len(x.files) {
		f := x.files[n-1]
		halfWritten := unwritten != nil && f == x.active
		if f.disk.below(phy) && !halfWritten {
			break
		}
		if !f.disk.empty() && f.disk.beginPhy < phy {
			_, err := f.repair(phy)
			errs = errors.Join(errs, err)
			break
		}
		x.files = x.files[:n-1]
		errs = errors.Join(errs, f.release(), x.fs.Remove(filepath.Join(x.dir, f.name)))
	}
	x.settleEnd()
	if before > phy {
		x.log.Info("index cut back", "path", x.dir, "before", before, "after", x.end, "phy", phy)
	}
	return errs
}

// Close makes everything durable. The Index can't be used afterwards; running queries end by themselves. After an error
// the files must be opened as Unclean.
func (x *Index) Close() error {
	x.put.Lock()
	defer x.put.Unlock()
	x.mu.Lock()
	closed := x.closed
	x.closed = true
	x.mu.Unlock()
	if closed {
		return nil
	}
	err := x.makeDurable()
	x.mu.Lock()
	files := x.files
	x.files, x.active = nil, nil
	x.mu.Unlock()
	for _, f := range files {
		err = errors.Join(err, f.release())
	}
	return err
}
