package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ratchetmq/ratchet/internal/offset"
)

// Store is one broker's messages. All methods may be called from any goroutine.
//
// Lock order: dispatcher.mu → put → {queueSet.mu, commitLog.grow} and commitLog.flushing → flusher.mu; nothing is
// locked under queueSet.mu, fileCache.mu, queueFiles.dirtyMu, tail.mu, flusher.mu or fresh.mu. Only put, grow, flushing and
// dispatcher.mu are held during I/O.
type Store struct {
	opts   Options
	logger *slog.Logger
	lock   io.Closer

	log    *commitLog
	queues *queueSet
	files  *queueFiles

	put        putState
	fresh      fresh
	flusher    flusher
	dispatcher dispatcher
	checkpoint checkpoint
	prepare    signal
	growth     growth
	gaps       gaps
	cuts       atomic.Uint64 // see Cuts
	wasClean   bool          // the stop before Open
	progress   *progress     // of Open

	cleaning sync.Mutex            // held while the log's oldest segments go
	tooFull  atomic.Pointer[error] // why appends are refused until the disk has room

	broken  atomic.Pointer[error] // sticky
	failed  chan struct{}         // closed when broken is set
	failing sync.Once

	runMu   sync.Mutex
	stop    context.CancelFunc // guarded by runMu; ends Run
	running chan struct{}      // guarded by runMu; closed when Run has returned
	stopped bool               // guarded by runMu; the orderly stop was done or tried
	closed  bool               // guarded by runMu
}

// Open takes the folder, reads what is there, repairs what a crash has left, and brings queues and index level with
// the log. Reads work after it, appends too; only what Run does in the background is missing. Close is due even
// without Run.
//
// ErrLocked when another broker has the folder; ErrLayout when its files don't fit the options.
func Open(o Options) (*Store, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := makeDirs(o.FS, "", o.Root); err != nil {
		return nil, err
	}
	lock, err := o.FS.Lock(filepath.Join(o.Root, lockFile))
	if err != nil {
		return nil, err
	}
	s, err := open(o, lock)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open store %s: %w", o.Root, err), lock.Close())
	}
	return s, nil
}

func open(o Options, lock io.Closer) (*Store, error) {
	s := &Store{
		opts: o, logger: o.Logger, lock: lock, files: newQueueFiles(&o),
		prepare: newSignal(), failed: make(chan struct{}), progress: newProgress(o.Logger, time.Now),
	}
	s.flusher.init(s)
	s.dispatcher.init(s)
	_, err := o.FS.Stat(filepath.Join(o.Root, abortFile))
	clean := errors.Is(err, fs.ErrNotExist)
	if s.checkpoint, err = loadCheckpoint(o.FS, filepath.Join(o.Root, checkpointFile)); err != nil {
		return nil, err
	}
	if s.log, err = loadLog(&o, o.Logger); err != nil {
		return nil, err
	}
	if err := syncNames(o.FS, append([]string{o.Root}, o.CommitLogDirs...)); err != nil {
		return nil, errors.Join(err, s.log.close())
	}
	s.dispatcher.cursor.log = s.log
	if err := s.gaps.load(o.FS, o.Root); err != nil {
		return nil, errors.Join(err, s.log.close())
	}
	if err := s.finishTruncation(); err != nil {
		return nil, errors.Join(err, s.log.close())
	}
	if s.queues, err = loadQueues(s.files, clean, o.OpenWorkers, s.progress); err == nil {
		err = s.markOpen(clean) // from here on files are changed
	}
	if err == nil {
		s.dispatcher.deleted, err = loadDeletions(o.FS, filepath.Join(o.Root, deletionsFile))
	}
	s.progress.begin("index", 0)
	if err == nil && o.OpenIndex != nil {
		s.opts.Index, err = o.OpenIndex(clean, s.checkpoint.index)
	}
	if err == nil {
		s.wasClean = clean
		err = s.recover(clean)
	}
	if err == nil {
		err = s.dropGaps()
	}
	if err == nil {
		err = s.keepFree()
	}
	if err != nil {
		return nil, errors.Join(err, s.files.cache.drop(nil), s.log.close())
	}
	return s, nil
}

// markOpen leaves the abort file while the store is open: whoever finds it knows that the last stop was not clean.
func (s *Store) markOpen(clean bool) error {
	if !clean {
		return nil
	}
	f, err := s.opts.FS.Create(filepath.Join(s.opts.Root, abortFile))
	if err != nil {
		return err
	}
	_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())), 0)
	return errors.Join(err, f.Sync(), f.Close(), s.opts.FS.SyncDir(s.opts.Root))
}

