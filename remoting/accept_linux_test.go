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
	var used []*os.File
	t.Cleanup(func() {
		for _, f := range used {
			_ = f.Close()
		}
	})
	leave := func(n int) { // that many are free
		for {
			f, err := os.Open(os.DevNull)
			if err != nil {
				require.ErrorIs(t, err, unix.EMFILE)
				break
			}
			used = append(used, f)
		}
		for range n {
			require.NoError(t, used[len(used)-1].Close())
			used = used[:len(used)-1]
		}
	}
	leave(2) // one for the peer, one to accept it with
	p := dialRaw(t, ts.addr)
	p.write(frame(echo, 1, false, "the last"))
	require.Equal(t, "the last", string(p.read().Body))
	for refused := false; !refused; { // one of another test's may come free meanwhile, and the peer is accepted with that
		leave(1)
		accepted := ts.Stats().Accepted
		p = dialRaw(t, ts.addr)
		eventually(t, func() bool {
			refused = len(ts.log.String()) > 0
			return refused || ts.Stats().Accepted > accepted
		}, "it is logged")
	}
	require.Contains(t, ts.log.String(), "connection not accepted")
	old.write(frame(echo, 2, false, "meanwhile"))
	require.Equal(t, "meanwhile", string(old.read().Body))

	restore()
	p.write(frame(echo, 3, false, "after"))
	require.Equal(t, "after", string(p.read().Body))
}
