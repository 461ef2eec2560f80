package main

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ratchetmq/ratchet/protocol"
)

// namesConf writes the settings of a name server, Java's or ours.
func namesConf(dir string, port int) (string, error) {
	conf := filepath.Join(dir, "namesrv.conf")
	return conf, writeConf(conf, "listenPort", port, "bindAddress", "127.0.0.1", "kvConfigPath", filepath.Join(dir, "kvConfig.json"),
		"configStorePath", filepath.Join(dir, "namesrv.properties"))
}

// startNames runs the name server of a target instead of its broker.
func (s *stand) startNames(ctx context.Context, name string) (*target, error) {
	if name == bareGnet {
		return s.start(ctx, name)
	}
	t, port, err := s.room(name)
	if err != nil {
		return nil, err
	}
	conf, err := namesConf(t.dir, port)
	if err != nil {
		return nil, err
	}
	if name == ratchet {
		t.process, err = s.ours(ctx, t, "namesrv", "-c", conf)
	} else {
		t.process, err = s.java(ctx, name, "namesrv.NamesrvStartup", t.dir, conf, port)
	}
	return t, err
}

// routeLoad asks a name server for the routes of many topics, one after the other.
type routeLoad struct {
	topics int
	conns  int
	window int // requests in flight on each connection
	rate   int // queries a second in all, whatever the answers take; 0: a closed loop

	register bool // in the middle of a round the broker registers anew
}

// querying is a case with route queries. A broker with all the topics is registered first and stays connected.
func querying(name, title string, load routeLoad, g goal) workload {
	brokers := map[string]*wire{}
	var bodies [][]byte // two registrations, which differ in their data version
	return workload{
		name: name, title: title, names: true, bounds: true, goal: g,
		prepare: func(addr, _ string) (err error) {
			for len(bodies) < 2 {
				body, err := load.registration(int64(len(bodies)))
				if err != nil {
					return err
				}
				bodies = append(bodies, body)
			}
			if brokers[addr], err = dial(addr); err != nil {
				return err
			}
			return register(brokers[addr], bodies[1])
		},
		done: func() {
			for addr, w := range brokers {
				w.Close()
				delete(brokers, addr)
			}
		},
		run: func(t *target, _ string, last time.Duration) (*outcome, error) {
			if load.rate > 0 {
				return load.paced(t, last, func() error {
					w := brokers[t.addr]
					return register(w, bodies[w.opaque%2])
				})
			}
			return load.full(t, last)
		},
	}
}

const topicDigits = 5

func routeTopic(n int) string { return fmt.Sprintf("bench-route-%0*d", topicDigits, n) }

// queuesOf tells topics' routes apart.
func queuesOf(topic int) int32 { return int32(1 + topic%97) }

// registration is what a broker with all the topics tells.
func (l *routeLoad) registration(version int64) ([]byte, error) {
	body := protocol.RegisterBrokerBody{FilterServerList: []string{}}
	wrapper := &body.TopicConfigSerializeWrapper
	wrapper.DataVersion = protocol.DataVersion{Timestamp: time.Now().UnixMilli(), Counter: version}
	wrapper.TopicConfigTable = map[string]protocol.TopicConfig{}
	for i := range l.topics {
		wrapper.TopicConfigTable[routeTopic(i)] = protocol.TopicConfig{
			TopicName: routeTopic(i), ReadQueueNums: queuesOf(i), WriteQueueNums: queuesOf(i), Perm: 6, TopicFilterType: protocol.SingleTag,
		}
	}
	return protocol.EncodeRegisterBody(&body, false, protocol.Version)
}

// register is what a broker does each 30 seconds.
func register(w *wire, body []byte) error {
	a, err := w.call(protocol.RegisterBroker, &protocol.RegisterBrokerRequest{
		BrokerName: "benchmark", BrokerAddr: "127.0.0.1:10911", ClusterName: "benchmark", HAServerAddr: "127.0.0.1:10912",
		BodyCRC32: protocol.BodyCRC(body),
	}, body)
	if err == nil && a.code != 0 {
		err = fmt.Errorf("registration: code %d: %s", a.code, a.header)
	}
	return err
}

// A querier is one connection of a routeLoad.
type querier struct {
	outbox
	load    *routeLoad
	bound   bool   // its answers are no routes
	frame   []byte // a query, in which topic and opaque are patched
	topic   int    // where the digits of the topic stand
	opaque  int
	posted  int
	at      [ringSize]int64 // when a query left
	about   [ringSize]int32 // its topic
	answers int64
	latency histogram
}

