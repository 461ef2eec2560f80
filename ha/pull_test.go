package ha

import (
	"context"
	"io"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/internal/offset"
)

// TestASlaveReportsWhatItHasCompared, and nothing before: its log may be another one, while the master's bytes are under way and it
// keeps the connection alive.
func TestASlaveReportsWhatItHasCompared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		master, slave := openStore(t), openStore(t)
		for i := range 200 {
			put(t, master, 1000)
			put(t, slave, 1000)
			if i == 0 {
				put(t, master, 2000) // here they part
			}
		}
		require.Greater(t, slave.Written(), offset.Physical(2*firstWindow))
		replicas := NewReplicas(ReplicaOptions{
			Timeout: time.Hour, BehindMax: 1 << 30, Written: master.Written, Expose: func() error { return nil }, Covered: func() {},
			Wake: func() {}, Logger: slog.New(slog.DiscardHandler),
		})
		replicas.Begin(true, 0, false)
		replicas.ack(replicas.add("another that is near, and says nothing more"), 0)
		acknowledged := make(chan Outcome, 1)
		replicas.When(slave.Written()/2, func(o Outcome) { acknowledged <- o })

		sender := NewSender(SenderOptions{
			Store: master, Replicas: replicas, Name: "g", Epochs: func() []Epoch { return nil }, Logger: slog.New(slog.DiscardHandler),
		})
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		there, far := net.Pipe()
		near, here := net.Pipe()
		go sender.serve(ctx, there)
		go func() { _, _ = io.Copy(far, near) }()
		go func() { // the answer to the greeting, and what comes then is under way
			var w welcome
			if _, err := readReport(far); err == nil && readGreeting(far, &w) == nil {
				_ = writeGreeting(near, &w)
			}
		}()
		p := &puller{
			store: slave, silence: time.Minute, heartbeat: time.Second, greeting: &hello{Name: "g", Slave: true},
			progress: func(offset.Physical, time.Time) {}, dial: func(context.Context, string) (net.Conn, error) { return here, nil },
		}
		ended := make(chan error, 1)
		go func() { ended <- p.pull(ctx, "", 0, -1) }()
		time.Sleep(5 * time.Second)
		select {
		case o := <-acknowledged:
			require.Fail(t, "acknowledged by a slave that has something else", "outcome %d", o)
		default:
		}
		stop()
		require.ErrorIs(t, <-ended, context.Canceled)
		for _, c := range []net.Conn{here, near, far, there} {
			_ = c.Close()
		}
	})
}
