//go:build conformance

package conformance

import (
	"bytes"
	"compress/zlib"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/message"
	"github.com/ratchetmq/ratchet/protocol"
	"github.com/ratchetmq/ratchet/remoting"
)

// JVMs of that many folders at once; more only make each slower.
var folders = make(chan struct{}, 4)

// TestTakingOver hands one folder from broker to broker, a Java one and ours in turn. Each finds all that its
// predecessors left, as they left it, adds to it, and goes: by SIGTERM, or by SIGKILL.
func TestTakingOver(t *testing.T) {
	for _, version := range []string{"4.9.7", "5.4.0"} {
		java := owner(version)
		for _, c := range []struct {
			name   string
			signal syscall.Signal
			owners []owner
		}{
			{"theirs-stopped", syscall.SIGTERM, []owner{java, ratchet, java, ratchet}},
			{"theirs-killed", syscall.SIGKILL, []owner{java, ratchet, java, ratchet}},
			{"ours-stopped", syscall.SIGTERM, []owner{ratchet, java, ratchet}},
			{"ours-killed", syscall.SIGKILL, []owner{ratchet, java, ratchet}},
		} {
			t.Run(version+"/"+c.name, func(t *testing.T) {
				t.Parallel()
				folders <- struct{}{}
				defer func() { <-folders }()
				takeOver(t, version, c.signal, c.owners)
			})
		}
	}
}

func takeOver(t *testing.T, version string, signal syscall.Signal, owners []owner) {
	dir := filepath.Join(workDir, strings.ReplaceAll(t.Name(), "/", "-"))
	require.NoError(t, os.MkdirAll(dir, 0o755))
	f := newFolder(t, dir, version, startNamesrv(t, dir, ""))
	var left *view
	var storm *storm
	for i, to := range owners {
		f.give(t, to)
		if left != nil {
			found := f.see(t)
			found.sound().require(t, "what the owner found")
			if to == ratchet {
				found.unfound().require(t, "what the owner found by key")
			}
			left.changed(found, to == ratchet || signal == syscall.SIGTERM).require(t, "what the owner found")
			for _, r := range left.added(found) {
				_, late := message.Property(r.Properties, message.PropertyRealTopic)
				require.True(t, late || string(r.Topic) == stormTopic, "nobody sent %s", r.Properties)
			}
			storm.missing(found).require(t, "what was acknowledged before the kill")
		}
		f.fill(t, i)
		f.fillByClient(t)
		left, storm = f.leave(t, i, signal)
		require.Empty(t, f.complaints(t, signal == syscall.SIGKILL), "the owner's log")
	}
}

// leave waits for all that is due, has some more messages delayed, takes the folder from its owner and returns what was
// in it. An owner that is to be killed is killed while it is sent to.
func (f *folder) leave(t *testing.T, leg int, signal syscall.Signal) (*view, *storm) {
	t.Helper()
	var v *view
	require.Eventually(t, func() bool {
		v = f.see(t)
		return !v.waiting(time.Now())
	}, ownerStart, 500*time.Millisecond)
	v.undelivered(time.Now()).require(t, "delayed messages")
	if signal == syscall.SIGKILL {
		f.saved(t, v)
	}
	for i := range 4 {
		level := soon
		if i == 3 {
			level = never
		}
		unique := fmt.Sprintf("LATE%d-%d", leg, i)
		f.send(t, protocol.SendMessageRequest{Topic: "Orders", QueueID: int32(i), Properties: properties(
			message.PropertyUniqueKey, unique, message.PropertyKeys, "late", message.PropertyDelayLevel, itoa(level),
		)}, []byte(unique))
	}
	begin := time.Now()
	v = f.see(t)
	v.sound().require(t, "what the owner leaves")
	v.unfound().require(t, "what the owner leaves")
	var s *storm
	if signal == syscall.SIGKILL {
		s = f.storm(t, leg)
		require.Eventually(t, s.blows, ownerStart, time.Millisecond)
	}
	f.take(t, signal)
	s.wait()
	require.Less(t, time.Since(begin), soonDelay, "the delayed messages are for the next owner")
	return v, s
}

