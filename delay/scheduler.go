package delay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ratchetmq/ratchet/internal/atomicfile"
	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/internal/vfs"
	"github.com/ratchetmq/ratchet/store"
)

// Store is what a Scheduler needs of a store.Store.
type Store interface {
	Read(q store.Query, dst []byte) ([]byte, store.Batch, error)
	Bounds(topic string, queue int32) (store.Bounds, bool)
	Append(msgs ...store.Message) (store.Appended, error)
	WhenFlushed(end offset.Physical, done func(error))
	OnArrival(fn func(store.Arrival))
	Written() offset.Physical
	Flushed() offset.Physical
	Gaps() store.Gaps
	Given(topic string, queue int32) offset.Queue
}

// Options are what a Scheduler works with.
type Options struct {
	Store  Store
	Levels Levels // nil = DefaultLevels
	FS     vfs.FS // nil = vfs.OS
	Path   string // of delayOffset.json; its backup is beside it
	// SaveEvery is how old the progress on disk may be while messages are delivered. After a crash the log is read from
	// there on, to see what was delivered since. [1 s]
	SaveEvery time.Duration
	Logger    *slog.Logger
	Now       func() time.Time // the wall clock by which messages are due
}

const (
	// lookEvery bounds how long the loop sleeps while a message waits, so that a clock that was set is noticed.
	lookEvery = time.Second
	// flushPatience is how long a stop waits for the log to be flushed, so that the last progress can be written. The store
	// waits for its disk, too, and without a bound.
	flushPatience = 30 * time.Second

	firstPause = 100 * time.Millisecond // after a failed append or read, doubling
	lastPause  = 5 * time.Second
	logEvery   = time.Minute
)

var (
	// ErrAhead means that a table counts deliveries that this store's log does not have yet.
	ErrAhead = errors.New("delay progress ahead of the log")
	// ErrRunning means that the Scheduler delivers, and its table is its own.
	ErrRunning = errors.New("delay scheduler running")
)

// Scheduler delivers delayed messages while Run runs. All other methods may be called at any time, from any goroutine.
type Scheduler struct {
	opts     Options
	log      *slog.Logger
	wake     chan struct{}  // holds one token when arrived has changed
	arrived  []atomic.Bool  // by level-1: messages have come in since the level was last read
	filled   []atomic.Bool  // by level-1: and some in places that had been passed over
	passedTo []atomic.Int64 // by level-1: the end of these places

	mu       sync.Mutex
	progress progress // guarded by mu
	changed  bool     // progress is not that of the file; guarded by mu
	running  bool     // guarded by mu
}

