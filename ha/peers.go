package ha

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/protocol"
	"github.com/ratchetmq/ratchet/remoting"
)

// Caller is what of a remoting.Client is needed to ask other brokers.
type Caller interface {
	Call(ctx context.Context, addr string, code protocol.RequestCode, h protocol.Header, extra []protocol.KV, body []byte) (
		*remoting.Response, error)
}

// PeerOptions describe Peers.
type PeerOptions struct {
	Client  Caller
	Name    string // of the group of brokers
	Self    string // this broker's own address
	Namesrv func() []string
	Fixed   []string // further addresses, from the configuration
	Memory  *Memory
	Logger  *slog.Logger
}

// Peers finds and asks the other brokers of the group: master and slaves with the same broker name.
type Peers struct{ opts PeerOptions }

// NewPeers makes Peers.
func NewPeers(o PeerOptions) *Peers { return &Peers{o} }

// Peer is another broker of the group, and what it said last.
type Peer struct {
	Addr   string
	Java   bool // it is no Ratchet: it does not compare logs by itself, and has no epochs
	Status protocol.ReplicaStatus
	Err    error
}

func (p *Peer) end() offset.Physical { return offset.Physical(p.Status.End) }

func (p *Peer) leads() bool { return p.Status.Role != slaveRole && p.Status.State == StateOpen }

// greeting is what this broker says of itself to another, on its HA port; nil for a Java broker.
func (p *Peers) greeting(to *Peer, m *Memory, slave bool) *hello {
	if to.Java {
		return nil
	}
	return &hello{Name: p.opts.Name, Addr: p.opts.Self, Slave: slave, Epochs: Starts(m.Epochs())}
}

// Starts is a list of epochs as the wire has it.
func Starts(list []Epoch) []protocol.EpochStart {
	out := make([]protocol.EpochStart, len(list))
	for i, e := range list {
		out[i] = protocol.EpochStart{Epoch: e.Number, StartOffset: int64(e.Start)}
	}
	return out
}

const (
	askTimeout = 3 * time.Second
	// namesrvTimeout is short, for a start waits for it when a name server is silent.
	namesrvTimeout = time.Second
	slaveRole      = "SLAVE"
	// StateOpen is the state of a master that serves, StateOpening of one that is about to and lets its slaves connect,
	// StateClosed of one that waits, StateFollowing that of a slave, and StateTaking of one that is about to be the master.
	StateOpen      = "open"
	StateOpening   = "opening"
	StateClosed    = "closed"
	StateFollowing = "following"
	StateTaking    = "taking over"
)

// All finds the other brokers of the group, by the name servers, the configuration and what is remembered, and asks each.
func (p *Peers) All(ctx context.Context) []Peer {
	addrs := map[string]bool{}
	for _, a := range p.opts.Memory.Peers() {
		addrs[a] = true
	}
	registered := p.registered(ctx)
	for _, a := range registered {
		addrs[a] = true
	}
	if err := p.opts.Memory.Saw(registered); err != nil {
		p.opts.Logger.Error("peers not remembered", "err", err)
	}
	for _, a := range p.opts.Fixed {
		addrs[a] = true
	}
	delete(addrs, p.opts.Self)
	list := slices.Sorted(maps.Keys(addrs))
	peers := make([]Peer, len(list))
	var asks sync.WaitGroup
	for i, addr := range list {
		asks.Go(func() { peers[i] = p.Ask(ctx, addr) })
	}
	asks.Wait()
	return peers
}

// registered are the addresses that the name servers know for the group, less this broker's own.
func (p *Peers) registered(ctx context.Context) (addrs []string) {
	namesrv := p.opts.Namesrv()
	found := make([][]string, len(namesrv))
	var asks sync.WaitGroup
	for i, addr := range namesrv {
		asks.Go(func() { found[i] = p.registeredAt(ctx, addr) })
	}
	asks.Wait()
	for _, list := range found {
		addrs = append(addrs, list...)
	}
	slices.Sort(addrs)
	addrs = slices.Compact(addrs)
	return slices.DeleteFunc(addrs, func(addr string) bool { return addr == p.opts.Self })
}

