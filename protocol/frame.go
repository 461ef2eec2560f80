package protocol

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"
)

// MaxFrame is the size in bytes of the largest frame that peers accept, including its four length bytes.
const MaxFrame = 16777216

const (
	lengthSize     = 4
	headSize       = 8  // length and header word
	minBinary      = 21 // fixed fields of a binary header
	posOpaque      = 5  // in a binary header
	maxHeaderDepth = 64
)

// ErrFrame is what bytes that are no frame fail with; the text says why. A connection that sent them is out of step
// and can only be closed.
var ErrFrame = errors.New("frame is malformed")

// Codec is a header encoding. A peer reads both, whichever it writes.
type Codec uint8

// The codecs, with the numbers that stand in a frame.
const (
	JSON   Codec = 0
	Binary Codec = 1
)

// String is the name that Java gives the codec.
func (c Codec) String() string {
	switch c {
	case JSON:
		return "JSON"
	case Binary:
		return "ROCKETMQ"
	default:
		return fmt.Sprintf("codec %d", uint8(c))
	}
}

// Flag bits of a command.
const (
	FlagResponse int32 = 1
	FlagOneway   int32 = 2
)

// Version is the version number in what we send, that of release 5.4.0. Clients decide by it what they may ask for.
const Version int32 = 493

// Command is a decoded frame: a request or the answer to one. Code is a RequestCode or a ResponseCode, as IsResponse
// says. Fields and Body are parts of the frame's bytes.
type Command struct {
	Code     int32
	Language Language
	Version  int32
	Opaque   int32 // pairs request and answer; unique per sender
	Flag     int32
	Remark   string
	Codec    Codec
	Fields   Fields
	Body     []byte
}

// IsResponse says whether the command answers a request.
func (c *Command) IsResponse() bool { return c.Flag&FlagResponse != 0 }

// IsOneway says whether the sender wants no answer, not even about an error. Go clients do not set it where Java
// clients do.
func (c *Command) IsOneway() bool { return c.Flag&FlagOneway != 0 }

// FrameSize is the size of the frame at the start of b, with its length bytes: 0 as long as b is too short to say, and
// ErrFrame as soon as b cannot become a frame, which may be long before all of it is there.
func FrameSize(b []byte) (int, error) {
	if len(b) < lengthSize {
		return 0, nil
	}
	length := int32(binary.BigEndian.Uint32(b))
	if length <= headSize-lengthSize { // a header has at least a byte
		return 0, fmt.Errorf("%w: length %d", ErrFrame, length)
	}
	if length > MaxFrame-lengthSize {
		return 0, fmt.Errorf("%w: length %d, at most %d is accepted", ErrFrame, length, MaxFrame-lengthSize)
	}
	if len(b) >= headSize {
		if _, _, err := headerWord(b, length); err != nil {
			return 0, err
		}
	}
	return int(length) + lengthSize, nil
}

// headerWord reads and checks the second word of a frame whose length field is known.
func headerWord(b []byte, length int32) (Codec, int, error) {
	word := binary.BigEndian.Uint32(b[lengthSize:])
	codec, size := Codec(word>>24), int(word&0xFFFFFF)
	switch {
	case codec != JSON && codec != Binary:
		return 0, 0, fmt.Errorf("%w: header encoding %d", ErrFrame, codec)
	case size > int(length)-(headSize-lengthSize):
		return 0, 0, fmt.Errorf("%w: header of %d bytes in a frame of length %d", ErrFrame, size, length)
	case size == 0 || codec == Binary && size < minBinary:
		return 0, 0, fmt.Errorf("%w: %s header of %d bytes", ErrFrame, codec, size)
	}
	return codec, size, nil
}

// Move makes a command that was decoded from a part of the bytes in from refer to the same part of those in to, a copy, and
// to x, a copy of the index that it was decoded with; nil: to none.
func (c *Command) Move(from, to []byte, x *FieldIndex) {
	c.Body = moved(c.Body, from, to)
	c.Fields.raw = moved(c.Fields.raw, from, to)
	if c.Fields.index = x; !c.Fields.present {
		c.Fields.index = nil
	}
}

func moved(part, from, to []byte) []byte {
	if part == nil {
		return nil
	}
	at := int(uintptr(unsafe.Pointer(unsafe.SliceData(part))) - uintptr(unsafe.Pointer(unsafe.SliceData(from))))
	return to[at : at+len(part) : at+len(part)]
}

// Decode takes a whole frame apart, length bytes included. Nothing but the remark is copied. All of the header's syntax
// is checked; what its fields hold is not looked at. An error is ErrFrame.
func Decode(frame []byte) (Command, error) {
	var c Command
	err := c.Decode(frame, nil)
	return c, err
}

// Decode is the function Decode for a command that is there already, and zero. x, unless nil, makes ReadHeader faster; the
// command refers to it.
func (c *Command) Decode(frame []byte, x *FieldIndex) error { return c.decode(frame, x, nil) }

func (c *Command) decode(frame []byte, x *FieldIndex, models *Models) error {
	size, err := FrameSize(frame)
	switch {
	case err != nil:
		return err
	case len(frame) < headSize || size != len(frame):
		return fmt.Errorf("%w: %d bytes, its length says %d", ErrFrame, len(frame), size)
	}
	codec, n, err := headerWord(frame, int32(size-lengthSize))
	if err != nil {
		return err
	}
	c.Codec = codec
	header := frame[headSize : headSize+n : headSize+n]
	if codec == JSON {
		err = models.decodeJSON(c, x, header)
	} else {
		err = decodeBinary(c, x, header)
	}
	if err != nil {
		*c = Command{}
		return err
	}
	if size > headSize+n {
		c.Body = frame[headSize+n : size : size]
	}
	return nil
}
