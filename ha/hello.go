package ha

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/protocol"
)

// Between brokers of ours the protocol says who is there, protects what it carries, and tells of more than the log. It
// begins like RocketMQ's, with eight bytes, but they are no position:
//
//	slave → master   magic 8, size 4, hello as JSON
//	master → slave   magic 8, size 4, welcome as JSON
//	master → slave   frames: kind 1, zero 3, size 4, position 8, end of the master's log 8, CRC-32C of these and the bytes 4,
//	                 zero 4, bytes
//	slave → master   reports as in RocketMQ's
//
// A slave speaks so only to a master that has answered GetReplicaStatus.
const (
	helloMagic = 0xF052415443484554 // negative as a position
	helloMax   = 1 << 20
	ownHead    = 32
	ownCRC     = 24 // where it stands
)

// Kinds of our own frames.
const (
	frameLog    = 1 // bytes of the log; none: a heartbeat
	frameTables = 2 // topics, groups or offsets of the master have changed
	frameGaps   = 3 // what of its log the sender does not have, as JSON: before the log, and when that has changed
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// hello is what a broker of ours says of itself when it wants the log of another.
type hello struct {
	Name   string                `json:"brokerName"`
	Addr   string                `json:"addr"`
	From   offset.Physical       `json:"from"`  // of what it wants
	Slave  bool                  `json:"slave"` // it follows, and what it reports counts; else it just reads
	Low    offset.Physical       `json:"low"`
	End    offset.Physical       `json:"end"`
	Epochs []protocol.EpochStart `json:"epochs"`
}

// welcome is the answer.
type welcome struct {
	Refused string                `json:"refused,omitempty"` // why nothing will come
	Low     offset.Physical       `json:"low"`
	End     offset.Physical       `json:"end"`
	Epochs  []protocol.EpochStart `json:"epochs"`
}

var errHello = errors.New("no greeting of a broker of ours")

func writeGreeting(w io.Writer, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	b := binary.BigEndian.AppendUint64(nil, helloMagic)
	b = binary.BigEndian.AppendUint32(b, uint32(len(body)))
	_, err = w.Write(append(b, body...))
	return err
}

// readGreeting reads what follows on the magic.
func readGreeting(r io.Reader, v any) error {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n > helloMax {
		return fmt.Errorf("%w: %d bytes", errHello, n)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return err
	}
	if err := json.Unmarshal(body, v); err != nil {
		return fmt.Errorf("%w: %w", errHello, err)
	}
	return nil
}

// putOwnHead fills the head of a frame of ours, b[:ownHead]; its body stands behind it.
func putOwnHead(b []byte, kind byte, at, end offset.Physical, size int) {
	clear(b[:ownHead])
	b[0] = kind
	binary.BigEndian.PutUint32(b[4:], uint32(size))
	binary.BigEndian.PutUint64(b[8:], uint64(at))
	binary.BigEndian.PutUint64(b[16:], uint64(end))
	binary.BigEndian.PutUint32(b[ownCRC:], ownSum(b[:ownCRC], b[ownHead:ownHead+size]))
}

func ownSum(head, body []byte) uint32 {
	return crc32.Update(crc32.Checksum(head, castagnoli), castagnoli, body)
}

// frame is what a master sends.
type frame struct {
	kind byte
	at   offset.Physical
	end  offset.Physical // of the master's log; -1: it does not say
	body []byte          // valid until the next one is read
}

// nextOwn reads a frame of ours.
func (f *frames) nextOwn() (frame, error) {
	var head [ownHead]byte
	if _, err := io.ReadFull(f.r, head[:]); err != nil {
		return frame{}, err
	}
	in := frame{
		kind: head[0],
		at:   offset.Physical(binary.BigEndian.Uint64(head[8:])),
		end:  offset.Physical(binary.BigEndian.Uint64(head[16:])),
	}
	var err error
	if in.body, err = f.read(in.at, binary.BigEndian.Uint32(head[4:])); err != nil {
		return frame{}, err
	}
	if sum := ownSum(head[:ownCRC], in.body); sum != binary.BigEndian.Uint32(head[ownCRC:]) {
		return frame{}, fmt.Errorf("%w: checksum %08x of the frame for %d is wrong", errFrame, sum, in.at)
	}
	return in, nil
}
