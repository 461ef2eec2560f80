//go:build conformance && linux

package crash

import (
	"fmt"
	"math/rand/v2"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// A lan is a network of namespaces on one bridge: a machine of its own for each broker. The test is on the bridge itself, so
// that brokers which are cut off from each other still have their clients.
type lan struct {
	t      *testing.T
	bridge string
	addr   string // of the test on the bridge
	hosts  []*lanHost
}

// A lanHost is one machine.
type lanHost struct {
	ns   string // its namespace
	port string // its place on the bridge
	addr string
}

// newLAN makes hosts, and takes them away with the test. It needs to be root.
func newLAN(t *testing.T, hosts int) *lan {
	t.Helper()
	n := rand.IntN(1 << 16)
	l := &lan{t: t, bridge: fmt.Sprintf("rt%04x", n)}
	net := fmt.Sprintf("198.%d.%d.", 18+n>>8&1, n&255) // 198.18.0.0/15 is for tests of networks
	l.addr = net + "1"
	ip(t, "link", "add", l.bridge, "type", "bridge")
	t.Cleanup(func() { ip(t, "link", "del", l.bridge) })
	ip(t, "addr", "add", l.addr+"/24", "dev", l.bridge)
	ip(t, "link", "set", l.bridge, "up")
	for i := range hosts {
		h := &lanHost{
			ns: fmt.Sprintf("rt%04x-%d", n, i), port: fmt.Sprintf("rt%04xp%d", n, i), addr: net + fmt.Sprint(10+i),
		}
		ip(t, "netns", "add", h.ns)
		t.Cleanup(func() { ip(t, "netns", "del", h.ns) })
		ip(t, "link", "add", h.port, "type", "veth", "peer", "name", "eth0", "netns", h.ns)
		ip(t, "-n", h.ns, "addr", "add", h.addr+"/24", "dev", "eth0")
		ip(t, "-n", h.ns, "link", "set", "lo", "up")
		ip(t, "-n", h.ns, "link", "set", "eth0", "up")
		ip(t, "link", "set", h.port, "master", l.bridge, "up")
		l.hosts = append(l.hosts, h)
	}
	return l
}

func ip(t *testing.T, args ...string) {
	t.Helper()
	out, err := exec.Command("ip", args...).CombinedOutput()
	require.NoError(t, err, "ip %v (it takes root, and the package iproute2): %s", args, out)
}

// run is the command that runs another on the host.
func (h *lanHost) run(command ...string) []string {
	return append([]string{"ip", "netns", "exec", h.ns}, command...)
}

// split keeps the hosts from each other, not from the test; join ends that.
func (l *lan) split(on bool) {
	l.t.Helper()
	word := "off"
	if on {
		word = "on"
	}
	for _, h := range l.hosts {
		ip(l.t, "link", "set", "dev", h.port, "type", "bridge_slave", "isolated", word)
	}
}

// mute keeps what the host sends to another from getting there; what the other sends still comes.
func (l *lan) mute(h, to *lanHost, on bool) {
	l.t.Helper()
	verb := "del"
	if on {
		verb = "add"
	}
	ip(l.t, "-n", h.ns, "route", verb, "blackhole", to.addr+"/32")
}

// plug connects the host to everybody, or to nobody.
func (l *lan) plug(h *lanHost, in bool) {
	l.t.Helper()
	word := "down"
	if in {
		word = "up"
	}
	ip(l.t, "link", "set", h.port, word)
}
