package ha

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/message"
	"github.com/ratchetmq/ratchet/store"
)

// What a pull ends with, beside the errors of connection and store.
var (
	// ErrDiverged: the two logs have different bytes at one position. It comes as a *Fork when the position is known.
	ErrDiverged = errors.New("the logs have diverged")
	// ErrBehind: the other log ends before this one does.
	ErrBehind = errors.New("the other log has less")
	// ErrTooOld: the other log begins behind this one's end.
	ErrTooOld = errors.New("the other log has lost what this one needs next")
)

// Fork says where two logs part: up to At they are the same.
type Fork struct{ At offset.Physical }

func (f *Fork) Error() string { return fmt.Sprintf("%v at %d", ErrDiverged, f.At) }

// Unwrap is ErrDiverged.
func (f *Fork) Unwrap() error { return ErrDiverged }

// puller takes the log of another broker through its HA port.
type puller struct {
	store     *store.Store
	dial      func(ctx context.Context, addr string) (net.Conn, error)
	silence   time.Duration // nothing for so long ends the connection
	heartbeat time.Duration // a report is sent at least so often
	flushed   bool          // what is reported is on the disk
	progress  func(at offset.Physical, now time.Time)
	connected func()                   // may be nil
	greeting  *hello                   // to a broker of ours; nil: to a Java broker
	end       func(at offset.Physical) // told where the other log ends, by a broker of ours; may be nil
	tables    func()                   // told that the master's tables have changed; may be nil
	lacks     func(places)             // told what the other broker lacks, if it is one of ours; may be nil
}

// quietPuller is one that tells nobody how far it is.
func quietPuller(s *store.Store, dial Dial, silence, heartbeat time.Duration, greeting *hello) *puller {
	return &puller{
		store: s, dial: dial, silence: silence, heartbeat: heartbeat, greeting: greeting,
		progress: func(offset.Physical, time.Time) {},
	}
}

const (
	firstWindow = 64 << 10
	windowGrows = 16
)

// pull compares the end of this log with what the broker at addr has there, looking further back as long as they differ,
// and then appends what comes, up to until, or without an end when until is negative. low is where the other log begins.
// It returns a *Fork without having changed anything.
func (p *puller) pull(ctx context.Context, addr string, low, until offset.Physical) error {
	doubted := offset.Physical(-1) // where what came was no record
	for window := offset.Physical(firstWindow); ; {
		from, err := p.compareFrom(window, low, until)
		if err != nil {
			return err
		}
		err = p.session(ctx, addr, from, until, doubted)
		var fork *Fork
		switch at := p.store.Written(); {
		case errors.Is(err, message.ErrCorrupt) && at != doubted:
			doubted = at // the other log may be damaged, or what came from it: that shows when it comes again
		case !errors.As(err, &fork) || fork.At > from || from <= max(low, p.store.Low()):
			return err // equal at least at the window's beginning: the fork is what it says, or there is nothing before
		default:
			window *= windowGrows
		}
	}
}

// compareFrom is where to begin: a window before the end of this log, or of what is wanted of the other if that is less, at a record.
func (p *puller) compareFrom(window, low, until offset.Physical) (offset.Physical, error) {
	end := p.store.Written()
	begin := max(low, p.store.Low())
	if p.store.Low() == end { // nothing here
		return max(low, end), nil
	}
	if until >= 0 {
		end = min(end, until)
	}
	if begin >= end {
		return 0, fmt.Errorf("%w: it begins at %d, this one ends at %d", ErrTooOld, low, end)
	}
	for {
		from, err := p.store.FirstRecord(max(begin, end-window))
		if err != nil || from < end {
			return from, err
		}
		if end-window <= begin {
			return end, nil // nothing but damage or a gap that both have
		}
		window *= windowGrows
	}
}

