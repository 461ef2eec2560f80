//go:build conformance && linux

package crash

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A storyKind is what runs as master or slave: "ratchet", or "java-" and a version.
type storyKind string

const ratchetKind storyKind = "ratchet"

// version is that of a Java broker, "" of ours.
func (k storyKind) version() string {
	version, _ := strings.CutPrefix(string(k), "java-")
	if k == ratchetKind {
		return ""
	}
	return version
}

// A storyCase is one telling of the story: who is master, who is slave, and what is different this time.
type storyCase struct {
	master, slave storyKind
	variant       storyVariant
}

func (c storyCase) String() string {
	name := string(c.master) + "/" + string(c.slave)
	if c.variant != plain {
		name += ":" + string(c.variant)
	}
	return name
}

// ours says that the master is Ratchet, which keeps the promises.
func (c storyCase) ours() bool { return c.master == ratchetKind }

// A storyVariant is what is different.
type storyVariant string

const (
	plain        storyVariant = ""
	slaveAway    storyVariant = "slave-away"    // the slave can't be reached when the master returns, and comes back later
	slaveLags    storyVariant = "slave-lags"    // the slave does not have what was sent last, and consumers may have read it
	bothCut      storyVariant = "both-cut"      // the slave loses power, too, after consumers have read everything
	topicAgain   storyVariant = "topic-again"   // the topic is deleted and made again before the master is killed
	offsetBeyond storyVariant = "offset-beyond" // somebody pulls and commits at an offset beyond everything
	emptyDisk    storyVariant = "empty-disk"    // nothing at all is left on the master's disk
	restarts     storyVariant = "restarts"      // the master is killed and its power cut three times more while it returns
)

// storyPairs are names for several tellings.
var storyPairs = map[string]string{
	"": "ratchet/ratchet,ratchet/java-4.9.7",
	"all": "ratchet/ratchet,ratchet/java-4.9.7,ratchet/java-5.4.0," +
		"java-4.9.7/java-4.9.7,java-5.4.0/java-5.4.0,java-3.2.6/java-3.2.6",
	"variants": "ratchet/ratchet:slave-away,ratchet/ratchet:slave-lags,ratchet/ratchet:both-cut,ratchet/ratchet:topic-again," +
		"ratchet/ratchet:offset-beyond,ratchet/ratchet:empty-disk,ratchet/ratchet:restarts",
}

// storyCases are those of STORY_PAIRS: "master/slave,master/slave:variant", "all" or "variants".
func storyCases(t *testing.T) (all []storyCase) {
	pairs := os.Getenv("STORY_PAIRS")
	if named, ok := storyPairs[pairs]; ok {
		pairs = named
	}
	kinds := []string{"ratchet", "java-3.2.6", "java-4.9.7", "java-5.4.0"}
	variants := []storyVariant{plain, slaveAway, slaveLags, bothCut, topicAgain, offsetBeyond, emptyDisk, restarts}
	for text := range strings.SplitSeq(pairs, ",") {
		pair, variant, _ := strings.Cut(text, ":")
		master, slave, _ := strings.Cut(pair, "/")
		c := storyCase{storyKind(master), storyKind(slave), storyVariant(variant)}
		require.Contains(t, kinds, master, "STORY_PAIRS: %s", text)
		require.Contains(t, kinds, slave, "STORY_PAIRS: %s", text)
		require.Contains(t, variants, c.variant, "STORY_PAIRS: %s", text)
		require.True(t, c.variant == plain || c.ours(), "STORY_PAIRS: %s: variants are for Ratchet as master", text)
		all = append(all, c)
	}
	return all
}

// storyMessages is how many messages a telling has: CI's number, or STORY_MESSAGES.
func storyMessages(t *testing.T) int {
	text, ok := os.LookupEnv("STORY_MESSAGES")
	if !ok {
		return 3300
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err)
	require.GreaterOrEqual(t, n, 660, "STORY_MESSAGES")
	return n
}

// TestPowerCutStory replays what was reported as ROCKETMQ-348: a master of two is killed, its disk has lost what was not
// flushed, consumers go on at its slave, and it comes back with less than the slave has. README.md tells it phase by phase.
func TestPowerCutStory(t *testing.T) {
	messages := storyMessages(t)
	var mu sync.Mutex
	var rows []*storyRow
	t.Cleanup(func() {
		slices.SortFunc(rows, func(a, b *storyRow) int { return cmp.Compare(a.Case, b.Case) })
		t.Log("\n" + storyTable(rows))
		if path := os.Getenv("STORY_JSON"); path != "" {
			text, err := json.MarshalIndent(rows, "", "  ")
			assert.NoError(t, err)
			assert.NoError(t, os.WriteFile(path, append(text, '\n'), 0o644))
		}
	})
	for _, c := range storyCases(t) {
		t.Run(c.String(), func(t *testing.T) {
			if os.Getenv("STORY_PAIRS") == "" {
				t.Parallel() // most of the time is spent on waiting for clients, which look for changed routes every 30 s
			}
			row := newStory(t, c, messages).tell()
			mu.Lock()
			rows = append(rows, row)
			mu.Unlock()
			row.judge(t, c)
		})
	}
}

