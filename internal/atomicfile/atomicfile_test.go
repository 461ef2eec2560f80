package atomicfile

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/internal/vfs"
	"github.com/ratchetmq/ratchet/internal/vfs/vfstest"
)

// braced is the check that these tests use: a content is valid when it looks like an object.
func braced(b []byte) error {
	if !bytes.HasPrefix(b, []byte("{")) || !bytes.HasSuffix(b, []byte("}")) {
		return fmt.Errorf("no object in %d bytes", len(b))
	}
	return nil
}

func put(t *testing.T, path, content string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
}

func get(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(b)
}

var damaged = map[string]string{
	"empty":    "",
	"half":     `{"offsetTable":{"a@b":{0:`,
	"500 NULs": string(make([]byte, 500)),
}

func TestDamagedFileIsReadFromItsBackup(t *testing.T) {
	for name, content := range damaged {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "topics.json")
			put(t, path, content)
			put(t, path+".bak", "{good}")
			got, err := Read(vfs.OS{}, path, braced)
			require.NoError(t, err)
			require.Equal(t, "{good}", string(got))
			require.Equal(t, "{good}", get(t, path), "the backup takes the place of the damaged file")

			require.NoError(t, Write(vfs.OS{}, path, []byte("{next}")))
			require.Equal(t, "{good}", get(t, path+".bak"), "damage never reaches the backup")
		})
	}
}

func TestMissingFileIsReadFromItsBackup(t *testing.T) {
	path := filepath.Join(t.TempDir(), "topics.json")
	put(t, path+".bak", "{good}")
	got, err := Read(vfs.OS{}, path, braced)
	require.NoError(t, err)
	require.Equal(t, "{good}", string(got))
}

func TestBothDamagedNamesTheFile(t *testing.T) {
	for name, content := range damaged {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "topics.json")
			put(t, path, content)
			for _, backup := range []string{"there", "missing"} {
				if backup == "there" {
					put(t, path+".bak", content)
				} else {
					require.NoError(t, os.Remove(path+".bak"))
				}
				_, err := Read(vfs.OS{}, path, braced)
				require.ErrorIs(t, err, ErrDamaged)
				require.NotErrorIs(t, err, fs.ErrNotExist, "a damaged file must not pass for none")
				require.ErrorContains(t, err, path)
			}
		})
	}
}

func TestBothMissingIsNotExist(t *testing.T) {
	_, err := Read(vfs.OS{}, filepath.Join(t.TempDir(), "topics.json"), braced)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NotErrorIs(t, err, ErrDamaged)
}

func TestWriteKeepsThePreviousContentAsBackup(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config", "topics.json") // the folder is not there yet
	require.NoError(t, Write(vfs.OS{}, path, []byte("{1}")))
	require.NoFileExists(t, path+".bak")
	require.NoError(t, Write(vfs.OS{}, path, []byte("{2}")))
	require.NoError(t, Write(vfs.OS{}, path, []byte("{3}")))
	require.Equal(t, "{3}", get(t, path))
	require.Equal(t, "{2}", get(t, path+".bak"))
	entries, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, entries, 2, "no temporary file is left")
}

var errInjected = errors.New("injected")

// failing stops doing anything at its nth operation that changes the disk, as a process that was killed there would;
// a write that is stopped leaves half of its bytes.
type failing struct {
	vfs.FS
	left int
}

func (f *failing) step() error {
	if f.left == 0 {
		return errInjected
	}
	f.left--
	return nil
}

func (f *failing) Create(name string) (vfs.File, error) {
	if err := f.step(); err != nil {
		return nil, err
	}
	file, err := f.FS.Create(name)
	return failingFile{file, f}, err
}

func (f *failing) Rename(from, to string) error {
	if err := f.step(); err != nil {
		return err
	}
	return f.FS.Rename(from, to)
}

func (f *failing) SyncDir(name string) error {
	if err := f.step(); err != nil {
		return err
	}
	return f.FS.SyncDir(name)
}

type failingFile struct {
	vfs.File
	fs *failing
}

func (f failingFile) WriteAt(b []byte, off int64) (int, error) {
	if err := f.fs.step(); err != nil {
		n, _ := f.File.WriteAt(b[:len(b)/2], off)
		return n, err
	}
	return f.File.WriteAt(b, off)
}

func (f failingFile) Sync() error {
	if err := f.fs.step(); err != nil {
		return err
	}
	return f.File.Sync()
}

// TestAfterAnErrorTheFileHasItsOldContent, whichever step fails: the process goes on with what it had, and must find that again.
func TestAfterAnErrorTheFileHasItsOldContent(t *testing.T) {
	for _, old := range []string{"{old}", ""} {
		for n := 1; ; n++ {
			fsys := vfstest.New()
			if old != "" {
				require.NoError(t, Write(fsys, "/topics.json", []byte(old)))
			}
			left := n
			fsys.SetFault(func(op vfstest.Op) *vfstest.Fault {
				if op.Kind.Changes() {
					left--
				}
				if left == 0 && op.Kind.Changes() {
					return &vfstest.Fault{Err: errInjected}
				}
				return nil
			})
			err := Write(fsys, "/topics.json", []byte("{new}"))
			if err == nil {
				require.Positive(t, left)
				break
			}
			require.ErrorIs(t, err, errInjected)
			got, err := Read(fsys, "/topics.json", braced)
			if old == "" {
				require.ErrorIs(t, err, fs.ErrNotExist, "step %d", n)
				continue
			}
			require.NoError(t, err)
			require.Equal(t, old, string(got), "step %d", n)
		}
	}
}

// Every step of Write in turn is the last one that happens, with a sound and with a damaged file to start from.
func TestWriteStoppedAnywhereLeavesOldOrNew(t *testing.T) {
	for _, start := range []string{"{old}", "", "{hal"} {
		for n := 0; ; n++ {
			path := filepath.Join(t.TempDir(), "topics.json")
			put(t, path, start)
			put(t, path+".bak", "{old}")
			_, err := Read(vfs.OS{}, path, braced)
			require.NoError(t, err)

			err = Write(&failing{FS: vfs.OS{}, left: n}, path, []byte("{new}"))
			got, readErr := Read(vfs.OS{}, path, braced)
			require.NoError(t, readErr, "step %d", n)
			if err == nil {
				require.Equal(t, "{new}", string(got))
				require.Greater(t, n, 8, "all steps were stopped once")
				break
			}
			require.ErrorIs(t, err, errInjected)
			require.Contains(t, []string{"{old}", "{new}"}, string(got), "step %d", n)
			backup, backupErr := Read(vfs.OS{}, path+".bak", braced)
			require.NoError(t, backupErr, "step %d", n)
			require.Equal(t, "{old}", string(backup), "step %d", n)
		}
	}
}

func TestUnreadableFileIsAnErrorAndNotTheBackup(t *testing.T) {
	path := filepath.Join(t.TempDir(), "topics.json")
	require.NoError(t, os.Mkdir(path, 0o700)) // reading a folder fails with EISDIR
	put(t, path+".bak", "{older}")
	_, err := Read(vfs.OS{}, path, braced)
	require.Error(t, err)
	require.NotErrorIs(t, err, ErrDamaged)
}
