package remoting

import (
	"context"
	"sync"
	"time"

	"github.com/panjf2000/gnet/v2"
)

// sweeper looks after connections on which nothing happens: it closes silent ones, and asks choked ones whether their
// peer has read, since gnet does not tell. Its goroutine is run, owned by Server.Run.
type sweeper struct {
	srv  *Server
	kick chan struct{} // there is something to watch

	mu      sync.Mutex
	watched map[*serverLink]*watch // guarded by mu
}

// watch is when a choked connection is looked at next. A peer that does not read at all is asked less and less often.
type watch struct {
	at   time.Time
	wait time.Duration
}

const (
	shortestWatch = 5 * time.Millisecond
	longestWatch  = 160 * time.Millisecond
)

func newSweeper(s *Server) *sweeper {
	return &sweeper{srv: s, kick: make(chan struct{}, 1), watched: make(map[*serverLink]*watch)}
}

// watch looks after k until it is no longer choked.
func (w *sweeper) watch(k *serverLink) {
	w.mu.Lock()
	w.watched[k] = &watch{at: time.Now().Add(shortestWatch), wait: shortestWatch}
	w.mu.Unlock()
	select {
	case w.kick <- struct{}{}:
	default:
	}
}

func (w *sweeper) choked() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.watched)
}

func (w *sweeper) run(ctx context.Context) error {
	idleEvery := min(max(w.srv.cfg.IdleTimeout/8, 10*time.Millisecond), 5*time.Second)
	idle := time.NewTicker(idleEvery)
	defer idle.Stop()
	watch := time.NewTimer(time.Hour)
	defer watch.Stop()
	armed := false // the timer will look; kicks must not put it off
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-idle.C:
			w.closeIdle()
		case <-w.kick:
			if !armed {
				armed = true
				watch.Reset(shortestWatch)
			}
		case <-watch.C:
			if armed = w.look() > 0; armed {
				watch.Reset(shortestWatch)
			}
		}
	}
}

// look asks the choked connections that are due, and returns how many there are.
func (w *sweeper) look() int {
	now := time.Now()
	var due []*serverLink
	w.mu.Lock()
	for k, at := range w.watched {
		switch {
		case k.conn.Closed() || !k.conn.choked.Load():
			delete(w.watched, k)
		case !now.Before(at.at):
			at.wait = min(2*at.wait, longestWatch)
			at.at = now.Add(at.wait)
			due = append(due, k)
		}
	}
	n := len(w.watched)
	w.mu.Unlock()
	for _, k := range due {
		k.poke()
	}
	return n
}

// poke has the event loop look at the connection.
func (k *serverLink) poke() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.g != nil && !k.scheduled {
		k.scheduled = true
		k.execute()
	}
}

// closeIdle closes connections on which nothing was read or written for the idle timeout.
func (w *sweeper) closeIdle() {
	limit := time.Now().Add(-w.srv.cfg.IdleTimeout).UnixNano()
	for _, k := range w.srv.links() {
		if k.conn.active.Load() < limit && !k.conn.Closed() {
			k.closeIdle(limit)
		}
	}
}

// closeIdle closes the connection unless it waits for room in a lane: that silence is ours.
func (k *serverLink) closeIdle(limit int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.g == nil {
		return
	}
	_ = k.loop.Execute(context.Background(), gnet.RunnableFunc(func(context.Context) error {
		if k.stalled.n == 0 && k.conn.active.Load() < limit && !k.conn.Closed() {
			k.srv.idle.Add(1)
			k.srv.log.Debug("connection closed, idle", "client", k.conn.RemoteAddr().String())
			k.conn.Close()
		}
		return nil
	}))
}

// closer calls OnClose away from event loops and workers. Its goroutine is run, owned by Server.Run.
type closer struct {
	fn func(*Conn)

	mu      sync.Mutex
	more    sync.Cond
	ended   []*Conn
	stopped bool
}

func newCloser(fn func(*Conn)) *closer {
	c := &closer{fn: fn}
	c.more.L = &c.mu
	return c
}

func (c *closer) add(conn *Conn) {
	if c.fn == nil {
		return
	}
	c.mu.Lock()
	c.ended = append(c.ended, conn)
	c.mu.Unlock()
	c.more.Signal()
}

// run returns after stop, when all that was added is done.
func (c *closer) run() error {
	for {
		c.mu.Lock()
		for len(c.ended) == 0 && !c.stopped {
			c.more.Wait()
		}
		batch := c.ended
		c.ended = nil
		c.mu.Unlock()
		if len(batch) == 0 {
			return nil
		}
		for _, conn := range batch {
			c.fn(conn)
		}
	}
}

func (c *closer) stop() {
	c.mu.Lock()
	c.stopped = true
	c.mu.Unlock()
	c.more.Signal()
}
