package ha

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/internal/vfs/vfstest"
	"github.com/ratchetmq/ratchet/protocol"
	"github.com/ratchetmq/ratchet/remoting"
	"github.com/ratchetmq/ratchet/store"
)

// openSmall is a store with files so small that a comparison goes over several of them.
func openSmall(t *testing.T) *store.Store { return openSized(t, 32<<10) }

// serves is the way to a store's HA port.
func serves(t *testing.T, s *store.Store) Dial {
	t.Helper()
	sender := NewSender(SenderOptions{
		Store: s, Replicas: playSlaves(t, 1).Replicas, Name: "g", Epochs: func() []Epoch { return nil }, Logger: slog.New(slog.DiscardHandler),
	})
	ctx, stop := context.WithCancel(context.Background())
	var conns sync.WaitGroup
	t.Cleanup(func() {
		stop()
		conns.Wait()
	})
	return func(context.Context, string) (net.Conn, error) {
		here, there := net.Pipe()
		conns.Go(func() { sender.serve(ctx, there) })
		return here, nil
	}
}

// takes is a puller into a store; plain: as simple as a Java broker's.
func takes(t *testing.T, into, from *store.Store, plain bool) *puller {
	t.Helper()
	p := &puller{
		store: into, dial: serves(t, from), silence: time.Minute, heartbeat: time.Minute, progress: func(offset.Physical, time.Time) {},
	}
	if !plain {
		p.greeting = &hello{Name: "g"}
	}
	return p
}

func pull(t *testing.T, into, from *store.Store, plain bool) {
	t.Helper()
	require.NoError(t, takes(t, into, from, plain).pull(t.Context(), "", from.Low(), from.Written()))
	require.Equal(t, from.Written(), into.Written())
}

// losing is a log with all messages, and that of a master which has lost the last ones, has kept their places free and gone on.
func losing(t *testing.T) (full, master *store.Store) {
	t.Helper()
	full, master = openSmall(t), openSmall(t)
	put(t, full, 100)
	pull(t, master, full, false)
	put(t, full, 200)
	put(t, full, 300)
	goesOn(t, master, full.Written())
	return full, master
}

func goesOn(t *testing.T, s *store.Store, lost offset.Physical) {
	t.Helper()
	_, err := s.Leave(store.Lost{Log: lost, Queue: func(_ string, _ int32, next offset.Queue) offset.Queue { return next + 10 }})
	require.NoError(t, err)
	put(t, s, 400)
}

// refills gives a log back what it has lost.
func refills(t *testing.T, into, from *store.Store) {
	t.Helper()
	gap := into.Gaps().Log[0]
	require.NoError(t, takes(t, into, from, true).refill(t.Context(), "", gap.From, from.Written(), into.RefillStream(gap.From, false, false)))
	require.NotEqual(t, gap, into.Gaps().Log[0])
}

// TestASlaveLearnsWhatItsMasterKeepsFree: it does not take the place of lost messages for one that never had any, and, should it
// be the next master, gives no offset of theirs to others.
func TestASlaveLearnsWhatItsMasterKeepsFree(t *testing.T) {
	_, master := losing(t)
	slave := openSmall(t)
	pull(t, slave, master, false)
	require.Equal(t, master.Gaps(), slave.Gaps())
	require.EqualValues(t, 10, slave.Missing("T", 0, 0, 12))

	_, err := master.Leave(store.Lost{Queue: func(_ string, _ int32, next offset.Queue) offset.Queue { return next + 10 }})
	require.NoError(t, err)
	next := openSmall(t)
	pull(t, next, slave, false)
	require.Equal(t, slave.Given("T", 0), next.Given("T", 0))
	pull(t, openSmall(t), master, false)
	pull(t, next, master, false)
	require.Equal(t, master.Given("T", 0), next.Given("T", 0), "no message stands behind these offsets yet")
}