func newQuerier(l *routeLoad, w *wire, index int) *querier {
	q := &querier{load: l, outbox: outbox{wire: w}, posted: index * l.topics / l.conns}
	q.frame = protocol.AppendRequest(nil, protocol.JSON, protocol.GetRouteInfoByTopic, firstOpaque, false,
		&protocol.GetRouteInfoRequest{Topic: routeTopic(0)}, nil, nil)
	q.topic = bytes.Index(q.frame, []byte(routeTopic(0))) + len(routeTopic(0)) - topicDigits
	q.opaque = bytes.Index(q.frame, []byte(strconv.Itoa(firstOpaque)))
	return q
}

func (q *querier) post(at int64) {
	slot, topic := q.posted&(ringSize-1), q.posted*977%q.load.topics
	q.at[slot], q.about[slot] = at, int32(topic)
	start := len(q.out)
	q.out = append(q.out, q.frame...)
	putDecimal(q.out[start+q.topic:start+q.topic+topicDigits], int32(topic))
	putDecimal(q.out[start+q.opaque:start+q.opaque+10], firstOpaque+int32(q.posted))
	q.posted++
}

// answered looks whether an answer is the route of the topic that was asked for.
func (q *querier) answered(a answer, at int64) error {
	slot := (a.opaque - firstOpaque) & (ringSize - 1)
	want := strconv.AppendInt([]byte(`"readQueueNums":`), int64(queuesOf(int(q.about[slot]))), 10)
	want = append(want, ',')
	if a.code != 0 || !q.bound && !bytes.Contains(a.body, want) {
		return fmt.Errorf("route of %s: code %d: %s %s", routeTopic(int(q.about[slot])), a.code, a.header, a.body)
	}
	q.latency.add(at - q.at[slot])
	q.answers++
	return nil
}

// run keeps the window full until stop, and then waits for the answers that are due.
func (q *querier) run(stop *atomic.Bool) error {
	first := q.posted
	flying := q.load.window
	for at := now(); q.posted < first+flying; {
		q.post(at)
	}
	for flying > 0 {
		if err := q.write(); err != nil {
			return err
		}
		q.wire.within(ioTimeout)
		a, err := q.wire.next()
		for at := now(); ; {
			if err != nil {
				return err
			}
			if err := q.answered(a, at); err != nil {
				return err
			}
			if stop.Load() {
				flying--
			} else {
				q.post(at)
			}
			frame, failed := q.wire.buffered()
			if failed == nil && frame == nil {
				break
			}
			if err = failed; err == nil {
				a, err = parseAnswer(frame)
			}
		}
	}
	return nil
}

func (l *routeLoad) queriers(t *target) ([]*querier, func(), error) {
	wires, err := dialAll(t.addr, l.conns)
	if err != nil {
		return nil, nil, err
	}
	all := make([]*querier, l.conns)
	for i, w := range wires {
		w.within(ioTimeout)
		all[i] = newQuerier(l, w, i)
		all[i].bound = t.isBound()
	}
	return all, func() { closeAll(wires) }, nil
}

func gathered(all []*querier, elapsed time.Duration) *outcome {
	o := &outcome{elapsed: elapsed}
	for _, q := range all {
		o.messages += q.answers
		o.latency.merge(&q.latency)
	}
	return o
}

func (l *routeLoad) full(t *target, last time.Duration) (*outcome, error) {
	all, end, err := l.queriers(t)
	if err != nil {
		return nil, err
	}
	defer end()
	var stop atomic.Bool
	timer := time.AfterFunc(last, func() { stop.Store(true) })
	defer timer.Stop()
	var group errgroup.Group
	begin := time.Now()
	for _, q := range all {
		group.Go(func() error { return q.run(&stop) })
	}
	err = group.Wait()
	return gathered(all, time.Since(begin)), err
}

func (l *routeLoad) paced(t *target, last time.Duration, again func() error) (*outcome, error) {
	all, end, err := l.queriers(t)
	if err != nil {
		return nil, err
	}
	defer end()
	each := int64(l.rate) * int64(last) / int64(time.Second) / int64(l.conns)
	var in errgroup.Group
	for _, q := range all {
		in.Go(func() error {
			for range each {
				a, err := q.wire.next()
				if err != nil {
					return err
				}
				if err := q.answered(a, now()); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if l.register && !t.isBound() {
		in.Go(func() error {
			time.Sleep(last / 2)
			return again()
		})
	}
	begin := time.Now()
	err = pace(l.rate, each*int64(len(all)), func(n, due int64) { all[n%int64(len(all))].post(due) }, func() error { return writeAll(all) })
	if failed := in.Wait(); err == nil {
		err = failed
	}
	return gathered(all, time.Since(begin)), err
}