// Open reads the progress and hooks the Scheduler to the store, which must not run yet. An error names the file in
// which the progress is damaged.
func Open(opts Options) (*Scheduler, error) {
	if opts.Levels == nil {
		opts.Levels, _ = ParseLevels(DefaultLevels)
	}
	if opts.FS == nil {
		opts.FS = vfs.OS{}
	}
	if opts.SaveEvery <= 0 {
		opts.SaveEvery = time.Second
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	p, err := loadProgress(opts.FS, opts.Path)
	if err != nil {
		return nil, err
	}
	s := &Scheduler{opts: opts, log: opts.Logger, wake: make(chan struct{}, 1), progress: p}
	count := max(QueueCount, len(opts.Levels))
	for level := range p.next {
		if level <= maxLevels {
			count = max(count, level) // a level that the table no longer has still gets its messages delivered
		}
	}
	s.arrived, s.filled, s.passedTo = make([]atomic.Bool, count), make([]atomic.Bool, count), make([]atomic.Int64, count)
	opts.Store.OnArrival(func(a store.Arrival) {
		if a.Topic == Topic && a.Queue >= 0 && int(a.Queue) < len(s.arrived) {
			s.arrived[a.Queue].Store(true)
			if int64(a.Offset) < s.passedTo[a.Queue].Load() {
				s.filled[a.Queue].Store(true)
			}
			s.ring()
		}
	})
	return s, nil
}

// maxLevels bounds what a table of progress may make us look at.
const maxLevels = 1024

func (s *Scheduler) ring() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// LevelProgress is how far one level has come.
type LevelProgress struct {
	Level int
	Delay time.Duration
	Next  offset.Queue // the first message that is not delivered
	High  offset.Queue // behind the last message that waits
}

// Progress is the state of every level, by number.
func (s *Scheduler) Progress() []LevelProgress {
	s.mu.Lock()
	next := maps.Clone(s.progress.next)
	s.mu.Unlock()
	levels := make([]LevelProgress, len(s.arrived))
	for i := range levels {
		bounds, _ := s.opts.Store.Bounds(Topic, int32(i))
		levels[i] = LevelProgress{i + 1, s.delayOf(i + 1), next[i+1], bounds.High}
	}
	return levels
}

// delayOf is a level's delay; levels that the table does not have wait as long as its last.
func (s *Scheduler) delayOf(level int) time.Duration { return s.opts.Levels.Delay(level) }

// Table is the progress as the file has it and as other brokers ask for it (GET_ALL_DELAY_OFFSET), at this moment.
func (s *Scheduler) Table() []byte {
	s.mu.Lock()
	p := s.progress.clone()
	s.mu.Unlock()
	return p.format(s.opts.Now().UnixMilli())
}

// MergeMax takes over what another broker's table has beyond ours, as a slave does and a master that returns, and writes
// it to the file. end is the end of that broker's log when it gave the table; a table that says by itself up to where
// it counts deliveries needs none. With ErrAhead nothing was done, and the same table may be given again when the log
// has grown: a progress that is ahead of the log, or after a power cut will be, would lose messages if this broker became the
// master.
func (s *Scheduler) MergeMax(table []byte, end offset.Physical) error {
	other, err := parseProgress(table)
	if err != nil {
		return err
	}
	needed := other.mark
	if needed == 0 {
		needed = end
	}
	s.mu.Lock()
	defer s.mu.Unlock() // the file has one writer: Run's, or under mu this one
	if s.running {
		return ErrRunning
	}
	if flushed := s.opts.Store.Flushed(); needed > flushed {
		return fmt.Errorf("%w: %d, log is flushed up to %d", ErrAhead, needed, flushed)
	}
	p := s.progress.clone()
	if !p.raise(other) {
		return nil
	}
	p.counter++
	if err := atomicfile.Write(s.opts.FS, s.opts.Path, p.format(s.opts.Now().UnixMilli())); err != nil {
		return fmt.Errorf("delay progress: %w", err)
	}
	s.progress, s.changed = p, false
	return nil
}

// Run delivers until ctx is done or the store is closed, and leaves the progress on disk. It may be called again
// afterwards. The store must be open all the while, and run.
//
// Errors: ErrRunning; store.ErrBroken when the log takes no more; the progress that could not be written at the end,
// which repeats nothing, since the next Run looks for deliveries in the log.
func (s *Scheduler) Run(ctx context.Context) error {
	s.mu.Lock()
	if s.running {
		s.mu.Unlock()
		return ErrRunning
	}
	s.running = true
	if written := s.opts.Store.Written(); s.progress.mark > written {
		// The log was cut back after the progress was written; what was delivered in the part that is gone is lost with it.
		s.log.Error("delay progress ahead of the log", "path", s.opts.Path, "before", s.progress.mark, "after", written)
		s.progress.mark, s.changed = written, true
	}
	start := s.progress.clone()
	s.mu.Unlock()
	for i := range s.passedTo { // what is not passed yet is read
		s.setPassed(i+1, func(list []span) []span { return offset.Without(list, span{From: start.next[i+1], To: 1<<63 - 1}) })
	}
	defer func() {
		s.mu.Lock()
		s.running = false
		s.mu.Unlock()
	}()

	d := newDelivery(s, start)
	g, groupCtx := errgroup.WithContext(ctx)
	saveCtx, stopSaving := context.WithCancel(context.WithoutCancel(ctx))
	g.Go(func() error {
		defer stopSaving() // the last progress is written when no more is made
		defer s.settle()
		return d.run(groupCtx)
	})
	g.Go(func() error { return s.runSaver(saveCtx) })
	return g.Wait()
}

// advance notes that a level was delivered below next, by records that end at mark.
func (s *Scheduler) advance(level int, next offset.Queue, mark offset.Physical) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.progress.next[level] = next
	s.progress.mark = max(s.progress.mark, mark)
	s.changed = true
}

