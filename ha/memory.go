package ha

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/ratchetmq/ratchet/internal/atomicfile"
	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/internal/vfs"
)

// Epoch is a master's time: each one that opens begins a new one, with a number above all that it knows.
type Epoch struct {
	Number int32           `json:"epoch"`
	Start  offset.Physical `json:"startOffset"`
}

// record is what a broker remembers for replication.
type record struct {
	Boot    string   `json:"boot"`          // the kernel's boot id while it ran last
	Synced  *bool    `json:"synced"`        // it told and showed then only what was on the disk; nil: a broker that did not note it
	Suspect bool     `json:"suspect"`       // a power cut was noticed, and what it took was not yet made good
	Untold  bool     `json:"untold"`        // likewise; see Survival
	Exposed bool     `json:"exposed"`       // see Survival
	Follows bool     `json:"follows"`       // it has followed a master since it was one, and may lack what that has given out
	New     bool     `json:"new,omitempty"` // see Survival; until it is an open master, or has another role
	Opened  int64    `json:"opened"`        // ms; when it became an open master last
	Epochs  []Epoch  `json:"epochs"`        // in order
	Peers   []string `json:"peers"`         // addresses of brokers of the group, ever seen
	Role    *Switch  `json:"role,omitempty"`
	Handing *Handing `json:"handing,omitempty"`
}

// Switch is a role that an operator's command gave a broker. It holds until the configuration says something else than it
// said then.
type Switch struct {
	Configured string `json:"configured"` // role and id in the file, when it was switched
	Role       string `json:"role"`
	ID         int64  `json:"id"`
	Gave       *Gave  `json:"gave,omitempty"` // the role that this broker had before, if that was a master's
}

// Gave is a master's role that this broker has given away: who has it, and what it was.
type Gave struct {
	To   string `json:"to"`
	Role string `json:"role"`
	ID   int64  `json:"id"`
}

// Handing is a role that is being handed over: the slave that is to be the master, and the id that this broker then has. Until
// it is known what became of it, this broker may not be the master any more.
type Handing struct {
	To string `json:"to"`
	ID int64  `json:"id"`
}

// Memory keeps the record, durably: a change is on the disk when the method returns. It is a file of Ratchet's own,
// replication.json in the store's folder.
type Memory struct {
	fs   vfs.FS
	path string

	mu  sync.Mutex
	now record // guarded by mu
}

