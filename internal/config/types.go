package config

import (
	"fmt"
	"strings"
)

// Role is a broker's part in replication.
type Role uint8

// The roles. A master's broker id is 0, a slave's is not.
const (
	AsyncMaster Role = iota // a send is answered without waiting for a slave
	SyncMaster              // a send is answered when a slave has it too
	Slave
)

var roleNames = []string{"ASYNC_MASTER", "SYNC_MASTER", "SLAVE"}

func (r Role) String() string { return enumName(int(r), roleNames) }

// MarshalText is the Java name.
func (r Role) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads the Java name.
func (r *Role) UnmarshalText(b []byte) error { return readEnum(r, b, roleNames) }

// FlushType says when a send is answered: once written, or once flushed.
type FlushType uint8

// The flush types.
const (
	AsyncFlush FlushType = iota
	SyncFlush
)

var flushNames = []string{"ASYNC_FLUSH", "SYNC_FLUSH"}

func (f FlushType) String() string { return enumName(int(f), flushNames) }

// MarshalText is the Java name.
func (f FlushType) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// UnmarshalText reads the Java name.
func (f *FlushType) UnmarshalText(b []byte) error { return readEnum(f, b, flushNames) }

func enumName(n int, names []string) string {
	if n < len(names) {
		return names[n]
	}
	return fmt.Sprintf("%d", n)
}

// readEnum takes any case, though Java takes capitals only.
func readEnum[E ~uint8](target *E, text []byte, names []string) error {
	for i, name := range names {
		if strings.EqualFold(name, string(text)) {
			*target = E(i)
			return nil
		}
	}
	return fmt.Errorf("%q is none of %s", text, strings.Join(names, ", "))
}

// List is a list of values with semicolons between them: addresses, hours.
type List []string

// MarshalText joins the values with semicolons.
func (l List) MarshalText() ([]byte, error) { return []byte(strings.Join(l, ";")), nil }

// UnmarshalText splits at semicolons; blanks around a value and empty values don't count.
func (l *List) UnmarshalText(b []byte) error {
	*l = nil
	for part := range strings.SplitSeq(string(b), ";") {
		if part = strings.TrimSpace(part); part != "" {
			*l = append(*l, part)
		}
	}
	return nil
}
