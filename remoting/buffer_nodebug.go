//go:build !ratchet_debug

package remoting

// poison does nothing in ordinary builds; see buffer_debug.go.
func (b *buffer) poison() {}
