package protocol

import "testing"

func benchmarkDecode(b *testing.B, name string) {
	frame := goldenFrame(b, name, "request").bytes
	b.SetBytes(int64(len(frame)))
	b.ReportAllocs()
	var h SendMessageRequest
	var c Command
	var x FieldIndex
	for b.Loop() {
		c = Command{}
		if err := c.Decode(frame, &x); err != nil {
			b.Fatal(err)
		}
		h = SendMessageRequest{Properties: h.Properties[:0]}
		if err := c.ReadHeader(&h); err != nil {
			b.Fatal(err)
		}
	}
	if h.Topic == "" {
		b.Fatal("no topic")
	}
}

func BenchmarkDecodeSendV2JSON(b *testing.B)   { benchmarkDecode(b, "send-v2") }
func BenchmarkDecodeSendV2Binary(b *testing.B) { benchmarkDecode(b, "send-v2-rocketmq") }

func BenchmarkDecodeOnlySendV2JSON(b *testing.B)   { benchmarkDecodeOnly(b, "send-v2") }
func BenchmarkDecodeOnlySendV2Binary(b *testing.B) { benchmarkDecodeOnly(b, "send-v2-rocketmq") }

func benchmarkDecodeOnly(b *testing.B, name string) {
	frame := goldenFrame(b, name, "request").bytes
	b.ReportAllocs()
	var c Command
	var x FieldIndex
	for b.Loop() {
		c = Command{}
		if err := c.Decode(frame, &x); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEncodeReply(b *testing.B) {
	for _, codec := range []Codec{JSON, Binary} {
		b.Run(codec.String(), func(b *testing.B) {
			reply := &Reply{
				Header: &SendReceipt{
					SendMessageResponse{
						MsgID: "7F00000200002E870000000000000000", QueueID: 1, QueueOffset: 123456,
						TransactionID: "FD00000000000000000000000000000279735FFD2B27933DBC290000",
					},
					NewReceiptForm(KV{"MSG_REGION", "DefaultRegion"}, KV{"TRACE_ON", "true"}),
				},
			}
			buf := make([]byte, 0, 1024)
			b.ReportAllocs()
			for b.Loop() {
				buf = AppendReply(buf[:0], codec, 77, reply)
			}
		})
	}
}

func BenchmarkUnmarshalHeartbeat(b *testing.B) {
	body := goldenFrame(b, "heartbeat-consumer", "request").body()
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		var h HeartbeatData
		if err := Unmarshal(body, &h); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkStrictJSON(b *testing.B) {
	body := goldenFrame(b, "register-broker-full", "request").body()
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := strictJSON(body); err != nil {
			b.Fatal(err)
		}
	}
}
