package remoting

import (
	"math/bits"

	"github.com/valyala/bytebufferpool"
)

// Frames and replies live in buffers of power-of-two classes from 512 bytes to 1 MiB. One pool for all sizes would let
// a 200-byte heartbeat sit in a lane inside a megabyte; classes bound that waste to a factor of two. What is larger is
// left to the garbage collector: such frames are rare, and a pool of them would keep their memory for good.
const (
	minBufferClass = 9
	maxBufferClass = 20
	maxPooled      = 1 << maxBufferClass
)

var bufferPools [maxBufferClass + 1]bytebufferpool.Pool

// buffer is a byte slice with one owner at a time; handing a *buffer on hands the ownership on. The last owner calls
// release once.
type buffer bytebufferpool.ByteBuffer

// getBuffer returns an empty buffer with room for n bytes. n must be a length that is really there, never one that a
// peer announced.
func getBuffer(n int) *buffer {
	if n > maxPooled {
		return &buffer{B: make([]byte, 0, n)}
	}
	class := minBufferClass
	if n > 1<<minBufferClass {
		class = bits.Len(uint(n - 1))
	}
	b := (*buffer)(bufferPools[class].Get())
	if cap(b.B) < 1<<class { // new, of the size that the pool thinks is usual
		b.B = make([]byte, 0, 1<<class)
	}
	b.B = b.B[:0]
	b.wake()
	return b
}

// release gives the buffer back, unless there is none. Nobody may touch b or slices of b.B afterwards.
func (b *buffer) release() {
	if b == nil {
		return
	}
	b.poison()
	c := cap(b.B)
	if c > maxPooled {
		return
	}
	// A slice that append has moved may have any capacity: it goes to the largest class that it can serve.
	class := bits.Len(uint(c)) - 1
	if class < minBufferClass {
		return
	}
	// The pool now and then sets the size it keeps to what buffers are filled to. All of a class are filled: else those
	// of 512 bytes, most of them half empty, would soon all be thrown away.
	b.B = b.B[: 1<<class : 1<<class]
	bufferPools[class].Put((*bytebufferpool.ByteBuffer)(b))
}
