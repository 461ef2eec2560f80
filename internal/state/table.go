package state

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ratchetmq/ratchet/internal/atomicfile"
	"github.com/ratchetmq/ratchet/internal/vfs"
	"github.com/ratchetmq/ratchet/protocol"
)

// Files says where a part of the state is kept, and how it tells the time and what happened.
type Files struct {
	FS     vfs.FS
	Dir    string // the store's config folder
	Logger *slog.Logger
	Now    func() time.Time // nil: time.Now
}

func (f *Files) complete() {
	if f.Now == nil {
		f.Now = time.Now
	}
	if f.Logger == nil {
		f.Logger = slog.New(slog.DiscardHandler)
	}
}

// makeDir makes the folder, and sees to it that a power cut can't take it away again with all that is in it: the name of
// a new folder is as little durable as that of a new file, until the folder above is synced.
func (f *Files) makeDir() error {
	var missing []string // innermost first
	for dir := filepath.Clean(f.Dir); ; dir = filepath.Dir(dir) {
		_, err := f.FS.Stat(dir)
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) || dir == filepath.Dir(dir) {
			return err
		}
		missing = append(missing, dir)
	}
	if len(missing) == 0 {
		return nil
	}
	if err := f.FS.MkdirAll(f.Dir); err != nil {
		return err
	}
	for _, dir := range slices.Backward(missing) {
		if err := f.FS.SyncDir(filepath.Dir(dir)); err != nil {
			return err
		}
	}
	return nil
}

// view is one state of a table. It is never changed once it is published, nor are the entries.
type view[V any] struct {
	entries map[string]*V
	version protocol.DataVersion
	serial  uint64 // of changes since the start, to know what is in the file
}

// table is a map from names to settings, read for every message and changed now and then. Readers take the present
// view without a lock; a change copies the map, publishes it and writes the file.
type table[V any] struct {
	files  Files
	path   string
	encode func(*view[V]) ([]byte, error)

	now atomic.Pointer[view[V]]
	mu  sync.Mutex // one change at a time

	saveMu sync.Mutex // one writer of the file at a time; held during its I/O, guards nothing that a reader needs
	saved  uint64     // guarded by saveMu: serial of what is in the file

	kept  atomic.Pointer[view[V]] // what is in the file, see inFile
	tried atomic.Pointer[view[V]] // the last that was written there, or could not be

	follows func() bool // see Follow; nil: never
}

// Follow tells the table when this broker follows another one. What clients make here then does not make the table newer
// than that of the other, which counts. Call it before the table is in use.
func (t *table[V]) Follow(follows func() bool) { t.follows = follows }

// loaded begins with what the file has.
func (t *table[V]) loaded(v *view[V]) {
	t.now.Store(v)
	t.kept.Store(v)
}

// Get returns an entry. It is shared and must not be changed. It takes no lock.
func (t *table[V]) Get(name string) (*V, bool) {
	v, ok := t.now.Load().entries[name]
	return v, ok
}

// Len is the number of entries.
func (t *table[V]) Len() int { return len(t.now.Load().entries) }

// Names lists all entries, sorted.
func (t *table[V]) Names() []string { return slices.Sorted(maps.Keys(t.now.Load().entries)) }

// Snapshot is the whole table with its version. The map is shared and must not be changed.
func (t *table[V]) Snapshot() (map[string]*V, protocol.DataVersion) {
	v := t.now.Load()
	return v.entries, v.version
}

// Version says how new the table is.
func (t *table[V]) Version() protocol.DataVersion { return t.now.Load().version }

// written is Get for who lets others rely on the entry. One so new that another goroutine is still writing it to the file
// is waited for; one that could not be written is not.
func (t *table[V]) written(name string) (*V, bool) {
	v, ok := t.Get(name)
	if !ok || t.hasTried(name) {
		return v, ok
	}
	t.saveMu.Lock()
	defer t.saveMu.Unlock()
	if !t.hasTried(name) {
		_ = t.write() // whoever made the entry is about to try again, and logs it
	}
	return v, ok
}

// inFile is Get for who lets others rely on the entry, come what may: it is there only once the file has it.
func (t *table[V]) inFile(name string) (*V, bool) {
	if t.kept.Load().entries[name] == nil {
		return nil, false
	}
	return t.Get(name)
}

func (t *table[V]) hasTried(name string) bool {
	tried := t.tried.Load()
	return tried != nil && tried.entries[name] != nil
}

// edit is the inside of one change.
type edit[V any] struct {
	entries map[string]*V // the new map; a copy from the first change on
	shared  bool          // entries is still the published map
	changed bool
	keep    bool                 // the version stays
	floor   protocol.DataVersion // the new version is above this, too
}

// follow makes the new version one that comes after another broker's, and is a change if it does not so already.
func (e *edit[V]) follow(own, other protocol.DataVersion) {
	if e.floor = other; other.Counter > own.Counter || other.StateVersion > own.StateVersion {
		e.own()
	}
}

