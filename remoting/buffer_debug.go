//go:build ratchet_debug

package remoting

import "sync"

// freed holds the buffers that are released and not given out again.
var freed sync.Map

// poison makes a use after release visible, and a second release fatal.
func (b *buffer) poison() {
	if _, twice := freed.LoadOrStore(b, true); twice {
		panic("impossible: buffer released twice")
	}
	whole := b.B[:cap(b.B)]
	for i := range whole {
		whole[i] = 0xDB
	}
}

// wake ends what poison began.
func (b *buffer) wake() { freed.Delete(b) }
