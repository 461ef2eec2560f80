package namesrv

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"regexp"
	"sync"
	"sync/atomic"

	"github.com/ratchetmq/ratchet/internal/atomicfile"
	"github.com/ratchetmq/ratchet/internal/vfs"
	"github.com/ratchetmq/ratchet/protocol"
)

// kvStore is the KV table: namespaces of keys and values that administrators put here, kept in kvConfig.json.
//
// Readers take the present table without a lock; it is never changed, only replaced, after the file has been.
type kvStore struct {
	fs   vfs.FS
	path string // "" = not kept

	mu    sync.Mutex // held while the table and the file are replaced
	table atomic.Pointer[kvTable]
}

type kvTable map[string]map[string]string

// kvFile is the content of kvConfig.json.
type kvFile struct {
	ConfigTable kvTable `json:"configTable"`
}

const damagedSuffix = ".damaged"

// openKV reads the file. A file that cannot be understood, with no good backup, is put aside under another name: nothing
// but hints for ordered topics is in it, and without its name server a cluster stands still.
func openKV(fsys vfs.FS, path string, log *slog.Logger) (*kvStore, error) {
	kv := &kvStore{fs: fsys, path: path}
	kv.table.Store(&kvTable{})
	if path == "" {
		return kv, nil
	}
	var table kvTable
	_, err := atomicfile.Read(fsys, path, func(data []byte) (err error) {
		table, err = parseKV(data)
		return err
	})
	switch {
	case err == nil:
		kv.table.Store(&table)
	case errors.Is(err, fs.ErrNotExist):
	case errors.Is(err, atomicfile.ErrDamaged):
		log.Error("kv file is damaged, starting without it", "path", path, "kept", path+damagedSuffix, "err", err)
		if err := fsys.Rename(path, path+damagedSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("kv file: %w", err)
		}
	default:
		return nil, fmt.Errorf("kv file: %w", err)
	}
	return kv, nil
}

// nullKey finds the keys that older RocketMQ name servers stored for a request without one (apache/rocketmq#2935).
var nullKey = regexp.MustCompile(`[{,]\s*null\s*:`)

func parseKV(data []byte) (kvTable, error) {
	var f kvFile
	if err := protocol.Unmarshal(data, &f); err != nil {
		return nil, err
	}
	if f.ConfigTable == nil {
		f.ConfigTable = kvTable{}
	}
	if nullKey.Match(data) {
		// Reading gave it the name "null", as it does for all bare words.
		delete(f.ConfigTable, "null")
		for _, keys := range f.ConfigTable {
			delete(keys, "null")
		}
	}
	for ns, keys := range f.ConfigTable {
		if keys == nil {
			f.ConfigTable[ns] = map[string]string{}
		}
	}
	return f.ConfigTable, nil
}

func (kv *kvStore) get(namespace, key string) (string, error) {
	v, ok := (*kv.table.Load())[namespace][key]
	if !ok {
		return "", fmt.Errorf("%w, Namespace: %s Key: %s", errNoConfig, namespace, key)
	}
	return v, nil
}

// list returns the encoded KVTable of a namespace, which may be there and empty.
func (kv *kvStore) list(namespace string) ([]byte, error) {
	keys, ok := (*kv.table.Load())[namespace]
	if !ok {
		return nil, fmt.Errorf("%w, Namespace: %s", errNoConfig, namespace)
	}
	return protocol.Marshal(&protocol.KVTable{Table: keys})
}

func (kv *kvStore) put(namespace, key, value string) error {
	return kv.change(namespace, func(keys map[string]string) bool {
		old, had := keys[key]
		keys[key] = value
		return !had || old != value
	})
}

// delete removes a key. The namespace stays, even if empty: a broker whose order topics are all gone is told so.
func (kv *kvStore) delete(namespace, key string) error {
	if _, ok := (*kv.table.Load())[namespace]; !ok {
		return nil
	}
	return kv.change(namespace, func(keys map[string]string) bool {
		_, had := keys[key]
		delete(keys, key)
		return had
	})
}

// change replaces one namespace. If the file cannot be written nothing changes.
func (kv *kvStore) change(namespace string, edit func(keys map[string]string) (changed bool)) error {
	kv.mu.Lock()
	defer kv.mu.Unlock()
	before := *kv.table.Load()
	keys := maps.Clone(before[namespace])
	if keys == nil {
		keys = map[string]string{}
	}
	if !edit(keys) {
		return nil
	}
	after := maps.Clone(before)
	after[namespace] = keys
	if kv.path != "" {
		data, err := protocol.Marshal(&kvFile{ConfigTable: after})
		if err != nil {
			return fmt.Errorf("kv file: %w", err)
		}
		if err := atomicfile.Write(kv.fs, kv.path, data); err != nil {
			return fmt.Errorf("kv file: %w", err)
		}
	}
	kv.table.Store(&after)
	return nil
}