// cover notes that what was filled into a place which a level had passed over is delivered, by a record that ends at mark.
func (s *Scheduler) cover(level int, at offset.Queue, mark offset.Physical) {
	s.setPassed(level, func(list []span) []span { return offset.Without(list, span{From: at, To: at + 1}) })
	s.mu.Lock()
	defer s.mu.Unlock()
	s.progress.mark = max(s.progress.mark, mark)
}

// advanceAll is advance for several levels at once: a mark may only move when all deliveries below it are counted.
func (s *Scheduler) advanceAll(next map[int]offset.Queue, mark offset.Physical) {
	if len(next) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.Copy(s.progress.next, next)
	s.progress.mark = max(s.progress.mark, mark)
	s.changed = true
}

// settle moves the mark to the log's end when a Run is over: whatever is there now, no delivery is uncounted.
func (s *Scheduler) settle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if written := s.opts.Store.Written(); len(s.progress.next) > 0 && written > s.progress.mark {
		s.progress.mark, s.changed = written, true
	}
}

// runSaver writes the progress every SaveEvery, if it has changed, and once more when ctx is done.
func (s *Scheduler) runSaver(ctx context.Context) error {
	tick := time.NewTicker(s.opts.SaveEvery)
	defer tick.Stop()
	var logged time.Time
	for {
		select {
		case <-ctx.Done():
			flushCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushPatience)
			defer cancel()
			return errors.Join(s.save(flushCtx), s.backUp())
		case <-tick.C:
			if err := s.save(ctx); err != nil && ctx.Err() == nil && time.Since(logged) >= logEvery {
				logged = time.Now()
				s.log.Error("delay progress not saved", "path", s.opts.Path, "err", err)
			}
		}
	}
}

// save writes the progress if it has changed. It waits until the log has the deliveries on disk that the progress
// counts: or a power cut could take them, and the progress would stay.
func (s *Scheduler) save(ctx context.Context) error {
	s.mu.Lock()
	if !s.changed {
		s.mu.Unlock()
		return nil
	}
	s.changed = false
	s.progress.counter++
	p := s.progress.clone()
	s.mu.Unlock()
	err := s.flushed(ctx, p.mark)
	if err == nil {
		err = atomicfile.Write(s.opts.FS, s.opts.Path, p.format(s.opts.Now().UnixMilli()))
	}
	if err != nil {
		s.mu.Lock()
		s.changed = true
		s.mu.Unlock()
		return fmt.Errorf("delay progress: %w", err)
	}
	return nil
}

// backUp makes the file's backup like the file, so that after an orderly stop each of the two holds everything.
func (s *Scheduler) backUp() error {
	s.mu.Lock()
	p, unsaved := s.progress.clone(), s.changed
	s.mu.Unlock()
	if unsaved || p.counter == 0 { // counter: nothing has ever been delayed, and there is no file
		return nil
	}
	return atomicfile.Write(s.opts.FS, s.opts.Path, p.format(s.opts.Now().UnixMilli()))
}

func (s *Scheduler) flushed(ctx context.Context, end offset.Physical) error {
	done := make(chan error, 1)
	s.opts.Store.WhenFlushed(end, func(err error) { done <- err })
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
