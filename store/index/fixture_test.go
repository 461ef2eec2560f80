package index

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/internal/vfs"
	"github.com/ratchetmq/ratchet/internal/vfs/vfstest"
	"github.com/ratchetmq/ratchet/message"
)

var osFS = vfs.OS{}

// enabled lets a handler see everything.
type enabled struct{ slog.Handler }

func (enabled) Enabled(context.Context, slog.Level) bool { return true }

// fixture is an index file and the log it was made of, both written by a Java broker.
type fixture struct {
	version string
	name    string
	index   []byte
	records []message.Record
}

func fixtures(t testing.TB) (all []fixture) {
	t.Helper()
	for _, version := range []string{"4.9.7", "5.4.0", "5.4.0-crc-ext"} {
		paths, err := filepath.Glob(filepath.Join("testdata", version, "index", "*"))
		require.NoError(t, err)
		require.Len(t, paths, 1)
		f := fixture{version: version, name: filepath.Base(paths[0])}
		f.index, err = os.ReadFile(paths[0])
		require.NoError(t, err)
		log, err := os.ReadFile(filepath.Join("testdata", version, "commitlog"))
		require.NoError(t, err)
		for pos := 0; ; {
			size, magic, ok := message.Peek(log[pos:])
			if !ok || size == 0 {
				break
			}
			if magic != message.MagicBlank {
				r, err := message.Parse(log[pos:])
				require.NoError(t, err)
				require.Equal(t, offset.Physical(pos), r.PhysicalOffset)
				f.records = append(f.records, r)
			}
			pos += int(size)
		}
		require.Greater(t, len(f.records), 40)
		all = append(all, f)
	}
	return all
}

func (f fixture) options() Options {
	opts := small()
	opts.WithoutTags = f.version == "4.9.7"
	return opts
}

func (f fixture) disk(t testing.TB) *vfstest.Mem {
	disk := vfstest.New()
	require.NoError(t, disk.MkdirAll(dir))
	disk.WriteFile(dir+"/"+f.name, f.index)
	require.NoError(t, disk.SyncDir(dir))
	return disk
}

func uniqueOf(r *message.Record) string {
	unique, _, _ := r.FindKeys()
	return string(unique)
}

// requireFixture checks that every record of the log is found by every key it has.
func requireFixture(t *testing.T, x *Index, f fixture) {
	t.Helper()
	for i := range f.records {
		r := &f.records[i]
		unique, user, tags := r.FindKeys()
		check := func(key []byte, kind Kind) {
			if len(key) == 0 {
				return
			}
			found := false
			err := x.Each(string(r.Topic), string(key), kind, r.StoreTimestamp, r.StoreTimestamp,
				func(phy offset.Physical) bool {
					found = phy == r.PhysicalOffset
					return !found
				})
			require.NoError(t, err)
			require.True(t, found, "record %d by %q", r.PhysicalOffset, key)
			require.True(t, Matches(r, string(r.Topic), string(key), kind))
		}
		check(unique, UniqueKey)
		first, _, _ := cutSpace(user)
		check(first, UserKey)
		if f.version != "4.9.7" {
			check(tags, TagKey)
		}
	}
}

func cutSpace(b []byte) (before, after []byte, found bool) {
	for i := range b {
		if b[i] == ' ' {
			return b[:i], b[i+1:], true
		}
	}
	return b, nil, false
}

func TestReadsJavasFiles(t *testing.T) {
	for _, f := range fixtures(t) {
		for _, unclean := range []bool{false, true} {
			t.Run(fmt.Sprint(f.version, unclean), func(t *testing.T) {
				opts := f.options()
				opts.Unclean = unclean
				disk := f.disk(t)
				x := open(t, disk, opts)
				requireFixture(t, x, f)
				for i := range f.records { // all there already
					require.NoError(t, x.Put(&f.records[i]))
				}
				require.NoError(t, x.Close())
				got, err := disk.ReadFile(dir + "/" + f.name)
				require.NoError(t, err)
				require.Equal(t, f.index, got, "nothing to repair in a file of Java's, nothing to add")
			})
		}
	}
}

// The same log gives the same file, whatever is flushed together.
func TestWritesJavasBytes(t *testing.T) {
	for _, f := range fixtures(t) {
		for _, group := range []int{1, 7, 1000} {
			t.Run(fmt.Sprint(f.version, group), func(t *testing.T) {
				disk := vfstest.New()
				x := open(t, disk, f.options())
				for i := range f.records {
					require.NoError(t, x.Put(&f.records[i]))
					if i%group == group-1 {
						require.NoError(t, x.Flush())
					}
				}
				require.NoError(t, x.Close())
				require.Len(t, disk.Files(), 1)
				got, err := disk.ReadFile(disk.Files()[0])
				require.NoError(t, err)
				require.Equal(t, decodeHeader(f.index), decodeHeader(got))
				require.Equal(t, f.index, got)
			})
		}
	}
}

// A file that Java began and Ratchet goes on with is the one that Java would have made.
func TestContinuesJavasFiles(t *testing.T) {
	for _, f := range fixtures(t) {
		for _, cut := range []int{1, 10, len(f.records) - 1} {
			disk := f.disk(t)
			x := open(t, disk, f.options())
			require.NoError(t, x.Reset(f.records[cut].PhysicalOffset))
			for i := range f.records {
				r := &f.records[i]
				for _, phy := range find(t, x, string(r.Topic), uniqueOf(r), UniqueKey) {
					require.Less(t, phy, f.records[cut].PhysicalOffset)
				}
			}
			for i := range f.records {
				require.NoError(t, x.Put(&f.records[i]))
			}
			require.NoError(t, x.Close())
			got, err := disk.ReadFile(dir + "/" + f.name)
			require.NoError(t, err)
			requireSameFile(t, f.index, got)
		}
	}
}

func TestFixtureNamesAreNames(t *testing.T) {
	for _, f := range fixtures(t) {
		require.True(t, isName(f.name))
		_, err := time.ParseInLocation("20060102150405", f.name[:14], time.Local)
		require.NoError(t, err)
	}
}
