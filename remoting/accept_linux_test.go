package remoting

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// gnet's own acceptor ends the engine here, and with it all connections.
func TestServerOutlivesALackOfDescriptors(t *testing.T) {
	ts := startServer(t, ServerConfig{Handler: echoes})
	old := dialRaw(t, ts.addr)
	old.write(frame(echo, 1, false, "before"))
	old.read()

	var limit unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	restore := func() { require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)) }
	t.Cleanup(restore)
	open, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	low := limit
	low.Cur = uint64(len(open) + 20)
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &low))
	var last *os.File
	for { // use all up, then give one back: to the peer, so that there is none to accept it with
		f, err := os.Open(os.DevNull)
		if err != nil {
			require.ErrorIs(t, err, unix.EMFILE)
			break
		}
		t.Cleanup(func() { _ = f.Close() })
		last = f
	}
	require.NoError(t, last.Close())
	p := dialRaw(t, ts.addr)
	eventually(t, func() bool { return len(ts.log.String()) > 0 }, "it is logged")
	require.Contains(t, ts.log.String(), "connection not accepted")
	old.write(frame(echo, 2, false, "meanwhile"))
	require.Equal(t, "meanwhile", string(old.read().Body))

	restore()
	p.write(frame(echo, 3, false, "after"))
	require.Equal(t, "after", string(p.read().Body))
}
