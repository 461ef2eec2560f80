package remoting

import (
	"sync"
	"sync/atomic"

	"github.com/ratchetmq/ratchet/protocol"
)

// bundle is the memory that Fields and Bodies of requests are parts of. Requests of one connection that came together for
// one lane share one, of at most maxBundle bytes. They are handled one after the other: one that waits keeps no more of
// others than what came in before it with the same read. A frame that is larger, or was read in pieces, has one of its
// own.
//
// It goes back to its pool when the last of its requests has let go of it. The bytes of a handler that has panicked are
// never let go of.
type bundle struct {
	bytes  *buffer
	places []protocol.FieldIndex // of the requests, in their order
	left   atomic.Int32          // requests that have not let go
}

// maxBundle is a turn's worth of requests of 1 KiB.
const maxBundle = 64 << 10

var bundles = sync.Pool{New: func() any { return new(bundle) }}

// newBundle takes over b for n requests, and copies places.
func newBundle(b *buffer, n int, places []protocol.FieldIndex) *bundle {
	u := bundles.Get().(*bundle)
	u.bytes = b
	u.places = append(u.places[:0], places...)
	u.left.Store(int32(n))
	return u
}

// done is called when n more requests have let go. There may be no bundle.
func (u *bundle) done(n int) {
	if u != nil && u.left.Add(int32(-n)) == 0 {
		u.bytes.release()
		u.bytes = nil
		bundles.Put(u)
	}
}
