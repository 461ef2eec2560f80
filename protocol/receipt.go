package protocol

import (
	"encoding/binary"
	"strconv"
)

// SendReceipt is the header of the answer to a send: SendMessageResponse and the fields that every such answer of a broker
// has. No other answer is given nearly as often, so that for a send that succeeded the frame is not built field by field.
type SendReceipt struct {
	SendMessageResponse
	Form *ReceiptForm
}

// WriteFields implements Header.
func (r *SendReceipt) WriteFields(w *FieldWriter) {
	r.SendMessageResponse.WriteFields(w)
	for _, kv := range r.Form.always {
		w.String(kv.Key, kv.Value)
	}
}

// ReceiptForm is what the receipts of a broker have in common, encoded once.
type ReceiptForm struct {
	always []KV
	text   string // as members of a JSON object, and the end of its header
	block  string // as fields of a binary header
}

// NewReceiptForm makes the form of receipts that have these fields, of which there must be one at least.
func NewReceiptForm(always ...KV) *ReceiptForm {
	f := &ReceiptForm{always: always}
	text, block := FieldWriter{codec: JSON, n: 1}, FieldWriter{codec: Binary} // n: a member stands before
	for _, kv := range always {
		text.String(kv.Key, kv.Value)
		block.String(kv.Key, kv.Value)
	}
	f.text, f.block = string(text.buf)+"}}", string(block.buf)
	return f
}

// plain says whether a reply that says nothing but this can be written by filling in the form.
func (r *SendReceipt) plain(codec Codec, reply *Reply) bool {
	return reply.Code == Success && reply.Remark == "" && len(reply.Extra) == 0 && r.BatchUniqueID == "" && r.RecallHandle == "" &&
		(codec == Binary || plain(bytesOf(r.MsgID)) && plain(bytesOf(r.TransactionID)))
}

// append is head.append for a plain reply.
func (r *SendReceipt) append(dst []byte, codec Codec, opaque int32, bodyLen int) []byte {
	start := len(dst)
	if codec == JSON {
		dst = r.appendJSON(append(dst, 0, 0, 0, 0, 0, 0, 0, 0), opaque)
	} else {
		dst = r.appendBinary(append(dst, 0, 0, 0, 0, 0, 0, 0, 0), opaque)
	}
	headerLen := len(dst) - start - headSize
	binary.BigEndian.PutUint32(dst[start:], uint32(headSize-lengthSize+headerLen+bodyLen))
	binary.BigEndian.PutUint32(dst[start+lengthSize:], uint32(codec)<<24|uint32(headerLen))
	return dst
}

var (
	receiptOpening = `{"code":0,"flag":1,"language":"GO","opaque":`
	receiptFields  = `,"version":` + strconv.Itoa(int(Version)) + `,"extFields":{"msgId":"`
)

// receiptHead is a binary header up to the first field's value.
var receiptHead = func() string {
	head := head{codec: Binary, flag: FlagResponse}
	return string(append(head.openBinary(nil, ""), "\x00\x05msgId"...))
}()

func (r *SendReceipt) appendJSON(dst []byte, opaque int32) []byte {
	dst = append(dst, receiptOpening...)
	dst = strconv.AppendInt(dst, int64(opaque), 10)
	dst = append(dst, receiptFields...)
	dst = append(dst, r.MsgID...)
	dst = append(dst, `","queueId":"`...)
	dst = strconv.AppendInt(dst, int64(r.QueueID), 10)
	dst = append(dst, `","queueOffset":"`...)
	dst = strconv.AppendInt(dst, r.QueueOffset, 10)
	if r.TransactionID != "" {
		dst = append(dst, `","transactionId":"`...)
		dst = append(dst, r.TransactionID...)
	}
	dst = append(dst, '"')
	return append(dst, r.Form.text...)
}

func (r *SendReceipt) appendBinary(dst []byte, opaque int32) []byte {
	start := len(dst)
	dst = append(dst, receiptHead...)
	binary.BigEndian.PutUint32(dst[start+posOpaque:], uint32(opaque))
	block := start + minBinary
	dst = appendText(dst, r.MsgID)
	dst = appendDecimal(append(dst, "\x00\x07queueId"...), int64(r.QueueID))
	dst = appendDecimal(append(dst, "\x00\x0bqueueOffset"...), r.QueueOffset)
	if r.TransactionID != "" {
		dst = appendText(append(dst, "\x00\x0dtransactionId"...), r.TransactionID)
	}
	dst = append(dst, r.Form.block...)
	binary.BigEndian.PutUint32(dst[block-4:], uint32(len(dst)-block))
	return dst
}
