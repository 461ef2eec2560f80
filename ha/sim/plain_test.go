package sim

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/protocol"
)

// follow follows as a Java slave does: it asks from its log's end on, and appends what comes without a look at what it
// has. All protection against two histories is then the master's.
func (g *plain) follow(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := g.session(ctx); err != nil && ctx.Err() == nil {
			g.p.log.Info("plain slave waits", "err", err)
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
	return nil
}

func (g *plain) session(ctx context.Context) error {
	addr := g.masterAddr()
	if addr == "" {
		return errors.New("no master is known")
	}
	asking, done := context.WithTimeout(ctx, 3*time.Second)
	defer done()
	resp, err := caller{g.p}.Call(asking, addr, protocol.GetBrokerRuntimeInfo, nil, nil, nil)
	if err != nil || resp.Code != int32(protocol.Success) {
		return errors.Join(err, errors.New("master does not answer"))
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	host, _, _ := net.SplitHostPort(addr)
	conn, err := g.p.dial(ctx, net.JoinHostPort(host, "10912"))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	return g.read(conn)
}

const plainHead = 12

func (g *plain) read(conn net.Conn) error {
	report := func(at offset.Physical) error {
		_, err := conn.Write(binary.BigEndian.AppendUint64(nil, uint64(at)))
		return err
	}
	st := g.p.store
	stream := st.Stream(true)
	if err := report(stream.Next()); err != nil {
		return err
	}
	for {
		_ = conn.SetReadDeadline(time.Now().Add(haSilence))
		var head [plainHead]byte
		if _, err := io.ReadFull(conn, head[:]); err != nil {
			return err
		}
		at, body := offset.Physical(binary.BigEndian.Uint64(head[:])), make([]byte, binary.BigEndian.Uint32(head[8:]))
		if _, err := io.ReadFull(conn, body); err != nil {
			return err
		}
		if len(body) > 0 && at != stream.Next() && (st.Written() > 0 || stream.Next() > 0) {
			return fmt.Errorf("master sends %d, %d is due", at, stream.Next())
		}
		if g.p.dead.Load() {
			return errDead
		}
		if err := stream.Write(body); err != nil {
			return err
		}
		if err := report(stream.Safe()); err != nil {
			return err
		}
	}
}
