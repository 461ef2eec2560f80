package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/ratchetmq/ratchet/internal/freeport"
	"github.com/ratchetmq/ratchet/protocol"
)

func (s *stand) size(context.Context, scale) ([]fact, error) {
	info, err := os.Stat(s.binary)
	if err != nil {
		return nil, err
	}
	return []fact{atMost("binary", float64(info.Size())/(1<<20), "MiB", 30)}, nil
}

// dev starts name server and broker in one process, on data in dir.
func (s *stand) dev(ctx context.Context, dir string) (*target, string, error) {
	var ports [2]int
	for i := range ports {
		var err error
		if ports[i], err = freeport.Get(); err != nil {
			return nil, "", err
		}
	}
	names := fmt.Sprintf("127.0.0.1:%d", ports[0])
	t := &target{stand: s, name: ratchet, addr: fmt.Sprintf("127.0.0.1:%d", ports[1]), dir: dir}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, "", err
	}
	var err error
	t.process, err = s.sides.launch(ctx, filepath.Join(dir, "log"), t.addr, nil, s.binary, "dev", "-data", filepath.Join(dir, "data"),
		"-namesrv", names, "-broker", t.addr)
	return t, names, err
}

func (s *stand) folder(name string) string {
	s.number++
	return filepath.Join(s.dir, fmt.Sprintf("%s-%d", name, s.number))
}

// coldStart is the time from the start of the process, on an empty folder, to the answer to a send to a new topic.
func (s *stand) coldStart(ctx context.Context, sc scale) ([]fact, error) {
	var took []float64
	for range sc.starts {
		begin := time.Now()
		t, _, err := s.dev(ctx, s.folder("cold"))
		if err != nil {
			return nil, err
		}
		err = sendOne(t.addr, "cold")
		took = append(took, float64(time.Since(begin).Microseconds())/1000)
		s.end(t)
		if err != nil {
			return nil, err
		}
	}
	return []fact{atMost("cold start to the first acknowledged send", median(took), "ms", 150)}, nil
}

// sendOne sends a message, as often as it takes: a broker that has only just begun to listen may not take any yet.
func sendOne(addr, topic string) error {
	w, err := dial(addr)
	if err != nil {
		return err
	}
	defer w.Close()
	w.within(ioTimeout)
	request := new(press).append(nil, sendTemplate(protocol.JSON, topic, 0, 128, 1, false), firstOpaque, 0, 0)
	for {
		if _, err := w.Write(request); err != nil {
			return err
		}
		a, err := w.next()
		switch {
		case err == nil && a.code == int32(protocol.ServiceNotAvailable):
			time.Sleep(time.Millisecond)
		case err == nil && a.code != 0:
			return fmt.Errorf("send: code %d: %s", a.code, a.header)
		default:
			return err
		}
	}
}

func (s *stand) idle(ctx context.Context, sc scale) ([]fact, error) {
	t, _, err := s.dev(ctx, s.folder("idle"))
	if err != nil {
		return nil, err
	}
	defer s.end(t)
	if err := sendOne(t.addr, "idle"); err != nil {
		return nil, err
	}
	time.Sleep(time.Second)
	before, err := t.usage()
	if err != nil {
		return nil, err
	}
	time.Sleep(sc.calm)
	after, err := t.usage()
	return []fact{
		atMost("ratchet dev, idle: memory", float64(after.rss)/(1<<20), "MiB", 40),
		atMost("ratchet dev, idle: share of a processor", 100*float64(after.cpu-before.cpu)/float64(sc.calm), "%", 1),
	}, err
}

// manyTopics starts a broker that has 5,000 topics of 4 queues.
func (s *stand) manyTopics(ctx context.Context, sc scale) ([]fact, error) {
	topics, what := sc.topics, grouped(sc.topics)+" topics × 4 queues: "
	dir := s.folder("topics")
	name := func(i int) string { return fmt.Sprintf("many-%d", i) }
	if err := writeTopics(filepath.Join(dir, "data", "store"), topics, 4, name); err != nil {
		return nil, err
	}

	begin := time.Now()
	t, names, err := s.dev(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer s.end(t)
	if err := sendOne(t.addr, name(topics-1)); err != nil {
		return nil, err
	}
	started := time.Since(begin)
	for {
		n, err := dial(names)
		if err == nil {
			a, errCall := n.call(protocol.GetRouteInfoByTopic, &protocol.GetRouteInfoRequest{Topic: name(topics - 1)}, nil)
			n.Close()
			if errCall == nil && a.code == 0 {
				break
			}
		}
		if time.Since(begin) > time.Minute {
			return nil, fmt.Errorf("no route to the last of %d topics after a minute", topics)
		}
		time.Sleep(time.Millisecond)
	}
	registered := time.Since(begin)
	time.Sleep(time.Second)
	u, err := t.usage()
	return []fact{
		atMost(what+"start to the first acknowledged send", started.Seconds(), "s", 2),
		atMost(what+"start to the route at the name server", registered.Seconds(), "s", 3),
		atMost(what+"memory of broker and name server", float64(u.rss)/(1<<20), "MiB", 200),
	}, err
}

// writeTopics makes the topics of a store that is not open yet, as a Java broker leaves them.
func writeTopics(store string, topics, queues int, name func(int) string) error {
	table := map[string]any{}
	for i := range topics {
		table[name(i)] = map[string]any{
			"topicName": name(i), "readQueueNums": queues, "writeQueueNums": queues, "perm": 6, "order": false, "topicSysFlag": 0,
			"topicFilterType": "SINGLE_TAG",
		}
	}
	text, err := json.Marshal(map[string]any{"topicConfigTable": table})
	if err != nil {
		return err
	}
	config := filepath.Join(store, "config")
	if err := os.MkdirAll(config, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(config, "topics.json"), text, 0o644)
}

// manyConnections is what 10,000 clients that only say that they are there cost.
func (s *stand) manyConnections(ctx context.Context, sc scale) ([]fact, error) {
	clients, what := sc.clients, grouped(sc.clients)+" idle connections"
	t, _, err := s.dev(ctx, s.folder("clients"))
	if err != nil {
		return nil, err
	}
	defer s.end(t)
	if err := sendOne(t.addr, "clients"); err != nil {
		return nil, err
	}
	before, err := t.usage()
	if err != nil {
		return nil, err
	}
	wires := make([]*wire, 0, clients)
	defer func() { closeAll(wires) }()
	for i := range clients {
		w, err := dial(t.addr)
		if err != nil {
			return nil, err
		}
		w.in = make([]byte, 2048) // this process holds as many
		wires = append(wires, w)
		beat := fmt.Sprintf(`{"clientID":"127.0.0.1@%d","consumerDataSet":[],"producerDataSet":[{"groupName":"benchmark_producer"}]}`, i)
		if a, err := w.call(protocol.HeartBeat, nil, []byte(beat)); err != nil || a.code != 0 {
			return nil, fmt.Errorf("heartbeat %d: code %d: %w", i, a.code, err)
		}
	}
	quiet, err := t.usage()
	if err != nil {
		return nil, err
	}
	time.Sleep(sc.calm)
	after, err := t.usage()
	return []fact{
		atMost(what+" with a heartbeat: memory of each", float64(after.rss-before.rss)/float64(clients)/1024, "KiB", 20),
		atMost(what+": share of a processor", 100*float64(after.cpu-quiet.cpu)/float64(sc.calm), "%", 1),
	}, err
}
