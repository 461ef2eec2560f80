package ha

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/ratchetmq/ratchet/internal/offset"
)

// The HA protocol, big-endian, without any check or identity:
//
//	slave → master   report: position 8. The first is the request; later ones say what the slave has
//	master → slave   frame:  position 8, size 4, bytes. Size 0 is a heartbeat; its position is of the next byte to come
//
// A request of 0 means the master's last file (to a Java master; ours sends all it has); a frame never goes across a
// file's end.
const (
	reportSize = 8
	headSize   = 12
	// maxFrame bounds what a peer can make us allocate. RocketMQ's haTransferBatchSize is 32 KiB.
	maxFrame = 32 << 20
)

var errFrame = errors.New("no HA frame")

func writeReport(w io.Writer, at offset.Physical) error {
	_, err := w.Write(binary.BigEndian.AppendUint64(nil, uint64(at)))
	return err
}

func readReport(r io.Reader) (offset.Physical, error) {
	var b [reportSize]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return 0, err
	}
	return offset.Physical(binary.BigEndian.Uint64(b[:])), nil
}

// putHead fills the head of a frame whose body of size bytes stands behind it.
func putHead(b []byte, at offset.Physical, size int) {
	binary.BigEndian.PutUint64(b, uint64(at))
	binary.BigEndian.PutUint32(b[8:], uint32(size))
}

// frames reads frames from a connection, RocketMQ's or ours.
type frames struct {
	r   io.Reader
	own bool
	// room is where bodies are to be read to; nil: to buf
	room func(size int) []byte
	buf  []byte
}

// next reads a frame.
func (f *frames) next() (frame, error) {
	if f.own {
		return f.nextOwn()
	}
	var head [headSize]byte
	if _, err := io.ReadFull(f.r, head[:]); err != nil {
		return frame{}, err
	}
	in := frame{kind: frameLog, at: offset.Physical(binary.BigEndian.Uint64(head[:])), end: -1}
	var err error
	in.body, err = f.read(in.at, binary.BigEndian.Uint32(head[8:]))
	return in, err
}

// read reads a frame's bytes.
func (f *frames) read(at offset.Physical, size uint32) ([]byte, error) {
	if at < 0 || size > maxFrame {
		return nil, fmt.Errorf("%w: position %d, size %d", errFrame, at, size)
	}
	var b []byte
	if f.room != nil {
		b = f.room(int(size))
	} else {
		f.buf = slices.Grow(f.buf[:0], int(size))
		b = f.buf[:size]
	}
	_, err := io.ReadFull(f.r, b)
	return b, err
}
