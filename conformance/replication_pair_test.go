//go:build conformance

package conformance

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/message"
	"github.com/ratchetmq/ratchet/protocol"
)

// replicaWait bounds what is waited for between two brokers. A slave of 5.4 asks for tables for the first time after a
// minute, and JVMs share few processors here.
const replicaWait = 3 * time.Minute

// replicas are a master and its slave, each with a folder of its own, and their name server. Neither is started yet.
type replicas struct {
	namesrv       namesrvOnly
	master, slave *folder
}

// newReplicas makes both folders; version is that of the Java broker, whichever of the two that is.
func newReplicas(t *testing.T, version string) *replicas {
	t.Helper()
	dir := filepath.Join(workDir, strings.ReplaceAll(t.Name(), "/", "-"))
	slaveDir := filepath.Join(dir, "slave")
	require.NoError(t, os.MkdirAll(slaveDir, 0o755))
	r := &replicas{namesrv: startNamesrv(t, dir, "")}
	both := []any{"slaveReadEnable", true, "haSendHeartbeatInterval", 500}
	r.master = newFolder(t, dir, version, r.namesrv, append(both, "brokerRole", "SYNC_MASTER")...)
	r.slave = newFolder(t, slaveDir, version, r.namesrv, append(both, "brokerRole", "SLAVE", "brokerId", 1)...)
	return r
}

// set adds settings to the folder's configuration; the last one of a key counts.
func (f *folder) set(t *testing.T, pairs ...any) {
	t.Helper()
	conf, err := os.OpenFile(f.conf, os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	defer conf.Close()
	for i := 0; i < len(pairs); i += 2 {
		fmt.Fprintf(conf, "%v=%v\n", pairs[i], pairs[i+1])
	}
}

// store is where the folder's messages are.
func (f *folder) store() string { return filepath.Join(f.dir, "store") }

// figures are the runtime figures, which every kind of broker gives. Java's are not there in its first second, which it tells
// by an exception.
func (f *folder) figures(t *testing.T) map[string]string {
	t.Helper()
	var kv protocol.KVTable
	require.Eventually(t, func() bool {
		answer := f.call(t, protocol.GetBrokerRuntimeInfo, nil, nil, protocol.SystemError)
		return protocol.ResponseCode(answer.Code) == protocol.Success && protocol.Unmarshal(answer.Body, &kv) == nil
	}, ownerStart, 100*time.Millisecond)
	return kv.Table
}

// span is from where to where the log goes.
func (f *folder) span(t *testing.T) (low, end int64) {
	t.Helper()
	figures := f.figures(t)
	low, err := strconv.ParseInt(figures["commitLogMinOffset"], 10, 64)
	require.NoError(t, err)
	end, err = strconv.ParseInt(figures["commitLogMaxOffset"], 10, 64)
	require.NoError(t, err)
	return max(low, 0), end // Java's low is -1 for an empty log
}

// status is what a broker of ours says of its part.
func (f *folder) status(t *testing.T) (s protocol.ReplicaStatus) {
	t.Helper()
	require.NoError(t, protocol.Unmarshal(f.call(t, protocol.GetReplicaStatus, nil, nil).Body, &s))
	return s
}

// try sends a small message and returns what the owner answers.
func (f *folder) try(t *testing.T, topic string, props ...string) protocol.ResponseCode {
	t.Helper()
	h := &protocol.SendMessageRequest{
		ProducerGroup: "interop-producer", Topic: topic, DefaultTopic: protocol.TopicDefault, DefaultTopicQueueNums: 4,
		BornTimestamp: time.Now().UnixMilli(), Properties: properties(props...),
	}
	answer := f.call(t, protocol.SendMessage, h, []byte("try"),
		protocol.FlushDiskTimeout, protocol.SlaveNotAvailable, protocol.FlushSlaveTimeout, protocol.ServiceNotAvailable)
	return protocol.ResponseCode(answer.Code)
}

// synced waits until the SYNC_MASTER says OK: the slave has what it is sent.
func (r *replicas) synced(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool { return r.master.try(t, "Probe") == protocol.Success }, replicaWait, 100*time.Millisecond,
		"a message is on both")
}

// level waits until both logs end at the same place, and compares them byte for byte from low on.
func (r *replicas) level(t *testing.T, low int64) {
	t.Helper()
	var end int64
	require.Eventually(t, func() bool {
		_, theirs := r.slave.span(t)
		_, end = r.master.span(t)
		return end == theirs
	}, replicaWait, 100*time.Millisecond, "both logs end at the same place")
	first, _ := r.master.span(t)
	require.Equal(t, low, first)
	first, _ = r.slave.span(t)
	require.Equal(t, low, first)
	ours, theirs := r.master.log(t, low, end), r.slave.log(t, low, end)
	if !bytes.Equal(ours, theirs) {
		at := 0
		for ours[at] == theirs[at] {
			at++
		}
		require.Failf(t, "the logs differ", "from %d on, of %d", low+int64(at), end)
	}
}

// log reads the bytes [from, to) of the folder's log from its files.
func (f *folder) log(t *testing.T, from, to int64) []byte {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(f.store(), "commitlog", "*"))
	require.NoError(t, err)
	slices.Sort(names)
	all := make([]byte, 0, to-from)
	for _, name := range names {
		begin, err := strconv.ParseInt(filepath.Base(name), 10, 64)
		require.NoError(t, err)
		if begin+1<<20 <= from || begin >= to {
			continue
		}
		file, err := os.Open(name)
		require.NoError(t, err)
		skip := max(from-begin, 0)
		part := make([]byte, min(to-begin, 1<<20)-skip)
		_, err = io.ReadFull(io.NewSectionReader(file, skip, 1<<20), part)
		require.NoError(t, err, name)
		require.NoError(t, file.Close())
		require.Equal(t, begin+skip, from+int64(len(all)), "files are missing before %s", name)
		all = append(all, part...)
	}
	require.Len(t, all, int(to-from))
	return all
}

