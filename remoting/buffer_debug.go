//go:build ratchet_debug

package remoting

// poison makes a use after release visible, and a second release fatal.
func (b *buffer) poison() {
	if b.freed {
		panic("impossible: buffer released twice")
	}
	b.freed = true
	whole := b.b[:cap(b.b)]
	for i := range whole {
		whole[i] = 0xDB
	}
}
