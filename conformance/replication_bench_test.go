//go:build conformance

package conformance

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/conformance/oracle"
	"github.com/ratchetmq/ratchet/protocol"
	"github.com/ratchetmq/ratchet/remoting"
)

// A benched is a broker of ours in a process of its own, with the settings that it has by default.
type benched struct {
	address, store string
	server         *oracle.Server
	client         *remoting.Client
}

func newBenched(b *testing.B, dir, name, namesrv string, id int) *benched {
	b.Helper()
	binary, err := ratchetBinary()
	require.NoError(b, err)
	port, err := oracle.FreePort()
	require.NoError(b, err)
	home := filepath.Join(dir, fmt.Sprint(name, id))
	require.NoError(b, os.MkdirAll(home, 0o755))
	n := &benched{address: fmt.Sprintf("127.0.0.1:%d", port), store: filepath.Join(home, "store")}
	conf := filepath.Join(home, "broker.conf")
	require.NoError(b, oracle.WriteConf(conf,
		"brokerName", name, "brokerId", id, "brokerRole", []string{"ASYNC_MASTER", "SLAVE"}[id], "brokerIP1", "127.0.0.1",
		"listenPort", port, "namesrvAddr", namesrv, "storePathRootDir", n.store, "vipPortEnable", false,
		"storePathCommitLog", filepath.Join(n.store, "commitlog"), "diskMaxUsedSpaceRatio", 95,
	))
	n.server = oracle.NewServer([]string{binary, "broker", "-c", conf}, filepath.Join(home, "broker.log"), "is ready", port)
	n.client, err = remoting.NewClient(remoting.ClientConfig{})
	require.NoError(b, err)
	require.NoError(b, n.server.Start())
	b.Cleanup(func() {
		n.client.Close()
		_ = n.server.End(syscall.SIGKILL)
		os.RemoveAll(home)
	})
	return n
}

func benchNamesrv(b *testing.B, dir string) string {
	b.Helper()
	binary, err := ratchetBinary()
	require.NoError(b, err)
	port, err := oracle.FreePort()
	require.NoError(b, err)
	conf := filepath.Join(dir, "namesrv.conf")
	require.NoError(b, oracle.WriteConf(conf, "listenPort", port))
	s := oracle.NewServer([]string{binary, "namesrv", "-c", conf}, filepath.Join(dir, "namesrv.log"), "is ready", port)
	require.NoError(b, s.Start())
	b.Cleanup(func() { _ = s.End(syscall.SIGKILL) })
	return fmt.Sprintf("127.0.0.1:%d", port)
}

func (n *benched) status(b *testing.B) (s protocol.ReplicaStatus) {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	answer, err := n.client.Call(ctx, n.address, protocol.GetReplicaStatus, nil, nil, nil)
	require.NoError(b, err)
	require.NoError(b, protocol.Unmarshal(answer.Body, &s))
	return s
}

// cpu is the processor time that the broker has used.
func (n *benched) cpu(b *testing.B) time.Duration {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", n.server.PID()))
	require.NoError(b, err)
	_, rest, _ := strings.Cut(string(text), ") ")
	f := strings.Fields(rest)
	user, err := strconv.Atoi(f[11])
	require.NoError(b, err)
	system, err := strconv.Atoi(f[12])
	require.NoError(b, err)
	return time.Duration(user+system) * (time.Second / 100)
}

// send sends n bodies of 1 KiB, each: several to a request when it is a batch.
func (n *benched) send(b *testing.B, messages, batch int) {
	b.Helper()
	body := []byte(strings.Repeat("x", 1024))
	h := protocol.SendMessageRequestV2{
		ProducerGroup: "bench", Topic: "Bench", DefaultTopic: protocol.TopicDefault, DefaultTopicQueueNums: 4, Batch: batch > 1,
	}
	code := protocol.SendMessageV2
	if batch > 1 {
		code = protocol.SendBatchMessage
		var all []byte
		for range batch {
			all = protocol.AppendBatchMessage(all, protocol.BatchMessage{Body: body})
		}
		body = all
	}
	var left atomic.Int64
	left.Store(int64(messages / batch))
	var senders sync.WaitGroup
	for queue := range int32(4) {
		for range 8 {
			senders.Go(func() {
				for left.Add(-1) >= 0 {
					h := h
					h.QueueID, h.BornTimestamp = queue, time.Now().UnixMilli()
					answer, err := n.client.Call(context.Background(), n.address, code, &h, nil, body)
					if err != nil || protocol.ResponseCode(answer.Code) != protocol.Success {
						b.Errorf("send: %v %+v", err, answer)
						return
					}
				}
			})
		}
	}
	senders.Wait()
}