// sameTables waits until the slave has topics, groups and offsets of the master.
func (r *replicas) sameTables(t *testing.T) {
	t.Helper()
	given, taken := &view{}, &view{}
	given.tables(t, r.master)
	var lacks string
	require.Eventually(t, func() bool {
		taken.tables(t, r.slave)
		want, has := r.master.consumerOffsets(t), r.slave.consumerOffsets(t)
		delays := r.slave.delays(t)
		switch topics, groups := missing(given.topics, taken.topics), missing(given.groups, taken.groups); {
		case topics != nil || groups != nil:
			lacks = fmt.Sprint("topics ", topics, ", groups ", groups)
		case below(has, want) != nil:
			lacks = fmt.Sprint("consumer offsets ", want, ", has ", has)
		case r.master.owner == ratchet && fmt.Sprint(want) != fmt.Sprint(has): // a Java master that was killed has gone back
			lacks = fmt.Sprint("consumer offsets ", want, ", has ", has)
		case below(map[string]map[int32]int64{"": delays}, map[string]map[int32]int64{"": r.master.delayOffsets(t)}) != nil:
			lacks = fmt.Sprint("delay offsets ", r.master.delayOffsets(t), ", has ", delays)
		default:
			return true
		}
		return false
	}, replicaWait, 250*time.Millisecond, "the slave's tables are the master's: %v", &lacks)
	for name, c := range given.topics {
		require.Equal(t, normalTopic(c), normalTopic(taken.topics[name]), lacks)
	}
	for name, c := range given.groups {
		require.Equal(t, normalGroup(c), normalGroup(taken.groups[name]))
	}
}

// below are the keys whose offsets are less than wanted.
func below(has, want map[string]map[int32]int64) (keys []string) {
	for key, queues := range want {
		for queue, n := range queues {
			if at, ok := has[key][queue]; !ok || at < n {
				keys = append(keys, fmt.Sprint(key, " ", queue))
			}
		}
	}
	return keys
}

// delays are the delay offsets that the slave would go on with; a Java slave has them in its file only.
func (f *folder) delays(t *testing.T) map[int32]int64 {
	t.Helper()
	if f.owner == ratchet {
		return f.delayOffsets(t)
	}
	var table protocol.DelayOffsetTable
	text, err := os.ReadFile(filepath.Join(f.store(), "config", "delayOffset.json"))
	if err == nil {
		require.NoError(t, protocol.Unmarshal(text, &table))
	}
	return table.OffsetTable
}

// sameMessages has the slave tell all that the master tells, message by message.
func (r *replicas) sameMessages(t *testing.T) *view {
	t.Helper()
	r.slave.asked = r.master.asked
	v := r.master.see(t)
	v.sound().require(t, "what the master has")
	if r.master.owner != ratchet {
		v.commits = nil // a Java master that was killed has gone back
	}
	var found *view
	require.Eventually(t, func() bool { // queues are made a moment after the log
		found = r.slave.see(t)
		return len(v.changed(found, false)) == 0
	}, ownerStart, 500*time.Millisecond)
	v.changed(found, false).require(t, "what the slave has")
	found.sound().require(t, "what the slave has")
	return v
}

// more adds messages of all kinds, a delayed one, groups and progress; each must be on both brokers when it is said to be.
func (r *replicas) more(t *testing.T, leg int) {
	t.Helper()
	r.master.fill(t, leg)
	before := r.master.delayOffsets(t)[1]
	r.master.send(t, protocol.SendMessageRequest{Topic: "Orders", Properties: properties(
		message.PropertyUniqueKey, fmt.Sprintf("D%d", leg), message.PropertyDelayLevel, "1",
	)}, []byte("delayed"))
	require.Eventually(t, func() bool { return r.master.delayOffsets(t)[1] == before+1 }, ownerStart, 100*time.Millisecond)
}

// paused runs fn while the broker stands still.
func (f *folder) paused(t *testing.T, fn func()) {
	t.Helper()
	require.NoError(t, f.server.Pause())
	fn()
	require.NoError(t, f.server.Resume())
}

// keep copies the store of a stopped broker, replace puts the copy into its place.
func (f *folder) keep(t *testing.T) {
	t.Helper()
	require.NoError(t, os.RemoveAll(f.store()+".older"))
	require.NoError(t, os.CopyFS(f.store()+".older", os.DirFS(f.store())))
}

func (f *folder) replace(t *testing.T) {
	t.Helper()
	require.NoError(t, os.RemoveAll(f.store()))
	require.NoError(t, os.CopyFS(f.store(), os.DirFS(f.store()+".older")))
}

// inspect runs `ratchet inspect`, which shares no code with the store.
func inspect(t *testing.T, args ...string) string {
	t.Helper()
	binary, err := ratchetBinary()
	require.NoError(t, err)
	out, err := exec.Command(binary, append([]string{"inspect"}, args...)...).CombinedOutput()
	for line := range strings.Lines(string(out)) { // progress beyond a queue's end is what is kept after a loss
		if err != nil && args[0] == "check" {
			require.Regexp(t, `^(offset-beyond|log |queues |index |config |count offset-beyond|note |damaged: \d+ findings)`, line)
		}
	}
	if args[0] != "check" {
		require.NoError(t, err, "%v\n%s", args, out)
	}
	return string(out)
}
