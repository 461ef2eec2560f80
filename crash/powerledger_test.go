//go:build conformance && linux

package crash

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/ratchetmq/ratchet/internal/offset"
)

// spot is where a message is.
type spot struct {
	topic string
	queue int32
	qoff  int64
}

// acked is an acknowledged message.
type acked struct {
	key string
	phy offset.Physical
	at  time.Time
}

// phase is where the power is.
type phase uint8

const (
	powered phase = iota
	// going is from the moment before the file system is told to shut down. The kernel does not do that in one moment:
	// a sync that is under way then may end without an error, and what it synced is lost all the same (with any
	// program; it takes a hundred tries or so to see it). An answer that comes now may be such a one, and says nothing.
	going
	// gone is from the moment when the file system is known to be shut down. What is sent now must not be acknowledged.
	gone
)

// powerLedger is what the power-cut test knows of a store.
type powerLedger struct {
	mu    sync.Mutex
	power phase

	sent  map[string]bool // keys of all messages that anybody tried to send
	fresh map[spot]acked  // acknowledged since the last verification
	kept  map[spot]string // keys of what was found then: it must be there for ever
	bytes int64           // acknowledged since the last verification, roughly

	topics map[string]bool // acknowledged ones
	tried  map[string]bool // topics that there may be
	doomed map[string]bool // keys and topics that were sent to a broker whose disk was gone

	delayed map[string]bool // keys of delayed messages that were acknowledged and are to be delivered

	commits map[int32]*progress // of group "crash" in the main topic, by queue
}

// progress is what is known of a consumer offset.
type progress struct {
	floor  int64 // it was read after a start: it may not be less any more
	asked  int64 // the highest that was ever sent to the broker
	latest []committed
}

type committed struct {
	offset int64
	at     time.Time // when the broker's answer came
}

func newPowerLedger() *powerLedger {
	l := &powerLedger{
		sent: map[string]bool{}, fresh: map[spot]acked{}, kept: map[spot]string{},
		topics: map[string]bool{}, tried: map[string]bool{}, delayed: map[string]bool{},
		doomed: map[string]bool{}, commits: map[int32]*progress{},
	}
	for queue := range int32(powerQueues) {
		l.commits[queue] = &progress{}
	}
	return l
}

func (l *powerLedger) turn(p phase) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.power = p
}

// will notes a message before it is sent, and returns its body.
func (l *powerLedger) will(topic, key string) []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent[key] = true
	l.tried[topic] = true
	if l.power == gone {
		l.doomed[key] = true
	}
	return bodyOf(key)
}

// counts tells whether an acknowledgement of a key or topic that came just now binds the broker. It may be an error.
// The caller has mu.
func (l *powerLedger) counts(key string) (bool, error) {
	if l.doomed[key] {
		return false, fmt.Errorf("%s was sent after the disk was gone, and acknowledged", key)
	}
	return l.power == powered, nil
}

// ack notes a message that was acknowledged. One that has a place which another was acknowledged for is an error.
func (l *powerLedger) ack(s spot, a acked, size int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ok, err := l.counts(a.key); !ok {
		return err
	}
	other, ok := l.kept[s]
	if !ok {
		other, ok = l.fresh[s].key, l.fresh[s].key != ""
	}
	if ok {
		return fmt.Errorf("%v was given to %s and then to %s", s, other, a.key)
	}
	l.fresh[s] = a
	l.bytes += int64(size)
	l.topics[s.topic] = true
	return nil
}

func (l *powerLedger) ackedBytes() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bytes
}

func (l *powerLedger) ackDelayed(key string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	ok, err := l.counts(key)
	if ok {
		l.delayed[key] = true
	}
	return err
}

func (l *powerLedger) willTopic(topic string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tried[topic] = true
	if l.power == gone {
		l.doomed[topic] = true
	}
}

func (l *powerLedger) ackTopic(topic string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	ok, err := l.counts(topic)
	if ok {
		l.topics[topic] = true
	}
	return err
}

func (l *powerLedger) willCommit(queue int32, offset int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.commits[queue]
	p.asked = max(p.asked, offset)
}

func (l *powerLedger) ackCommit(queue int32, offset int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.power == powered {
		l.commits[queue].latest = append(l.commits[queue].latest, committed{offset, time.Now()})
	}
}

// least is where the consumer must be at least, when all is safe that was acknowledged before a moment.
func (p *progress) least(before time.Time) int64 {
	least := p.floor
	for _, c := range p.latest {
		if c.at.Before(before) {
			least = max(least, c.offset)
		}
	}
	return least
}

// bodyOf is the body of a message: its key, and up to 3,000 bytes that follow from it.
func bodyOf(key string) []byte {
	h := fnv.New64a()
	h.Write([]byte(key))
	r := rand.New(rand.NewPCG(h.Sum64(), 0))
	b := append([]byte(key), ' ')
	for range r.IntN(375) {
		n := r.Uint64()
		b = append(b, byte(n), byte(n>>8), byte(n>>16), byte(n>>24), byte(n>>32), byte(n>>40), byte(n>>48), byte(n>>56))
	}
	return b
}

// keyOf is the key of a body that was made by bodyOf.
func keyOf(body []byte) string {
	key, _, _ := strings.Cut(string(body), " ")
	return key
}
