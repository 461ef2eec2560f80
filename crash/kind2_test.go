//go:build conformance

package crash

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/protocol"
)

// The numbers are those of public reports about RocketMQ that lost or blocked data.

// fill sends n messages "0" to "n-1" to queue 0 of a topic, and waits until they can be read. One that is answered with a code
// of again is sent again, for a minute at most.
func (s *server) fill(topic string, n int, size int, again ...protocol.ResponseCode) {
	w, err := dial(s.broker)
	require.NoError(s.t, err)
	defer w.Close()
	last := int64(-1)
	for i := range n {
		body := append(fmt.Appendf(nil, "%d ", i), bytes.Repeat([]byte("x"), size)...)
		send := func() protocol.Command {
			answer, err := w.call(protocol.SendMessageV2, sendHeader(topic, 0, fmt.Sprint(topic, i)), body)
			require.NoError(s.t, err)
			return answer
		}
		answer, began := send(), time.Now()
		for slices.Contains(again, protocol.ResponseCode(answer.Code)) && time.Since(began) < time.Minute {
			time.Sleep(10 * time.Millisecond)
			answer = send()
		}
		_, last, err = sent(answer)
		require.NoError(s.t, err)
	}
	require.Eventually(s.t, func() bool { return s.high(topic) > last }, time.Minute, time.Millisecond)
}

// high is the end of queue 0 of a topic.
func (s *server) high(topic string) int64 {
	w, err := dial(s.broker)
	require.NoError(s.t, err)
	defer w.Close()
	answer, err := w.call(protocol.GetMaxOffset, &protocol.GetMaxOffsetRequest{Topic: topic}, nil)
	require.NoError(s.t, err)
	var h protocol.GetMaxOffsetResponse
	require.NoError(s.t, answer.ReadHeader(&h))
	return h.Offset
}

// numbers reads queue 0 of a topic from an offset to its end and returns the numbers of its messages. It never sees more
// answers without a message than there are offsets: a reader is moved on in steps, not held or sent round in a circle.
func (s *server) numbers(topic string, from int64) (list []int) {
	w, err := dial(s.broker)
	require.NoError(s.t, err)
	defer w.Close()
	for range 10_000 {
		answer, err := w.call(protocol.PullMessage, pullHeader(topic, 0, from, 0), nil)
		require.NoError(s.t, err)
		var h protocol.PullMessageResponse
		require.NoError(s.t, answer.ReadHeader(&h))
		if answer.Code == int32(protocol.PullNotFound) {
			return list
		}
		require.Greater(s.t, h.NextBeginOffset, from, answer.Remark)
		batch, err := records(answer.Body)
		require.NoError(s.t, err)
		for _, r := range batch {
			var n int
			_, err := fmt.Sscan(string(r.Body), &n)
			require.NoError(s.t, err)
			list = append(list, n)
		}
		from = h.NextBeginOffset
	}
	s.t.Fatalf("reading %s does not come to an end", topic)
	return nil
}

func upTo(n int) (list []int) {
	for i := range n {
		list = append(list, i)
	}
	return list
}

func (s *server) store(parts ...string) string {
	return filepath.Join(append([]string{s.data, "store"}, parts...)...)
}

// refusesToStart demands that the server ends soon, with an exit code and with the words on stderr.
func (s *server) refusesToStart(words ...string) {
	s.launch()
	select {
	case <-s.exited:
	case <-time.After(30 * time.Second):
		s.t.Fatal("the server runs")
	}
	require.NotZero(s.t, s.cmd.ProcessState.ExitCode())
	s.cmd = nil
	for _, word := range words {
		require.Contains(s.t, s.log(), word)
	}
}

// One damaged byte costs one message: those behind it, of any topic, are there, and what is sent next does not take its
// place.
func TestScenario2_03(t *testing.T) {
	s := newServer(t)
	s.fill("T", 200, 100)
	s.fill("U", 200, 100)
	s.kill9()
	path := s.store("commitlog", "00000000000000000000")
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	log := make([]byte, 1<<20)
	_, err = f.ReadAt(log, 0)
	require.NoError(t, err)
	at := bytes.Index(log, []byte("100 xxxx"))
	require.Positive(t, at)
	_, err = f.WriteAt([]byte("y"), int64(at)+20)
	require.NoError(t, errors.Join(err, f.Close()))
	s.start()
	want := append(upTo(100), upTo(200)[101:]...)
	require.Equal(t, want, s.numbers("T", 0))
	require.Equal(t, upTo(200), s.numbers("U", 0))
	require.Contains(t, s.log(), "damaged part of the log skipped")
	s.fill("T", 1, 100)
	require.Equal(t, append(want, 0), s.numbers("T", 0))
}

