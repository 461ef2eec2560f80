//go:build conformance && linux

package crash

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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
	dir      string // of the clients' logs

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
		var disks [2]*disk // of those whose power will be cut
		if name == "a" {
			disks[0] = newDisk(t, "ext4")
			if c.variant == bothCut {
				disks[1] = newDisk(t, "ext4")
			}
		}
		master := newStoryBroker(t, c.master, s.namesrv, name, 0, subfolder(t, dir, name+"0"), disks[0])
		slave := newStoryBroker(t, c.slave, s.namesrv, name, 1, subfolder(t, dir, name+"1"), disks[1])
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

	s.dir = subfolder(t, dir, "clients")
	java := s.javaProgram()
	s.producer = startStoryClient(t, "producer", filepath.Join(s.dir, "producer"), java, "produce", s.namesrv, storyTopic)
	for _, g := range s.groups {
		s.producer.tell(time.Minute, "READY", "warm-"+g[0].name, g[0].name)
	}
	s.startConsumers()
	return s
}

// javaProgram is the Java client's: of the master's version, if it is a recent one.
func (s *story) javaProgram() []string {
	version := "4.9.7"
	if s.pair.master == "java-5.4.0" {
		version = "5.4.0"
	}
	java, err := oracle.Program(version, "conformance.Story", s.dir)
	require.NoError(s.t, err)
	return java
}

// startConsumers starts a consumer of each group. One that had a predecessor goes on with what that one got.
func (s *story) startConsumers() {
	golang, err := goClientOnce()
	require.NoError(s.t, err)
	for i, group := range storyGroups {
		command := append(s.javaProgram(), "consume")
		if i == 1 && s.pair.master != "java-3.2.6" { // which throws on a request whose sender's language is Go
			command = []string{golang, "story"}
		}
		before := s.consumers[group]
		c := startStoryClient(s.t, group, filepath.Join(s.dir, fmt.Sprintf("%s-%d", group, time.Now().UnixMilli())), command,
			s.namesrv, storyTopic, group)
		if before != nil {
			c.mu.Lock()
			for key, places := range before.got {
				c.got[key] = append(places, c.got[key]...)
			}
			c.mu.Unlock()
		}
		s.consumers[group] = c
	}
}

func (s *story) log(format string, args ...any) {
	s.t.Helper()
	s.t.Logf("%5.1f s: %s", time.Since(s.began).Seconds(), fmt.Sprintf(format, args...))
}

// tell goes through the phases and counts.
func (s *story) tell() *storyRow {
	master, slave := s.groups[0][0], s.groups[0][1]
	unit := s.messages / 66
	p1, p2, p3a := 20*unit, 20*unit, 6*unit

	s.send("p1", p1)
	s.require("p1")
	s.awaitCommits()
	s.log("all of p1 is consumed and committed")
	for _, b := range s.groups[0] {
		b.checkpoint()
	}
	if s.pair.variant == topicAgain {
		s.makeTopicAgain()
	}

	ahead := s.pair.variant == bothCut || s.pair.variant == slaveLags // consumers, of what will be left
	if !ahead {
		s.each(func(c *storyClient) { c.tell(time.Minute, "SUSPEND") })
	}
	if s.pair.ours() { // Java's brokers flush nothing before the end of the story
		before := master.checkpointed()
		s.producer.tell(time.Minute, "READY", "warm-flush", master.name)
		require.Eventually(s.t, func() bool { return master.checkpointed().After(before) }, 40*time.Second, 5*time.Millisecond,
			"the master writes a checkpoint, and no other soon")
	}
	s.send("p2", p2)
	if ahead {
		s.require("p2")
	}
	if s.pair.variant == slaveLags {
		s.sendToOne()
	}
	s.fromSlave = s.unread("p2")
	s.cutPower()

	if !ahead {
		readers := storyGroups
		if s.pair.variant == slaveAway {
			readers = storyGroups[:1]
		}
		for _, group := range readers {
			s.consumers[group].tell(time.Minute, "RESUME")
			s.requireOf(s.consumers[group], "p2")
		}
		s.log("all of p2 is consumed, at least %d messages from the slave", s.fromSlave)
	}
	if s.pair.variant == offsetBeyond {
		s.pullBeyond(slave)
	}

	s.masterReturns()
	s.producer.tell(time.Minute, "READY", "warm-again", master.name)
	if s.pair.variant == slaveAway {
		s.consumers[storyGroups[1]].tell(time.Minute, "RESUME")
		s.require("p2")
		s.log("the other group has p2 from the healed master")
	}
	if s.pair.variant == offsetBeyond {
		s.pullBeyond(master)
	}
	s.send("p3a", p3a)
	// A client looks for changed routes every 30 s. One that is sent elsewhere then waits for 10 s, and 20 s for its
	// next balancing.
	patience := 35 * time.Second
	if !s.pair.ours() {
		patience = 65 * time.Second
	}
	<-time.After(patience)
	s.log("the consumers are back at the master")
	s.send("p3b", s.messages-p1-p2-p3a)
	if s.pair.ours() {
		s.require("p3a", "p3b")
	} else {
		s.settle(25*time.Second, 5*time.Minute)
	}
	s.log("the consumers have what they get")
	return s.end()
}

// end stops everything and counts.
func (s *story) end() *storyRow {
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

// cutPower kills the master and takes its disk's power away.
func (s *story) cutPower() {
	master, slave := s.groups[0][0], s.groups[0][1]
	master.cutPower()
	switch s.pair.variant {
	case bothCut:
		slave.cutPower()
	case slaveLags:
		require.NoError(s.t, slave.server.Resume())
	case emptyDisk:
		require.NoError(s.t, os.RemoveAll(master.store))
	default: // the slave is well, and sees it
	}
	s.diskLost = s.lostOn(master)
	s.log("the master is killed, its disk has lost %d messages", s.diskLost)
}

// masterReturns starts the master again and waits until clients can find it.
func (s *story) masterReturns() {
	master, slave := s.groups[0][0], s.groups[0][1]
	switch s.pair.variant {
	case slaveAway: // it is there, as the name server sees it, and silent
		require.NoError(s.t, slave.server.Pause())
	case restarts:
		s.cutWhileReturning()
	default: // at the first try
	}
	master.start()
	if s.pair.variant == bothCut {
		slave.start()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	require.NoError(s.t, master.routed(ctx, s.namesrv))
	s.log("the master is back")
	if s.pair.variant == slaveAway {
		s.producer.tell(2*time.Minute, "SEND", "alone", s.messages/66, master.name)
		require.Empty(s.t, s.acked("alone"), "SEND_OK, but the slave does not have them")
		require.NoError(s.t, slave.server.Resume())
	}
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
	s.each(func(c *storyClient) { s.requireOf(c, phases...) })
}

func (s *story) requireOf(c *storyClient, phases ...string) {
	s.t.Helper()
	keys := s.acked(phases...)
	for end := time.Now().Add(2 * time.Minute); c.missing(keys) > 0; <-time.After(100 * time.Millisecond) {
		require.True(s.t, time.Now().Before(end), "%s: %d of %d messages of %v don't come", c.name, c.missing(keys), len(keys), phases)
	}
}

// awaitCommits waits until all that the masters have is consumed and committed.
func (s *story) awaitCommits() {
	s.t.Helper()
	for _, g := range s.groups {
		for _, group := range storyGroups {
			require.Eventually(s.t, func() bool { return g[0].committed(group) }, 30*time.Second, 100*time.Millisecond,
				"%s has committed what it has of %s", group, g[0].name)
		}
	}
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