// follows lets a slave follow until the test ends.
func follows(t *testing.T, slave, master *store.Store) {
	t.Helper()
	f := NewFollower(FollowerOptions{
		Store: slave, Peers: NewPeers(PeerOptions{Name: "g"}), Memory: openMemory(t, vfstest.New()), Dial: serves(t, master),
		Logger: slog.New(slog.DiscardHandler),
	})
	p := takes(t, slave, master, false)
	p.greeting.Slave = true
	ctx, stop := context.WithCancel(context.Background())
	var following sync.WaitGroup
	following.Go(func() { _ = f.pull(ctx, p, "", &Peer{}) })
	t.Cleanup(func() {
		stop()
		following.Wait()
	})
}

func requireSame(t *testing.T, a, b *store.Store) {
	t.Helper()
	require.Equal(t, a.Written(), b.Written())
	want, got := make([]byte, a.Written()), make([]byte, b.Written())
	n, err := a.ReadLog(0, want)
	require.NoError(t, err)
	m, err := b.ReadLog(0, got)
	require.NoError(t, err)
	require.Equal(t, want[:n], got[:m])
}

// TestASlaveGetsWhatItsMasterHasGotBack: it has copied the gap, another slave has what belongs there.
func TestASlaveGetsWhatItsMasterHasGotBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full, master := losing(t)
		slave := openSmall(t)
		follows(t, slave, master)
		time.Sleep(time.Second)
		require.Equal(t, master.Written(), slave.Written())
		require.Equal(t, master.Gaps(), slave.Gaps())

		refills(t, master, full)
		time.Sleep(time.Second)
		require.Equal(t, master.Gaps(), slave.Gaps())
		requireSame(t, master, slave)
	})
}

// TestTheSameLogButForAGap: a master has got back what a slave has copied as a gap, and then lost its end.
func TestTheSameLogButForAGap(t *testing.T) {
	for _, plain := range []bool{false, true} {
		full, master := losing(t)
		slave := openSmall(t)
		pull(t, slave, master, plain)
		refills(t, master, full)
		require.NoError(t, takes(t, master, slave, plain).check(t.Context(), "", 0, slave.Written()))
		put(t, master, 500)
		end, b := master.Written(), make([]byte, 1000)
		n, err := master.ReadLog(slave.Written(), b)
		require.NoError(t, err)
		require.NoError(t, slave.Stream(true).Write(b[:n]))
		require.Equal(t, end, slave.Written())
		put(t, slave, 600)
		pull(t, master, slave, plain)
		require.Greater(t, master.Written(), end)
	}
}

// damaged is a copy of a log whose disk has lost a page.
func damaged(t *testing.T, from *store.Store, more int) *store.Store {
	t.Helper()
	disk := vfstest.New()
	options := store.Options{FS: disk, Root: "/store", SegmentSize: 32 << 10}
	copied, err := store.Open(options)
	require.NoError(t, err)
	pull(t, copied, from, false)
	for range more {
		put(t, copied, 100)
	}
	options.FS = disk.CrashClone(vfstest.KeepAll, 1)
	require.NoError(t, copied.Close())
	f, err := options.FS.Open("/store/commitlog/00000000000000000000")
	require.NoError(t, err)
	_, err = f.WriteAt(make([]byte, vfstest.PageSize), vfstest.PageSize)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	copied, err = store.Open(options)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, copied.Close()) })
	require.NotEmpty(t, copied.Damaged())
	return copied
}

// TestDamageIsNoOtherLog: a slave's disk has lost a page, and its master, which needs what stands behind, has what was there.
func TestDamageIsNoOtherLog(t *testing.T) {
	master := openSmall(t)
	for range 3 {
		put(t, master, 5000)
	}
	pull(t, master, damaged(t, master, 1), false)
}

