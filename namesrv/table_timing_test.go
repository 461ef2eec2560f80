package namesrv

import (
	"fmt"
	"testing"

	"github.com/ratchetmq/ratchet/protocol"
)

// manyTopics is a table of n topics on three brokers, with a slave each.
func manyTopics(tb testing.TB, n int) (*Table, []string) {
	tb.Helper()
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("topic-with-a-usual-name-%05d", i)
	}
	t := NewTable(nil)
	for i := range 3 {
		name := fmt.Sprintf("broker-%c", 'a'+i)
		for id := range int64(2) {
			addr := fmt.Sprintf("10.0.%d.%d:10911", i, id)
			if _, err := t.Register(as(full(1, names...), name, id, addr, uint64(10*i)+uint64(id))); err != nil {
				tb.Fatal(err)
			}
		}
	}
	return t, names
}

func BenchmarkRoute50k(b *testing.B) {
	t, names := manyTopics(b, 50_000)
	b.Run("unchanged", func(b *testing.B) {
		for i, name := range names {
			t.Route(name, i%2 == 0)
			t.Route(name, i%2 != 0)
		}
		b.ReportAllocs()
		for i := 0; b.Loop(); i += 977 {
			if _, ok := t.Route(names[i%len(names)], true); !ok {
				b.Fatal("no route")
			}
		}
	})
	b.Run("brokers changed", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i += 977 {
			t.Invalidate()
			t.Route(names[i%len(names)], true)
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for i := 0; pb.Next(); i += 977 {
				t.Route(names[i%len(names)], true)
			}
		})
	})
	b.Run("unknown", func(b *testing.B) {
		for b.Loop() {
			t.Route("nobody-has-this", true)
		}
	})
}

func BenchmarkTopicList50k(b *testing.B) {
	t, _ := manyTopics(b, 50_000)
	b.Run("unchanged", func(b *testing.B) {
		for b.Loop() {
			t.TopicList()
		}
	})
	b.Run("topic added", func(b *testing.B) {
		for b.Loop() {
			t.topicsGen.Add(1)
			t.TopicList()
		}
	})
}

func BenchmarkRegister50k(b *testing.B) {
	t, names := manyTopics(b, 50_000)
	again := as(full(1, names...), "broker-a", 0, "10.0.0.0:10911", 0)
	b.Run("unchanged", func(b *testing.B) {
		for b.Loop() {
			if _, err := t.Register(again); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("increment", func(b *testing.B) {
		one := as(body(1, names[7]), "broker-a", 0, "10.0.0.0:10911", 0)
		for b.Loop() {
			one.Version.Counter++
			if _, err := t.Register(one); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("wire", func(b *testing.B) {
		s := start(b, Config{})
		p := dial(b, s)
		payload := encode(b, full(1, names...))
		b.SetBytes(int64(len(payload)))
		h := header(full(1))
		for b.Loop() {
			p.ask(protocol.RegisterBroker, h, nil, payload)
		}
	})
}

func BenchmarkRouteOnTheWire50k(b *testing.B) {
	_, names := manyTopics(b, 50_000)
	p := dial(b, start(b, Config{}))
	p.register(full(1, names...))
	for i := 0; b.Loop(); i += 977 {
		rep := p.ask(protocol.GetRouteInfoByTopic, &protocol.GetRouteInfoRequest{Topic: names[i%len(names)]}, nil, nil)
		if code(rep) != protocol.Success {
			b.Fatal(rep.Remark)
		}
	}
}