const stormTopic = "Storm"

// A storm is what was sent while the owner was killed.
type storm struct {
	senders sync.WaitGroup
	mu      sync.Mutex
	acked   map[place]map[int64]string // bodies by offset
}

// storm sends from several connections until the owner is gone.
func (f *folder) storm(t *testing.T, leg int) *storm {
	t.Helper()
	s := &storm{acked: map[place]map[int64]string{}}
	for sender := range 3 {
		p := place{stormTopic, int32(sender)}
		s.acked[p] = map[int64]string{}
		client, err := remoting.NewClient(remoting.ClientConfig{})
		require.NoError(t, err)
		s.senders.Go(func() {
			defer client.Close()
			for n := 0; ; n++ {
				unique := fmt.Sprintf("S%d-%d-%d", leg, sender, n)
				body := strings.Repeat(unique, 1+n*37%300)
				ctx, cancel := context.WithTimeout(context.Background(), ownerStart)
				answer, err := client.Call(ctx, f.address, protocol.SendMessage, &protocol.SendMessageRequest{
					ProducerGroup: "storm", Topic: p.topic, DefaultTopic: protocol.TopicDefault, DefaultTopicQueueNums: 4,
					QueueID: p.queue, BornTimestamp: time.Now().UnixMilli(),
					Properties: properties(message.PropertyUniqueKey, unique),
				}, nil, []byte(body))
				cancel()
				if err != nil {
					return // the owner is gone
				}
				var at protocol.SendMessageResponse
				if protocol.ResponseCode(answer.Code) != protocol.Success || answer.ReadHeader(&at) != nil {
					continue // the topic is being made, or the owner is busy
				}
				s.mu.Lock()
				s.acked[p][at.QueueOffset] = body
				s.mu.Unlock()
			}
		})
	}
	return s
}

// blows says that each sender has had answers. That is soon: 5.x looks through no more than its last ten files, and drops
// what else of the index was not yet safe.
func (s *storm) blows() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, bodies := range s.acked {
		if len(bodies) < 150 {
			return false
		}
	}
	return true
}

// wait returns when the senders have seen that the owner is gone.
func (s *storm) wait() {
	if s != nil {
		s.senders.Wait()
	}
}

// missing are the messages that were acknowledged and are not where the owner said.
func (s *storm) missing(found *view) (p problems) {
	if s == nil {
		return nil
	}
	for at, bodies := range s.acked {
		if len(bodies) == 0 {
			p.add("%v: nothing was acknowledged", at)
		}
		for n, body := range bodies {
			q := found.queues[at]
			if q == nil || n >= int64(len(q.records)) || string(q.records[n].Body) != body {
				p.add("%v, offset %d: %.20s was acknowledged", at, n, body)
			}
		}
	}
	return p
}

// fill adds topics, groups, messages of all kinds, and commits.
func (f *folder) fill(t *testing.T, leg int) {
	t.Helper()
	f.createTopic(t, fmt.Sprintf("Only%d", leg), 3, false)
	if leg == 0 {
		f.createTopic(t, "Orders", 4, false)
		f.createTopic(t, "Events", 2, true)
		f.createTopic(t, stormTopic, 4, false)
		f.createGroup(t, "Billing", 16)
		f.asked = append(f.asked, asked{"Billing", "Orders"}, asked{"Billing", "Events"})
	}
	f.createGroup(t, "Billing"+itoa(leg), int32(leg)+3)

	random := rand.New(rand.NewPCG(uint64(leg), 7))
	noise := func(size int) []byte {
		b := make([]byte, size)
		for i := range b {
			b[i] = byte(random.Uint32())
		}
		return b
	}
	for i := range 48 {
		h := protocol.SendMessageRequest{
			Topic: "Orders", QueueID: int32(i % 4), Flag: int32(i),
			BornTimestamp: time.Now().UnixMilli() - int64(i)*1000,
			Properties: properties(
				message.PropertyKeys, fmt.Sprintf("k%d-%d every%d", leg, i, leg),
				message.PropertyUniqueKey, fmt.Sprintf("U%d-%d", leg, i),
				message.PropertyTags, "tag"+itoa(i%3), "unicode", "Grüße 世界", "spaces", " a b ",
			),
		}
		body := noise(1 + random.IntN(60_000))
		if i%8 == 3 {
			var zip bytes.Buffer
			w := zlib.NewWriter(&zip)
			_, err := w.Write(bytes.Repeat(body[:1], 30_000))
			require.NoError(t, err)
			require.NoError(t, w.Close())
			body, h.SysFlag = zip.Bytes(), message.FlagCompressed
		}
		f.send(t, h, body)
	}
	f.fillQueues(t, leg, noise)
	for q := range int32(4) {
		f.commit(t, "Billing", "Orders", q, f.maxOffset(t, "Orders", q)-int64(q))
	}
	f.commit(t, "Billing", "Events", 0, f.maxOffset(t, "Events", 0)-17)
	f.commit(t, "Billing", "Events", 1, 0)
}

