package broker_test

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/message"
	"github.com/ratchetmq/ratchet/protocol"
)

// Sends that come together are stored together. Each of them has the fate and the answer that it would have had alone:
// those that are refused take no others along, numbers and ids are those of the stored messages, order is kept.
func TestSendsThatComeTogether(t *testing.T) {
	for _, flush := range []string{"ASYNC_FLUSH", "SYNC_FLUSH"} {
		t.Run(flush, func(t *testing.T) {
			p := newPeer(t, "flushDiskType="+flush, "maxMessageSize=4096")
			p.createTopic("T", 4)
			c, err := net.Dial("tcp", p.broker.Addr)
			require.NoError(t, err)
			defer c.Close()
			require.NoError(t, c.SetDeadline(time.Now().Add(30*time.Second)))

			const n = 400
			var stream []byte
			want := map[int32]protocol.ResponseCode{}
			batch := protocol.AppendBatchMessage(nil, protocol.BatchMessage{
				Body: []byte("first of a batch"), Properties: message.AppendProperty(nil, "UNIQ_KEY", "batch"),
			})
			batch = protocol.AppendBatchMessage(batch, protocol.BatchMessage{Body: []byte("second of a batch")})
			for i := range int32(n) {
				codec := protocol.Codec(i % 2)
				h, body, code, oneway := sendHeader("T", i%4, "UNIQ_KEY", fmt.Sprint("key", i)), fmt.Appendf(nil, "body %d", i), protocol.SendMessageV2, false
				want[i] = protocol.Success
				switch i % 23 {
				case 3:
					h.QueueID, want[i] = 99, protocol.InvalidParameter
				case 5:
					code, body = protocol.SendBatchMessage, batch
				case 7:
					code, body, want[i] = protocol.SendBatchMessage, batch[:len(batch)-1], protocol.MessageIllegal
				case 11:
					body, want[i] = make([]byte, 4097), protocol.MessageIllegal
				case 13:
					oneway = true
					delete(want, i)
				case 17:
					h = sendHeader("T", i%4, "TIMER_DELAY_SEC", "5")
					want[i] = protocol.MessageIllegal
				case 19:
					h = sendHeader("T", i%4, "UNIQ_KEY", fmt.Sprint("key", i), "DELAY", "18")
				case 21:
					h = sendHeader("T", i%4) // no key: the broker makes one
				}
				stream = protocol.AppendRequest(stream, codec, code, i, oneway, h.V2(), nil, body)
			}
			_, err = c.Write(stream)
			require.NoError(t, err)

			in := bufio.NewReader(c)
			stored := map[int32]int64{} // by opaque; the answers may come in another order
			for range len(want) {
				cmd := nextFrame(t, in)
				code, asked := want[cmd.Opaque]
				require.True(t, asked, "one answer to each: %d", cmd.Opaque)
				delete(want, cmd.Opaque)
				require.Equal(t, int32(code), cmd.Code, "%d: %s", cmd.Opaque, cmd.Remark)
				_, region := cmd.Fields.Get("MSG_REGION")
				require.True(t, region)
				if code != protocol.Success {
					continue
				}
				var h protocol.SendMessageResponse
				require.NoError(t, cmd.ReadHeader(&h))
				require.Equal(t, cmd.Opaque%4, h.QueueID)
				body, ids := fmt.Sprint("body ", cmd.Opaque), strings.Split(h.MsgID, ",")
				switch cmd.Opaque % 23 {
				case 5:
					require.Len(t, ids, 2)
					require.Equal(t, "batch", h.TransactionID)
					body = "first of a batch"
				case 21:
					require.Len(t, h.TransactionID, 32)
				default:
					require.Equal(t, fmt.Sprint("key", cmd.Opaque), h.TransactionID)
				}
				r := p.record(t, ids[0])
				require.Equal(t, body, string(r.Body))
				require.EqualValues(t, h.QueueOffset, r.QueueOffset)
				if string(r.Topic) == "T" {
					stored[cmd.Opaque] = h.QueueOffset
				}
			}
			queued := map[int32]int64{}
			for i := range int32(n) {
				at, ok := stored[i]
				if !ok {
					continue
				}
				if last, ok := queued[i%4]; ok {
					require.Greater(t, at, last, "in their order")
				}
				queued[i%4] = at
			}
		})
	}
}

// record is what is stored under a message id.
func (p *peer) record(t *testing.T, id string) message.Record {
	t.Helper()
	_, phy, err := message.ParseID(id)
	require.NoError(t, err)
	r, err := message.Parse(p.must(protocol.ViewMessageByID, &protocol.ViewMessageRequest{Offset: int64(phy)}, nil).Body)
	require.NoError(t, err)
	return r
}

func nextFrame(t testing.TB, in io.Reader) protocol.Command {
	t.Helper()
	var size [4]byte
	_, err := io.ReadFull(in, size[:])
	require.NoError(t, err)
	frame := make([]byte, 4+binary.BigEndian.Uint32(size[:]))
	copy(frame, size[:])
	_, err = io.ReadFull(in, frame[4:])
	require.NoError(t, err)
	cmd, err := protocol.Decode(frame)
	require.NoError(t, err)
	return cmd
}
