//go:build conformance && linux

package crash

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/conformance/oracle"
	"github.com/ratchetmq/ratchet/internal/freeport"
	"github.com/ratchetmq/ratchet/protocol"
)

const (
	partitionTopic  = "Partition"
	partitionQueues = 4
	partitionGroup  = "partition-readers"
	partitionWait   = time.Minute
)

// A machine is a broker on a host of its own.
type machine struct {
	host    *lanHost
	address string
	store   string
	server  *oracle.Server
	running bool
}

// A partition is a master and a slave on two hosts, with a name server and clients that reach both.
type partition struct {
	t        *testing.T
	lan      *lan
	machines [2]*machine
	client   *asker
	load     *partitionLoad
}

// TestPartition kills and cuts off the brokers of a SYNC_MASTER group under load, again and again: ten rounds, or
// PARTITION_ROUNDS. Each begins with brokers that have the same, and ends so.
func TestPartition(t *testing.T) {
	rounds := 10
	if text := os.Getenv("PARTITION_ROUNDS"); text != "" {
		n, err := strconv.Atoi(text)
		require.NoError(t, err, "PARTITION_ROUNDS")
		rounds = n
	}
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("PARTITION_SEED"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		require.NoError(t, err, "PARTITION_SEED")
		seed = n
	}
	t.Logf("PARTITION_SEED=%d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	p := newPartition(t)
	began := time.Now()
	var order []int
	for round := range rounds {
		if round%len(troubles) == 0 {
			order = random.Perm(len(troubles))
		}
		trouble := troubles[order[round%len(troubles)]]
		acked := p.load.acked()
		p.load.flows(p.load.all, 20)
		trouble.make(p)
		p.load.pause()
		p.level()
		t.Logf("%5.1f s: round %d, %s: %d messages on both", time.Since(began).Seconds(), round+1, trouble.name,
			p.load.acked()-acked)
		p.load.judge(p)
		p.load.resume()
	}
	p.end()
}

// newPartition starts all, with a topic and its load.
func newPartition(t *testing.T) *partition {
	t.Helper()
	p := &partition{t: t, lan: newLAN(t, 2), client: newAsker()}
	t.Cleanup(p.client.close)
	binary, err := buildOnce()
	require.NoError(t, err)
	dir := t.TempDir()
	port, err := freeport.Get()
	require.NoError(t, err)
	conf := filepath.Join(dir, "namesrv.conf")
	require.NoError(t, oracle.WriteConf(conf, "listenPort", port))
	namesrv := oracle.NewServer([]string{binary, "namesrv", "-c", conf}, filepath.Join(dir, "namesrv.log"), "is ready", port)
	require.NoError(t, namesrv.Start())
	t.Cleanup(func() { _ = namesrv.End(syscall.SIGKILL) })
	for i, h := range p.lan.hosts {
		home := subfolder(t, dir, fmt.Sprint("broker", i))
		m := &machine{host: h, address: h.addr + ":10911", store: filepath.Join(home, "store")}
		conf, log := filepath.Join(home, "broker.conf"), filepath.Join(home, "broker.log")
		require.NoError(t, oracle.WriteConf(conf,
			"brokerName", "partition", "brokerId", i, "brokerRole", []string{"SYNC_MASTER", "SLAVE"}[i],
			"brokerIP1", h.addr, "brokerIP2", h.addr, "bindAddress", h.addr, "listenPort", 10911, "haListenPort", 10912,
			"namesrvAddr", fmt.Sprintf("%s:%d", p.lan.addr, port), "registerNameServerPeriod", 1000,
			"storePathRootDir", m.store, "storePathCommitLog", filepath.Join(m.store, "commitlog"),
			"mappedFileSizeCommitLog", 1<<20, "mappedFileSizeConsumeQueue", 20*1000, "maxHashSlotNum", 5000, "maxIndexNum", 20_000,
			"slaveReadEnable", true, "diskMaxUsedSpaceRatio", 95,
			// What a partition does is to be noticed within a round.
			"haSendHeartbeatInterval", 200, "haHousekeepingInterval", 2000, "slaveTimeout", 500,
		))
		m.server = oracle.NewServer(h.run(binary, "broker", "-c", conf), log, "is ready")
		p.machines[i] = m
		t.Cleanup(func() {
			p.kill(m)
			if t.Failed() {
				t.Logf("broker %d: end of its log:\n%s", i, oracle.Tail(log))
			}
		})
		p.start(m)
	}
	p.await("the topic is made", func() bool {
		answer, err := p.client.ask(p.machines[0].address, protocol.UpdateAndCreateTopic, &protocol.CreateTopicRequest{
			Topic: partitionTopic, DefaultTopic: protocol.TopicDefault, ReadQueueNums: partitionQueues,
			WriteQueueNums: partitionQueues, Perm: 6, TopicFilterType: protocol.SingleTag,
		}, nil)
		return err == nil && protocol.ResponseCode(answer.Code) == protocol.Success
	})
	p.await("the slave knows of the topic", func() bool {
		answer, err := p.client.ask(p.machines[1].address, protocol.GetAllTopicConfig, nil, nil)
		return err == nil && bytes.Contains(answer.Body, []byte(partitionTopic))
	})
	p.level()
	p.load = startPartitionLoad(t, p)
	return p
}

func (p *partition) start(m *machine) {
	p.t.Helper()
	require.NoError(p.t, m.server.Start(), m.address)
	m.running = true
}

func (p *partition) kill(m *machine) {
	_ = m.server.End(syscall.SIGKILL) // an error would say that it did not end within a minute of SIGKILL
	m.running = false
}

func (p *partition) await(what string, done func() bool) {
	p.t.Helper()
	require.Eventually(p.t, done, partitionWait, 20*time.Millisecond, what)
}

// status is what the broker says of its part; its State is empty when it can't be asked.
func (p *partition) status(m *machine) (s protocol.ReplicaStatus) {
	answer, err := p.client.ask(m.address, protocol.GetReplicaStatus, nil, nil)
	if err != nil || protocol.ResponseCode(answer.Code) != protocol.Success || protocol.Unmarshal(answer.Body, &s) != nil {
		return protocol.ReplicaStatus{}
	}
	return s
}

// roles are the machines as they are when nothing is wrong: they may have been switched.
func (p *partition) roles() (master, slave *machine) {
	p.t.Helper()
	p.await("one broker is an open master, and the other its slave", func() bool {
		a, b := p.status(p.machines[0]), p.status(p.machines[1])
		switch {
		case a.State == "open" && b.State == "following":
			master, slave = p.machines[0], p.machines[1]
		case b.State == "open" && a.State == "following":
			master, slave = p.machines[1], p.machines[0]
		default:
			return false
		}
		return true
	})
	return master, slave
}

// level waits until the slave has all that the master has.
func (p *partition) level() {
	p.t.Helper()
	master, slave := p.roles()
	var m, s protocol.ReplicaStatus
	require.Eventually(p.t, func() bool {
		m, s = p.status(master), p.status(slave)
		return m.End == s.End && m.Shown == m.End && s.Shown == s.End && len(m.Slaves) == 1 && m.Slaves[0].Acked == m.End
	}, partitionWait, 20*time.Millisecond, "the slave has all that the master has")
	require.Empty(p.t, m.Gaps, "nothing was lost, so nothing is kept free")
	require.Empty(p.t, s.Gaps)
}

// A trouble is what happens in a round. It ends with all mended.
type trouble struct {
	name string
	make func(p *partition)
}

var troubles = []trouble{
	{"master killed", func(p *partition) {
		master, slave := p.roles()
		p.kill(master)
		p.load.goesOn(p, slave)
		p.start(master)
		p.load.flows(p.load.acked, 20)
	}},
	{"slave killed", func(p *partition) {
		_, slave := p.roles()
		p.kill(slave)
		p.load.flows(p.load.alone, 20)
		p.start(slave)
		p.load.flows(p.load.acked, 20)
	}},
	{"both killed", func(p *partition) {
		master, slave := p.roles()
		p.kill(master)
		p.kill(slave)
		p.start(master)
		p.load.flows(p.load.alone, 20)
		p.start(slave)
		p.load.flows(p.load.acked, 20)
	}},
	{"both killed, the slave first again", func(p *partition) {
		master, slave := p.roles()
		p.kill(slave)
		p.kill(master)
		p.start(slave)
		p.start(master)
		p.load.flows(p.load.acked, 20)
	}},
	{"cut off from each other", func(p *partition) {
		p.lan.split(true)
		p.load.flows(p.load.alone, 40)
		p.lan.split(false)
		p.load.flows(p.load.acked, 20)
	}},
	{"what the master sends does not come", func(p *partition) {
		master, slave := p.roles()
		p.lan.mute(master.host, slave.host, true)
		p.load.flows(p.load.alone, 40)
		p.lan.mute(master.host, slave.host, false)
		p.load.flows(p.load.acked, 20)
	}},
	{"what the slave sends does not come", func(p *partition) {
		master, slave := p.roles()
		p.lan.mute(slave.host, master.host, true)
		p.load.flows(p.load.alone, 40)
		p.lan.mute(slave.host, master.host, false)
		p.load.flows(p.load.acked, 20)
	}},
	{"master unplugged", func(p *partition) {
		master, slave := p.roles()
		p.lan.plug(master.host, false)
		p.load.goesOn(p, slave)
		p.lan.plug(master.host, true)
		p.load.flows(p.load.acked, 20)
	}},
	{"cut off, then the master killed", func(p *partition) {
		master, slave := p.roles()
		p.lan.split(true)
		p.load.flows(p.load.alone, 40)
		p.kill(master)
		p.load.goesOn(p, slave)
		p.start(master)
		p.load.flows(p.load.alone, 20)
		p.lan.split(false)
		p.load.flows(p.load.acked, 20)
	}},
	{"roles switched", func(p *partition) {
		master, slave := p.roles()
		p.await("the slave has nearly all", func() bool {
			links := p.status(master).Slaves
			return len(links) == 1 && links[0].InSync
		})
		body, err := protocol.Marshal(protocol.SwitchRequest{Slave: slave.address})
		require.NoError(p.t, err)
		answer, err := p.client.ask(master.address, protocol.SwitchMaster, nil, body)
		require.NoError(p.t, err)
		require.Equal(p.t, protocol.Success, protocol.ResponseCode(answer.Code), answer.Remark)
		p.load.flows(p.load.acked, 20)
	}},
}

// end stops all, and compares the two stores by what shares no code with them.
func (p *partition) end() {
	p.t.Helper()
	master, slave := p.roles()
	p.load.stop(p)
	binary, err := buildOnce()
	require.NoError(p.t, err)
	for _, m := range []*machine{slave, master} {
		require.NoError(p.t, m.server.End(syscall.SIGTERM))
		require.True(p.t, m.server.State().Success(), "%s: %v", m.address, m.server.State())
		out, err := exec.Command(binary, "inspect", "check", m.store).CombinedOutput()
		require.NoError(p.t, err, string(out))
	}
	out, err := exec.Command(binary, "inspect", "diff", master.store, slave.store).CombinedOutput()
	require.NoError(p.t, err, string(out))
}