// State files that a power cut has emptied, halved or zeroed are read from their backups; with both bad the server does
// not start, and says which file; with both missing it starts empty.
func TestScenario2_05(t *testing.T) {
	s := newServer(t)
	s.fill("T", 10, 10)
	s.fill("U", 10, 10) // the files have been written twice: there are backups
	s.numbers("T", 0)
	s.stop()
	for _, name := range []string{"topics.json", "subscriptionGroup.json"} {
		path := s.store("config", name)
		good, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, bad := range [][]byte{nil, good[:len(good)/2], make([]byte, 500)} {
			require.NoError(t, os.WriteFile(path, bad, 0o644))
			s.start()
			require.Equal(t, upTo(10), s.numbers("T", 0), "%s with %d bytes", name, len(bad))
			s.stop()
		}
		require.NoError(t, os.WriteFile(path, []byte("{"), 0o644))
		backup, err := os.ReadFile(path + ".bak")
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path+".bak", make([]byte, 10), 0o644))
		s.refusesToStart(name)
		require.NoError(t, os.WriteFile(path+".bak", backup, 0o644))
		require.NoError(t, os.WriteFile(path, good, 0o644))
	}
	for _, name := range []string{"topics.json", "subscriptionGroup.json", "consumerOffset.json", "delayOffset.json"} {
		_ = os.Remove(s.store("config", name))
		_ = os.Remove(s.store("config", name+".bak"))
	}
	s.start()
	s.fill("New", 1, 1)
}

// tmpfs mounts a small file system for the server's data.
func (s *server) tmpfs(size string) {
	require.Zero(s.t, os.Geteuid(), "this test mounts a file system: run it as root")
	dir := s.t.TempDir()
	out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size="+size, "tmpfs", dir).CombinedOutput()
	require.NoError(s.t, err, string(out))
	s.t.Cleanup(func() { _ = exec.Command("umount", "-l", dir).Run() })
	s.data = dir
}

// A full disk refuses sends with a sentence that says where and how full; when there is room again it takes them again
// by itself, and everything acknowledged before is there.
func TestScenario2_07(t *testing.T) {
	s := prepareServer(t, "-set", "mappedFileSizeCommitLog=4194304", "-set", "cleanFileForciblyEnable=false",
		"-set", "cleanResourceInterval=500", "-set", "maxHashSlotNum=1000", "-set", "maxIndexNum=4000")
	s.tmpfs("200m")
	s.start()
	s.fill("T", 100, 1000)
	dummy := filepath.Join(s.data, "dummy")
	require.NoError(t, os.WriteFile(dummy, make([]byte, 179<<20), 0o644))
	w, err := dial(s.broker)
	require.NoError(t, err)
	defer w.Close()
	try := func() protocol.Command {
		answer, err := w.call(protocol.SendMessageV2, sendHeader("T", 0, "k"), []byte("100 again"))
		require.NoError(t, err)
		return answer
	}
	acked := 100
	var refused protocol.Command
	require.Eventually(t, func() bool {
		if refused = try(); refused.Code != int32(protocol.Success) {
			return true
		}
		acked++
		return false
	}, time.Minute, 50*time.Millisecond)
	require.Equal(t, int32(protocol.ServiceNotAvailable), refused.Code)
	for _, word := range []string{s.data, "%", "90"} {
		require.Contains(t, refused.Remark, word)
	}
	require.Len(t, s.numbers("T", 0), acked, "it can be read while it is full")
	require.NoError(t, os.Remove(dummy))
	require.Eventually(t, func() bool { return try().Code == int32(protocol.Success) }, time.Minute, 100*time.Millisecond)
	require.Eventually(t, func() bool { return len(s.numbers("T", 0)) == acked+1 }, time.Minute, 50*time.Millisecond)
	s.stop()
}

// A fresh broker does not take its empty folder for a full disk.
func TestScenario2_09(t *testing.T) {
	s := newServer(t, "-set", "cleanResourceInterval=100", "-v")
	time.Sleep(time.Second) // ten looks at the disk
	require.NotContains(t, s.log(), "removed")
	require.NotContains(t, s.log(), "disk")
	s.fill("T", 1, 1)
}

