package config

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// ErrProtected marks a key that is never changed from outside: it could move files or weaken the list itself.
var ErrProtected = errors.New("key is protected")

// Effect says what became of a change.
type Effect uint8

// The effects.
const (
	AtOnce       Effect = iota // the new value is in force
	NeedsRestart               // the running daemon keeps the old value; a restart with the new one in the file takes it
	Kept                       // nothing acts on the key: it is unknown, or of a feature that is not there; shown again
	Unchanged                  // the value was there already
)

func (e Effect) String() string {
	return enumName(int(e), []string{"in force", "needs restart", "kept, without effect", "unchanged"})
}

// Live holds the settings of a running daemon. Get is for every reader, at the moment of use, and is never held on to:
// a key tagged live takes effect because nobody keeps a copy.
type Live[T any] struct {
	now atomic.Pointer[T]
	env Env

	changing sync.Mutex // one change at a time; held while the hooks are called, too

	mu      sync.Mutex
	next    T                        // guarded by mu; the settings after a restart, as far as they were changed here
	unknown []Pair                   // guarded by mu
	demands []func(*T) error         // guarded by mu
	hooks   []func(before, after *T) // guarded by mu
	counter int64                    // guarded by mu; of changes
	changed time.Time                // guarded by mu
}

// NewLive starts with cfg, which then belongs to it, and the pairs that Load returned.
func NewLive[T any](cfg *T, unknown []Pair, env Env) *Live[T] {
	l := &Live[T]{env: env, next: *cfg, unknown: slices.Clone(unknown), changed: time.Now()}
	l.now.Store(cfg)
	return l
}

// Get is the present settings. The struct is shared: it must not be changed.
func (l *Live[T]) Get() *T { return l.now.Load() }

// OnChange has fn called after each change that is in force, one change at a time, in their order; it must make none itself.
// Readers that use Get each time don't need it.
func (l *Live[T]) OnChange(fn func(before, after *T)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hooks = append(l.hooks, fn)
}

// Demand has fn refuse what this package can't know to be wrong. It is asked of the settings after a restart: one that could
// not start with them is to be told now.
func (l *Live[T]) Demand(fn func(*T) error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.demands = append(l.demands, fn)
}

// Set changes one key; see Update.
func (l *Live[T]) Set(key, value string) (Effect, error) {
	effects, err := l.Update([]Pair{{Key: key, Value: value}})
	if err != nil {
		return 0, err
	}
	return effects[0], nil
}

// Update checks all pairs and then changes all keys in one swap, or none: a protected key (ErrProtected) or a value
// that can't be read refuses the whole. The effects are in the order of the pairs. A value that needs a restart is
// checked too, but the running settings keep the old one, so that what is shown is what is in force; whether it then
// goes to the file is the caller's decision.
func (l *Live[T]) Update(pairs []Pair) ([]Effect, error) {
	l.changing.Lock()
	defer l.changing.Unlock()
	l.mu.Lock()
	before := l.now.Load()
	after, trial := *before, l.next
	effects := make([]Effect, len(pairs))
	var kept []Pair
	for i, p := range pairs {
		var err error
		if effects[i], err = l.apply(&after, &trial, p); err != nil {
			l.mu.Unlock()
			return nil, fmt.Errorf("key %q: %w", p.Key, err)
		}
		if _, known := Get(&after, p.Key); effects[i] == Kept && !known {
			kept = append(kept, p)
		}
	}
	checked := trial // apart, for Check completes it and the file does not
	err := checkAll(&checked, &after)
	for _, fn := range l.demands {
		err = cmp.Or(err, fn(&checked))
	}
	if err != nil {
		l.mu.Unlock()
		return nil, err
	}
	l.next = trial
	for _, p := range kept {
		l.keep(p)
	}
	inForce := slices.Contains(effects, AtOnce)
	if inForce || slices.Contains(effects, Kept) {
		l.counter++
		l.changed = time.Now()
		l.now.Store(&after)
	}
	hooks := slices.Clone(l.hooks)
	l.mu.Unlock()
	if inForce {
		for _, fn := range hooks {
			fn(before, &after)
		}
	}
	return effects, nil
}

// checkAll runs the struct's own Check, if it has one, over the settings in force and over those after a restart.
func checkAll(cfgs ...any) error {
	for _, cfg := range cfgs {
		if c, ok := cfg.(interface{ Check() error }); ok {
			if err := c.Check(); err != nil {
				return err
			}
		}
	}
	return nil
}

// apply puts p into trial, which stands for the settings after a restart, and into after when it is in force at once.
func (l *Live[T]) apply(after, trial *T, p Pair) (Effect, error) {
	f, known := tableOf(reflect.TypeFor[T]()).byKey[p.Key]
	switch {
	case known && f.protected, l.blackListed(p.Key):
		return 0, ErrProtected
	case !known:
		return Kept, nil
	}
	tv, av := reflect.ValueOf(trial).Elem(), reflect.ValueOf(after).Elem()
	old := f.text(tv)
	if err := f.set(tv, p.Value, l.env); err != nil {
		return 0, err
	}
	switch {
	case f.text(tv) == old:
		return Unchanged, nil
	case !f.live && !f.unused:
		if f.text(av) == f.text(tv) {
			return AtOnce, nil // what waited for a restart is taken back
		}
		return NeedsRestart, nil
	}
	av.Field(f.index).Set(tv.Field(f.index))
	if f.unused {
		return Kept, nil
	}
	return AtOnce, nil
}

// blackListed tells whether the operator's own list, which is itself protected, names the key.
func (l *Live[T]) blackListed(key string) bool {
	list, ok := Get(l.now.Load(), "configBlackList")
	if !ok {
		return false
	}
	var keys List
	if err := keys.UnmarshalText([]byte(list)); err != nil {
		return true
	}
	return slices.Contains(keys, key)
}

func (l *Live[T]) keep(p Pair) {
	p.Line = 0
	for i := range l.unknown {
		if l.unknown[i].Key == p.Key {
			l.unknown[i] = p
			return
		}
	}
	l.unknown = append(l.unknown, p)
}

// Text lists what is in force and the kept unknown pairs, as `key=value` lines.
func (l *Live[T]) Text() string {
	l.mu.Lock()
	unknown := slices.Clone(l.unknown)
	l.mu.Unlock()
	return Text(l.Get(), unknown)
}

// Version counts the changes since the start and tells the time, in ms since 1970, of the last one, or of the start.
func (l *Live[T]) Version() (timestamp, counter int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed.UnixMilli(), l.counter
}
