//go:build !ratchet_debug

package remoting

// poison and wake do nothing in ordinary builds; see buffer_debug.go.
func (b *buffer) poison() {}
func (b *buffer) wake()   {}
