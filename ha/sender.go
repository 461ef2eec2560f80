package ha

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/store"
)

// SenderOptions describe a Sender.
type SenderOptions struct {
	Store     *store.Store
	Replicas  *Replicas
	Batch     int           // bytes of a frame [32 KiB]
	Heartbeat time.Duration // a frame is sent at least so often [5 s]
	Silence   time.Duration // a slave that says nothing for so long is left [20 s]
	// Shares says whether a reader has the same log up to the position that it asked to go on from. It may take its time;
	// nothing is counted as acknowledged before.
	Shares func(ctx context.Context, who Reader) error
	// Name is that of the group of brokers, Epochs those of this log: what a greeting of ours is answered with.
	Name   string
	Epochs func() []Epoch
	// Tables changes when topics, groups or offsets do.
	Tables func() uint64
	// LastFileOnly begins at the last file for a slave that has nothing, as a Java master does.
	LastFileOnly bool
	Logger       *slog.Logger
}

// Reader is who wants this broker's log.
type Reader struct {
	Remote net.Addr
	From   offset.Physical
	Own    bool   // it is a broker of ours, and compares by itself
	Slave  bool   // it follows; of a Java broker it is assumed
	Addr   string // of a broker of ours
}

// Sender serves this broker's log on the HA port, to slaves and to whoever wants to compare.
type Sender struct {
	opts SenderOptions
	log  *slog.Logger

	mu     sync.Mutex
	slaves map[*feed]context.CancelCauseFunc // guarded by mu; who end a slave's connection
}

// NewSender makes a Sender.
func NewSender(o SenderOptions) *Sender {
	if o.Batch <= 0 {
		o.Batch = 32 << 10
	}
	if o.Heartbeat <= 0 {
		o.Heartbeat = 5 * time.Second
	}
	if o.Silence <= 0 {
		o.Silence = 20 * time.Second
	}
	return &Sender{opts: o, log: o.Logger.With("component", "ha"), slaves: map[*feed]context.CancelCauseFunc{}}
}

var errAgain = errors.New("another role: slaves are to come again")

// Again ends the connections of slaves, because what this broker is to them has changed: a master has opened, and who
// came before counts for nothing, or it is a slave now, and not to be followed. They come again, or go elsewhere.
func (s *Sender) Again() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, end := range s.slaves {
		end(errAgain)
	}
}

// knows keeps a slave's connection for Again, until the function returned is called.
func (s *Sender) knows(f *feed, end context.CancelCauseFunc) (forget func()) {
	if !f.who.Slave {
		return func() {}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slaves[f] = end
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.slaves, f)
	}
}

// Serve accepts connections until ctx is done; then it closes them and the listener, and waits for all to end.
func (s *Sender) Serve(ctx context.Context, ln net.Listener) error {
	var conns sync.WaitGroup
	defer conns.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = ln.Close() })()
	for {
		conn, err := ln.Accept()
		if ctx.Err() != nil {
			if err == nil {
				_ = conn.Close()
			}
			return nil
		}
		if err != nil {
			s.log.Error("HA connection not accepted", "err", err)
			select {
			case <-time.After(100 * time.Millisecond): // too many open files, perhaps
			case <-ctx.Done():
			}
			continue
		}
		conns.Go(func() { s.serve(ctx, conn) })
	}
}

// feed is one connection.
type feed struct {
	*Sender
	conn   net.Conn
	who    Reader
	link   *link
	shares chan struct{} // closed when what the reader reports is to be believed
	buf    []byte        // room for the larger of the two heads, and a frame's bytes
	// deleted are the topics of which the reader knows that they were.
	deleted map[string]offset.Physical
}

