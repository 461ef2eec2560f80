package broker_test

import (
	"bufio"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/protocol"
)

const (
	waitLimit = 30 * time.Second
	waitStep  = 5 * time.Millisecond
)

// exchange sends the bytes of one frame and returns the answer.
func exchange(t *testing.T, addr string, frame []byte) protocol.Command {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.Write(frame)
	require.NoError(t, err)
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(waitLimit)))
	in := bufio.NewReader(conn)
	head, err := in.Peek(4)
	require.NoError(t, err)
	size, err := protocol.FrameSize(head)
	require.NoError(t, err)
	answer := make([]byte, size)
	_, err = io.ReadFull(in, answer)
	require.NoError(t, err)
	cmd, err := protocol.Decode(answer)
	require.NoError(t, err)
	return cmd
}