func (p *Peers) registeredAt(ctx context.Context, namesrv string) (addrs []string) {
	ctx, cancel := context.WithTimeout(ctx, namesrvTimeout)
	defer cancel()
	resp, err := p.opts.Client.Call(ctx, namesrv, protocol.GetBrokerClusterInfo, nil, nil, nil)
	if err != nil || resp.Code != int32(protocol.Success) {
		return nil // the registrar tells of name servers that are away
	}
	var info protocol.ClusterInfo
	if err := protocol.Unmarshal(resp.Body, &info); err != nil {
		p.opts.Logger.Warn("cluster info not understood", "addr", namesrv, "err", err)
		return nil
	}
	return slices.Collect(maps.Values(info.BrokerAddrTable[p.opts.Name].BrokerAddrs))
}

// Ask asks one broker what it has.
func (p *Peers) Ask(ctx context.Context, addr string) Peer {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	peer := Peer{Addr: addr}
	resp, err := p.opts.Client.Call(ctx, addr, protocol.GetReplicaStatus, nil, nil, nil)
	switch {
	case err != nil:
		peer.Err = err
	case resp.Code == int32(protocol.RequestCodeNotSupported):
		peer.Java = true
		peer.Status, peer.Err = p.askJava(ctx, addr)
	case resp.Code != int32(protocol.Success):
		peer.Err = answered(resp)
	default:
		peer.Err = protocol.Unmarshal(resp.Body, &peer.Status)
	}
	if peer.Err == nil && peer.Status.BrokerName != p.opts.Name {
		peer.Err = fmt.Errorf("it is a broker of %q, not of %q", peer.Status.BrokerName, p.opts.Name)
	}
	return peer
}

func answered(resp *remoting.Response) error {
	return fmt.Errorf("it answers %s: %s", protocol.ResponseCode(resp.Code), resp.Remark)
}

// askJava puts together from a Java broker's runtime figures and configuration what is of use here.
func (p *Peers) askJava(ctx context.Context, addr string) (s protocol.ReplicaStatus, err error) {
	figures, err := p.figures(ctx, addr)
	if err != nil {
		return s, err
	}
	conf, err := p.config(ctx, addr)
	if err != nil {
		return s, err
	}
	s.BrokerName, s.Role = conf["brokerName"], conf["brokerRole"]
	if s.State = StateOpen; s.Role == slaveRole {
		s.State = StateFollowing
	}
	id, err1 := strconv.ParseInt(conf["brokerId"], 10, 64)
	low, err2 := strconv.ParseInt(figures["commitLogMinOffset"], 10, 64)
	end, err3 := strconv.ParseInt(figures["commitLogMaxOffset"], 10, 64)
	if boot, err := strconv.ParseInt(figures["bootTimestamp"], 10, 64); err == nil {
		s.Since = boot
	}
	s.BrokerID, s.Low, s.End, s.Flushed, s.Shown = id, max(low, 0), end, end, end // low is -1 for an empty log
	host, _, err4 := net.SplitHostPort(addr)
	if ip := conf["brokerIP2"]; ip != "" {
		host = ip
	}
	s.HAAddr = net.JoinHostPort(host, conf["haListenPort"])
	return s, errors.Join(err1, err2, err3, err4)
}

func (p *Peers) figures(ctx context.Context, addr string) (map[string]string, error) {
	resp, err := p.opts.Client.Call(ctx, addr, protocol.GetBrokerRuntimeInfo, nil, nil, nil)
	if err != nil {
		return nil, err
	}
	if resp.Code != int32(protocol.Success) {
		return nil, answered(resp)
	}
	var kv protocol.KVTable
	err = protocol.Unmarshal(resp.Body, &kv)
	return kv.Table, err
}

func (p *Peers) config(ctx context.Context, addr string) (map[string]string, error) {
	resp, err := p.opts.Client.Call(ctx, addr, protocol.GetBrokerConfig, nil, nil, nil)
	if err != nil {
		return nil, err
	}
	if resp.Code != int32(protocol.Success) {
		return nil, answered(resp)
	}
	conf := map[string]string{}
	for line := range strings.Lines(string(resp.Body)) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			conf[key] = value
		}
	}
	return conf, nil
}

// high is the end of a queue at another broker.
func (p *Peers) high(ctx context.Context, addr, topic string, queue int32) (offset.Queue, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	resp, err := p.opts.Client.Call(ctx, addr, protocol.GetMaxOffset, &protocol.GetMaxOffsetRequest{Topic: topic, QueueID: queue}, nil, nil)
	if err != nil {
		return 0, err
	}
	if resp.Code != int32(protocol.Success) {
		return 0, answered(resp)
	}
	var h protocol.GetMaxOffsetResponse
	err = resp.ReadHeader(&h)
	return offset.Queue(h.Offset), err
}
