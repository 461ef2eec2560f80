package broker

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/internal/config"
)

// Ports that were chosen are the broker's from then on, not only when it serves.
func TestChosenPortsAreTaken(t *testing.T) {
	for _, vip := range []bool{false, true} {
		s := &config.Broker{BindAddr: "127.0.0.1", VIPPort: vip}
		listeners, err := choosePort(s)
		require.NoError(t, err)
		require.NotZero(t, s.Port)
		for i, addr := range listenAddrs(s) {
			_, err := net.Listen("tcp", addr)
			require.Error(t, err, addr)
			require.NoError(t, listeners[i].Close())
		}
	}
}
