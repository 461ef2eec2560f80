// Package inspect reads the folder of a broker's store, Ratchet's or RocketMQ's (4.9 and 5), and says what is in it and
// what is wrong with it. It reads the formats by itself and shares no code with package store, so that it is a second
// opinion about what store writes.
//
// It only ever opens files for reading and takes no lock: a broker may be running on the folder. What such a broker
// has not finished yet (entries that dispatch has still to write, a record that is half there) is told as a note and
// not as a finding; the abort file says whether one may be running.
//
// Memory is bounded: the log is streamed once, queues are counted, and nothing is kept for each message.
package inspect

import (
	"errors"
	"time"

	"github.com/ratchetmq/ratchet/internal/vfs"
)

// Options say how to read a store. The zero value is ready for use.
type Options struct {
	FS       vfs.FS           // [vfs.OS]
	LogDirs  []string         // folders of the log's files [DIR/commitlog]
	Levels   []time.Duration  // delays of the levels from 1 on [RocketMQ's 18]
	Slots    int              // slots of an index file [by its size, with four entries for each slot]
	MaxLines int              // findings told for each kind; the rest is only counted [1000]
	Now      func() time.Time // [time.Now]
}

// ErrNoStore is what a folder that holds nothing of a store fails with.
var ErrNoStore = errors.New("store not found")

// Folders and files of a store, by RocketMQ's names; the last is Ratchet's.
const (
	logFolder      = "commitlog"
	queueFolder    = "consumequeue"
	batchFolder    = "batchconsumequeue"
	indexFolder    = "index"
	configFolder   = "config"
	checkpointFile = "checkpoint"
	abortFile      = "abort"
	deletionsFile  = "deletedTopics"
)

func (o Options) withDefaults() Options {
	if o.FS == nil {
		o.FS = vfs.OS{}
	}
	if o.Levels == nil {
		o.Levels = defaultLevels
	}
	if o.MaxLines <= 0 {
		o.MaxLines = 1000
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// defaultLevels are RocketMQ's delays: a queue of the delay topic each.
var defaultLevels = seconds(1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)

func seconds(list ...int) (delays []time.Duration) {
	for _, n := range list {
		delays = append(delays, time.Duration(n)*time.Second)
	}
	return delays
}
