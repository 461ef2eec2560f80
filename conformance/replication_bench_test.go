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
	"github.com/ratchetmq/ratchet/internal/freeport"
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
	port, err := freeport.Get()
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
	port, err := freeport.Get()
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

// send sends bodies of 1 KiB: several to a request when it is a batch; as fast as it goes, or so many messages a second.
func (n *benched) send(b *testing.B, messages, batch, rate int) {
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
	var begun atomic.Int64
	requests, start := int64(messages/batch), time.Now()
	var senders sync.WaitGroup
	for queue := range int32(4) {
		for range 8 {
			senders.Go(func() {
				for i := begun.Add(1); i <= requests; i = begun.Add(1) {
					if rate > 0 {
						time.Sleep(time.Until(start.Add(time.Duration(i) * time.Second * time.Duration(batch) / time.Duration(rate))))
					}
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

// BenchmarkReplicaCatchUp has a slave with an empty disk fetch 1 GiB from its master, and copies the same files over a
// connection into a file: by the kernel alone (sendfile and splice), and through a process's memory at both ends, as programs
// do that look at what they copy. All three find the disk idle and what they read in memory, write a file that was not there,
// and have it synced in the same way meanwhile. Their order changes from round to round.
func BenchmarkReplicaCatchUp(b *testing.B) {
	dir := filepath.Join(workDir, "catch-up")
	require.NoError(b, os.MkdirAll(dir, 0o755))
	namesrv := benchNamesrv(b, dir)
	master := newBenched(b, dir, "bench", namesrv, 0)
	master.send(b, 1<<20, 512, 0)
	end := master.status(b).End
	slave := newBenched(b, dir, "bench", namesrv, 1)
	ways := []func() spent{
		func() spent { return copyLog(b, master.store, filepath.Join(dir, "copy"), end, true) },
		func() spent { return copyLog(b, master.store, filepath.Join(dir, "copy"), end, false) },
		func() spent { return slave.fetch(b, master, end) },
	}
	var walls, cpus [3][]float64
	for round := range max(b.N, 6) {
		require.NoError(b, slave.server.End(syscall.SIGKILL))
		require.NoError(b, os.RemoveAll(slave.store))
		for i := range ways {
			way := (i + round) % len(ways)
			syscall.Sync()
			s := ways[way]()
			walls[way], cpus[way] = append(walls[way], s.wall.Seconds()), append(cpus[way], s.cpu.Seconds())
		}
	}
	gib := float64(end) / (1 << 30)
	b.ReportMetric(gib/median(slices.Clone(walls[0])), "splice-GiB/s")
	b.ReportMetric(gib/median(slices.Clone(walls[1])), "copy-GiB/s")
	b.ReportMetric(gib/median(slices.Clone(walls[2])), "slave-GiB/s")
	b.ReportMetric(median(quotients(walls[0], walls[2])), "slave/splice")
	b.ReportMetric(median(quotients(walls[1], walls[2])), "slave/copy")
	b.ReportMetric(median(quotients(cpus[2], cpus[0])), "cpu-slave/splice")
	b.ReportMetric(median(quotients(cpus[2], cpus[1])), "cpu-slave/copy")
}

func quotients(of, by []float64) []float64 {
	list := slices.Clone(of)
	for i := range list {
		list[i] /= by[i]
	}
	return list
}

// spent is what something took.
type spent struct {
	wall, cpu time.Duration // cpu: of all processes that took part
}

// fetch starts a slave that has nothing, and waits until it has the master's log, whose end is known.
func (n *benched) fetch(b *testing.B, master *benched, end int64) spent {
	b.Helper()
	require.NoError(b, n.server.Start())
	used := master.cpu(b) + n.cpu(b)
	began := time.Now()
	for n.status(b).End == 0 { // it is about to ask the master
		used = master.cpu(b) + n.cpu(b)
		began = time.Now()
		time.Sleep(time.Millisecond)
	}
	for n.status(b).End < end {
		time.Sleep(2 * time.Millisecond)
	}
	s := spent{wall: time.Since(began)}
	time.Sleep(100 * time.Millisecond) // dispatch catches up
	s.cpu = master.cpu(b) + n.cpu(b) - used
	require.NoError(b, n.server.End(syscall.SIGKILL))
	require.NoError(b, os.RemoveAll(n.store))
	return s
}

// ownCPU is the processor time that this process has used.
func ownCPU(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// plainly hides what would let io.Copy leave the work to the kernel.
type plainly struct {
	io.Reader
	io.Writer
}

// copyLog copies the log's files over a connection into one file.
func copyLog(b *testing.B, store, to string, size int64, byKernel bool) spent {
	b.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	defer ln.Close()
	through := func(w io.Writer, r io.Reader) (int64, error) {
		if byKernel {
			return io.Copy(w, r)
		}
		return io.CopyBuffer(plainly{Writer: w}, plainly{Reader: r}, make([]byte, 256<<10))
	}
	file, err := os.Create(to)
	require.NoError(b, err)
	defer os.Remove(to)
	defer file.Close()
	f := newFlushed(file)
	defer f.close()
	used, began := ownCPU(b), time.Now()
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
			n, err := through(conn, io.LimitReader(f, left))
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
	for left := size; left > 0; {
		n, err := through(file, io.LimitReader(conn, min(left, 4<<20)))
		require.NoError(b, err)
		require.Positive(b, n)
		f.wrote(n)
		left -= n
	}
	require.NoError(b, <-sent)
	return spent{time.Since(began), ownCPU(b) - used}
}

// flushed has a file synced as a slave's log is: twice a second, more often when a quarter of what may be unflushed is; who
// writes waits when all of that is.
type flushed struct {
	file            *os.File
	written, synced atomic.Int64
	much, done      chan struct{} // much has a token when a sync is due, done when one is over
	stop, ended     chan struct{}
}

const mayBeUnflushed = 256 << 20 // maxUnflushedBytes

func newFlushed(file *os.File) *flushed {
	f := &flushed{
		file: file, much: make(chan struct{}, 1), done: make(chan struct{}, 1), stop: make(chan struct{}), ended: make(chan struct{}),
	}
	go f.run() // owned: by close
	return f
}

func (f *flushed) run() {
	defer close(f.ended)
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-f.much:
		case <-f.stop:
			return
		}
		to := f.written.Load()
		_ = syscall.Fdatasync(int(f.file.Fd()))
		f.synced.Store(to)
		token(f.done)
	}
}

func (f *flushed) wrote(n int64) {
	now := f.written.Add(n)
	for now-f.synced.Load() > mayBeUnflushed/4 {
		token(f.much)
		if now-f.synced.Load() <= mayBeUnflushed {
			return
		}
		<-f.done
	}
}

func (f *flushed) close() {
	close(f.stop)
	<-f.ended
}

func token(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// BenchmarkReplicationCost sends to two masters in turns, of which one has a slave. The slave's own work is that of another
// machine and is not counted, but it takes processors here, so that fewer messages meet on the master, each of which then costs
// it more: so the master's processor time for a message counts at one rate for both, of 10,000 messages a second. What is got
// as fast as it goes is told beside it.
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
	measure := func(n *benched, messages, pace int) (rate, cpu float64) {
		used, began := n.cpu(b), time.Now()
		n.send(b, messages, 1, pace)
		rate = float64(messages) / time.Since(began).Seconds()
		if n == master { // what it still has to send counts
			for slave.status(b).End < master.status(b).End {
				time.Sleep(time.Millisecond)
			}
		}
		return rate, (n.cpu(b) - used).Seconds()
	}
	measure(alone, 60_000, 0)
	measure(master, 60_000, 0)
	var rates, cpus, paced []float64
	for range max(b.N, 7) {
		rateAlone, cpuAlone := measure(alone, 60_000, 0)
		rate, cpu := measure(master, 60_000, 0)
		rates, cpus = append(rates, rate/rateAlone), append(cpus, cpu/cpuAlone)
		_, cpuAlone = measure(alone, 30_000, 10_000)
		_, cpu = measure(master, 30_000, 10_000)
		paced = append(paced, cpu/cpuAlone)
	}
	b.ReportMetric(median(rates), "rate-with/without")
	b.ReportMetric(median(cpus), "cpu-with/without")
	b.ReportMetric(median(paced), "paced-cpu-with/without")
}