// OpenMemory reads the record; without one all is as for a broker that never ran.
func OpenMemory(fsys vfs.FS, root string) (*Memory, error) {
	m := &Memory{fs: fsys, path: filepath.Join(root, "replication.json")}
	_, err := atomicfile.Read(fsys, m.path, func(b []byte) error {
		var r record
		if err := json.Unmarshal(b, &r); err != nil {
			return err
		}
		m.now = r
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	return m, err
}

func (m *Memory) change(fn func(*record)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	next := m.now
	next.Epochs, next.Peers = slices.Clone(next.Epochs), slices.Clone(next.Peers)
	fn(&next)
	b, err := json.MarshalIndent(next, "", " ")
	if err == nil {
		err = atomicfile.Write(m.fs, m.path, b)
	}
	if err != nil {
		return fmt.Errorf("remember: %w", err)
	}
	m.now = next
	return nil
}

func (m *Memory) get() record {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now
}

// SameBoot says whether a broker has been awake in that boot of the kernel, and none in another since.
func (m *Memory) SameBoot(boot string) bool { return boot != "" && m.get().Boot == boot }

// Awake is called once after a start. synced says that from now on only what is on the disk is told and shown. lost says that a
// power cut may have taken what was not flushed, as far as it can be seen without this memory; it is asked only when the boot
// can't be compared.
func (m *Memory) Awake(boot string, clean, synced bool, lost func() bool) (suspect bool, err error) {
	now := m.get()
	before := synced
	if now.Synced != nil {
		before = *now.Synced
	}
	gone := false
	switch {
	case clean:
	case now.Boot != "" && boot != "":
		gone = now.Boot != boot
	default:
		gone = lost()
	}
	suspect = now.Suspect || gone && !before
	untold := now.Untold || gone && before
	if now.Boot == boot && now.Suspect == suspect && now.Untold == untold && now.Synced != nil && before == synced {
		return suspect, nil
	}
	return suspect, m.change(func(r *record) { r.Boot, r.Synced, r.Suspect, r.Untold = boot, &synced, suspect, untold })
}

// Opened begins an epoch at the log's end; what may have been missing is made good. Epochs that ended before the log's
// beginning are forgotten.
func (m *Memory) Opened(low, end offset.Physical, exposed bool) error {
	return m.change(func(r *record) {
		r.Suspect, r.Untold, r.Exposed, r.Follows, r.New, r.Handing = false, false, exposed, false, false, nil
		r.Opened = time.Now().UnixMilli()
		r.Epochs = append(r.Epochs, Epoch{lastEpoch(r.Epochs) + 1, end})
		for len(r.Epochs) > 1 && (r.Epochs[1].Start <= low || r.Epochs[1].Start == r.Epochs[0].Start) {
			r.Epochs = r.Epochs[1:]
		}
	})
}

// Begins notes that a master began with an empty disk, while others of its group had something. It can't know what it had
// given out before, nor to whom it may have given its role.
func (m *Memory) Begins() error {
	return m.change(func(r *record) { r.Follows, r.New = true, true })
}

// New says whether it did, and was no open master since.
func (m *Memory) New() bool { return m.get().New }

// Follow notes that this broker follows a master. As long as it is not given the role, it can't know all that the master has
// given out.
func (m *Memory) Follow() error {
	if m.get().Follows {
		return nil
	}
	return m.change(func(r *record) { r.Follows = true })
}

// Level notes that this broker has all that the open master has: what it may have lost itself matters no more, and with
// handedOver it may become the master.
func (m *Memory) Level(handedOver bool) error {
	now := m.get()
	if !now.Suspect && !now.Untold && !(handedOver && now.Follows) {
		return nil
	}
	return m.change(func(r *record) { r.Suspect, r.Untold, r.Follows = false, false, r.Follows && !handedOver })
}

// Follows says whether this broker has followed a master since it was one.
func (m *Memory) Follows() bool { return m.get().Follows }

// Forget drops the address of a broker that will not come back.
func (m *Memory) Forget(addr string) error {
	if !slices.Contains(m.get().Peers, addr) {
		return fmt.Errorf("no broker of the group was ever seen at %s", addr)
	}
	return m.change(func(r *record) {
		r.Peers = slices.DeleteFunc(r.Peers, func(a string) bool { return a == addr })
	})
}

// OpenedAt is when this broker became an open master last, in ms; 0: never.
func (m *Memory) OpenedAt() int64 { return m.get().Opened }

// Expose notes that readers may see what no slave has, Covered that this is over.
func (m *Memory) Expose() error {
	if m.get().Exposed {
		return nil
	}
	return m.change(func(r *record) { r.Exposed = true })
}

// Covered takes Expose back.
func (m *Memory) Covered() error {
	if !m.get().Exposed {
		return nil
	}
	return m.change(func(r *record) { r.Exposed = false })
}

// Saw remembers the addresses of other brokers of the group.
func (m *Memory) Saw(addrs []string) error {
	now := m.get()
	var news []string
	for _, a := range addrs {
		if !slices.Contains(now.Peers, a) {
			news = append(news, a)
		}
	}
	if len(news) == 0 {
		return nil
	}
	return m.change(func(r *record) { r.Peers = append(r.Peers, news...) })
}

// Adopt takes over the epochs of the log that this broker follows.
func (m *Memory) Adopt(epochs []Epoch) error {
	if slices.Equal(m.get().Epochs, epochs) {
		return nil
	}
	return m.change(func(r *record) { r.Epochs = epochs })
}

// Epochs are those of this broker's log.
func (m *Memory) Epochs() []Epoch { return m.get().Epochs }

// Epoch is the number of the last one, 0 when there is none.
func (m *Memory) Epoch() int32 { return lastEpoch(m.get().Epochs) }

func lastEpoch(list []Epoch) int32 {
	if len(list) == 0 {
		return 0
	}
	return list[len(list)-1].Number
}

// Peers are the addresses of other brokers of the group that were ever seen.
func (m *Memory) Peers() []string { return m.get().Peers }

// Suspect says whether what was not flushed may be gone here.
func (m *Memory) Suspect() bool { return m.get().Suspect }

// Untold says whether a replica may have what is gone here, though nobody was told of it: see Survival.
func (m *Memory) Untold() bool { return m.get().Untold }

// Exposed says whether readers may have seen what no slave has.
func (m *Memory) Exposed() bool { return m.get().Exposed }

// Role is the role that an operator's command gave this broker, if what the file says is still what it said then.
func (m *Memory) Role(configured string) (Switch, bool) {
	if s := m.get().Role; s != nil && s.Configured == configured {
		return *s, true
	}
	return Switch{}, false
}

// SetRole remembers a switch.
func (m *Memory) SetRole(s Switch) error {
	return m.change(func(r *record) { r.Role, r.Handing, r.New = &s, nil, false })
}

// HandOver notes that the role is about to be given away; SetRole and Opened end that.
func (m *Memory) HandOver(h Handing) error {
	return m.change(func(r *record) { r.Handing = &h })
}

// Handing is the role that is being handed over, nil when none is.
func (m *Memory) Handing() *Handing { return m.get().Handing }