// byPhase counts messages by the phase in which they were sent.
type byPhase map[string]int

func (b byPhase) total() (n int) {
	for _, k := range b {
		n += k
	}
	return n
}

func (b byPhase) String() string {
	if b.total() == 0 {
		return "0"
	}
	var parts []string
	for _, phase := range []string{"warm", "p1", "p2", "lag", "alone", "p3a", "p3b"} {
		if b[phase] > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", phase, b[phase]))
		}
	}
	return strings.Join(parts, ", ")
}

// A storyRow is what was counted in one telling.
type storyRow struct {
	Case      string
	Messages  int     // sent
	SendOK    byPhase // acknowledged as being on both brokers
	Other     byPhase // answered otherwise, or not at all
	DiskLost  int     // SEND_OK messages that the master's disk lost
	FromSlave int     // SEND_OK messages that both groups read from the slave while the master was gone

	Twice    map[string]byPhase // by group of consumers: delivered more than once; each further delivery counts
	InFlight int                // further deliveries that are not in Twice: the client had not committed the first
	Lost     map[string]byPhase // SEND_OK, never delivered, and the master doesn't have it
	Skipped  map[string]byPhase // SEND_OK, never delivered, and the master has it

	NotOnMaster, NotOnSlave byPhase // SEND_OK, not in the log at the end
	Slots                   int     // (queue, offset) with different messages on the two brokers
	OnlyMaster, OnlySlave   int     // (queue, offset) that only one of them has
	BytesDiffer             int64   // of the two logs, where both have data
	Seconds                 int
}

// judge demands of ours that nothing is wrong, and of Java's that the test sees what is known to be wrong.
func (r *storyRow) judge(t *testing.T, c storyCase) {
	if t.Failed() {
		return
	}
	assert.Positive(t, r.DiskLost, "the disk has lost nothing: there is no story")
	if c.variant != bothCut && c.variant != slaveLags {
		assert.Positive(t, r.FromSlave, "nothing was read from the slave: there is no story")
	}
	twice, lost, skipped := 0, 0, 0
	for _, group := range storyGroups {
		twice += r.Twice[group].total()
		lost += r.Lost[group].total()
		skipped += r.Skipped[group].total()
	}
	if c.ours() {
		assert.Zero(t, twice, "consumed twice: %v", r.Twice)
		assert.Zero(t, lost, "lost: %v", r.Lost)
		assert.Zero(t, skipped, "skipped: %v", r.Skipped)
		gone := 0
		if c.variant == bothCut { // what nobody has any more: its places stay empty
			gone = r.NotOnMaster["p2"]
			assert.LessOrEqual(t, gone, r.DiskLost)
		}
		assert.Equal(t, gone, r.NotOnMaster.total(), "SEND_OK, not on the master: %v", r.NotOnMaster)
		assert.Equal(t, gone, r.NotOnSlave.total(), "SEND_OK, not on the slave: %v", r.NotOnSlave)
		assert.Zero(t, r.Slots, "places with different messages")
		assert.Zero(t, r.BytesDiffer, "bytes that differ")
		return
	}
	assert.Equal(t, r.DiskLost, r.NotOnMaster["p2"], "a Java master does not get back what its disk has lost")
	assert.Positive(t, r.NotOnSlave["p3a"]+r.NotOnSlave["p3b"], "SEND_OK, not on the slave")
	assert.Positive(t, r.Slots, "places with different messages")
	assert.Positive(t, r.BytesDiffer, "bytes that differ")
	if c.master == "java-3.2.6" {
		for _, group := range storyGroups {
			assert.GreaterOrEqual(t, r.Twice[group]["p1"], r.SendOK["p1"]/2, "%s consumes all of the one master again", group)
		}
	} else {
		assert.Zero(t, twice, "consumed twice: %v", r.Twice)
	}
}

// storyTable has one line for each telling.
func storyTable(rows []*storyRow) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 1, ' ', 0)
	fmt.Fprintln(w, "| master/slave\t| SEND_OK\t| lost by the disk\t| twice, Java\t| twice, Go\t| in flight\t| lost, Java\t| lost, Go"+
		"\t| skipped, Java\t| skipped, Go\t| not on master\t| not on slave\t| slots differ\t| only on m/s\t| bytes differ\t| s |")
	fmt.Fprintln(w, strings.Repeat("|---\t", 15)+"|---|")
	for _, r := range rows {
		java, golang := storyGroups[0], storyGroups[1]
		fmt.Fprintf(w, "| %s\t| %d\t| %d\t| %v\t| %v\t| %d\t| %v\t| %v\t| %v\t| %v\t| %v\t| %v\t| %d\t| %d/%d\t| %d\t| %d |\n",
			r.Case, r.SendOK.total(), r.DiskLost, r.Twice[java], r.Twice[golang], r.InFlight, r.Lost[java], r.Lost[golang],
			r.Skipped[java], r.Skipped[golang], r.NotOnMaster, r.NotOnSlave, r.Slots, r.OnlyMaster, r.OnlySlave,
			r.BytesDiffer, r.Seconds)
	}
	w.Flush()
	return b.String()
}
