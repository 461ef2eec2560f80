package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/protocol"
)

// TestMain lets the tests' binary serve as a bound, as the command does.
func TestMain(m *testing.M) {
	if addr := os.Getenv(boundAddr); addr != "" {
		if err := runBound(addr, os.Getenv(boundDir)); err != nil {
			panic(err)
		}
		return
	}
	os.Exit(m.Run())
}

// testStand has its name server, and ends with the test.
func testStand(t *testing.T, dir string) *stand {
	t.Helper()
	s, err := newStand(context.Background(), dir, "")
	require.NoError(t, err)
	t.Cleanup(s.close)
	require.NoError(t, s.names(context.Background()))
	return s
}

// TestEveryCase runs each case for a moment against ours and the bounds: the harness works, and no message is lost,
// twice or changed. How long anything takes is not looked at.
func TestEveryCase(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	s := testStand(t, dir)
	r := &run{stand: s, targets: []string{ratchet, bareGnet, gnetAppends}, rounds: 1, last: 100 * time.Millisecond}
	rep := newReport()
	for _, w := range workloads() {
		if w.java {
			continue // the tests here need no Java
		}
		res, err := r.measure(ctx, &w)
		require.NoError(t, err, w.name)
		for _, s := range res.Series {
			require.Len(t, s.Rounds, 1, w.name)
			require.Positive(t, s.Rounds[0].Messages, "%s: %s", w.name, s.Target)
			require.Zero(t, s.Rounds[0].bad(), "%s: %s", w.name, s.Target)
		}
		rep.Results = append(rep.Results, res)
	}
	path := filepath.Join(dir, "results.json")
	require.NoError(t, rep.save(path))
	again, err := load(path)
	require.NoError(t, err)
	require.Equal(t, rep.Results, again.Results)
	part := &report{Date: rep.Date, Results: []*result{{Case: "16k", Title: "again"}}}
	require.NoError(t, part.save(path))
	require.Len(t, part.Results, len(rep.Results), "the other cases are kept")
	require.NoError(t, again.draw(path))
	for _, plot := range []string{"cpu", "throughput", "p99"} {
		require.FileExists(t, filepath.Join(dir, "results-"+plot+".svg"))
	}
	var text bytes.Buffer
	again.print(&text)
	require.Contains(t, text.String(), "CPU × gnet+append")
}

// TestBrokerThatDiesBeforeItIsReadBack: that is an error, which says so.
func TestBrokerThatDiesBeforeItIsReadBack(t *testing.T) {
	ctx := context.Background()
	s := testStand(t, t.TempDir())
	broker, err := s.start(ctx, ratchet)
	require.NoError(t, err)
	defer s.end(broker)
	w := sending("short", "", sendLoad{codec: protocol.JSON, conns: 1, window: 1, size: kib}, goal{})
	require.NoError(t, new(run).ready(broker, "short", w.queues))
	o, err := w.run(broker, "short", 10*time.Millisecond)
	require.NoError(t, err)
	broker.kill()
	_, err = o.verify()
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
}

// TestEveryTrial runs each trial in a tiny size. Facts with goals are there, and what they say is not looked at.
func TestEveryTrial(t *testing.T) {
	ctx := context.Background()
	s := testStand(t, t.TempDir())
	r := &run{stand: s, targets: []string{ratchet, bareGnet}, scale: scale{
		killed: []int64{8 << 20}, killedTopics: 20, backlog: 8 << 20, flood: 2_000, queues: []int{1, 40}, conns: []int{1, 10},
		producers: []int{1, 256}, grown: []int64{1 << 20, 4 << 20}, rounds: 1, span: 100 * time.Millisecond, calm: 100 * time.Millisecond,
		starts: 1, topics: 50, clients: 50,
	}}
	rep := newReport()
	for _, one := range trials() {
		facts, err := r.try(ctx, &one)
		require.NoError(t, err, one.name)
		require.NotEmpty(t, facts, one.name)
		for _, f := range facts {
			require.NotEmpty(t, f.Name)
			require.NotEmpty(t, f.Unit, f.Name)
		}
		rep.Facts = append(rep.Facts, facts...)
	}
	var text bytes.Buffer
	rep.print(&text)
	require.Contains(t, text.String(), "share that arrives")
}

