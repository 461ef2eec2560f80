//go:build conformance && linux

package crash

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/ratchetmq/ratchet/conformance/oracle"
)

const (
	storyTopic  = "Story"
	storyQueues = 4
)

// storyGroups are the groups of consumers, of the Java client and of the Go client; under 3.2.6 both are Java's.
var storyGroups = []string{"story-java", "story-go"}

// A story is one telling of it.
type story struct {
	t        *testing.T
	pair     storyCase
	messages int
	began    time.Time
	namesrv  string

	groups    [][2]*storyBroker // a and b; each a master and a slave
	producer  *storyClient
	consumers map[string]*storyClient // by group

	diskLost  int
	fromSlave int
}

// newStory starts name server, brokers and clients, and has a first message acknowledged by each master.
func newStory(t *testing.T, c storyCase, messages int) *story {
	s := &story{t: t, pair: c, messages: messages, began: time.Now(), consumers: map[string]*storyClient{}}
	dir := t.TempDir()
	s.namesrv = startNameServer(t, c.master, subfolder(t, dir, "namesrv"))
	for _, name := range []string{"a", "b"} {
		var d *disk
		if name == "a" {
			d = newDisk(t, "ext4")
		}
		master := newStoryBroker(t, c.master, s.namesrv, name, 0, subfolder(t, dir, name+"0"), d)
		slave := newStoryBroker(t, c.slave, s.namesrv, name, 1, subfolder(t, dir, name+"1"), nil)
		master.start()
		slave.start()
		s.groups = append(s.groups, [2]*storyBroker{master, slave})
	}
	for _, g := range s.groups {
		g[0].createTopic()
	}
	for _, g := range s.groups {
		g[1].awaitTopic()
	}
	s.log("the brokers are there")

	client := "4.9.7"
	if c.master == "java-5.4.0" {
		client = "5.4.0"
	}
	java, err := oracle.Program(client, "conformance.Story", dir)
	require.NoError(t, err)
	golang, err := goClientOnce()
	require.NoError(t, err)
	log := func(name string) string { return subfolder(t, dir, "clients") + "/" + name }
	s.producer = startStoryClient(t, "producer", log("producer"), slices.Clone(java), "produce", s.namesrv, storyTopic)
	for _, g := range s.groups {
		s.producer.tell(time.Minute, "READY", "warm-"+g[0].name, g[0].name)
	}
	s.consumers[storyGroups[0]] = startStoryClient(t, storyGroups[0], log("java"), slices.Clone(java),
		"consume", s.namesrv, storyTopic, storyGroups[0])
	if c.master == "java-3.2.6" { // it throws on a request whose sender's language is Go
		s.consumers[storyGroups[1]] = startStoryClient(t, storyGroups[1], log("java-2"), slices.Clone(java),
			"consume", s.namesrv, storyTopic, storyGroups[1])
	} else {
		s.consumers[storyGroups[1]] = startStoryClient(t, storyGroups[1], log("go"), []string{golang, "story"},
			s.namesrv, storyTopic, storyGroups[1])
	}
	return s
}

func (s *story) log(format string, args ...any) {
	s.t.Helper()
	s.t.Logf("%5.1f s: %s", time.Since(s.began).Seconds(), fmt.Sprintf(format, args...))
}

