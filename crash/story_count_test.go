//go:build conformance && linux

package crash

import (
	"bytes"
	"context"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/inspect"
	"github.com/ratchetmq/ratchet/message"
)

// A storyLog is what can be read in a broker's commit log: the keys of the story's messages by their place.
type storyLog struct {
	keys   map[slot]string
	has    map[string]bool // more than keys: those of a topic that was deleted and made again, too
	broken bool            // a file ends with something that is no record
}

// readLog walks through the commit log of a broker, record by record, as a recovery does: a file's rest after something
// that is no record can't be read.
func (b *storyBroker) readLog() *storyLog {
	b.t.Helper()
	l := &storyLog{keys: map[slot]string{}, has: map[string]bool{}}
	files, err := filepath.Glob(filepath.Join(b.store, "commitlog", strings.Repeat("[0-9]", 20)))
	require.NoError(b.t, err)
	for _, path := range files { // in the order of their names, which are positions
		data, err := os.ReadFile(path)
		require.NoError(b.t, err)
		for len(data) > 8 && data[3]|data[2]|data[1]|data[0] != 0 {
			r, err := message.Parse(data)
			if err != nil {
				_, magic, _ := message.Peek(data)
				l.broken = l.broken || magic != message.MagicBlank
				break
			}
			data = data[r.Size:]
			key, _ := message.Property(r.Properties, message.PropertyKeys)
			if string(r.Topic) == storyTopic {
				l.keys[slot{b.name, int(r.QueueID), int64(r.QueueOffset)}] = string(key)
				l.has[string(key)] = true
			}
		}
	}
	return l
}

var differing = regexp.MustCompile(`(?m)^log +(\d+) bytes differ`)

// bytesDiffer compares the logs of two brokers where both have records.
func bytesDiffer(a, b *storyBroker) int64 {
	a.t.Helper()
	var out bytes.Buffer
	_, err := inspect.Diff(context.Background(), &out, a.store, b.store, inspect.Options{MaxLines: 1})
	require.NoError(a.t, err)
	found := differing.FindStringSubmatch(out.String())
	if found == nil {
		return 0
	}
	n, err := strconv.ParseInt(found[1], 10, 64)
	require.NoError(a.t, err)
	return n
}

// inFlight is for how long a message that was delivered may not have been committed yet: clients commit every 5 s. If it
// comes again within that time, its consumer has given up the queue in between without committing.
const inFlight = 7 * time.Second

// phaseOf is the phase of a key, which begins with it.
func phaseOf(key string) string {
	phase, _, _ := strings.Cut(key, "-")
	return phase
}

// count compares what the producer was told with what the consumers got and with what the stopped brokers have.
func (s *story) count() *storyRow {
	r := &storyRow{
		Case:   s.pair.String(),
		SendOK: byPhase{}, Other: byPhase{}, NotOnMaster: byPhase{}, NotOnSlave: byPhase{},
		Twice: map[string]byPhase{}, Lost: map[string]byPhase{}, Skipped: map[string]byPhase{},
		DiskLost: s.diskLost, FromSlave: s.fromSlave,
	}
	onMaster, onSlave := map[string]bool{}, map[string]bool{}
	for _, g := range s.groups {
		master, slave := g[0].readLog(), g[1].readLog()
		maps.Copy(onMaster, master.has)
		maps.Copy(onSlave, slave.has)
		for at, key := range master.keys {
			if other, ok := slave.keys[at]; !ok {
				r.OnlyMaster++
			} else if other != key {
				r.Slots++
			}
		}
		for at := range slave.keys {
			if _, ok := master.keys[at]; !ok {
				r.OnlySlave++
			}
		}
		r.BytesDiffer += bytesDiffer(g[0], g[1])
		s.t.Logf("group %s: master's log broken: %v, slave's: %v", g[0].name, master.broken, slave.broken)
	}
	for _, m := range s.producer.sends {
		r.Messages++
		if m.status != "SEND_OK" {
			r.Other[phaseOf(m.key)]++
			continue
		}
		r.SendOK[phaseOf(m.key)]++
		if !onMaster[m.key] {
			r.NotOnMaster[phaseOf(m.key)]++
		}
		if !onSlave[m.key] {
			r.NotOnSlave[phaseOf(m.key)]++
		}
	}
	for group, c := range s.consumers {
		r.Twice[group], r.Lost[group], r.Skipped[group] = byPhase{}, byPhase{}, byPhase{}
		shown := 0
		for key, came := range c.got {
			for i, again := range came[1:] {
				pause := again.when.Sub(came[i].when)
				if shown++; shown < 10 {
					s.t.Logf("%s got %s again after %v, %v and then %v", group, key, pause, came[i].at, again.at)
				}
				if pause < inFlight {
					r.InFlight++
				} else {
					r.Twice[group][phaseOf(key)]++
				}
			}
		}
		for _, m := range s.producer.sends {
			switch {
			case m.status != "SEND_OK" || len(c.got[m.key]) > 0:
			case onMaster[m.key]:
				r.Skipped[group][phaseOf(m.key)]++
			default:
				r.Lost[group][phaseOf(m.key)]++
			}
		}
	}
	return r
}
