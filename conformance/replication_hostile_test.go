//go:build conformance

package conformance

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/internal/freeport"
	"github.com/ratchetmq/ratchet/protocol"
)

// ends waits until the broker has closed the connection; what comes before does not matter.
func ends(t *testing.T, conn net.Conn) {
	t.Helper()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(ownerStart)))
	_, err := io.Copy(io.Discard, conn)
	var late net.Error
	require.False(t, errors.As(err, &late) && late.Timeout(), "the connection is still there")
}

// logs waits until the owner's log has a line with the words.
func (f *folder) logs(t *testing.T, words string) {
	t.Helper()
	require.Eventually(t, func() bool {
		text, err := os.ReadFile(f.server.Log)
		return err == nil && bytes.Contains(text, []byte(words))
	}, ownerStart, 20*time.Millisecond, words)
}

func report(at int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(at)) }

// TestHostileSlaves has anybody but a slave connect to the HA port: the connection is closed, the log says why, and neither
// acknowledgements nor the real slave notice (apache/rocketmq#3015).
func TestHostileSlaves(t *testing.T) {
	t.Parallel()
	r := newReplicas(t, "4.9.7")
	r.master.set(t, "haHousekeepingInterval", 2000)
	r.master.give(t, ratchet)
	r.master.createTopic(t, "Probe", 1, false)
	haAddr := r.master.status(t).HAAddr
	noise := make([]byte, 64<<10)
	for i := range noise {
		noise[i] = byte(rand.Uint32())
	}
	greeting := binary.BigEndian.AppendUint64(nil, 0xF052415443484554)
	connect := func() net.Conn {
		t.Helper()
		conn, err := net.Dial("tcp", haAddr)
		require.NoError(t, err)
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	attack := func() {
		t.Helper()
		for _, bad := range []struct {
			name, says string
			bytes      []byte
		}{
			{"an acknowledgement beyond the end", "impossible report", append(report(0), report(1<<40)...)},
			{"a negative acknowledgement", "impossible report", append(report(0), report(-5)...)},
			{"a negative request", "impossible report", report(-5)},
			{"noise", "", noise},
			{"a greeting that is too large", "no greeting of a broker of ours", append(bytes.Clone(greeting), 0xff, 0xff, 0xff, 0xff)},
			{"a greeting that is no JSON", "no greeting of a broker of ours", append(bytes.Clone(greeting), 0, 0, 0, 4, 'o', 'o', 'p', 's')},
			{
				"a greeting from another group", "not of elsewhere",
				append(append(bytes.Clone(greeting), 0, 0, 0, 26), `{"brokerName":"elsewhere"}`...),
			},
			{"half a request", "i/o timeout", []byte{0, 0, 0}},
			{"a request far behind the end", "", append(report(1<<50), report(1<<50)...)},
		} {
			conn := connect()
			_, _ = conn.Write(bad.bytes) // it may be closed before all is written
			ends(t, conn)
			if bad.says != "" {
				r.master.logs(t, bad.says)
			}
		}
		for range 300 {
			connect()
		}
	}
	attack()
	require.Equal(t, protocol.SlaveNotAvailable, r.master.try(t, "Probe"), "nobody has a copy")
	r.slave.give(t, ratchet)
	r.synced(t)
	since := func() int64 {
		for _, s := range r.master.status(t).Slaves {
			if s.InSync && s.Acked > 0 {
				return s.Since
			}
		}
		return 0
	}
	before := since()
	attack()
	require.Equal(t, protocol.Success, r.master.try(t, "Probe"))
	require.Equal(t, before, since(), "the slave's connection")
	r.level(t, 0)
	require.Eventually(t, func() bool { return len(r.master.status(t).Slaves) == 1 }, ownerStart, 50*time.Millisecond)
}

// TestHostileMaster sends our slave what is no log, from a port that it was told is its master's: nothing of it is stored.
func TestHostileMaster(t *testing.T) {
	t.Parallel()
	r := newReplicas(t, "4.9.7")
	r.master.set(t, "brokerRole", "ASYNC_MASTER")
	r.master.give(t, ratchet)
	r.slave.give(t, ratchet)
	r.master.createTopic(t, "Probe", 1, false)
	r.master.try(t, "Probe")
	r.level(t, 0)
	_, end := r.slave.span(t)
	r.slave.take(t, 15)
	r.master.try(t, "Probe")

	frame := func(at int64, size uint32, body string) []byte {
		return append(binary.BigEndian.AppendUint32(report(at), size), body...)
	}
	record := string(r.master.log(t, end, end+114))
	garbage := strings.Repeat("not a record ", 3000)
	bad := [][]byte{
		frame(end, 1<<31, ""), frame(-1, 10, "0123456789"), frame(end+1, 4, "gap!"), frame(end, uint32(len(garbage)), garbage),
		frame(end, 12, "\x00\x00\x00\x72\xda\xa3\x20\xa700"), frame(end, 114, record[:100]+strings.Repeat("\xff", 14)),
		frame(end, 114, record[:60]+"\x01"+record[61:]),
	}
	port, err := freeport.Get()
	require.NoError(t, err)
	ln, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", itoa(port)))
	require.NoError(t, err)
	defer ln.Close()
	r.slave.set(t, "haMasterAddress", ln.Addr().String())
	r.slave.give(t, ratchet)
	for i := range 4 * len(bad) {
		conn, err := ln.Accept()
		require.NoError(t, err)
		request := make([]byte, 8)
		_, err = io.ReadFull(conn, request)
		require.NoError(t, err)
		at := int64(binary.BigEndian.Uint64(request))
		if at > 0 && at <= end { // what it has it compares
			_, err = conn.Write(frame(at, uint32(end-at), string(r.master.log(t, at, end))))
			require.NoError(t, err)
		}
		_, _ = conn.Write(bad[i/2%len(bad)]) // what comes twice is not better for it
		_ = conn.(*net.TCPConn).CloseWrite() // the slave may have closed it already
		ends(t, conn)
		conn.Close()
	}
	_, now := r.slave.span(t)
	require.Equal(t, end, now, "nothing of it is stored")
	r.slave.logs(t, "does not follow")
	r.slave.take(t, 9)
	ln.Close()
	r.slave.set(t, "haMasterAddress", "")
	r.slave.give(t, ratchet)
	r.level(t, 0)
	aside, err := filepath.Glob(filepath.Join(r.slave.store(), "d*", "*")) // diverged, damaged
	require.NoError(t, err)
	require.Empty(t, aside)
}
