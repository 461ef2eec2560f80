// GET_BROKER_RUNTIME_INFO (28): figures for tools, and for brokers that look for the most advanced replica.
//
// Kept: the keys and forms of the figures that are known here; getTransferedTps as 4.x spells it beside getTransferredTps.
// Changed: what is not measured is left out: times of puts and waits in queues.

package processor

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ratchetmq/ratchet/message"
	"github.com/ratchetmq/ratchet/protocol"
	"github.com/ratchetmq/ratchet/remoting"
	"github.com/ratchetmq/ratchet/store"
)

// Lane is the state of one lane's queue.
type Lane struct{ Waiting, Capacity int }

// Room is how large the disk is that holds a folder, and how much of it is free, in bytes.
type Room struct{ Total, Free int64 }

func (p *Processor) runtimeInfo(context.Context, *remoting.Request) (protocol.Reply, error) {
	table := map[string]string{}
	number := func(key string, n int64) { table[key] = strconv.FormatInt(n, 10) }
	now := time.Now()

	table["brokerVersionDesc"] = "V5_4_0" // whose protocol this is; see protocol.Version
	number("brokerVersion", int64(protocol.Version))
	table["brokerActive"] = strconv.FormatBool(p.peers.Standing().Master)
	number("bootTimestamp", p.traffic.began.UnixMilli())
	table["runtime"] = uptime(now.Sub(p.traffic.began))

	written, flushed := p.store.Written(), p.store.Flushed()
	number("commitLogMinOffset", int64(p.store.Low()))
	number("commitLogMaxOffset", int64(written))
	number("dispatchBehindBytes", int64(max(0, written-p.store.Dispatched())))
	table["remainHowManyDataToFlush"] = readableBytes(int64(max(0, written-flushed)))
	number("earliestMessageTimeStamp", p.earliest())
	for _, l := range p.scheduler.Progress() {
		if l.High > 0 {
			table["scheduleMessageOffset_"+strconv.Itoa(l.Level)] = fmt.Sprintf("%d,%d", l.Next, l.High)
		}
	}
	p.traffic.report(table, now)
	for _, key := range []string{"timerReadBehind", "timerOffsetBehind", "timerCongestNum"} {
		number(key, 0) // there is no timer here, and tools want to know
	}
	table["timerEnqueueTps"], table["timerDequeueTps"] = "0.0", "0.0"
	p.reportRoom(table)
	for i, name := range map[int]string{LaneSend: "send", LanePull: "pull", LaneAdmin: "query"} {
		lane := p.lane(i)
		number(name+"ThreadPoolQueueSize", int64(lane.Waiting))
		number(name+"ThreadPoolQueueCapacity", int64(lane.Capacity))
		if lane.Waiting == 0 {
			number(name+"ThreadPoolQueueHeadWaitTimeMills", 0)
		}
	}
	return bodyReply(protocol.KVTable{Table: table})
}

// earliest is when the first message of the log was stored, in ms; -1 when there is none.
func (p *Processor) earliest() int64 {
	raw, err := p.store.Record(p.store.Low(), nil)
	if err != nil {
		return -1
	}
	r, err := message.Parse(raw)
	if err != nil {
		return -1
	}
	return r.StoreTimestamp
}

// reportRoom tells how full the disks are. One that can't be asked is left out.
func (p *Processor) reportRoom(table map[string]string) {
	s := p.settings()
	used := func(dir string) (Room, string, bool) {
		room, err := p.room(dir)
		if err != nil || room.Total <= 0 {
			return Room{}, "", false
		}
		return room, strconv.FormatFloat(1-float64(room.Free)/float64(room.Total), 'f', 4, 64), true
	}
	var all Room
	least := ""
	for _, dir := range s.CommitLogDirs() {
		room, ratio, ok := used(dir)
		if !ok {
			continue
		}
		all.Total, all.Free = all.Total+room.Total, all.Free+room.Free
		table["commitLogDiskRatio_"+dir] = ratio
		if least == "" || ratio < least {
			least = ratio
		}
	}
	if least != "" {
		table["commitLogDiskRatio"] = least
		table["commitLogDirCapacity"] = fmt.Sprintf("Total : %s, Free : %s.", readableBytes(all.Total), readableBytes(all.Free))
	}
	if _, ratio, ok := used(s.StoreRoot); ok {
		table["consumeQueueDiskRatio"] = ratio
	}
}