// serve feeds one connection until it ends.
func (s *Sender) serve(ctx context.Context, conn net.Conn) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	addr := conn.RemoteAddr().String()
	who, err := s.greet(conn)
	if err != nil {
		s.log.Warn("HA connection refused", "addr", addr, "err", err)
		return
	}
	f := &feed{
		Sender: s, conn: conn, who: who, link: s.opts.Replicas.add(cmp.Or(who.Addr, addr)), shares: make(chan struct{}),
		buf: make([]byte, ownHead+s.batch(who)),
	}
	defer s.opts.Replicas.remove(f.link)
	defer s.knows(f, cancel)()
	s.log.Info("HA connection", "addr", addr, "broker", who.Addr, "phy", int64(who.From), "written", int64(s.opts.Store.Written()))
	var both sync.WaitGroup
	both.Go(func() { cancel(f.reports(ctx)) })
	both.Go(func() { cancel(f.run(ctx)) })
	both.Wait()
	s.log.Info("HA connection ended", "addr", addr, "broker", who.Addr, "err", context.Cause(ctx))
}

// ownBatch is what a broker of ours is sent at once at most, when there is as much: a Java slave stores no frame that is
// larger than it expects.
const ownBatch = 256 << 10

func (s *Sender) batch(who Reader) int {
	if who.Own {
		return max(s.opts.Batch, ownBatch)
	}
	return s.opts.Batch
}

// greet reads what the other side wants, and answers a broker of ours.
func (s *Sender) greet(conn net.Conn) (Reader, error) {
	who := Reader{Remote: conn.RemoteAddr(), Slave: true}
	if err := conn.SetDeadline(time.Now().Add(s.opts.Silence)); err != nil {
		return who, err
	}
	request, err := readReport(conn)
	if err != nil || uint64(request) != helloMagic {
		who.From = request
		if request < 0 {
			err = fmt.Errorf("%w: request for %d", errReport, request)
		}
		return who, err
	}
	var h hello
	if err := readGreeting(conn, &h); err != nil {
		return who, err
	}
	who.Own, who.Slave, who.Addr, who.From = true, h.Slave, h.Addr, h.From
	answer := welcome{Low: s.opts.Store.Low(), End: s.opts.Store.Written(), Epochs: Starts(s.opts.Epochs())}
	switch {
	case h.Name != s.opts.Name:
		answer.Refused = fmt.Sprintf("this is a broker of %s, not of %s", s.opts.Name, h.Name)
	case h.From < answer.Low || h.From > answer.End:
		answer.Refused = fmt.Sprintf("the log here is [%d, %d), and has no %d", answer.Low, answer.End, h.From)
	}
	if err := writeGreeting(conn, &answer); err != nil {
		return who, err
	}
	if answer.Refused != "" {
		return who, errors.New(answer.Refused)
	}
	return who, nil
}

var errReport = errors.New("impossible report")