// session is one connection. from is in this log, or at its end; at doubted an earlier one has brought what is no record.
func (p *puller) session(ctx context.Context, addr string, from, until, doubted offset.Physical) error {
	if p.store.Low() == p.store.Written() && from > p.store.Written() {
		if err := p.store.Begin(from); err != nil {
			return err
		}
	}
	conn, hangUp, err := p.connect(ctx, addr)
	if err != nil {
		return err
	}
	defer hangUp()
	if p.connected != nil {
		p.connected()
	}
	in := &intake{
		puller: p, conn: conn, next: from, compare: p.store.Compare(from), known: p.store.Written(),
		doubted: doubted, follows: until < 0,
	}
	if p.greeting == nil {
		in.reported = from // a Java master takes the request for a report
	}
	in.frames, err = p.request(conn, from)
	if err != nil {
		return err
	}
	if from == 0 && !in.frames.own { // see request
		if err := in.take([]byte{0}); err != nil {
			return err
		}
	}
	err = in.run(ctx, until)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// connect opens a connection that ends with ctx, or with hangUp.
func (p *puller) connect(ctx context.Context, addr string) (conn net.Conn, hangUp func(), err error) {
	if conn, err = p.dial(ctx, addr); err != nil {
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	return conn, func() {
		stop()
		_ = conn.Close()
	}, nil
}

// agree compares the bytes of another log with this one; a *Fork when they differ.
func agree(c *store.Comparison, b []byte) error {
	differs, err := c.Write(b)
	if err == nil && differs >= 0 {
		err = &Fork{differs}
	}
	return err
}

// request asks for the log from a position on, and says how the frames will come. A request of 0 to a Java broker would
// mean its last file: it is asked for 1, as each log's first byte is the first of a record's size, and 0.
func (p *puller) request(conn net.Conn, from offset.Physical) (frames, error) {
	f := frames{r: conn, own: p.greeting != nil}
	if err := conn.SetDeadline(time.Now().Add(p.silence)); err != nil {
		return f, err
	}
	defer func() { _ = conn.SetDeadline(time.Time{}) }()
	if !f.own {
		return f, writeReport(conn, max(from, 1))
	}
	h := *p.greeting
	h.From, h.Low, h.End = from, p.store.Low(), p.store.Written()
	if err := writeGreeting(conn, &h); err != nil {
		return f, err
	}
	magic, err := readReport(conn)
	if err == nil && uint64(magic) != helloMagic {
		err = errHello
	}
	if err != nil {
		return f, err
	}
	var w welcome
	if err := readGreeting(conn, &w); err != nil {
		return f, err
	}
	if w.Refused != "" {
		return f, fmt.Errorf("refused: %s", w.Refused)
	}
	if p.end != nil {
		p.end(w.End)
	}
	return f, nil
}

// intake is the receiving side of a session.
type intake struct {
	*puller
	conn     net.Conn
	frames   frames
	next     offset.Physical // of the stream
	compare  *store.Comparison
	known    offset.Physical            // this log's end when the session began: up to there is compared
	stream   *store.Stream              // behind it
	free     []store.Span               // what the other broker keeps free of its log
	doubted  offset.Physical            // see session
	deleted  map[string]offset.Physical // topics, as it has told, which are not adopted yet
	follows  bool                       // what is reported counts there
	reported offset.Physical
}

// run reads until the connection ends, or until is reached. Reports go out while nothing comes, too.
func (in *intake) run(ctx context.Context, until offset.Physical) error {
	have := make(chan offset.Physical, 1)
	ended := make(chan error, 1)
	var reading sync.WaitGroup
	at, err := in.safe(), error(nil)
	reading.Go(func() { ended <- in.read(have, until) })
	tick := time.NewTicker(in.heartbeat)
	defer tick.Stop()
	for err == nil && (until < 0 || at < until) {
		select {
		case at = <-have:
			err = in.report(ctx, at, false)
		case <-tick.C:
			err = in.report(ctx, at, true)
		case err = <-ended:
			if until >= 0 && in.safe() >= until {
				return nil
			}
			return err
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	_ = in.conn.Close()
	reading.Wait() // take must not go on when this function has returned
	return err
}

// reportEvery is how often a reader reports that has much still to come.
const reportEvery = 1 << 20

// read takes frames, and says after each what is here, while much is still to come only from time to time. It does not wait
// for that to be reported: what comes next replaces it.
func (in *intake) read(have chan offset.Physical, until offset.Physical) error {
	told := in.next
	for {
		if err := in.conn.SetReadDeadline(time.Now().Add(in.silence)); err != nil {
			return err
		}
		f, err := in.frames.next()
		switch {
		case err != nil:
			return err
		case f.kind == frameTables:
			if in.tables != nil {
				in.tables()
			}
			continue
		case f.kind == frameGaps:
			if err := in.learn(f.body); err != nil {
				return err
			}
			continue
		case f.kind != frameLog || f.at != in.next:
			return fmt.Errorf("%w: kind %d for %d, %d is due", errFrame, f.kind, f.at, in.next)
		}
		if err := in.take(f.body); err != nil {
			return err
		}
		if f.end >= 0 && in.puller.end != nil {
			in.puller.end(f.end)
		}
		at := in.safe()
		if at < until && until <= in.next {
			return fmt.Errorf("%w: the log ends at %d in what is no record, from %d on", message.ErrCorrupt, until, at)
		}
		if until < 0 && f.end-at > reportEvery && at-told < reportEvery {
			continue
		}
		told = at
		select {
		case <-have:
		default:
		}
		have <- at // there is room: nobody else puts anything in
	}
}

// take compares or appends the stream's next bytes.
func (in *intake) take(b []byte) error {
	if n := min(int64(len(b)), int64(in.known-in.next)); n > 0 {
		if err := agree(in.compare, b[:n]); err != nil {
			return err
		}
		in.next += offset.Physical(n)
		b = b[n:]
		if err := in.adoptDeleted(); err != nil {
			return err
		}
	}
	if len(b) == 0 {
		return nil
	}
	if in.stream == nil {
		in.stream = in.store.Stream(in.frames.own)
		in.stream.DamagedAt(in.doubted)
		in.stream.KeptFree(in.free)
		in.frames.room = in.stream.Room
	}
	in.next += offset.Physical(len(b))
	return in.stream.Write(b)
}

// safe is up to where the other log is known to be here.
func (in *intake) safe() offset.Physical {
	switch {
	case in.stream != nil:
		return in.stream.Safe()
	case in.follows && in.next < in.known:
		return in.compare.Agreed()
	}
	return in.next
}

// report says what is here, when that has changed or always.
func (in *intake) report(ctx context.Context, at offset.Physical, always bool) error {
	in.progress(at, time.Now())
	if at <= in.reported && !always {
		return nil
	}
	if in.flushed {
		if err := flush(ctx, in.store, at); err != nil {
			return err
		}
	}
	in.reported = max(in.reported, at)
	if err := in.conn.SetWriteDeadline(time.Now().Add(in.silence)); err != nil {
		return err
	}
	return writeReport(in.conn, in.reported)
}

// flush waits until the log is on the disk up to a position.
func flush(ctx context.Context, s *store.Store, at offset.Physical) error {
	done := make(chan error, 1)
	s.WhenFlushed(at, func(err error) { done <- err })
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
