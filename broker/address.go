package broker

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/ratchetmq/ratchet/internal/config"
)

// listenAddrs are the broker's port and, if it is switched on, the second one that clients use with vipChannelEnabled.
func listenAddrs(s *config.Broker) []string {
	addrs := []string{net.JoinHostPort(s.BindAddr, strconv.Itoa(s.Port))}
	if s.VIPPort && s.Port > vipDistance {
		addrs = append(addrs, net.JoinHostPort(s.BindAddr, strconv.Itoa(s.Port-vipDistance)))
	}
	return addrs
}

// vipDistance is how far below the broker's port clients look for the second one.
const vipDistance = 2

// choosePort replaces port 0 by one that is free, since messages are stored with the port in their ids before anybody is
// served. It listens there at once, on the second port, too, so that nobody else takes them meanwhile.
func choosePort(s *config.Broker) ([]net.Listener, error) {
	if s.Port != 0 {
		return nil, nil
	}
	chosen := *s
	for range 100 { // in vain when the second one is taken
		first, err := net.Listen("tcp", listenAddrs(s)[0])
		if err != nil {
			return nil, fmt.Errorf("listenPort: %w", err)
		}
		chosen.Port = first.Addr().(*net.TCPAddr).Port
		listeners := []net.Listener{first}
		if addrs := listenAddrs(&chosen); len(addrs) > 1 {
			second, err := net.Listen("tcp", addrs[1])
			if err != nil {
				_ = first.Close()
				continue
			}
			listeners = append(listeners, second)
		}
		s.Port = chosen.Port
		return listeners, nil
	}
	return nil, errors.New("listenPort: no port is free together with the one two below")
}

// numbered is the advertised address as it goes into message ids: as a number.
func numbered(host string, port int) (netip.AddrPort, error) {
	addr, err := netip.ParseAddr(host)
	if err != nil {
		resolved, err := net.ResolveIPAddr("ip", host)
		if err != nil {
			return netip.AddrPort{}, fmt.Errorf("brokerIP1: %w", err)
		}
		addr, _ = netip.AddrFromSlice(resolved.IP)
	}
	return netip.AddrPortFrom(addr.Unmap().WithZone(""), uint16(port)), nil
}

// advertisedHost is brokerIP1 or, without it, the address listened on or, when that is all of them, the machine's own:
// the first that is not a loopback one, IPv4 before IPv6.
func advertisedHost(s *config.Broker) (string, error) {
	if s.IP1 != "" {
		return s.IP1, nil
	}
	if bound, err := netip.ParseAddr(s.BindAddr); err == nil && !bound.IsUnspecified() {
		return s.BindAddr, nil
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return "", fmt.Errorf("brokerIP1 is not set and no address can be found: %w", err)
	}
	v6, loopback := "", "127.0.0.1"
	for _, a := range addrs {
		prefix, err := netip.ParsePrefix(a.String())
		if err != nil {
			continue
		}
		switch ip := prefix.Addr(); {
		case ip.IsLoopback() || ip.IsLinkLocalUnicast():
		case ip.Is4():
			return ip.String(), nil
		case v6 == "":
			v6 = ip.String()
		}
	}
	if v6 != "" {
		return v6, nil
	}
	return loopback, nil
}

// physicalMemory is the machine's, in bytes.
func physicalMemory() (int64, error) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 0, fmt.Errorf("memory of this machine: %w", err)
	}
	return int64(info.Totalram) * int64(info.Unit), nil
}