func (e *edit[V]) own() {
	if e.shared {
		e.entries = maps.Clone(e.entries)
		if e.entries == nil {
			e.entries = map[string]*V{}
		}
		e.shared = false
	}
	e.changed = true
}

func (e *edit[V]) put(name string, v *V) {
	e.own()
	e.entries[name] = v
}

func (e *edit[V]) remove(name string) {
	e.own()
	delete(e.entries, name)
}

// change runs fn under the lock, publishes what it did with the version raised by one, and waits until the file holds
// it. Changes made meanwhile by others go to the file together. After an error the change is in memory all the same:
// the next change, or save, tries again.
func (t *table[V]) change(fn func(*edit[V])) (*view[V], error) {
	return t.changeTo(nil, fn)
}

// changeForClient is change for what a client needs, see Follow.
func (t *table[V]) changeForClient(fn func(*edit[V])) (*view[V], error) {
	return t.changeTo(nil, func(e *edit[V]) {
		e.keep = t.follows != nil && t.follows()
		fn(e)
	})
}

// changeTo is change with the version given, as a replica takes it over from its master.
func (t *table[V]) changeTo(version *protocol.DataVersion, fn func(*edit[V])) (*view[V], error) {
	t.mu.Lock()
	before := t.now.Load()
	e := edit[V]{entries: before.entries, shared: true}
	fn(&e)
	if e.keep && version == nil {
		version = &before.version
	}
	after := before
	if e.changed || version != nil && *version != before.version {
		after = &view[V]{entries: e.entries, version: before.version, serial: before.serial + 1}
		if version != nil {
			after.version = *version
		} else {
			after.version.Timestamp = t.files.Now().UnixMilli()
			after.version.Counter = max(after.version.Counter, e.floor.Counter) + 1
			after.version.StateVersion = max(after.version.StateVersion, e.floor.StateVersion)
		}
		t.now.Store(after)
	}
	t.mu.Unlock()
	return after, t.save(after.serial)
}

// save makes sure that the file holds the change with that serial number.
func (t *table[V]) save(serial uint64) error {
	t.saveMu.Lock()
	defer t.saveMu.Unlock()
	if t.saved >= serial {
		return nil
	}
	return t.write()
}

func (t *table[V]) write() error {
	v := t.now.Load()
	defer t.tried.Store(v)
	data, err := t.encode(v)
	if err != nil {
		return fmt.Errorf("encode %s: %w", t.path, err)
	}
	if err := atomicfile.Write(t.files.FS, t.path, data); err != nil {
		return err
	}
	t.kept.Store(v)
	t.saved = v.serial
	return nil
}

// close writes the file and its backup alike, so that after a clean stop each of the two holds everything.
func (t *table[V]) close() error {
	t.saveMu.Lock()
	defer t.saveMu.Unlock()
	return errors.Join(t.write(), t.write())
}

// read loads the file, or its backup, into *into, which must then satisfy ok. A missing file is no error and leaves
// *into alone.
func readJSON[T any](f Files, path string, into *T, ok func(*T) bool) (found bool, err error) {
	_, err = atomicfile.Read(f.FS, path, func(data []byte) error {
		var fresh T
		if err := protocol.Unmarshal(data, &fresh); err != nil {
			return err
		}
		if !ok(&fresh) {
			return errors.New("the table is missing")
		}
		*into = fresh
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// jsonFile writes one object with an entry a line, sorted, so that two versions of a file compare well.
type jsonFile struct {
	buf []byte
	err error
}

func (j *jsonFile) field(name string, value any) {
	j.key(name)
	j.value(value)
}

func (j *jsonFile) key(name string) {
	switch {
	case len(j.buf) == 0:
		j.buf = append(j.buf, "{\n"...)
	case j.buf[len(j.buf)-1] != '{':
		j.buf = append(j.buf, ",\n"...)
	default:
		j.buf = append(j.buf, '\n')
	}
	j.buf = append(appendQuoted(j.buf, name), ':')
}

func (j *jsonFile) value(value any) {
	text, err := protocol.Marshal(value)
	j.err = errors.Join(j.err, err)
	j.buf = append(j.buf, text...)
}

func (j *jsonFile) end() ([]byte, error) { return append(j.buf, "\n}\n"...), j.err }

func writeEntries[V any](j *jsonFile, name string, entries map[string]*V) {
	j.key(name)
	j.buf = append(j.buf, '{')
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		j.field(key, entries[key])
	}
	j.buf = append(j.buf, "\n}"...)
}

// appendQuoted adds s as a JSON string.
func appendQuoted(dst []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			text, err := protocol.Marshal(s)
			if err != nil {
				// impossible: a string can always be written.
				panic("state: " + err.Error())
			}
			return append(dst, text...)
		}
	}
	return append(append(append(dst, '"'), s...), '"')
}
