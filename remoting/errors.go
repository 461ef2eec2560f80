package remoting

import "errors"

var (
	// ErrClosed is what calls and notifications on a connection, client or server that is closed end with. A call that
	// was on its way may or may not have been handled by the peer.
	ErrClosed = errors.New("connection is closed")
	// ErrTimeout is the end of a call whose context's deadline passed before the answer came. It comes together with
	// context.DeadlineExceeded. The peer may still handle the request; its late answer is dropped and counted.
	ErrTimeout = errors.New("answer did not come in time")
	// ErrConnect is wrapped, together with the cause, by calls that found nobody to talk to: the request was not sent.
	ErrConnect = errors.New("peer can't be reached")
	// ErrBacklog is returned by a send to a peer that does not read: more than the limit of unsent bytes wait already.
	// The connection is closed.
	ErrBacklog = errors.New("peer does not read, too many unsent bytes")
	// ErrTooLarge is returned for a request that would not fit into a frame.
	ErrTooLarge = errors.New("frame is too large")
	// ErrStillRunning is returned by Run when handlers did not return within the stop timeout: what they use must not
	// be taken away from them yet.
	ErrStillRunning = errors.New("handlers are still running")
)
