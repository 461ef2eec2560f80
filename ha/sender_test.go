package ha

import (
	"context"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/internal/vfs/vfstest"
	"github.com/ratchetmq/ratchet/store"
)

func openStore(t *testing.T) *store.Store { return openSized(t, 8<<20) }

func openSized(t *testing.T, segment int64) *store.Store {
	t.Helper()
	s, err := store.Open(store.Options{FS: vfstest.New(), Root: "/store", SegmentSize: segment})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func put(t *testing.T, s *store.Store, size int) {
	t.Helper()
	_, err := s.Append(store.Message{Topic: "T", Body: make([]byte, size)})
	require.NoError(t, err)
}

// TestAnAsyncMasterSendsTogether: a frame is as dear for one message as for many. A SYNC_MASTER's senders wait for theirs.
func TestAnAsyncMasterSendsTogether(t *testing.T) {
	for _, c := range []struct {
		sync        bool
		least, most int
	}{{false, 10, 12}, {true, 100, 100}} {
		synctest.Test(t, func(t *testing.T) {
			s := playSlaves(t, 1)
			s.Begin(c.sync, 0, false)
			log := openStore(t)
			sender := NewSender(SenderOptions{Store: log, Replicas: s.Replicas, Logger: slog.New(slog.DiscardHandler)})
			here, there := net.Pipe()
			ctx, stop := context.WithCancel(t.Context())
			served := make(chan struct{})
			go func() {
				defer close(served)
				sender.serve(ctx, there)
			}()
			require.NoError(t, writeReport(here, 0))
			count, end := 0, offset.Physical(0)
			read := make(chan struct{})
			go func() {
				defer close(read)
				in := frames{r: here}
				for f, err := in.next(); err == nil; f, err = in.next() {
					count++
					end = f.at + offset.Physical(len(f.body))
				}
			}()
			for range 100 {
				put(t, log, 100)
				time.Sleep(time.Millisecond)
			}
			time.Sleep(sendRest)
			stop()
			<-served
			<-read
			require.Equal(t, log.Written(), end)
			require.GreaterOrEqual(t, count, c.least)
			require.LessOrEqual(t, count, c.most)
		})
	}
}

// TestAReaderIsLeftWhenTheLogIsCut: what comes then does not follow on what it has.
func TestAReaderIsLeftWhenTheLogIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := openStore(t)
		put(t, log, 100)
		at := log.Written()
		put(t, log, 500)
		sender := NewSender(SenderOptions{
			Store: log, Replicas: playSlaves(t, 1).Replicas, Heartbeat: 100 * time.Millisecond, Silence: time.Minute, Logger: slog.New(slog.DiscardHandler),
			Shares: func(context.Context, Reader) error { return ErrStranger },
		})
		here, there := net.Pipe()
		served := make(chan struct{})
		go func() {
			defer close(served)
			sender.serve(t.Context(), there)
		}()
		require.NoError(t, writeReport(here, at))
		copied := openStore(t)
		_, err := copied.Append(store.Message{Topic: "T", Body: make([]byte, 100)})
		require.NoError(t, err)
		stream, in := copied.Stream(false), frames{r: here}
		var failed error
		read := make(chan struct{})
		go func() {
			defer close(read)
			for f, err := in.next(); err == nil && failed == nil; f, err = in.next() {
				failed = stream.Write(f.body)
			}
			_ = here.Close()
		}()
		time.Sleep(time.Second)
		_, err = log.Truncate(at)
		require.NoError(t, err)
		for range 10 {
			put(t, log, 300)
			time.Sleep(200 * time.Millisecond)
		}
		<-read
		<-served
		require.NoError(t, failed)
	})
}

// TestWhoHasMuchToFetchReportsSeldom, but says when it has all.
func TestWhoHasMuchToFetchReportsSeldom(t *testing.T) {
	const piece = 64 << 10
	synctest.Test(t, func(t *testing.T) {
		master, slave := openStore(t), openStore(t)
		for master.Written() < 4<<20 {
			put(t, master, 1000)
		}
		end := master.Written()
		p := &puller{
			store: slave, silence: time.Minute, heartbeat: time.Minute, greeting: &hello{}, progress: func(offset.Physical, time.Time) {},
		}
		here, there := net.Pipe()
		p.dial = func(context.Context, string) (net.Conn, error) { return here, nil }
		ctx, stop := context.WithCancel(t.Context())
		pulled := make(chan error, 1)
		go func() { pulled <- p.session(ctx, "", 0, -1, -1) }()

		_, err := readReport(there)
		require.NoError(t, err)
		require.NoError(t, readGreeting(there, &hello{}))
		require.NoError(t, writeGreeting(there, &welcome{End: end}))
		reports, last := 0, offset.Physical(0)
		read := make(chan struct{})
		go func() {
			defer close(read)
			for at, err := readReport(there); err == nil; at, err = readReport(there) {
				reports, last = reports+1, at
			}
		}()
		for at := offset.Physical(0); at < end; {
			b := make([]byte, ownHead+piece)
			n, err := master.ReadLog(at, b[ownHead:])
			require.NoError(t, err)
			putOwnHead(b, frameLog, at, end, n)
			_, err = there.Write(b[:ownHead+n])
			require.NoError(t, err)
			synctest.Wait()
			at += offset.Physical(n)
		}
		stop()
		require.ErrorIs(t, <-pulled, context.Canceled)
		<-read
		require.Equal(t, end, slave.Written())
		require.Equal(t, end, last)
		require.LessOrEqual(t, reports, 3+reportEvery/piece+2)
		require.GreaterOrEqual(t, reports, 4)
	})
}
