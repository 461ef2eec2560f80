package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ratchetmq/ratchet/protocol"
)

const floodConns = 4

// flood writes one-way sends as fast as the connections take them and looks what share is there in the end. Nobody
// promised anything for them; yet nothing forces a broker to drop what it could let wait in the connection.
func flood(ctx context.Context, r *run, name string) ([]fact, error) {
	t, err := r.stand.start(ctx, name)
	if err != nil {
		return nil, err
	}
	defer r.stand.end(t)
	topic := "bench-flood"
	if err := r.ready(t, topic, floodConns); err != nil {
		return nil, err
	}
	if name != ratchet { // a Java broker gets faster with what it does
		warm := sending("", "", sendLoad{codec: protocol.JSON, conns: floodConns, window: 32, size: kib}, goal{})
		if _, err := r.once(&warm, t, "", r.warm); err != nil {
			return nil, err
		}
	}
	wires, err := dialAll(t.addr, floodConns)
	if err != nil {
		return nil, err
	}
	defer closeAll(wires)
	load := &sendLoad{codec: protocol.JSON, conns: floodConns, size: kib, onewayRun: 64}
	ledgers := make([]*ledger, floodConns)
	var group errgroup.Group
	before, err := t.usage()
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	for i, w := range wires {
		s := newSender(load, w, topic, i)
		ledgers[i] = &s.ledger
		group.Go(func() error {
			for s.ledger.sent < r.scale.flood/floodConns {
				at := now()
				for range load.onewayRun {
					s.post(s.oneway, at, at)
				}
				w.within(ioTimeout)
				if err := s.write(); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var sent int64
	for _, l := range ledgers {
		sent += l.sent
	}
	if err := dispatched(t.addr, topic, floodConns, sent); err != nil {
		return nil, err
	}
	took := time.Since(begin)
	after, err := t.usage()
	if err != nil {
		return nil, err
	}
	arrived, err := stored(t.addr, topic, floodConns)
	if err != nil {
		return nil, err
	}
	tallies, err := readBack(t.addr, topic, floodConns)
	if err != nil {
		return nil, err
	}
	if f := compare(ledgers, tallies, true); f.bad() > 0 {
		return nil, fmt.Errorf("messages are wrong:%s", f.remarks())
	}
	what := "one-way flood on 4 connections: "
	return []fact{
		atLeast(what+"share that arrives", 100*float64(arrived)/float64(sent), "%", 100),
		atMost(what+"CPU for a million that arrive", perMillion(before, after, max(arrived, 1)), "s", 0),
		atLeast(what+"sent a second, until all is stored or lost", float64(sent)/took.Seconds(), "/s", 0),
	}, nil
}
