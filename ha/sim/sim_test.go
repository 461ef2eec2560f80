package sim

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

func fromEnv(t *testing.T, name string, other uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return other
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s=%s is no number", name, text)
	}
	return n
}

// play runs a seed, and returns what happened and the promises that were broken.
func play(t *testing.T, seed uint64, weak weakness, logs bool) (lines, broken []string) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		l := run(seed, weak, logs)
		lines, broken = l.lines, l.broken
	})
	return lines, broken
}

// TestSeeds plays seeds; see doc.go.
func TestSeeds(t *testing.T) {
	count := uint64(1000)
	if testing.Short() {
		count = 60
	}
	count, from := fromEnv(t, "SIM_SEEDS", count), fromEnv(t, "SIM_FROM", 1)
	logs := os.Getenv("SIM_LOG") != ""
	enough := fromEnv(t, "SIM_ENOUGH", 5)
	var next, failed atomic.Uint64
	var telling sync.Mutex
	for worker := range runtime.GOMAXPROCS(0) {
		t.Run(fmt.Sprint(worker), func(t *testing.T) {
			t.Parallel()
			for failed.Load() < enough {
				seed := from + next.Add(1) - 1
				if seed >= from+count {
					return
				}
				lines, broken := play(t, seed, none, logs)
				if len(broken) > 0 {
					failed.Add(1)
					telling.Lock()
					t.Errorf("seed %d\n%s\n\nagain: SIM_SEEDS=1 SIM_FROM=%d go test ./ha/sim -run TestSeeds\n%s", seed, strings.Join(lines, "\n"), seed,
						strings.Join(broken, "\n"))
					telling.Unlock()
				}
				if logs && len(broken) == 0 {
					t.Log(strings.Join(lines, "\n"))
				}
			}
		})
	}
}

// TestBites switches each protection off in turn, and demands that some seed then breaks a promise that it is for.
func TestBites(t *testing.T) {
	const within = 300 // seeds
	promises := map[weakness]string{
		openUnasked: "P5", neverSuspect: "P2", noQueueFloor: "P2", noLogGap: "DURABLE", countAnyAck: "P3", showUnreplicated: "P2",
		overflowToMax: "P1", overwriteOffsets: "P4", neverCompare: "P3", neverHeal: "LIVE",
	}
	for _, weak := range sorted(promises) {
		t.Run(weak.String(), func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(within) {
				_, broken := play(t, seed, weak, false)
				if len(broken) > 0 && strings.HasPrefix(broken[0], promises[weak]) {
					t.Logf("seed %d: %s", seed, broken[0])
					return
				}
			}
			t.Errorf("%d seeds with this protection switched off, and %s was kept", within, promises[weak])
		})
	}
}
