package delay

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/ratchetmq/ratchet/message"
	"github.com/ratchetmq/ratchet/protocol"
)

const (
	// Topic is where delayed messages wait.
	Topic = protocol.TopicSchedule
	// QueueCount is how many queues Topic has at least, whatever the level table says.
	QueueCount = 18
	// DefaultLevels is RocketMQ's messageDelayLevel.
	DefaultLevels = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
)

// ErrLevel is a level table, or a message's DELAY property, that can't be understood.
var ErrLevel = errors.New("delay level not valid")

// Levels are the delays of the levels from 1 on.
type Levels []time.Duration

var units = map[byte]time.Duration{'s': time.Second, 'm': time.Minute, 'h': time.Hour, 'd': 24 * time.Hour}

// ParseLevels reads a messageDelayLevel: numbers with a unit (s, m, h, d), separated by blanks.
func ParseLevels(text string) (Levels, error) {
	fields := strings.Fields(text)
	levels := make(Levels, 0, len(fields))
	for _, f := range fields {
		unit, known := units[f[len(f)-1]]
		n, err := strconv.ParseInt(f[:len(f)-1], 10, 64)
		if !known || err != nil || n < 0 || n > math.MaxInt64/int64(unit) {
			return nil, fmt.Errorf("%w: %q in %q", ErrLevel, f, text)
		}
		levels = append(levels, time.Duration(n)*unit)
	}
	if len(levels) == 0 {
		return nil, fmt.Errorf("%w: no level in %q", ErrLevel, text)
	}
	return levels, nil
}

// Clamp is the level that is meant by a number: one above the table is its last level.
func (l Levels) Clamp(level int) int { return min(max(level, 0), len(l)) }

// Delay is how long messages of a level wait; 0 for level 0.
func (l Levels) Delay(level int) time.Duration {
	if level = l.Clamp(level); level == 0 {
		return 0
	}
	return l[level-1]
}

// Of is the level that a message's properties ask for, 0 = none, clamped to the table. ErrLevel when DELAY is no
// number.
func (l Levels) Of(props []byte) (int, error) {
	value, ok := message.Property(props, message.PropertyDelayLevel)
	if !ok {
		return 0, nil
	}
	level, err := strconv.ParseInt(string(value), 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%w: %s %q", ErrLevel, message.PropertyDelayLevel, value)
	}
	return l.Clamp(int(level)), nil
}

// TagsCode is what a record's consume queue entry carries: for a delayed message the time at which it is due, in ms;
// for all others the hash of the tags. It is for store.Options.
func (l Levels) TagsCode(r *message.Record) int64 {
	if string(r.Topic) == Topic {
		level, err := l.Of(r.Properties)
		if err != nil || level == 0 {
			level = int(r.QueueID) + 1
		}
		return r.StoreTimestamp + l.Delay(level).Milliseconds()
	}
	return message.TagsCode(r.Tags())
}
