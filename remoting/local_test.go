package remoting_test

import (
	"context"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/protocol"
	"github.com/ratchetmq/ratchet/remoting"
)

// TestExchange: a request comes to its handler as over a socket, and the answer may be given later, by another goroutine,
// or not at all.
func TestExchange(t *testing.T) {
	from := netip.MustParseAddrPort("10.0.0.1:4711")
	header := &protocol.GetMaxOffsetRequest{Topic: "T", QueueID: 3}
	synctest.Test(t, func(t *testing.T) {
		h := remoting.HandlerFunc(func(_ context.Context, r *remoting.Request) {
			var got protocol.GetMaxOffsetRequest
			if r.ReadHeader(&got) != nil || got.Topic != header.Topic || got.QueueID != 3 || r.Conn.RemoteAddr() != from || string(r.Body) == "silent" {
				return
			}
			body := string(r.Body)
			r.Detach()
			time.AfterFunc(time.Second, func() { r.Reply(protocol.Reply{Code: protocol.PullNotFound, Body: []byte(body + "!")}) })
		})
		began := time.Now()
		resp, err := remoting.Exchange(t.Context(), h, from, protocol.GetMaxOffset, header, nil, []byte("body"))
		require.NoError(t, err)
		require.Equal(t, int32(protocol.PullNotFound), resp.Code)
		require.Equal(t, "body!", string(resp.Body))
		require.Equal(t, time.Second, time.Since(began))

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err = remoting.Exchange(ctx, h, from, protocol.GetMaxOffset, header, nil, []byte("silent"))
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}
