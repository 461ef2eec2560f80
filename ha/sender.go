package ha

import (
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
	// Shares says whether the broker at the other end has the same log up to a position, the one that it asked to go on
	// from. It may take its time; nothing is counted as acknowledged before.
	Shares func(ctx context.Context, remote net.Addr, at offset.Physical) error
	// LastFileOnly begins at the last file for a slave that has nothing, as a Java master does.
	LastFileOnly bool
	Logger       *slog.Logger
}

// Sender serves this broker's log on the HA port, to slaves and to whoever wants to compare.
type Sender struct {
	opts SenderOptions
	log  *slog.Logger
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
	return &Sender{opts: o, log: o.Logger.With("component", "ha")}
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

// serve feeds one connection until it ends.
func (s *Sender) serve(ctx context.Context, conn net.Conn) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	addr := conn.RemoteAddr().String()
	l := s.opts.Replicas.add(addr)
	defer s.opts.Replicas.remove(l)

	request, err := s.request(conn)
	if err != nil {
		s.log.Warn("HA connection without a request", "addr", addr, "err", err)
		return
	}
	s.log.Info("HA connection", "addr", addr, "phy", int64(request), "written", int64(s.opts.Store.Written()))
	shares := make(chan struct{})
	var both sync.WaitGroup
	both.Go(func() { cancel(s.reports(ctx, conn, l, request, shares)) })
	both.Go(func() { cancel(s.feed(ctx, conn, l, request, shares)) })
	both.Wait()
	s.log.Info("HA connection ended", "addr", addr, "err", context.Cause(ctx))
}

func (s *Sender) request(conn net.Conn) (offset.Physical, error) {
	if err := conn.SetReadDeadline(time.Now().Add(s.opts.Silence)); err != nil {
		return 0, err
	}
	return readReport(conn)
}

var errReport = errors.New("impossible report")

// reports reads what the slave says that it has, until the connection ends or is silent for too long. What it has is only
// believed once it is known to share the log that it asked from, and never beyond what this broker has.
func (s *Sender) reports(
	ctx context.Context, conn net.Conn, l *link, request offset.Physical, shares <-chan struct{},
) error {
	for at := request; ; {
		select {
		case <-shares:
			if at <= s.opts.Store.Written() {
				s.opts.Replicas.ack(l, at)
			}
		default:
		}
		if err := conn.SetReadDeadline(time.Now().Add(s.opts.Silence)); err != nil {
			return err
		}
		next, err := readReport(conn)
		if err != nil {
			return err
		}
		if end := s.opts.Store.Written(); next < 0 || next > max(end, request) {
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
func (s *Sender) settle(ctx context.Context, conn net.Conn, l *link, request offset.Physical, shares chan<- struct{}) error {
	if request <= 1 || s.opts.Shares == nil { // it has nothing
		close(shares)
		s.opts.Replicas.ack(l, 0)
		return nil
	}
	answer := make(chan error, 1)
	go func() { answer <- s.opts.Shares(ctx, conn.RemoteAddr(), request) }() // owned: by this function; ends with ctx
	tick := time.NewTicker(s.opts.Heartbeat)
	defer tick.Stop()
	for {
		select {
		case err := <-answer:
			switch {
			case err == nil:
				close(shares)
				s.opts.Replicas.ack(l, min(request, s.opts.Store.Written()))
				return nil
			case !errors.Is(err, ErrStranger) || ctx.Err() != nil:
				return err
			}
			s.log.Warn("reader that does not count as a slave", "addr", conn.RemoteAddr().String(), "phy", int64(request), "err", err)
			return nil
		case <-tick.C:
			if err := s.frame(conn, make([]byte, headSize), request, 0); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// frame sends a frame whose body of n bytes is in buf already, behind the room for its head.
func (s *Sender) frame(conn net.Conn, buf []byte, at offset.Physical, n int) error {
	putHead(buf, at, n)
	if err := conn.SetWriteDeadline(time.Now().Add(s.opts.Silence)); err != nil {
		return err
	}
	_, err := conn.Write(buf[:headSize+n])
	return err
}

// feed sends the log from request on, for ever.
func (s *Sender) feed(ctx context.Context, conn net.Conn, l *link, request offset.Physical, shares chan<- struct{}) error {
	if err := s.settle(ctx, conn, l, request, shares); err != nil {
		return err
	}
	log := s.opts.Store
	pos := request
	if request == 0 {
		pos = s.first()
	}
	buf := make([]byte, headSize+s.opts.Batch)
	tick := time.NewTimer(s.opts.Heartbeat)
	defer tick.Stop()
	for {
		grown := log.Grown()
		n := 0
		if pos <= log.Written() {
			var err error
			if n, err = log.ReadLog(pos, buf[headSize:]); err != nil {
				return err
			}
		}
		if n == 0 {
			select {
			case <-grown:
				continue
			case <-tick.C:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		if err := s.frame(conn, buf, pos, n); err != nil {
			return err
		}
		pos += offset.Physical(n)
		s.opts.Replicas.sentTo(l, pos)
		tick.Reset(s.opts.Heartbeat)
	}
}

// first is where a slave that has nothing begins.
func (s *Sender) first() offset.Physical {
	if s.opts.LastFileOnly {
		return s.opts.Store.LastFile()
	}
	return s.opts.Store.Low()
}
