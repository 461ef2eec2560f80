package protocol

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzReceipt: a receipt is the frame that is built of its fields one by one, whatever they hold, be it plain or not.
func FuzzReceipt(f *testing.F) {
	id := "7F00000200002E870000000000000000"
	f.Add(int32(1), id, int32(3), int64(123456), "FD00000000000000000000000000000279735FFD2B27933DBC290000", "", int16(0), "", "x", "v")
	f.Add(int32(math.MinInt32), id+","+id, int32(0), int64(math.MaxInt64), "", "", int16(0), "", "", "\x01\"")
	f.Add(int32(-1), "\xff\"\\", int32(-1), int64(-5), "a\"b\\", "batch", int16(10), "flush", "é", "")
	f.Fuzz(func(t *testing.T, opaque int32, msgID string, queue int32, qoff int64, transaction, batch string, code int16, remark,
		key, value string,
	) {
		response := SendMessageResponse{
			MsgID: msgID, QueueID: queue, QueueOffset: qoff, TransactionID: transaction, BatchUniqueID: batch,
		}
		always := []KV{{"MSG_REGION", "DefaultRegion"}, {key, value}}
		receipt := &SendReceipt{response, NewReceiptForm(always...)}
		for _, codec := range []Codec{JSON, Binary} {
			got := &Reply{Code: ResponseCode(code), Remark: remark, Header: receipt}
			want := &Reply{Code: ResponseCode(code), Remark: remark, Header: &response, Extra: always}
			for _, body := range []string{"", "body"} {
				got.Body, want.Body = []byte(body), []byte(body)
				require.Equal(t, AppendReply([]byte("before"), codec, opaque, want), AppendReply([]byte("before"), codec, opaque, got))
			}
		}
	})
}