// TestASlavesDamageIsRepairedFromItsMaster when it follows.
func TestASlavesDamageIsRepairedFromItsMaster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		master := openSmall(t)
		for range 3 {
			put(t, master, 5000)
		}
		slave := damaged(t, master, 0)
		put(t, master, 100)
		follows(t, slave, master)
		time.Sleep(time.Second)
		require.Empty(t, slave.Damaged())
		requireSame(t, master, slave)
	})
}

func TestEndOf(t *testing.T) {
	for _, c := range []struct {
		free []offset.Physical // from, to, from, to …
		want offset.Physical
	}{
		{nil, 200},
		{[]offset.Physical{0, 50, 0, 100}, 200},
		{[]offset.Physical{200, 300}, 200},
		{[]offset.Physical{150, 300}, 150},
		{[]offset.Physical{160, 170, 150, 155}, 150},
		{[]offset.Physical{50, 101}, 100},
		{[]offset.Physical{100, 200}, 100},
	} {
		var free []store.Span
		for i := 0; i < len(c.free); i += 2 {
			free = append(free, store.Span{From: c.free[i], To: c.free[i+1]})
		}
		require.Equal(t, c.want, endOf(store.Span{From: 100, To: 200}, free), "%v", c.free)
	}
}

// oneSlave is a Caller to whom a slave of ours answers; noTables are its tables, which say what was not on disk when the
// master took them over.
type (
	oneSlave struct{ status protocol.ReplicaStatus }
	noTables struct {
		master    *store.Store
		unflushed *offset.Physical
	}
)

func (s oneSlave) Call(_ context.Context, _ string, code protocol.RequestCode, _ protocol.Header, _ []protocol.KV, _ []byte) (
	*remoting.Response, error,
) {
	body, err := protocol.Marshal(s.status)
	if code != protocol.GetReplicaStatus || err != nil {
		return nil, net.ErrClosed
	}
	rep := protocol.Reply{Body: body}
	answer, err := protocol.Decode(protocol.AppendReply(nil, protocol.JSON, 1, &rep))
	return &remoting.Response{Command: answer}, err
}

func (t noTables) Merge(context.Context, string) error {
	*t.unflushed = max(*t.unflushed, t.master.Written()-t.master.Flushed())
	return nil
}
func (noTables) Committed(func(string, int32, offset.Queue)) {}
func (noTables) Queues(func(topic string, queue int32))      {}

// TestDamageIsCopied, from a log as simple as a Java broker's, too; and known to be so.
func TestDamageIsCopied(t *testing.T) {
	for _, plain := range []bool{false, true} {
		full := openSmall(t)
		for range 3 {
			put(t, full, 5000)
		}
		from, into := damaged(t, full, 1), openSmall(t)
		pull(t, into, from, plain)
		require.Equal(t, from.Damaged(), into.Damaged())
		requireSame(t, from, into)
	}
}

// prepares lets a master prepare itself, with one slave. What it takes over of that counts messages that are on its own disk.
func prepares(t *testing.T, master, slave *store.Store) {
	t.Helper()
	memory, log := openMemory(t, vfstest.New()), slog.New(slog.DiscardHandler)
	peers := NewPeers(PeerOptions{
		Client: oneSlave{protocol.ReplicaStatus{BrokerName: "g", Role: slaveRole, State: StateFollowing, End: int64(slave.Written())}},
		Name:   "g", Self: "here:1", Fixed: []string{"slave:1"}, Memory: memory, Namesrv: func() []string { return nil }, Logger: log,
	})
	running, stop := context.WithCancel(t.Context())
	var run sync.WaitGroup
	run.Go(func() { _ = master.Run(running) })
	defer run.Wait()
	defer stop()
	tables := noTables{master, new(offset.Physical)}
	_, err := NewLeader(LeaderOptions{
		Store: master, Peers: peers, Memory: memory, Metadata: tables, Dial: serves(t, slave), Limit: time.Minute, Logger: log,
	}).Prepare(t.Context())
	require.NoError(t, err)
	require.Zero(t, *tables.unflushed)
}

