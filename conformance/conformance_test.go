//go:build conformance

package conformance

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"
)

// scenarioLimit is the longest that one scenario may take, in seconds; the programs keep to it.
const scenarioLimit = "120"

var (
	workDir string // logs, data and built programs of this run
	run     = strconv.FormatInt(time.Now().Unix()%(36*36*36*36*36), 36)
	clients = []*client{javaClient("java540", "5.4.0"), javaClient("java497", "4.9.7"), goClient()}

	// One target serves all tests but TestStrict; the restarts come last.
	target = sync.OnceValues(func() (Target, error) { return startTarget(filepath.Join(workDir, "target"), false) })
)

func TestMain(m *testing.M) {
	flag.Parse()
	// Tests wait for programs and use no processor: let as many wait as there are.
	flag.Set("test.parallel", "1000")
	var err error
	if workDir, err = os.MkdirTemp("", "conformance-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	begin := time.Now()
	code := m.Run()
	if len(summary.rows) > 0 {
		if tg, err := target(); err == nil {
			tg.Stop()
			summary.print(tg.Name(), time.Since(begin))
		}
	}
	if code == 0 {
		os.RemoveAll(workDir)
	} else {
		fmt.Println("logs and data are kept in", workDir)
	}
	os.Exit(code)
}

func mustTarget(t *testing.T) Target {
	t.Helper()
	tg, err := target()
	if err != nil {
		t.Fatal(err)
	}
	return tg
}

// TestScenarios runs every scenario of every client. A client's scenarios share one process.
func TestScenarios(t *testing.T) {
	tg := mustTarget(t)
	for _, c := range clients {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			runAll(t, tg, c, c.scenarios, "")
		})
	}
}

// runAll runs the scenarios, one subtest each, in one process; mark is added to their names in the summary.
func runAll(t *testing.T, tg Target, c *client, scenarios []string, mark string) {
	var wanted []string
	var p *program
	for _, scenario := range scenarios {
		t.Run(scenario, func(t *testing.T) {
			wanted = append(wanted, scenario)
			t.Parallel() // Returns once the program below has been started.
			judge(t, tg, c.name, scenario+mark, p.result(scenario))
		})
	}
	if len(wanted) > 0 {
		args := append([]string{strconv.Itoa(c.parallel), scenarioLimit}, wanted...)
		p = c.run(tg, 15*time.Minute, "run", args...)
		t.Cleanup(p.stop)
	}
}

// TestStrict runs what depends on where a new group starts against a target that takes the group at its word.
func TestStrict(t *testing.T) {
	tg, err := startTarget(filepath.Join(workDir, "strict"), true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tg.Stop)
	for _, c := range clients {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			runAll(t, tg, c, []string{"from.first", "from.last", "from.timestamp"}, " (strict)")
		})
	}
}

// TestPairs lets each client read what each client sent.
func TestPairs(t *testing.T) {
	tg := mustTarget(t)
	type pair struct{ producer, consumer *client }
	var producers, consumers []*client
	programs := map[pair]*program{}
	for _, from := range clients {
		for _, to := range clients {
			t.Run("pair."+from.name+"-"+to.name, func(t *testing.T) {
				key := pair{from, to}
				if !slices.Contains(producers, from) {
					producers = append(producers, from)
				}
				if !slices.Contains(consumers, to) {
					consumers = append(consumers, to)
				}
				programs[key] = nil
				t.Parallel()
				name := "pair." + from.name + "-" + to.name
				r := programs[key].result(name)
				if sent := programs[pair{from, nil}].result("pair." + from.name); !sent.pass {
					r = result{reason: "producer: " + sent.reason}
				}
				judge(t, tg, to.name, name, r)
			})
		}
	}
	// Producers make their topics, then consumers start, then the sending begins.
	for _, c := range producers {
		p := c.run(tg, 5*time.Minute, "produce")
		t.Cleanup(p.stop)
		programs[pair{c, nil}] = p
	}
	for _, c := range producers {
		programs[pair{c, nil}].waiting("pair."+c.name, "send")
	}
	started := map[*client]*program{}
	for _, to := range consumers {
		args := []string{scenarioLimit}
		for _, from := range producers {
			args = append(args, from.name)
		}
		started[to] = to.run(tg, 5*time.Minute, "consume", args...)
		t.Cleanup(started[to].stop)
	}
	for _, p := range started {
		p.waiting("pair", "verify")
	}
	for _, c := range producers {
		programs[pair{c, nil}].goOn("send")
	}
	for key := range programs {
		if key.consumer != nil {
			programs[key] = started[key.consumer]
		}
	}
	for _, p := range started {
		p.goOn("verify")
	}
}

// TestRestarts takes the broker away from under all clients at once.
func TestRestarts(t *testing.T) {
	tg := mustTarget(t)
	for _, r := range restartScenarios {
		t.Run(r.name, func(t *testing.T) {
			programs := map[*client]*program{}
			for _, c := range clients {
				programs[c] = c.run(tg, 6*time.Minute, "run", "1", "300", r.name)
				t.Cleanup(programs[c].stop)
			}
			for _, p := range programs {
				p.waiting(r.name, "restarted")
			}
			time.Sleep(tg.Settle())
			if r.kill {
				tg.Kill9(t)
			} else {
				tg.Restart(t)
			}
			for _, p := range programs {
				p.goOn("restarted")
			}
			for _, c := range clients {
				t.Run(c.name, func(t *testing.T) {
					judge(t, tg, c.name, r.name, programs[c].result(r.name))
				})
			}
		})
	}
}

// judge turns a result into the verdict of a test and a row of the summary.
func judge(t *testing.T, tg Target, client, scenario string, r result) {
	t.Helper()
	reason, known := expected(tg.Name(), client, scenario)
	verdict := "PASS"
	switch {
	case r.pass && known:
		verdict = "UNEXPECTED PASS"
		t.Errorf("passes, but the table of expectations says: %s", reason)
	case !r.pass && known:
		verdict = "KNOWN"
		t.Logf("known failure (%s): %s", reason, r.reason)
	case !r.pass:
		verdict = "FAIL"
		t.Error(r.reason)
	}
	summary.add(client, scenario, fmt.Sprintf("%s %.1fs", verdict, float64(r.ms)/1000))
}

// A board collects one row for each scenario, one column for each client.
type board struct {
	mu   sync.Mutex
	rows map[string]map[string]string
}

var summary = board{rows: map[string]map[string]string{}}

func (b *board) add(client, scenario, verdict string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rows[scenario] == nil {
		b.rows[scenario] = map[string]string{}
	}
	b.rows[scenario][client] = verdict
}

func (b *board) print(target string, took time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	counts := map[string]int{}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, target)
	for _, c := range clients {
		fmt.Fprint(w, "\t", c.name)
	}
	fmt.Fprintln(w)
	var names []string
	for name := range b.rows {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Fprint(w, name)
		for _, c := range clients {
			cell := b.rows[name][c.name]
			fmt.Fprint(w, "\t", cell)
			if verdict, _, ok := cutLast(cell); ok {
				counts[verdict]++
			}
		}
		fmt.Fprintln(w)
	}
	w.Flush()
	fmt.Printf("%d passed, %d known, %d failed, %.0f s\n", counts["PASS"], counts["KNOWN"],
		counts["FAIL"]+counts["UNEXPECTED PASS"], took.Seconds())
}

// cutLast splits a cell into verdict and time.
func cutLast(cell string) (verdict, took string, ok bool) {
	i := strings.LastIndexByte(cell, ' ')
	if i < 0 {
		return "", "", false
	}
	return cell[:i], cell[i+1:], true
}