// reports reads what the slave says that it has, until the connection ends or is silent for too long. What it has is only
// believed once it is known to share the log that it asked from, and never beyond what this broker has.
func (f *feed) reports(ctx context.Context) error {
	at := f.who.From
	if f.who.Own {
		at = 0 // it has not compared yet
	}
	for {
		select {
		case <-f.shares:
			if at <= f.opts.Store.Written() {
				f.opts.Replicas.ack(f.link, at)
			}
		default:
		}
		if err := f.conn.SetReadDeadline(time.Now().Add(f.opts.Silence)); err != nil {
			return err
		}
		next, err := readReport(f.conn)
		if err != nil {
			return err
		}
		if end := f.opts.Store.Written(); next < 0 || next > max(end, f.who.From) {
			return fmt.Errorf("%w: %d, the log ends at %d", errReport, next, end)
		}
		at = max(at, next)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// settle finds out whether the slave shares the log that it asks from, and closes shares if it does. Meanwhile it keeps
// the connection alive. Nothing is sent before: what stands here may be about to be mended from what the slave has.
func (f *feed) settle(ctx context.Context) error {
	from := f.who.From
	switch {
	case !f.who.Slave:
		return nil
	case from <= 1 && !f.who.Own || f.opts.Shares == nil: // it has nothing
		close(f.shares)
		f.opts.Replicas.ack(f.link, 0)
		return nil
	}
	answer := make(chan error, 1)
	go func() { answer <- f.opts.Shares(ctx, f.who) }() // owned: by this function; ends with ctx
	tick := time.NewTicker(f.opts.Heartbeat)
	defer tick.Stop()
	for {
		select {
		case err := <-answer:
			switch {
			case err == nil:
				close(f.shares)
				if f.who.Own {
					from = 0
				}
				f.opts.Replicas.ack(f.link, min(from, f.opts.Store.Written()))
				return nil
			case !errors.Is(err, ErrStranger) || ctx.Err() != nil:
				return err
			}
			f.log.Warn("reader that does not count as a slave", "addr", f.conn.RemoteAddr().String(), "phy", int64(from), "err", err)
			return nil
		case <-tick.C:
			if err := f.send(frameLog, from, 0); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// send sends a frame whose n bytes are in buf[ownHead:] already.
func (f *feed) send(kind byte, at offset.Physical, n int) error {
	head := f.buf[ownHead-headSize:]
	if f.who.Own {
		head = f.buf
		putOwnHead(head, kind, at, f.opts.Store.Written(), n)
	} else {
		putHead(head, at, n)
	}
	if err := f.conn.SetWriteDeadline(time.Now().Add(f.opts.Silence)); err != nil {
		return err
	}
	_, err := f.conn.Write(head[:len(head)-len(f.buf)+ownHead+n])
	return err
}

var errCut = errors.New("the log was cut: what comes now may not follow on what was sent")

// tablesEvery is how often it is looked whether tables have changed.
const tablesEvery = 100 * time.Millisecond

// sendRest is how long the sender of an ASYNC_MASTER rests when it has sent all that there is, and so how much more a slave
// may lack: what comes in the meantime goes together, at a fraction of the price. What comes after a pause goes at once.
const sendRest = 10 * time.Millisecond

// run sends the log from where the reader wants it, for ever.
func (f *feed) run(ctx context.Context) error {
	log := f.opts.Store
	cuts := log.Cuts()
	if err := f.settle(ctx); err != nil {
		return err
	}
	pos := f.who.From
	if pos == 0 && !f.who.Own {
		pos = f.first()
	}
	beat := time.NewTimer(f.opts.Heartbeat)
	defer beat.Stop()
	look := time.NewTicker(tablesEvery)
	defer look.Stop()
	rest := time.NewTimer(sendRest)
	defer rest.Stop()
	changes := func() uint64 { return log.GapChanges() + log.Deletions() }
	told, lacks := uint64(0), changes()
	if f.who.Own {
		if err := f.tellGaps(pos, true); err != nil {
			return err
		}
	}
	for {
		grown := log.Grown()
		n := 0
		if pos <= log.Written() {
			var err error
			if n, err = log.ReadLog(pos, f.buf[ownHead:]); err != nil {
				return err
			}
		}
		if log.Cuts() != cuts {
			return errCut
		}
		if now := changes(); now != lacks && f.who.Own { // before what has come later
			lacks = now
			if err := f.tellGaps(pos, false); err != nil {
				return err
			}
		}
		if n == 0 {
			select {
			case <-grown:
				continue
			case <-look.C:
				if now := f.tables(); now != told {
					told = now
					if err := f.send(frameTables, pos, 0); err != nil {
						return err
					}
				}
				continue
			case <-beat.C:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		if err := f.send(frameLog, pos, n); err != nil {
			return err
		}
		pos += offset.Physical(n)
		f.opts.Replicas.sentTo(f.link, pos)
		beat.Reset(f.opts.Heartbeat)
		if n == len(f.buf)-ownHead || f.opts.Replicas.Sync() {
			continue
		}
		rest.Reset(sendRest)
		select {
		case <-rest.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// tables changes when there is something to tell a slave of ours.
func (f *feed) tables() uint64 {
	if !f.who.Own || !f.who.Slave || f.opts.Tables == nil {
		return 0
	}
	return f.opts.Tables()
}

// first is where a slave that has nothing begins.
func (s *Sender) first() offset.Physical {
	if s.opts.LastFileOnly {
		return s.opts.Store.LastFile()
	}
	return s.opts.Store.Low()
}