// put appends messages of clients, and counts them.
func (p *Processor) put(msgs ...store.Message) (store.Appended, error) {
	appended, err := p.store.Append(msgs...)
	if err != nil {
		p.traffic.failed.Add(int64(len(msgs)))
		return appended, err
	}
	p.traffic.puts.Add(int64(len(msgs)))
	p.traffic.putBytes.Add(int64(appended.End - appended.Physical))
	return appended, nil
}

// traffic counts what clients have sent and pulled since the start.
type traffic struct {
	began            time.Time
	puts, putBytes   atomic.Int64 // messages stored, bytes of them
	failed           atomic.Int64 // messages that could not be stored
	found, missed    atomic.Int64 // pulls that got messages, that got none
	got              atomic.Int64 // messages pulled
	mu               sync.Mutex
	samples          []sample // guarded by mu: one a second, the newest last
	yesterday, today sample   // guarded by mu: at the beginnings of these days
}

// sample is what the counts were at a moment.
type sample struct {
	at                       time.Time
	puts, found, missed, got int64
}

// spans are those over which tools want averages, in seconds.
var spans = [...]int{10, 60, 600}

func newTraffic(now time.Time) *traffic {
	return &traffic{began: now, samples: []sample{{at: now}}}
}

func (t *traffic) now(at time.Time) sample {
	return sample{at: at, puts: t.puts.Load(), found: t.found.Load(), missed: t.missed.Load(), got: t.got.Load()}
}

// pulled counts an answered pull.
func (t *traffic) pulled(messages int) {
	if messages == 0 {
		t.missed.Add(1)
		return
	}
	t.found.Add(1)
	t.got.Add(int64(messages))
}

// run samples until ctx is done.
func (t *traffic) run(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case at := <-tick.C:
			t.sample(at)
		}
	}
}

func (t *traffic) sample(at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.now(at)
	if before := t.samples[len(t.samples)-1].at; before.YearDay() != at.YearDay() || before.Year() != at.Year() {
		t.yesterday, t.today = t.today, s
	}
	if longest := spans[len(spans)-1]; len(t.samples) > longest {
		t.samples = append(t.samples[:0], t.samples[len(t.samples)-longest:]...)
	}
	t.samples = append(t.samples, s)
}

func (t *traffic) report(table map[string]string, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now(at)
	number := func(key string, n int64) { table[key] = strconv.FormatInt(n, 10) }
	number("msgPutTotalYesterdayMorning", t.yesterday.puts)
	number("msgPutTotalTodayMorning", t.today.puts)
	number("msgPutTotalTodayNow", now.puts)
	number("msgGetTotalYesterdayMorning", t.yesterday.got)
	number("msgGetTotalTodayMorning", t.today.got)
	number("msgGetTotalTodayNow", now.got)
	number("putMessageTimesTotal", now.puts)
	number("putMessageFailedTimes", t.failed.Load())
	number("putMessageSizeTotal", t.putBytes.Load())
	table["putMessageAverageSize"] = decimal(float64(t.putBytes.Load()) / float64(max(1, now.puts)))
	rates := func(of func(*sample) int64) string {
		var text []string
		for _, span := range spans {
			then := t.samples[max(0, len(t.samples)-1-span)]
			rate := 0.0
			if elapsed := at.Sub(then.at).Seconds(); elapsed > 0 {
				rate = float64(of(&now)-of(&then)) / elapsed
			}
			text = append(text, decimal(rate))
		}
		return strings.Join(text, " ")
	}
	table["putTps"] = rates(func(s *sample) int64 { return s.puts })
	table["getFoundTps"] = rates(func(s *sample) int64 { return s.found })
	table["getMissTps"] = rates(func(s *sample) int64 { return s.missed })
	table["getTotalTps"] = rates(func(s *sample) int64 { return s.found + s.missed })
	table["getTransferredTps"] = rates(func(s *sample) int64 { return s.got })
	table["getTransferedTps"] = table["getTransferredTps"]
}

func decimal(f float64) string { return strconv.FormatFloat(f, 'f', 2, 64) }

// uptime is a duration in the form of RocketMQ's runtime.
func uptime(d time.Duration) string {
	s := int64(d / time.Second)
	return fmt.Sprintf("[ %d days, %d hours, %d minutes, %d seconds ]", s/86400, s/3600%24, s/60%60, s%60)
}

// readableBytes is a size in the form of RocketMQ's capacities.
func readableBytes(n int64) string {
	const units = "KMGTPE"
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	size, unit := float64(n)/1024, 0
	for size >= 1024 && unit < len(units)-1 {
		size, unit = size/1024, unit+1
	}
	return fmt.Sprintf("%.1f %ciB", size, units[unit])
}