// tell goes through the phases and counts.
func (s *story) tell() *storyRow {
	master := s.groups[0][0]
	unit := s.messages / 66
	p1, p2, p3a := 20*unit, 20*unit, 6*unit

	s.send("p1", p1)
	s.require("p1")
	for _, g := range s.groups {
		for _, group := range storyGroups {
			require.Eventually(s.t, func() bool { return g[0].committed(group) }, 30*time.Second, 100*time.Millisecond,
				"%s has committed what it has of %s", group, g[0].name)
		}
	}
	s.log("all of p1 is consumed and committed")
	s.checkpoint(master)

	s.each(func(c *storyClient) { c.tell(time.Minute, "SUSPEND") })
	s.send("p2", p2)
	early := s.unread("p2")
	master.kill()
	master.disk.cut()
	master.disk.remount()
	s.diskLost = s.lostOn(master)
	s.log("the master is killed, its disk has lost %d messages", s.diskLost)

	s.each(func(c *storyClient) { c.tell(time.Minute, "RESUME") })
	s.require("p2")
	s.fromSlave = early
	s.log("all of p2 is consumed, at least %d messages from the slave", s.fromSlave)

	master.start()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	require.NoError(s.t, master.routed(ctx, s.namesrv))
	s.log("the master is back")
	s.producer.tell(time.Minute, "READY", "warm-again", master.name)
	s.send("p3a", p3a)
	// A client looks for changed routes every 30 s. One that is sent elsewhere then waits for 10 s, and 20 s for its
	// next balancing.
	patience := 35 * time.Second
	if !s.pair.ours() {
		patience = 65 * time.Second
	}
	back := time.Now()
	s.settle(5*time.Second, patience)
	<-time.After(time.Until(back.Add(patience)))
	s.log("the consumers are back at the master")
	s.send("p3b", s.messages-p1-p2-p3a)
	if s.pair.ours() {
		s.require("p3a", "p3b")
	} else {
		s.settle(25*time.Second, 2*time.Minute)
	}
	s.log("the consumers have what they get")
	s.each(func(c *storyClient) { c.tell(time.Minute, "STOP") })
	for _, g := range s.groups {
		g[0].stop()
		g[1].stop()
	}
	row := s.count()
	row.Seconds = int(time.Since(s.began).Seconds())
	s.log("counted")
	return row
}

func (s *story) each(fn func(c *storyClient)) {
	for _, group := range storyGroups {
		fn(s.consumers[group])
	}
}

// send sends n messages, spread over both masters.
func (s *story) send(phase string, n int) {
	s.t.Helper()
	begin := time.Now()
	s.producer.tell(5*time.Minute, "SEND", phase, n, "a,b")
	s.log("%s: %d messages sent in %v, %d SEND_OK", phase, n, time.Since(begin).Round(time.Millisecond), len(s.acked(phase)))
}

// acked are the keys of the phases that were SEND_OK; of all without one.
func (s *story) acked(phases ...string) (keys []string) {
	s.producer.mu.Lock()
	defer s.producer.mu.Unlock()
	for _, m := range s.producer.sends {
		if m.status == "SEND_OK" && (len(phases) == 0 || slices.Contains(phases, phaseOf(m.key))) {
			keys = append(keys, m.key)
		}
	}
	return keys
}

// require demands that both groups get all that was acknowledged in the phases.
func (s *story) require(phases ...string) {
	s.t.Helper()
	keys := s.acked(phases...)
	s.each(func(c *storyClient) {
		require.Eventually(s.t, func() bool { return c.missing(keys) == 0 }, 2*time.Minute, 100*time.Millisecond,
			"%s gets %v; %d of %d missing", c.name, phases, c.missing(keys), len(keys))
	})
}

// settle waits until both groups have all that was acknowledged, or nothing has come for a while.
func (s *story) settle(quiet, limit time.Duration) {
	keys := s.acked()
	for end, began := time.Now().Add(limit), time.Now(); time.Now().Before(end); <-time.After(200 * time.Millisecond) {
		settled := true
		s.each(func(c *storyClient) { settled = settled && c.missing(keys) == 0 })
		idle := time.Since(began) > quiet
		s.each(func(c *storyClient) { idle = idle && c.quiet() > quiet })
		if idle && (settled || quiet > 20*time.Second) {
			return
		}
	}
}

// unread is how many acknowledged messages of the phase neither group has had yet.
func (s *story) unread(phase string) int {
	keys := s.acked(phase)
	n := len(keys)
	s.each(func(c *storyClient) { n = min(n, c.missing(keys)) })
	return n
}

// checkpoint has all that is written on the broker's disk by now.
func (s *story) checkpoint(b *storyBroker) {
	s.t.Helper()
	dir, err := os.Open(b.disk.dir)
	require.NoError(s.t, err)
	defer dir.Close()
	require.NoError(s.t, unix.Syncfs(int(dir.Fd())))
}

// lostOn is how many acknowledged messages of the stopped broker are not in its log.
func (s *story) lostOn(b *storyBroker) (n int) {
	has := b.readLog().has
	for _, m := range s.producer.sends {
		if m.status == "SEND_OK" && m.at.broker == b.name && !has[m.key] {
			n++
		}
	}
	return n
}
