package remoting

import (
	"github.com/ratchetmq/ratchet/protocol"
)

// headWords is the length of the part of a frame that FrameSize looks at: total length, header encoding and length.
const headWords = 8

// splitter cuts a byte stream into frames. It knows no socket: feed it what arrived, in pieces of any size.
//
// Memory follows the bytes that are there: a peer that announces 16 MiB and sends one byte a second holds 512 bytes of
// ours, and the buffer at most doubles each time it is full.
type splitter struct {
	head  [4]byte // the first bytes of a frame whose length is not known yet
	nhead int
	need  int     // length of the frame in part, its length prefix included; 0 while not known
	part  *buffer // its bytes so far; nil when none
}

// next takes the first frame out of data. It returns the frame (nil when data ends before it does) and how many bytes of
// data it used. A frame that is whole in data is returned as a part of it; own is nil then. Else own is the buffer that
// it was put together in, and the caller's. The error is protocol's for an illegal length and comes as soon as the four
// length bytes are there; the stream can't be read on after it.
func (s *splitter) next(data []byte) (frame []byte, own *buffer, used int, err error) {
	if s.nhead == 0 && s.need == 0 && len(data) >= len(s.head) { // the common case: a frame starts in data
		size, err := protocol.FrameSize(data)
		if err != nil {
			return nil, nil, 0, err
		}
		if len(data) >= size {
			return data[:size:size], nil, size, nil
		}
		s.need = size
	}
	for s.need == 0 {
		if used == len(data) {
			return nil, nil, used, nil
		}
		s.head[s.nhead] = data[used]
		s.nhead++
		used++
		if s.nhead < len(s.head) {
			continue
		}
		size, err := protocol.FrameSize(s.head[:])
		if err != nil {
			return nil, nil, used, err
		}
		s.need = size
		s.part = getBuffer(len(s.head))
		s.part.B = append(s.part.B, s.head[:]...)
		s.nhead = 0
	}
	before := s.partial()
	used += s.fill(data[used:])
	after := s.partial()
	if before < headWords && after >= headWords { // the second word can be illegal too: again before the body is there
		if _, err := protocol.FrameSize(s.part.B); err != nil {
			return nil, nil, used, err
		}
	}
	if after < s.need {
		return nil, nil, used, nil
	}
	own = s.part
	s.part, s.need = nil, 0
	return own.B, own, used, nil
}

// owned is a frame as next returns it, or several that stand together, in a buffer of its own.
func owned(frame []byte, own *buffer) *buffer {
	if own == nil {
		own = getBuffer(len(frame))
		own.B = append(own.B, frame...)
	}
	return own
}

// fill moves what belongs to the started frame from data to part and returns how much that was.
func (s *splitter) fill(data []byte) int {
	have := 0
	if s.part != nil {
		have = len(s.part.B)
	}
	n := min(len(data), s.need-have)
	if n == 0 {
		return 0
	}
	if s.part == nil || cap(s.part.B) < have+n {
		room := max(have+n, min(s.need, 2*have))
		grown := getBuffer(room)
		if s.part != nil {
			grown.B = append(grown.B, s.part.B...)
			s.part.release()
		}
		s.part = grown
	}
	s.part.B = append(s.part.B, data[:n]...)
	return n
}

// partial is the number of bytes that wait for the rest of their frame.
func (s *splitter) partial() int {
	n := s.nhead
	if s.part != nil {
		n += len(s.part.B)
	}
	return n
}

// drop gives the buffer of an unfinished frame back.
func (s *splitter) drop() {
	if s.part != nil {
		s.part.release()
	}
	*s = splitter{}
}

// strayTraffic names what a peer that opens with these bytes is speaking instead of our protocol; "" when unknown.
// It is for the log line only: all of these are already illegal as a length.
func strayTraffic(b []byte) string {
	if len(b) > 0 && b[0] == 0x16 {
		return "tls handshake on a plain-text port"
	}
	if len(b) < 4 {
		return ""
	}
	switch string(b[:4]) {
	case "PROX", "\r\n\r\n":
		return "PROXY protocol header, which is not enabled"
	case "GET ", "POST", "HEAD", "PUT ", "OPTI", "PRI ", "CONN", "DELE":
		return "http request on a remoting port"
	case "SSH-":
		return "ssh on a remoting port"
	}
	return ""
}
