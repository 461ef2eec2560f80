package remoting

import (
	"bytes"
	"context"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/protocol"
)

// input is a gnet connection with bytes that have come.
type input struct {
	gnet.Conn
	left []byte // not taken yet
}

func (in *input) Peek(int) ([]byte, error) { return in.left, nil }

func (in *input) Discard(n int) (int, error) {
	in.left = in.left[n:]
	return n, nil
}

// reads is a server's connection without a socket.
type reads struct {
	*serverLink
	in    *input
	lanes []*lane
}

// newReads makes one whose server is not running: what is read stays in the lanes. Requests go to the one of their code.
func newReads(t testing.TB, h Handler, lanes ...LaneConfig) *reads {
	s, err := NewServer(ServerConfig{
		Handler: h, Addrs: []string{"unused"}, Lanes: lanes, LaneOf: func(code int32) int { return int(code) },
	})
	require.NoError(t, err)
	s.ctx = context.Background()
	k := &serverLink{srv: s, fd: -1, poller: -1}
	k.conn.init(&s.endpoint, k, 1, netip.AddrPort{}, netip.AddrPort{}, len(lanes))
	return &reads{serverLink: k, in: &input{}, lanes: s.lanes}
}

// read is a read that brings data, behind what an earlier one has left. Its memory is another's afterwards.
func (r *reads) read(data []byte) gnet.Action {
	buf := slices.Concat(r.in.left, data)
	r.in.left = buf
	action := r.traffic(r.in)
	r.in.left = slices.Clone(r.in.left)
	for i := range buf {
		buf[i] = 0xDB
	}
	return action
}

// waiting are the requests in a lane.
func (r *reads) waiting(lane int) (all []*Request) {
	for one := r.conn.strand(r.lanes[lane]).head; one != nil; one = one.next {
		all = append(all, one)
	}
	return all
}

func joined(frames ...[]byte) []byte { return bytes.Join(frames, nil) }

var grouping = LaneConfig{Name: "l", Workers: 1, Group: true}

// TestAReadsMemoryIsGivenBackWithItsLastRequest: not before, in whatever order and way they end.
func TestAReadsMemoryIsGivenBackWithItsLastRequest(t *testing.T) {
	for name, ends := range map[string]struct {
		order [4]int
		end   func(r *Request)
	}{
		"replies":  {[4]int{0, 1, 2, 3}, func(r *Request) { r.Reply(protocol.Reply{}) }},
		"backward": {[4]int{3, 2, 1, 0}, func(r *Request) { r.ReplyLater(protocol.Reply{}) }},
		"detached": {[4]int{2, 0, 3, 1}, func(r *Request) { r.Detach(); r.Detach(); r.Reply(protocol.Reply{}) }},
		"twice":    {[4]int{1, 3, 0, 2}, func(r *Request) { r.Reply(protocol.Reply{}); r.Reply(protocol.Reply{}) }},
		"together": {[4]int{0, 2, 1, 3}, func(r *Request) {
			ReplyGroup([]*Request{r, r}, []*protocol.Reply{{}, {}}) // the second is one too many
		}},
	} {
		t.Run(name, func(t *testing.T) {
			k := newReads(t, echoes, grouping)
			k.read(joined(frame(0, 0, false, "body 0"), frame(0, 1, true, "body 1"), frame(0, 2, false, "body 2"), frame(0, 3, true, "body 3")))
			all := k.waiting(0)
			require.Len(t, all, 4)
			u := all[0].bytes
			for n, i := range ends.order {
				require.NotNil(t, u.bytes, "%d have ended", n)
				for _, r := range all {
					if r.bytes != nil {
						require.Equal(t, "body "+string('0'+r.Opaque), string(r.Body))
					}
				}
				require.Same(t, u, all[i].bytes, "they share it")
				ends.end(all[i])
				require.Nil(t, all[i].Body)
			}
			require.Nil(t, u.bytes)
			require.Zero(t, u.left.Load())
		})
	}
}

// TestAPanickingHandlersBytesAreNeverReused: nor are those around them, which are in one buffer.
func TestAPanickingHandlersBytesAreNeverReused(t *testing.T) {
	for name, h := range map[string]struct {
		handler Handler
		group   bool
	}{
		"alone": {handler: HandlerFunc(func(_ context.Context, r *Request) {
			if string(r.Body) == "panic" {
				panic("as asked")
			}
			r.Reply(protocol.Reply{})
		})},
		"in a group": {&groups{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			k := newReads(t, h.handler, LaneConfig{Name: "l", Workers: 1, Group: h.group})
			k.read(joined(frame(0, 1, false, "alone"), frame(0, 2, false, "panic"), frame(0, 3, false, "together")))
			all := k.waiting(0)
			u, body := all[0].bytes, all[1].Body
			for h := new(hand); len(k.waiting(0)) > 0; {
				require.True(t, k.lanes[0].deal(h))
				k.lanes[0].runQueued(h.requests)
			}
			for _, r := range all {
				require.True(t, r.Replied())
			}
			require.Positive(t, u.left.Load())
			require.Equal(t, "panic", string(body), "whoever reads on reads this")
		})
	}
}

