package message

import "testing"

var sentProperties = []byte("UNIQ_KEY\x017F00000100002A9F0000000000000000\x02WAIT\x01true\x02TAGS\x01TagA\x02" +
	"MSG_REGION\x01DefaultRegion\x02TRACE_ON\x01true\x02CLUSTER\x01DefaultCluster\x02")

func BenchmarkEachProperty(b *testing.B) {
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		EachProperty(sentProperties, func(name, _ []byte) bool { n += len(name); return true })
	}
	if n == 0 {
		b.Fatal("no properties")
	}
}

func BenchmarkProperty(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := Property(sentProperties, PropertyTags); !ok {
			b.Fatal("no tags")
		}
	}
}

func BenchmarkHashCode(b *testing.B) {
	text := []byte("bench-pipelined-json-1#7F00000100002A9F0000000000000000")
	b.ReportAllocs()
	for b.Loop() {
		HashCode(text)
	}
}