// TestFactsOfSeveralBrokers: they stand in one line, and those of an earlier run stay where this one has none.
func TestFactsOfSeveralBrokers(t *testing.T) {
	theirs := fact{Name: "share", Target: java540, Value: 25, Unit: "%"}
	earlier := []fact{atMost("binary", 20, "MiB", 30), atLeast("share", 7, "%", 100), theirs}
	all := keepFacts([]fact{atLeast("share", 99, "%", 100)}, earlier)
	require.Equal(t, []fact{atMost("binary", 20, "MiB", 30), theirs, atLeast("share", 99, "%", 100)}, all)
	var text bytes.Buffer
	printFacts(&text, all)
	require.Regexp(t, `binary, MiB +20\.00 +– +– +– +≤ 30  reached`, text.String())
	require.Regexp(t, `share, % +99\.00 +25\.00 +– +– +≥ 100  MISSED`, text.String())
}

// TestLedgerFindsWhatIsWrong: the verification is worth something only if it sees each kind of fault.
func TestLedgerFindsWhatIsWrong(t *testing.T) {
	sent := &ledger{sent: 200}
	sent.refuse(10, 2, 2)
	all := new(tally)
	for n := range int64(200) {
		if n != 10 && n != 77 {
			all.take(n)
		}
	}
	all.take(5)
	all.take(300)
	require.Equal(t, findings{Lost: 1, Duplicated: 1, Stray: 1, Denied: 1, Refused: 1}, compare([]*ledger{sent}, []*tally{all}, false))
	require.Equal(t, findings{Duplicated: 1, Stray: 1, Denied: 1, Refused: 2}, compare([]*ledger{sent}, []*tally{all}, true))

	other := new(tally)
	other.take(6)
	require.EqualValues(t, 2, compare([]*ledger{sent}, []*tally{all, other}, false).Duplicated, "two readers got the same")

	body := bytes.Clone(pattern[:128])
	stamperOf(128).stamp(body, 7, 9)
	n, at, err := readBody(body)
	require.NoError(t, err)
	require.Equal(t, []int64{7, 9}, []int64{n, at})
	for i := range body {
		body[i] ^= 4
		_, _, err := readBody(body)
		require.ErrorIs(t, err, errCorrupt, i)
		body[i] ^= 4
	}
}

// TestPress: what is patched where a request was printed before is what a new press prints, and every body is right.
func TestPress(t *testing.T) {
	single := sendTemplate(protocol.JSON, "T", 0, 128, 1, false)
	batch := sendTemplate(protocol.Binary, "T", 1, 1024, 5, false)
	oneway := sendTemplate(protocol.Binary, "T", 2, 128, 1, true)
	var again press
	var patched []byte
	for turn, order := range [][]*template{
		{single, single, batch}, {single, single, batch, oneway}, {single}, {batch, single, single}, {single, single, batch, oneway, batch},
	} {
		var first press
		var fresh []byte
		patched = patched[:0]
		opaque, n := int32(firstOpaque+turn*17), int64(turn*1000)
		for _, template := range order {
			fresh = first.append(fresh, template, opaque, n, int64(turn))
			patched = again.append(patched, template, opaque, n, int64(turn))
			start := len(fresh) - len(template.head) - len(template.rest)
			for i, at := range template.bodies {
				number, due, err := readBody(fresh[start+at : start+at+template.size])
				require.NoError(t, err)
				require.Equal(t, []int64{n + int64(i), int64(turn)}, []int64{number, due})
			}
			opaque, n = opaque+1, n+int64(len(template.bodies))
		}
		require.Equal(t, fresh, patched)
	}
}

func TestHistogramQuantiles(t *testing.T) {
	h := new(histogram)
	for i := range int64(100_000) {
		h.add(i * 1000)
	}
	require.InEpsilon(t, 50_000_000, h.quantile(0.5), 0.02)
	require.InEpsilon(t, 99_000_000, h.quantile(0.99), 0.02)
	require.EqualValues(t, 99_999_000, h.quantile(1))
	for _, ns := range []int64{0, 1, 63, 64, 65, 127, 128, 1000, 1 << 40, 1<<62 + 5} {
		require.LessOrEqual(t, lower(class(ns)), ns)
		require.Greater(t, lower(class(ns)+1), ns)
	}
}
