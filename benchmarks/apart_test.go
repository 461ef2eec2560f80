package main

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func cpus(list ...int) (s unix.CPUSet) {
	for _, cpu := range list {
		s.Set(cpu)
	}
	return s
}

func TestEachSideHasItsHalf(t *testing.T) {
	s, err := halve(cpus(1, 3, 4, 9, 64))
	require.NoError(t, err)
	require.Equal(t, sides{cpus(1, 3, 4), cpus(9, 64)}, *s)
	_, err = halve(cpus(5))
	require.Error(t, err)
}

// A process runs on its side's processors from its beginning, and who started it on his own again.
func TestASideStartsProcesses(t *testing.T) {
	var all unix.CPUSet
	require.NoError(t, unix.SchedGetaffinity(0, &all))
	s, err := halve(all)
	if all.Count() < 2 {
		require.Error(t, err)
		return
	}
	require.NoError(t, err)
	s.own = all
	var out strings.Builder
	cmd := exec.Command("nproc")
	cmd.Env, cmd.Stdout = append(os.Environ(), "OMP_NUM_THREADS="), &out
	require.NoError(t, s.start(cmd.Start))
	require.NoError(t, cmd.Wait())
	require.Equal(t, s.brokers.Count(), number(t, out.String()))
	var after unix.CPUSet
	require.NoError(t, unix.SchedGetaffinity(0, &after))
	require.Equal(t, all, after)
}

func number(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(strings.TrimSpace(text))
	require.NoError(t, err)
	return n
}
