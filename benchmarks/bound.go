package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"strconv"

	"github.com/panjf2000/gnet/v2"

	"github.com/ratchetmq/ratchet/message"
	"github.com/ratchetmq/ratchet/protocol"
)

// bound is a server that does the least a broker can do: it finds the frames, reads their headers' common part and
// answers every send with the same success, every pull with the same 32 messages. With a file it appends what came,
// all frames of one read together, and reads the messages of a pull from it.
//
// There is one for each connection, used on the event loop only.
type bound struct {
	folder string // "": no file
	file   *os.File
	at     int64 // its end
	out    []byte
	chunk  []byte // messages for a pull
}

// boundFile is where the file of a bound begins anew.
const boundFile = 1 << 30

// runBound serves until it is killed.
func runBound(addr, folder string) error {
	b := &bounds{folder: folder}
	return gnet.Run(b, "tcp://"+addr, gnet.WithMulticore(true), gnet.WithTCPNoDelay(gnet.TCPNoDelay), gnet.WithReuseAddr(true))
}

// bounds makes a bound for each connection.
type bounds struct {
	gnet.BuiltinEventEngine
	folder string
}

func (b *bounds) OnBoot(gnet.Engine) gnet.Action {
	fmt.Println("bound is ready")
	return gnet.None
}

func (b *bounds) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
	one := &bound{folder: b.folder, chunk: cannedMessages(1024)}
	c.SetContext(one)
	return nil, gnet.None
}

func (b *bounds) OnClose(c gnet.Conn, _ error) gnet.Action {
	if one := c.Context().(*bound); one.file != nil {
		one.file.Close()
		os.Remove(one.file.Name())
	}
	return gnet.None
}

func (b *bounds) OnTraffic(c gnet.Conn) gnet.Action {
	one := c.Context().(*bound)
	data, _ := c.Peek(-1)
	used := 0
	one.out = one.out[:0]
	for used < len(data) {
		size, err := protocol.FrameSize(data[used:])
		if err != nil {
			return gnet.Close
		}
		if size == 0 || used+size > len(data) {
			break
		}
		if err := one.answer(data[used : used+size]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return gnet.Close
		}
		used += size
	}
	if used == 0 {
		return gnet.None
	}
	if err := one.append(data[:used]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return gnet.Close
	}
	_, _ = c.Discard(used)
	if len(one.out) > 0 {
		_, _ = c.Write(one.out) // if it fails gnet closes the connection
	}
	return gnet.None
}

// append writes input to the file.
func (b *bound) append(data []byte) error {
	if b.folder == "" {
		return nil
	}
	if b.file == nil || b.at+int64(len(data)) > boundFile {
		if b.file != nil {
			b.file.Close()
			os.Remove(b.file.Name())
		}
		var err error
		if b.file, err = os.CreateTemp(b.folder, "bound-"); err != nil {
			return err
		}
		if b.at == 0 { // the first file: what a pull gets must be there
			if _, err := b.file.Write(b.chunk); err != nil {
				return err
			}
		}
		b.at = int64(len(b.chunk))
	}
	_, err := b.file.WriteAt(data, b.at)
	b.at += int64(len(data))
	return err
}

var (
	cannedSend = &protocol.SendMessageResponse{
		MsgID: "7F00000100002A9F0000000000000000", QueueID: 1, QueueOffset: 1, TransactionID: keyMark + "0000000000000000",
	}
	cannedPull  = &protocol.PullMessageResponse{NextBeginOffset: 32, MaxOffset: 1 << 30}
	cannedExtra = []protocol.KV{{Key: "MSG_REGION", Value: "DefaultRegion"}, {Key: "TRACE_ON", Value: "true"}}
	cannedReply = map[protocol.Codec][]byte{
		protocol.JSON:   protocol.AppendReply(nil, protocol.JSON, firstOpaque, &protocol.Reply{Header: cannedSend, Extra: cannedExtra}),
		protocol.Binary: protocol.AppendReply(nil, protocol.Binary, firstOpaque, &protocol.Reply{Header: cannedSend, Extra: cannedExtra}),
	}
	cannedOpaque = map[protocol.Codec]int{
		protocol.JSON: indexOf(cannedReply[protocol.JSON], strconv.Itoa(firstOpaque)), protocol.Binary: 13,
	}
)

func indexOf(b []byte, text string) int {
	for i := range b {
		if len(b)-i >= len(text) && string(b[i:i+len(text)]) == text {
			return i
		}
	}
	return -1
}

func (b *bound) answer(frame []byte) error {
	cmd, err := protocol.Decode(frame)
	if err != nil {
		return err
	}
	if cmd.IsOneway() {
		return nil
	}
	switch protocol.RequestCode(cmd.Code) {
	case protocol.SendMessageV2, protocol.SendBatchMessage:
		canned, at := cannedReply[cmd.Codec], cannedOpaque[cmd.Codec]
		start := len(b.out)
		b.out = append(b.out, canned...)
		if reply := b.out[start:]; cmd.Codec == protocol.JSON {
			putDecimal(reply[at:at+10], cmd.Opaque)
		} else {
			binary.BigEndian.PutUint32(reply[at:], uint32(cmd.Opaque))
		}
	case protocol.PullMessage:
		reply := protocol.Reply{Remark: "FOUND", Header: cannedPull}
		b.out = protocol.AppendReplyHead(b.out, cmd.Codec, cmd.Opaque, &reply, len(b.chunk))
		start := len(b.out)
		b.out = append(b.out, b.chunk...)
		if b.file != nil {
			_, err = b.file.ReadAt(b.out[start:], 0)
		}
	default:
		b.out = protocol.AppendReply(b.out, cmd.Codec, cmd.Opaque, &protocol.Reply{})
	}
	return err
}

// cannedMessages are 32 records of one queue.
func cannedMessages(size int) []byte {
	var all []byte
	body, stamper := bytes.Clone(pattern[:size]), stamperOf(size)
	properties := message.AppendProperty(nil, message.PropertyUniqueKey, keyMark+"0000000000000000")
	for i := range 32 {
		stamper.stamp(body, int64(i), 0)
		r := message.Record{Body: body, Topic: []byte("benchmark"), Properties: properties}
		all = message.AppendRecord(all, &r)
		binary.BigEndian.PutUint64(all[len(all)-r.EncodedSize()+message.PosQueueOffset:], uint64(i))
	}
	return all
}
