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
// fixed rate. What the sends take is compared with what they take without that group, in turns.
//
// Only ours: what a Java broker has mapped into its memory can't be put out of the page cache from outside.
func coldReads(ctx context.Context, r *run, name string) ([]fact, error) {
	const rate, conns = 10_000, 4
	t, err := r.stand.start(ctx, name)
	if err != nil {
		return nil, err
	}
	defer r.stand.forget(t)
	defer t.kill()
	backlog := "bench-backlog"
	if err := r.ready(t, backlog, startQueues); err != nil {
		return nil, err
	}
	if _, err := fillLog(t, backlog, r.scale.backlog); err != nil {
		return nil, err
	}
	reader := &catchUp{codec: protocol.JSON, queues: startQueues, size: kib}
	var alone, beside, ratios, rates, cached []float64
	for n := range r.scale.rounds {
		topic := fmt.Sprintf("bench-beside-%d", n)
		if err := r.ready(t, topic, conns); err != nil {
			return nil, err
		}
		quiet, err := sendPaced(t.addr, topic, rate, conns, r.scale.span)
		if err != nil {
			return nil, err
		}
		share, err := evict(t.store())
		if err != nil {
			return nil, err
		}
		var group errgroup.Group
		var read *outcome
		group.Go(func() (err error) {
			read, err = reader.run(t.addr, backlog, r.scale.span)
			if err == nil && read.Lost+read.Duplicated+read.Corrupt > 0 {
				err = fmt.Errorf("the backlog is wrong:%s", read.remarks())
			}
			return err
		})
		loud, err := sendPaced(t.addr, topic, rate, conns, r.scale.span)
		if failed := group.Wait(); err == nil {
			err = failed
		}
		if err != nil {
			return nil, err
		}
		a, b := float64(quiet.quantile(0.99))/1e6, float64(loud.quantile(0.99))/1e6
		alone, beside, ratios = append(alone, a), append(beside, b), append(ratios, b/a)
		rates = append(rates, float64(read.messages)/read.elapsed.Seconds())
		cached = append(cached, 100*share)
	}
	what := fmt.Sprintf("cold reads of %.1f GiB beside %s sends/s: ", float64(r.scale.backlog)/(1<<30), grouped(rate))
	return []fact{
		atMost(what+"share of the log in the page cache before", slices.Max(cached), "%", 5),
		atLeast(what+"messages read a second", median(rates), "/s", rate),
		atMost(what+"p99 of the sends without them", median(alone), "ms", 0),
		atMost(what+"p99 of the sends with them", median(beside), "ms", 0),
		atMost(what+"the second p99 by the first", median(ratios), "×", 3),
	}, nil
}

func median(all []float64) float64 {
	slices.Sort(all)
	n := len(all)
	return (all[(n-1)/2] + all[n/2]) / 2
}

// sendPaced sends at a fixed rate and returns how long the answers took, counted from when a message was due.
func sendPaced(addr, topic string, rate, conns int, last time.Duration) (*histogram, error) {
	wires, err := dialAll(addr, conns)
	if err != nil {
		return nil, err
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
	return all, err
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