func median(list []float64) float64 {
	slices.Sort(list)
	return list[len(list)/2]
}

// BenchmarkReplicaCatchUp has a slave with an empty disk fetch 1 GiB from its master, and copies as much over a connection
// into a file, in turns.
func BenchmarkReplicaCatchUp(b *testing.B) {
	dir := filepath.Join(workDir, "catch-up")
	require.NoError(b, os.MkdirAll(dir, 0o755))
	namesrv := benchNamesrv(b, dir)
	master := newBenched(b, dir, "bench", namesrv, 0)
	master.send(b, 1<<20, 512)
	end := master.status(b).End
	slave := newBenched(b, dir, "bench", namesrv, 1)
	var ratios, copies, fetches []float64
	for range max(b.N, 3) {
		began := time.Now()
		copyLog(b, master.store, filepath.Join(dir, "copy"), end)
		copied := time.Since(began)
		require.NoError(b, slave.server.End(syscall.SIGKILL))
		require.NoError(b, os.RemoveAll(slave.store))
		require.NoError(b, slave.server.Start())
		began = time.Now()
		for slave.status(b).End == 0 { // it is about to ask the master
			began = time.Now()
			time.Sleep(time.Millisecond)
		}
		for slave.status(b).End < end {
			time.Sleep(time.Millisecond)
		}
		fetched := time.Since(began)
		copies, fetches = append(copies, copied.Seconds()), append(fetches, fetched.Seconds())
		ratios = append(ratios, copied.Seconds()/fetched.Seconds())
	}
	gib := float64(end) / (1 << 30)
	b.ReportMetric(gib/median(copies), "copy-GiB/s")
	b.ReportMetric(gib/median(fetches), "slave-GiB/s")
	b.ReportMetric(median(ratios), "slave/copy")
}

// copyLog copies the log's files over a connection into one file.
func copyLog(b *testing.B, store, to string, size int64) {
	b.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	defer ln.Close()
	sent := make(chan error, 1)
	go func() { // owned: by this function, which waits for it
		conn, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			sent <- err
			return
		}
		defer conn.Close()
		names, _ := filepath.Glob(filepath.Join(store, "commitlog", "*"))
		slices.Sort(names)
		left := size
		for _, name := range names {
			f, err := os.Open(name)
			if err != nil {
				sent <- err
				return
			}
			n, err := io.Copy(conn, io.LimitReader(f, left))
			f.Close()
			if left -= n; err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	conn, err := ln.Accept()
	require.NoError(b, err)
	defer conn.Close()
	file, err := os.Create(to)
	require.NoError(b, err)
	defer os.Remove(to)
	defer file.Close()
	n, err := io.Copy(file, conn)
	require.NoError(b, err)
	require.NoError(b, <-sent)
	require.Equal(b, size, n)
}

// BenchmarkReplicationCost sends to two masters in turns, of which one has a slave. The slave's own work is that of another
// machine and is not counted, but it takes processors here: so the master's processor time for a message counts, and the
// rate is told beside it.
func BenchmarkReplicationCost(b *testing.B) {
	dir := filepath.Join(workDir, "cost")
	require.NoError(b, os.MkdirAll(dir, 0o755))
	namesrv := benchNamesrv(b, dir)
	alone := newBenched(b, dir, "alone", namesrv, 0)
	master := newBenched(b, dir, "pair", namesrv, 0)
	slave := newBenched(b, dir, "pair", namesrv, 1)
	require.Eventually(b, func() bool {
		s := master.status(b).Slaves
		return len(s) == 1 && s[0].InSync
	}, ownerStart, 10*time.Millisecond)
	const messages = 60_000
	measure := func(n *benched) (rate, cpu float64) {
		used, began := n.cpu(b), time.Now()
		n.send(b, messages, 1)
		rate = messages / time.Since(began).Seconds()
		if n == master { // what it still has to send counts
			for slave.status(b).End < master.status(b).End {
				time.Sleep(time.Millisecond)
			}
		}
		return rate, (n.cpu(b) - used).Seconds()
	}
	measure(alone)
	measure(master)
	var rates, cpus []float64
	for range max(b.N, 7) {
		rateAlone, cpuAlone := measure(alone)
		rate, cpu := measure(master)
		rates, cpus = append(rates, rate/rateAlone), append(cpus, cpu/cpuAlone)
	}
	b.ReportMetric(median(rates), "rate-with/without")
	b.ReportMetric(median(cpus), "cpu-with/without")
}