// TestAMasterOpensWhenItsDiskHasRoomAgain: what could not be noted before it opens is tried again, and nothing is kept free twice.
func TestAMasterOpensWhenItsDiskHasRoomAgain(t *testing.T) {
	for _, path := range []string{"replication.json", "gaps.json", "commitlog"} {
		t.Run(path, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fsys, full := vfstest.New(), atomic.Bool{}
				fsys.SetFault(func(op vfstest.Op) *vfstest.Fault {
					if full.Load() && op.Kind.Changes() && op.Kind != vfstest.OpSync && strings.Contains(op.Name, path) {
						return &vfstest.Fault{Err: syscall.ENOSPC}
					}
					return nil
				})
				master, err := store.Open(store.Options{FS: fsys, Root: "/store", SegmentSize: 32 << 10})
				require.NoError(t, err)
				defer master.Close()
				put(t, master, 100)
				end, memory := master.Written(), openMemory(t, fsys)
				var waits []string
				l := NewLeader(LeaderOptions{
					Store: master, Memory: memory, Metadata: noTables{master, new(offset.Physical)}, Suspect: true, Limit: time.Second,
					BytesBound: 40 << 10, MessagesBound: 10, Logger: slog.New(slog.DiscardHandler), OnWait: func(why string) { waits = append(waits, why) },
					Peers: NewPeers(PeerOptions{
						Client: nobody{}, Name: "g", Fixed: []string{"silent:1"}, Memory: memory, Namesrv: func() []string { return nil },
						Logger: slog.New(slog.DiscardHandler),
					}),
				})
				running, stop := context.WithCancel(t.Context())
				var run sync.WaitGroup
				run.Go(func() { _ = master.Run(running) })
				defer run.Wait()
				defer stop()
				full.Store(true)
				opened := make(chan error, 1)
				go func() {
					_, err := l.Prepare(running)
					opened <- err
				}()
				time.Sleep(time.Minute)
				require.Empty(t, opened)
				require.Contains(t, waits[len(waits)-1], "no space left")
				full.Store(false)
				require.NoError(t, <-opened)
				require.Equal(t, []store.Span{{From: end, To: 64 << 10}}, master.Gaps().Log)
				require.EqualValues(t, 11, master.Given("T", 0))
			})
		})
	}
}

// nobody is a Caller to whom nobody answers.
type nobody struct{}

func (nobody) Call(context.Context, string, protocol.RequestCode, protocol.Header, []protocol.KV, []byte) (*remoting.Response, error) {
	return nil, net.ErrClosed
}

// TestTheLogIsFlushedBeforeAMasterOpens: the progress of delayed messages is not taken over for what is not.
func TestTheLogIsFlushedBeforeAMasterOpens(t *testing.T) {
	slave, master := openSmall(t), openSmall(t)
	put(t, slave, 5000)
	put(t, master, 5000)
	prepares(t, master, slave)
}

// TestGapsAreFilledBeforeAMasterOpens: consumers that come at once would step over them.
func TestGapsAreFilledBeforeAMasterOpens(t *testing.T) {
	full, master := losing(t)
	gap := master.Gaps().Log[0]
	prepares(t, master, full)
	require.Equal(t, []store.Span{{From: gap.From, To: full.Written()}}, master.Gaps().Filled)
}

// TestAMastersDamageIsRepairedFromItsSlave before it opens, and what stands behind is kept, which the slave does not have.
func TestAMastersDamageIsRepairedFromItsSlave(t *testing.T) {
	slave := openSmall(t)
	for range 3 {
		put(t, slave, 5000)
	}
	master := damaged(t, slave, 1)
	end := master.Written()
	prepares(t, master, slave)
	require.Empty(t, master.Damaged())
	require.Equal(t, end, master.Written())
	pull(t, slave, master, false)
	requireSame(t, master, slave)
}