// TestWhoSharesMemory: what goes to one lane together, no more than a read's worth. So what waits in one lane keeps nothing
// of others.
func TestWhoSharesMemory(t *testing.T) {
	k := newReads(t, echoes, grouping, LaneConfig{Name: "other", Workers: 1})
	large := string(make([]byte, maxBundle/2))
	whole := frame(0, 9, false, "in pieces")
	k.read(joined(
		frame(0, 0, false, "a"), frame(0, 1, false, "b"),
		frame(1, 2, false, "c"), frame(1, 3, false, "d"),
		frame(0, 4, false, "e"), frame(0, 5, false, large), frame(0, 6, false, large),
		frame(0, 7, false, large+large), frame(0, 8, false, "f"), whole[:20],
	))
	k.read(joined(whole[20:], frame(0, 10, false, "g")))
	owner := map[int32]*bundle{}
	for lane := range 2 {
		for _, r := range k.waiting(lane) {
			owner[r.Opaque] = r.bytes
		}
	}
	require.Len(t, owner, 11)
	next := int32(0)
	shared := map[*bundle]bool{}
	for _, together := range []int32{2, 2, 2, 1, 1, 1, 1, 1} {
		u := owner[next]
		require.False(t, shared[u])
		shared[u] = true
		require.Equal(t, together, u.left.Load())
		for range together {
			require.Same(t, u, owner[next], next)
			next++
		}
	}
}

// TestAResponseKeepsItsBytes: nobody says when they are done with.
func TestAResponseKeepsItsBytes(t *testing.T) {
	k := newReads(t, echoes, grouping)
	opaque, answer, err := k.conn.expect()
	require.NoError(t, err)
	response := protocol.AppendReply(nil, protocol.JSON, opaque, &protocol.Reply{
		Header: &protocol.GetMaxOffsetResponse{Offset: 7}, Body: []byte("kept"),
	})
	behind := protocol.AppendRequest(nil, protocol.Binary, 0, 1, false, &protocol.GetMaxOffsetRequest{Topic: "another"}, nil, nil)
	k.read(joined(frame(0, 0, false, "before"), response, behind))
	got := <-answer
	for _, r := range k.waiting(0) {
		r.Reply(protocol.Reply{})
	}
	k.read(behind)
	var h protocol.GetMaxOffsetResponse
	require.NoError(t, got.ReadHeader(&h))
	require.Equal(t, int64(7), h.Offset)
	require.Equal(t, "kept", string(got.Body))
	require.Len(t, k.waiting(0), 3)
}

// TestRequestsComeAsTheyWereSent: whatever frames come, cut wherever, each lane has its own, in their order, and they still
// hold what was sent when later ones have come.
func TestRequestsComeAsTheyWereSent(t *testing.T) {
	for seed := range uint64(40) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		k := newReads(t, echoes, LaneConfig{Name: "a", Workers: 1, Group: true, Queue: 1000}, LaneConfig{Name: "b", Workers: 1, Queue: 1000})
		var stream []byte
		var want [2][][]byte
		lane := 0
		for i := range int32(300) {
			if rnd.IntN(4) == 0 {
				lane = rnd.IntN(2)
			}
			body := make([]byte, rnd.IntN(1<<rnd.IntN(18)))
			for i := range body {
				body[i] = byte(rnd.Uint32())
			}
			codec := protocol.Codec(rnd.IntN(2))
			if rnd.IntN(10) == 0 {
				stream = protocol.AppendReply(stream, codec, i, &protocol.Reply{Body: body}) // nobody waits for it
				continue
			}
			one := protocol.AppendRequest(nil, codec, protocol.RequestCode(lane), i, rnd.IntN(3) == 0,
				&protocol.GetMaxOffsetRequest{Topic: string(body[:min(len(body), 9)/3]), QueueID: i},
				[]protocol.KV{{Key: "more", Value: "x"}}[:rnd.IntN(2)], body)
			want[lane] = append(want[lane], one)
			stream = append(stream, one...)
		}
		for len(stream) > 0 {
			n := min(len(stream), 1+rnd.IntN(1<<rnd.IntN(18)))
			require.Equal(t, gnet.None, k.read(stream[:n]))
			stream = stream[n:]
		}
		for lane, frames := range want {
			got := k.waiting(lane)
			require.Len(t, got, len(frames))
			for i, f := range frames {
				w, err := protocol.Decode(f)
				require.NoError(t, err)
				g := got[i].Command
				require.Equal(t, fieldsOf(t, w.Fields), fieldsOf(t, g.Fields))
				require.True(t, bytes.Equal(w.Body, g.Body))
				w.Fields, g.Fields, w.Body, g.Body = protocol.Fields{}, protocol.Fields{}, nil, nil
				require.Equal(t, w, g)
			}
		}
	}
}

func fieldsOf(t *testing.T, f protocol.Fields) (all []string) {
	require.NoError(t, f.Each(func(key, value []byte) error {
		all = append(all, string(key)+"="+string(value))
		return nil
	}))
	return all
}
