//go:build conformance

package conformance

import "path"

// What both Java clients run.
var javaScenarios = []string{
	"send.sync", "send.async", "send.oneway", "send.batch", "send.properties", "send.big-3.5MB", "send.compressed",
	"send.too-big-refused", "send.delay-level",
	"topic.auto-create", "topic.unknown", "topic.create", "admin.topic-delete", "admin.consumer-connection",
	"filter.tag",
	"consume.rebalance-2", "consume.broadcast", "consume.orderly", "consume.orderly-takeover",
	"consume.orderly-suspend", "consume.two-groups", "consume.retry", "consume.dlq", "consume.suspend-resume",
	"consume.batch-size",
	"pull.basic", "pull.long-poll", "pull.offset-beyond-max", "litepull.subscribe", "litepull.assign-seek",
	"from.first", "from.last", "from.last-new-topic", "from.timestamp",
	"offset.search", "offset.persist-restart", "query.key-and-id", "query.unique-id",
}

// What the Go client runs. It cannot query messages and has no pull that shows the broker's answer to every
// offset; a queue that changes hands between its orderly consumers waits for the broker's lock to expire.
var goScenarios = []string{
	"send.sync", "send.async", "send.oneway", "send.batch", "send.properties", "send.big-3.5MB", "send.compressed",
	"send.too-big-refused", "send.delay-level",
	"topic.auto-create", "admin.topic",
	"filter.tag",
	"consume.rebalance-2", "consume.broadcast", "consume.orderly", "consume.orderly-suspend", "consume.two-groups",
	"consume.retry", "consume.dlq", "consume.suspend-resume", "consume.batch-size",
	"pull.subscribe-poll", "pull.assign-seek", "pull.offset-beyond-max",
	"from.first", "from.last", "from.last-new-topic", "from.timestamp", "offset.persist-restart",
}

// What runs while the broker is restarted, every client at the same time.
var restartScenarios = []struct {
	name string
	kill bool
}{
	{"offset.broker-restart", false},
	{"offset.broker-kill", true},
}

// An expectation names a failure that is known and understood. The scenario still runs; should it pass, the
// test fails, so that this table stays true. Target, client and scenario are path.Match patterns.
type expectation struct {
	target, client, scenario string
	reason                   string
}

const (
	youngQueue     = "a group never seen is given offset 0 of a queue that still starts at 0, whatever it asked for"
	noSwitch       = "5.4.0 asks the page cache whether a queue is young, and no setting turns that off"
	earlierMessage = "4.9 answers a search by time with the last message before it, not the first after it"
)

var expectations = []expectation{
	// Ratchet keeps the rule, so that a move to it changes nothing; TestStrict is about the switch.
	{"*", "*", "from.last", youngQueue},
	{"*", "*", "from.timestamp", youngQueue},
	{"java-5.4.0", "*", "from.last (strict)", noSwitch},
	{"java-5.4.0", "*", "from.timestamp (strict)", noSwitch},
	{"java-4.9.7", "java*", "offset.search", earlierMessage},
	{"java-4.9.7", "go", "pull.assign-seek", earlierMessage},
	{"java-4.9.7", "java540", "litepull.*", "4.9 does not know LITE_PULL_MESSAGE (361)"},
}

// expected returns the reason why a scenario is known to fail.
func expected(target, client, scenario string) (string, bool) {
	for _, e := range expectations {
		t, _ := path.Match(e.target, target)
		c, _ := path.Match(e.client, client)
		s, _ := path.Match(e.scenario, scenario)
		if t && c && s {
			return e.reason, true
		}
	}
	return "", false
}