// fillQueues sends batches: some as clients make them, and a large one that takes its queue across a file's end by and by.
func (f *folder) fillQueues(t *testing.T, leg int, noise func(int) []byte) {
	t.Helper()
	for b := range 6 {
		var batch []byte
		for i := range 5 {
			batch = protocol.AppendBatchMessage(batch, protocol.BatchMessage{Flag: int32(i), Body: noise(2000), Properties: properties(
				message.PropertyKeys, fmt.Sprintf("b%d-%d-%d", leg, b, i),
				message.PropertyUniqueKey, fmt.Sprintf("B%d-%d-%d", leg, b, i), message.PropertyTags, "batched",
			)})
		}
		f.send(t, protocol.SendMessageRequest{Topic: "Only" + itoa(leg), QueueID: int32(b % 3), Batch: true}, batch)
	}
	var batch []byte
	for range 700 {
		batch = protocol.AppendBatchMessage(batch, protocol.BatchMessage{Body: noise(20)})
	}
	at := f.send(t, protocol.SendMessageRequest{Topic: "Events", Batch: true}, batch)
	require.Eventually(t, func() bool { return f.maxOffset(t, "Events", 0) == at.QueueOffset+700 }, ownerStart,
		10*time.Millisecond)
}

func (f *folder) createTopic(t *testing.T, name string, queues int32, order bool) {
	t.Helper()
	f.call(t, protocol.UpdateAndCreateTopic, &protocol.CreateTopicRequest{
		Topic: name, DefaultTopic: protocol.TopicDefault,
		ReadQueueNums: queues, WriteQueueNums: queues, Perm: 6, TopicFilterType: protocol.SingleTag, Order: order,
	}, nil)
}

func (f *folder) createGroup(t *testing.T, name string, retries int32) {
	t.Helper()
	group := protocol.NewSubscriptionGroupConfig(name)
	group.RetryMaxTimes, group.ConsumeBroadcastEnable, group.GroupRetryPolicy = retries, false, nil
	body, err := protocol.Marshal(group)
	require.NoError(t, err)
	f.call(t, protocol.UpdateAndCreateSubscriptionGroup, nil, body)
}

// fillByClient has a real client of the folder's version send, consume and give back.
func (f *folder) fillByClient(t *testing.T) {
	t.Helper()
	const scenario = "interop.fill"
	i := slices.IndexFunc(clients, func(c *client) bool { return c.name == "java"+strings.ReplaceAll(f.version, ".", "") })
	p := clients[i].run(f.namesrv, 3*time.Minute, "run", "1", "120", scenario)
	defer p.stop()
	if r := p.result(scenario); !r.pass {
		require.Fail(t, "the client", r.reason)
	}
	name := strings.ReplaceAll(fmt.Sprintf("cf-%s-%s-%s", run, clients[i].name, scenario), ".", "_")
	known := asked{name + "-g", name + "-back"}
	if !slices.Contains(f.asked, known) {
		f.asked = append(f.asked, known, asked{known.group, protocol.RetryTopic(known.group)})
	}
}
