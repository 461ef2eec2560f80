package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/ratchetmq/ratchet/protocol"
)

// coldReads has one group catch up with a backlog that is on the disk and not in the page cache, while others send at a
// fixed rate. What the sends take is compared with what they take without that group, in turns. The group reads at five
// times the rate at first, as a consumer does that has something to do with its messages, and then as fast as it can,
// which on a small machine takes a whole processor for the checks of its messages alone.
//
// Only ours: what a Java broker has mapped into its memory can't be put out of the page cache from outside.
func coldReads(ctx context.Context, r *run, name string) ([]fact, error) {
	const rate, conns = 10_000, 4
	t, err := r.stand.start(ctx, name)
	if err != nil {
		return nil, err
	}
	defer r.stand.end(t)
	backlog := "bench-backlog"
	if err := r.ready(t, backlog, startQueues); err != nil {
		return nil, err
	}
	if _, err := fillLog(t, backlog, r.scale.backlog, kib); err != nil {
		return nil, err
	}
	readers := []struct {
		name   string
		load   catchUp
		goal   float64
		p99    []float64 // of the sends, ms
		slowed []float64 // that by what it is without the reader
		read   []float64 // messages a second
	}{
		{name: "at five times their rate", load: catchUp{rate: 5 * rate / startQueues}, goal: 3},
		{name: "at full speed"},
	}
	var alone, cached []float64
	for n := range r.scale.rounds {
		topic := fmt.Sprintf("bench-beside-%d", n)
		if err := r.ready(t, topic, conns); err != nil {
			return nil, err
		}
		quiet, err := sendPaced(t.addr, topic, rate, conns, r.scale.span)
		if err != nil {
			return nil, err
		}
		alone = append(alone, quiet)
		for i := range readers {
			reader := &readers[i]
			reader.load.codec, reader.load.queues, reader.load.size = protocol.JSON, startQueues, kib
			share, err := evict(t.store())
			if err != nil {
				return nil, err
			}
			cached = append(cached, 100*share)
			var group errgroup.Group
			var read *outcome
			group.Go(func() (err error) {
				read, err = reader.load.run(t.addr, backlog, r.scale.span)
				if err == nil && read.bad() > 0 {
					err = fmt.Errorf("the backlog is wrong:%s", read.remarks())
				}
				return err
			})
			beside, err := sendPaced(t.addr, topic, rate, conns, r.scale.span)
			if failed := group.Wait(); err == nil {
				err = failed
			}
			if err != nil {
				return nil, err
			}
			reader.p99, reader.slowed = append(reader.p99, beside), append(reader.slowed, beside/quiet)
			reader.read = append(reader.read, float64(read.messages)/read.elapsed.Seconds())
		}
	}
	what := grouped(rate) + " sends/s"
	all := []fact{
		atMost(what+": p99", median(alone), "ms", 0),
		atMost(what+" beside cold reads: share of the log in the page cache before", slices.Max(cached), "%", 5),
	}
	for _, reader := range readers {
		what := what + " beside cold reads " + reader.name
		all = append(all, atLeast(what+": messages read", median(reader.read), "/s", rate), atMost(what+": p99", median(reader.p99), "ms", 0),
			atMost(what+": p99 by that without them", median(reader.slowed), "×", reader.goal))
	}
	return all, nil
}

// sendPaced sends at a fixed rate and returns the 99th percentile of the time to the answer, in ms, counted from when a
// message was due.
func sendPaced(addr, topic string, rate, conns int, last time.Duration) (float64, error) {
	wires, err := dialAll(addr, conns)
	if err != nil {
		return 0, err
	}
	defer closeAll(wires)
	load := &sendLoad{codec: protocol.JSON, conns: conns, size: kib}
	each := int64(rate) * int64(last) / int64(time.Second) / int64(conns)
	senders := make([]*sender, conns)
	var in errgroup.Group
	for i, w := range wires {
		senders[i] = newSender(load, w, topic, i)
		w.within(last + ioTimeout)
		in.Go(func() error { return answers(senders[i], each, new(atomic.Int64)) })
	}
	err = paced(rate, senders, each)
	if failed := in.Wait(); err == nil {
		err = failed
	}
	all := new(histogram)
	for _, s := range senders {
		all.merge(&s.latency)
		if n := s.ledger.refused.count(); n > 0 && err == nil {
			err = fmt.Errorf("%d paced sends are refused: answers %v", n, s.ledger.codes)
		}
	}
	return float64(all.quantile(0.99)) / 1e6, err
}

// evict makes what is in a folder durable and puts it out of the page cache. It returns what share is there all the same.
func evict(dir string) (float64, error) {
	var cached, pages uint64
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			if errors.Is(err, fs.ErrNotExist) {
				return nil // the broker has removed it meanwhile
			}
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := f.Sync(); err != nil {
			return err
		}
		if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
			return err
		}
		info, err := f.Stat()
		if err != nil {
			return err
		}
		var s unix.Cachestat_t
		if err := unix.Cachestat(uint(f.Fd()), &unix.CachestatRange{}, &s, 0); err != nil {
			return fmt.Errorf("what is in the page cache (Linux 6.5 tells): %w", err)
		}
		cached += s.Cache
		pages += uint64(info.Size()) / uint64(os.Getpagesize())
		return nil
	})
	return float64(cached) / float64(max(pages, 1)), err
}
