package protocol

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// ErrBatch is what a malformed body of code 320 fails with.
var ErrBatch = errors.New("batch is malformed")

// minBatchMessage is the size of a message without body and properties: size, magic, CRC, flag and both lengths.
const minBatchMessage = 22

// BatchMessage is one message of a batch. From EachBatchMessage, Body and Properties are parts of the batch.
type BatchMessage struct {
	Flag       int32
	Body       []byte
	Properties []byte
}

// EachBatchMessage calls fn with the messages of a batch, in order, until fn fails. Whether all of the batch is sound
// is known only at its end: fn should change nothing that can't be undone.
func EachBatchMessage(body []byte, fn func(BatchMessage) error) error {
	be := binary.BigEndian
	for n := 0; len(body) > 0; n++ {
		if len(body) < minBatchMessage {
			return fmt.Errorf("%w: %d bytes are left for message %d", ErrBatch, len(body), n)
		}
		size := int32(be.Uint32(body))
		if size < minBatchMessage || int(size) > len(body) {
			return fmt.Errorf("%w: message %d has size %d, %d bytes are left", ErrBatch, n, size, len(body))
		}
		m := BatchMessage{Flag: int32(be.Uint32(body[12:]))}
		text, rest, ok := cut32(body[16:size])
		if !ok || len(rest) < 2 {
			return fmt.Errorf("%w: message %d is cut in its body", ErrBatch, n)
		}
		if props := int16(be.Uint16(rest)); props < 0 || int(props) != len(rest)-2 {
			return fmt.Errorf("%w: message %d has %d bytes of properties, %d are left", ErrBatch, n, props, len(rest)-2)
		}
		m.Body, m.Properties = text, rest[2:]
		if err := fn(m); err != nil {
			return err
		}
		body = body[size:]
	}
	return nil
}

// AppendBatchMessage adds a message to a batch. Its properties must not have more than 32767 bytes.
func AppendBatchMessage(dst []byte, m BatchMessage) []byte {
	if len(m.Properties) > math.MaxInt16 {
		panic("impossible: properties longer than a record can hold")
	}
	be := binary.BigEndian
	dst = be.AppendUint32(dst, uint32(minBatchMessage+len(m.Body)+len(m.Properties)))
	dst = be.AppendUint64(dst, 0) // magic and CRC, which the broker makes
	dst = be.AppendUint32(dst, uint32(m.Flag))
	dst = be.AppendUint32(dst, uint32(len(m.Body)))
	dst = append(dst, m.Body...)
	dst = be.AppendUint16(dst, uint16(len(m.Properties)))
	return append(dst, m.Properties...)
}
