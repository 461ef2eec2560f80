package namesrv

import (
	"fmt"
	"strings"
)

const (
	maxNameLength  = 255 // retry topics; also cluster and broker names
	maxTopicLength = 127 // topics that do not begin with %
	maxAddrLength  = 512
)

// checkIdentity refuses names that no broker may have. Broker and cluster names are often host names and sometimes not
// even ASCII, so only what is dangerous is refused: see pathLike.
func checkIdentity(r *Registration) error {
	for _, f := range []struct{ field, name string }{{"brokerName", r.Broker}, {"clusterName", r.Cluster}} {
		if f.name == "" || len(f.name) > maxNameLength || pathLike(f.name) {
			return fmt.Errorf("%s %q: %w", f.field, f.name, ErrName)
		}
	}
	// Addresses are written into JSON that the Go client cuts apart at commas.
	if r.Addr == "" || len(r.Addr) > maxAddrLength || pathLike(r.Addr) || strings.ContainsAny(r.Addr, ", ") {
		return fmt.Errorf("brokerAddr %q: %w", r.Addr, ErrName)
	}
	return nil
}

// checkTopic refuses topic names that no broker would create. A broker's own topics hold its name or its cluster's,
// which checkIdentity has seen.
func checkTopic(name string, r *Registration) error {
	rest := name
	if !plain(name) || len(name) > maxTopicLength {
		rest = strings.ReplaceAll(strings.ReplaceAll(name, r.Broker, ""), r.Cluster, "")
	}
	limit := maxTopicLength
	if strings.HasPrefix(name, "%") || rest != name {
		limit = maxNameLength
	}
	switch {
	case name == "" || len(name) > limit:
		return fmt.Errorf("topic %.300q is empty or longer than %d bytes: %w", name, limit, ErrName)
	case !plain(rest):
		return fmt.Errorf("topic %.300q: %w", name, ErrName)
	}
	return nil
}

// plain says whether s has no byte outside RocketMQ's alphabet for topics.
func plain(s string) bool {
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '-', c == '%', c == '|':
		default:
			return false
		}
	}
	return true
}

// pathLike says whether s could lead out of a folder or break a log line.
func pathLike(s string) bool {
	if s == "." || strings.Contains(s, "..") {
		return true
	}
	for i := 0; i < len(s); i++ {
		if c := s[i]; c == '/' || c == '\\' || c < ' ' || c == 0x7f {
			return true
		}
	}
	return false
}
