package remoting

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"

	"github.com/ratchetmq/ratchet/protocol"
)

// Exchange hands one request to a handler and waits for its answer, without a socket: for a simulation, whose network is a
// model and whose clock is not the machine's. Request and answer are encoded and decoded as on the wire. The handler
// runs in the caller's goroutine. The error is ctx's, when no answer came before it was done.
func Exchange(
	ctx context.Context, h Handler, from netip.AddrPort, code protocol.RequestCode, header protocol.Header,
	extra []protocol.KV, body []byte,
) (*Response, error) {
	e := &endpoint{handler: h, log: slog.New(slog.DiscardHandler), ctx: ctx}
	l := &localLink{answer: make(chan *Response, 1)}
	conn := new(Conn)
	conn.init(e, l, 1, netip.AddrPort{}, from, 1)
	defer conn.Close()
	b, err := encodeRequest(protocol.JSON, code, 1, false, header, extra, body)
	if err != nil {
		return nil, err
	}
	var cmd protocol.Command
	if err := decode(nil, &cmd, nil, b.B); err != nil {
		b.release()
		return nil, err
	}
	r := e.request(conn, newLane(LaneConfig{}, 0, e), b, cmd)
	h.Serve(ctx, r)
	e.finish(r)
	select {
	case resp := <-l.answer:
		return resp, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// localLink is the link of a connection that one Exchange has made up.
type localLink struct{ answer chan *Response }

// send drops what the broker sends by itself: nobody listens.
func (l *localLink) send(b *buffer) error {
	b.release()
	return nil
}

func (l *localLink) reply(b *buffer, body []byte, _ bool) error {
	frame := slices.Concat(b.B, body)
	b.release()
	var cmd protocol.Command
	if err := decode(nil, &cmd, nil, frame); err != nil {
		return err
	}
	l.answer <- &Response{cmd} // there is one answer to a request, see Request.settle
	return nil
}

func (l *localLink) close() {}

func (l *localLink) resume() bool { return false }