// Run does the work in the background until ctx is done or Close is called: it flushes, dispatches, prepares segments
// and writes checkpoints, each in a goroutine that ends with it. Then it stops in order: appends are refused, what was
// written is flushed and dispatched, the checkpoint is written and the abort file removed. It may be called once.
//
// A store that breaks goes on to serve reads; Run's result then is an ErrBroken.
func (s *Store) Run(ctx context.Context) error {
	s.runMu.Lock()
	if s.running != nil || s.closed {
		s.runMu.Unlock()
		return fmt.Errorf("run: %w", ErrClosed)
	}
	ctx, s.stop = context.WithCancel(ctx)
	running := make(chan struct{})
	s.running = running
	s.runMu.Unlock()
	defer close(running)

	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.runPreparer(ctx) })
	g.Go(func() error { return s.flusher.run(ctx) })
	g.Go(func() error { return s.dispatcher.run(ctx) })
	g.Go(func() error { return s.runCheckpointer(ctx) })
	if s.opts.Index != nil {
		g.Go(func() error { return s.opts.Index.Run(ctx) })
	}
	if s.opts.Retention != nil {
		g.Go(func() error { return s.runCleaner(ctx) })
	}
	err := g.Wait()
	return errors.Join(err, s.shutdown())
}

// shutdown stops in order, the first time that it is called.
func (s *Store) shutdown() error {
	s.runMu.Lock()
	done := s.stopped
	s.stopped = true
	s.runMu.Unlock()
	if done {
		return nil
	}
	s.put.mu.Lock()
	s.put.closed = true
	s.put.mu.Unlock()

	s.flusher.flush()
	s.flusher.close()
	if err := s.Err(); err != nil {
		return err // the abort file stays: recovery has to look at what is on the disk
	}
	if err := s.dispatcher.drain(); err != nil {
		return fmt.Errorf("dispatch at stop: %w", err)
	}
	s.files.syncers = syncers
	if err := s.saveCheckpoint(); err != nil {
		return fmt.Errorf("checkpoint at stop: %w", err)
	}
	if err := s.checkpoint.indexErr; err != nil {
		return fmt.Errorf("index not safe, the next start has to look at it: %w", err) // the abort file stays
	}
	fsys := s.opts.FS
	if err := fsys.Remove(filepath.Join(s.opts.Root, abortFile)); err != nil {
		return err
	}
	return fsys.SyncDir(s.opts.Root)
}

// Close ends Run, waits for it, closes all files and gives the folder back. Without Run it stops in order itself.
// Nothing of the store may be used after it, or during it but Run.
func (s *Store) Close() error {
	s.runMu.Lock()
	if s.closed {
		s.runMu.Unlock()
		return nil
	}
	s.closed = true
	stop, running := s.stop, s.running
	s.runMu.Unlock()
	if running != nil {
		stop()
		<-running
	}
	err := s.shutdown()
	return errors.Join(err, s.files.cache.drop(nil), s.log.close(), s.lock.Close())
}

// Break makes the store broken. It is for an owner who could not note what it has seen of the stop before: Close then is no stop in
// order, so that the next start sees it, too.
func (s *Store) Break(err error) { s.fail(err) }

// fail makes the store broken, once.
func (s *Store) fail(err error) {
	s.failing.Do(func() {
		err = fmt.Errorf("%w: %w", ErrBroken, err)
		s.broken.Store(&err)
		close(s.failed)
		s.logger.Error("store broken, no more appends", "err", err)
	})
}

// Err is nil, or the ErrBroken that made the store refuse appends for good.
func (s *Store) Err() error {
	if err := s.broken.Load(); err != nil {
		return *err
	}
	return nil
}

// Failed is closed when Err becomes an error.
func (s *Store) Failed() <-chan struct{} { return s.failed }

// Written is the end of the log: where the next record may go.
func (s *Store) Written() offset.Physical { return s.log.written.load() }

// Flushed is the position below which the log is on the disk.
func (s *Store) Flushed() offset.Physical { return s.log.flushed.load() }

// Dispatched is the position below which all messages are in their queues and the index.
func (s *Store) Dispatched() offset.Physical { return s.dispatcher.done.load() }

// Low is the position of the first byte that the log still has.
func (s *Store) Low() offset.Physical { return s.log.low() }

// LastTime is the store time of the newest record, in ms; 0 when there is none.
func (s *Store) LastTime() int64 {
	s.put.mu.Lock()
	defer s.put.mu.Unlock()
	return s.put.lastTime
}

// WasClean says whether the stop before Open was in order.
func (s *Store) WasClean() bool { return s.wasClean }
