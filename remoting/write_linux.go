package remoting

import "golang.org/x/sys/unix"

// writeNow writes as much of head, and of body behind it, as the socket takes without waiting. What stands in the way of
// the rest, a full socket or a broken one, the event loop will find.
func writeNow(fd int, head, body []byte) (n int) {
	if len(body) == 0 {
		n, _ = unix.Write(fd, head)
	} else {
		n, _ = unix.Writev(fd, [][]byte{head, body})
	}
	return max(n, 0)
}
