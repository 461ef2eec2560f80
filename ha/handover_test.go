package ha

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestNothingIsDeliveredWhileTheRoleIsHandedOver: it would be stored behind the end at which the new master begins.
func TestNothingIsDeliveredWhileTheRoleIsHandedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running atomic.Bool
		g := &Group{opts: GroupOptions{Deliver: func(ctx context.Context) error {
			running.Store(true)
			defer running.Store(false)
			<-ctx.Done()
			return nil
		}}}
		g.stand(Standing{Master: true})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- g.deliver(ctx) }()
		for range 2 {
			time.Sleep(time.Second)
			require.True(t, running.Load())
			g.stand(Standing{Master: true, HandsOver: "to another"})
			g.undeliver()
			require.False(t, running.Load())
			time.Sleep(time.Minute)
			require.False(t, running.Load())
			g.stand(Standing{Master: true}) // the other has not taken it
		}
		time.Sleep(time.Second)
		stop()
		require.NoError(t, <-ended)
		require.False(t, running.Load())
	})
}
