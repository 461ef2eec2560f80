package namesrv

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/ratchetmq/ratchet/protocol"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// gnet imports a worker pool that lives as long as the process.
		goleak.IgnoreTopFunction("github.com/panjf2000/ants/v2.(*poolCommon).purgeStaleWorkers"),
		goleak.IgnoreTopFunction("github.com/panjf2000/ants/v2.(*poolCommon).ticktock"))
}

// start runs a name server on a free port until the test ends.
func start(t testing.TB, cfg Config) *Server {
	t.Helper()
	cfg.Addrs = []string{"127.0.0.1:0"}
	s, err := New(cfg)
	require.NoError(t, err)
	stop := run(t, s)
	t.Cleanup(stop)
	return s
}

// run runs s until the function that it returns is called.
func run(t testing.TB, s *Server) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	select {
	case <-s.Ready():
	case err := <-done:
		cancel()
		require.NoError(t, err)
	}
	stopped := false
	return func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		require.NoError(t, <-done)
	}
}

// peer is a raw connection to a name server.
type peer struct {
	testing.TB
	conn   net.Conn
	opaque int32
}

func dial(t testing.TB, s *Server) *peer {
	t.Helper()
	conn, err := net.Dial("tcp", s.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return &peer{TB: t, conn: conn}
}

func (p *peer) send(frame []byte) {
	p.Helper()
	_, err := p.conn.Write(frame)
	require.NoError(p, err)
}

func (p *peer) receive() protocol.Command {
	p.Helper()
	cmd, err := p.read()
	require.NoError(p, err)
	return cmd
}

func (p *peer) read() (protocol.Command, error) {
	if err := p.conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		return protocol.Command{}, err
	}
	head := make([]byte, 8)
	if _, err := io.ReadFull(p.conn, head); err != nil {
		return protocol.Command{}, err
	}
	size, err := protocol.FrameSize(head)
	if err != nil {
		return protocol.Command{}, err
	}
	frame := make([]byte, size)
	copy(frame, head)
	if _, err := io.ReadFull(p.conn, frame[8:]); err != nil {
		return protocol.Command{}, err
	}
	return protocol.Decode(frame)
}

// ask sends a request and returns its answer.
func (p *peer) ask(code protocol.RequestCode, h protocol.Header, extra []protocol.KV, body []byte) protocol.Command {
	p.Helper()
	p.opaque++
	p.send(protocol.AppendRequest(nil, protocol.JSON, code, p.opaque, false, h, extra, body))
	rep := p.receive()
	require.True(p, rep.IsResponse())
	require.Equal(p, p.opaque, rep.Opaque)
	return rep
}

func kv(pairs ...string) (all []protocol.KV) {
	for i := 0; i < len(pairs); i += 2 {
		all = append(all, protocol.KV{Key: pairs[i], Value: pairs[i+1]})
	}
	return all
}

func code(c protocol.Command) protocol.ResponseCode { return protocol.ResponseCode(c.Code) }

// requireCode fails with the remark of an answer that has another code.
func requireCode(t require.TestingT, want protocol.ResponseCode, got protocol.Command) {
	if h, ok := t.(interface{ Helper() }); ok {
		h.Helper()
	}
	require.Equal(t, want, code(got), "remark: %s", got.Remark)
}

// register sends a registration as a broker of version 5.4.0 does.
func (p *peer) register(r Registration) protocol.Command {
	p.Helper()
	return p.ask(protocol.RegisterBroker, header(r), nil, encode(p, r))
}

func header(r Registration) *protocol.RegisterBrokerRequest {
	return &protocol.RegisterBrokerRequest{
		BrokerName: r.Broker, BrokerAddr: r.Addr, ClusterName: r.Cluster, HAServerAddr: r.HAAddr, BrokerID: r.ID,
		EnableActingMaster: r.ActingMaster,
	}
}

func encode(t testing.TB, r Registration) []byte {
	t.Helper()
	b := protocol.RegisterBrokerBody{FilterServerList: []string{}}
	b.TopicConfigSerializeWrapper.DataVersion = r.Version
	b.TopicConfigSerializeWrapper.TopicConfigTable = map[string]protocol.TopicConfig{}
	for _, e := range r.Topics {
		b.TopicConfigSerializeWrapper.TopicConfigTable[e.Name] = protocol.TopicConfig{
			TopicName: e.Name, ReadQueueNums: e.ReadQueues, WriteQueueNums: e.WriteQueues, Perm: e.Perm,
			TopicSysFlag: e.SysFlag, TopicFilterType: protocol.SingleTag,
		}
	}
	body, err := protocol.EncodeRegisterBody(&b, false, protocol.Version)
	require.NoError(t, err)
	return body
}

func (p *peer) route(topic string) (*routeData, protocol.ResponseCode) {
	p.Helper()
	rep := p.ask(protocol.GetRouteInfoByTopic, &protocol.GetRouteInfoRequest{Topic: topic, AcceptStandardJSONOnly: true}, nil, nil)
	if code(rep) != protocol.Success {
		return nil, code(rep)
	}
	return parseRoute(p, rep.Body), protocol.Success
}

// frames returns a captured request and its answer, nil if there is none.
func frames(t testing.TB, name string) (request []byte, response *protocol.Command) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "protocol", "testdata", "frames", "golden.jsonl"))
	require.NoError(t, err)
	for line := range bytes.Lines(data) {
		var f struct{ Name, Side, Hex string }
		require.NoError(t, json.Unmarshal(line, &f))
		if f.Name != name {
			continue
		}
		frame, err := hex.DecodeString(f.Hex)
		require.NoError(t, err)
		if f.Side == "request" {
			request = frame
			continue
		}
		cmd, err := protocol.Decode(frame)
		require.NoError(t, err)
		response = &cmd
	}
	require.NotEmpty(t, request, name)
	return request, response
}
