package remoting

import (
	"context"
	"time"

	"github.com/panjf2000/gnet/v2"
	"golang.org/x/sys/unix"
)

// drain brings all connections to a clean end within the stop timeout: requests that were taken are answered, answers
// are sent, and the peers see the end of the stream, not a reset that could overtake the answers.
func (s *Server) drain() {
	deadline := time.Now().Add(s.cfg.StopTimeout)
	s.phase.Store(draining)
	s.onLoops(deadline, func(k *serverLink, g gnet.Conn) { k.pause(g) }) // after it no loop takes a request
	waitUntil(deadline, func() bool { return s.inflight() == 0 })
	waitUntil(deadline, func() bool {
		for _, k := range s.links() {
			if k.unsent() > 0 && !k.conn.Closed() {
				k.poke()
				return false
			}
		}
		return true
	})
	s.phase.Store(discarding)
	s.onLoops(deadline, func(k *serverLink, g gnet.Conn) {
		_ = unix.Shutdown(k.fd, unix.SHUT_WR)
		k.traffic(g)
	})
	if linger := time.Now().Add(lingerTime); linger.Before(deadline) {
		deadline = linger
	}
	waitUntil(deadline, func() bool { return s.open.Load() == 0 })
}

// onLoops runs fn for every open connection on its event loop, and waits for all.
func (s *Server) onLoops(deadline time.Time, fn func(*serverLink, gnet.Conn)) {
	links := s.links()
	ran := make(chan struct{}, len(links))
	n := 0
	for _, k := range links {
		k.mu.Lock()
		if k.g != nil {
			n++
			_ = k.loop.Execute(context.Background(), gnet.RunnableFunc(func(context.Context) error {
				k.mu.Lock()
				g := k.g
				k.mu.Unlock()
				if g != nil {
					fn(k, g)
				}
				ran <- struct{}{}
				return nil
			}))
		}
		k.mu.Unlock()
	}
	late := time.NewTimer(time.Until(deadline))
	defer late.Stop()
	for ; n > 0; n-- {
		select {
		case <-ran:
		case <-late.C:
			return
		}
	}
}

// waitUntil looks at a condition that nothing announces. It is for the end of a server's life only.
func waitUntil(deadline time.Time, ok func() bool) {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() && time.Now().Before(deadline) {
		<-tick.C
	}
}