// An index that can't be written is no reason to stop: messages go on, the log stays short, and the index comes back
// when it can be written.
func TestScenario2_11(t *testing.T) {
	s := prepareServer(t)
	require.NoError(t, os.MkdirAll(s.store(), 0o755))
	require.NoError(t, os.WriteFile(s.store("index"), []byte("in the way"), 0o644))
	s.start()
	s.fill("T", 3000, 10)
	require.Len(t, s.numbers("T", 0), 3000)
	require.Less(t, strings.Count(s.log(), "index"), 20)
	s.stop()
	require.NoError(t, os.Remove(s.store("index")))
	s.start()
	s.fill("T", 1, 10)
	s.stop()
}

// A segment that has vanished from the middle of the log is a gap that readers are moved over in one step.
func TestScenario2_13(t *testing.T) {
	s := newServer(t, "-set", "mappedFileSizeCommitLog=1048576")
	s.fill("T", 3000, 1000) // three segments and a bit
	s.stop()
	require.NoError(t, os.Remove(s.store("commitlog", "00000000000001048576")))
	s.start()
	require.Contains(t, s.log(), "1048576", "the start names the gap")
	list := s.numbers("T", 0)
	require.Greater(t, len(list), 1500)
	require.Less(t, len(list), 2500)
	require.Equal(t, 0, list[0])
	require.Equal(t, 2999, list[len(list)-1])
	gaps := 0
	for i := 1; i < len(list); i++ {
		require.Greater(t, list[i], list[i-1])
		if list[i] != list[i-1]+1 {
			gaps++
		}
	}
	require.Equal(t, 1, gaps)
	s.fill("T", 1, 10)
}

// Cleaning a disk that is too full takes unread messages along; that is said for each group, and readers go on at the
// queue's new beginning.
func TestScenario2_21(t *testing.T) {
	s := prepareServer(t, "-set", "mappedFileSizeCommitLog=4194304", "-set", "cleanResourceInterval=300",
		"-set", "diskMaxUsedSpaceRatio=50", "-set", "diskSpaceCleanForciblyRatio=60",
		"-set", "maxHashSlotNum=1000", "-set", "maxIndexNum=4000")
	s.tmpfs("64m")
	s.start()
	w, err := dial(s.broker)
	require.NoError(t, err)
	defer w.Close()
	s.fill("T", 1, 10)
	s.numbers("T", 0) // the group "crash" exists, and says that it has read nothing
	_, err = w.call(protocol.UpdateConsumerOffset, &protocol.UpdateConsumerOffsetRequest{ConsumerGroup: "crash", Topic: "T"}, nil)
	require.NoError(t, err)
	s.fill("T", 600, 100_000, protocol.ServiceNotAvailable) // 60 MB; who is quicker than the cleaner waits until it has looked
	require.Eventually(t, func() bool {
		return strings.Contains(s.log(), "messages removed that a group has not consumed")
	}, time.Minute, 50*time.Millisecond)
	answer, err := w.call(protocol.PullMessage, pullHeader("T", 0, 0, 0), nil)
	require.NoError(t, err)
	var h protocol.PullMessageResponse
	require.NoError(t, answer.ReadHeader(&h))
	require.Equal(t, int32(protocol.PullOffsetMoved), answer.Code)
	require.Equal(t, h.MinOffset, h.NextBeginOffset)
	require.Positive(t, h.MinOffset)
	require.NotEmpty(t, s.numbers("T", h.MinOffset))
}

// A second process on the same folder is refused at once with one line, whatever the first is doing; a lock whose owner
// was killed does not count.
func TestScenario2_22(t *testing.T) {
	s := newServer(t)
	second := prepareServer(t)
	second.data = s.data
	second.refusesToStart("lock", s.data)
	s.fill("T", 10, 10)
	s.kill9()
	s.start()
	require.Equal(t, upTo(10), s.numbers("T", 0))
}

// A checkpoint of garbage, or none, costs time and nothing else.
func TestScenario2_23(t *testing.T) {
	s := newServer(t)
	s.fill("T", 100, 100)
	for _, garbage := range [][]byte{bytes.Repeat([]byte{0xFF}, 4096), nil, make([]byte, 4096), []byte("short")} {
		s.kill9()
		require.NoError(t, os.WriteFile(s.store("checkpoint"), garbage, 0o644))
		s.start()
		require.Equal(t, upTo(100), s.numbers("T", 0))
	}
}
