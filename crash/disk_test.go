//go:build conformance && linux

package crash

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// disk is a file system of its own in an image file, whose power can be cut.
type disk struct {
	t      *testing.T
	kind   string // ext4, xfs
	dir    string // where it is mounted
	device string
}

// diskSize is more than XFS's least, 300 MB. The image is sparse.
const diskSize = 512 << 20

// newDisk makes and mounts a file system. It needs root, loop devices, and a kernel that knows the file system; where
// these are not there the test fails and says so.
func newDisk(t *testing.T, kind string) *disk {
	t.Helper()
	requireDisks(t, kind)
	dir := t.TempDir()
	d := &disk{t: t, kind: kind, dir: filepath.Join(dir, "mnt")}
	image := filepath.Join(dir, "image")
	require.NoError(t, os.Mkdir(d.dir, 0o755))
	f, err := os.Create(image)
	require.NoError(t, err)
	require.NoError(t, errors.Join(f.Truncate(diskSize), f.Close()))
	run(t, "mkfs."+kind, "-q", image)
	d.device = run(t, "losetup", "--find", "--show", image)
	t.Cleanup(func() {
		// The test may have ended anywhere, also with the disk not mounted.
		_ = exec.Command("umount", "--lazy", d.dir).Run()
		if out, err := exec.Command("losetup", "--detach", d.device).CombinedOutput(); err != nil {
			t.Errorf("loop device %s not given back: %v: %s", d.device, err, out)
		}
	})
	d.mount()
	return d
}

// requireDisks fails, with a sentence that says what to do, where such a disk can't be made.
func requireDisks(t *testing.T, kind string) {
	t.Helper()
	require.Zero(t, os.Geteuid(), "the power-cut tests mount file systems on loop devices: run them as root")
	for _, tool := range []string{"mkfs." + kind, "losetup", "mount", "umount"} {
		_, err := exec.LookPath(tool)
		require.NoError(t, err, "the power-cut tests need %s: install the packages util-linux, e2fsprogs and xfsprogs", tool)
	}
	require.FileExists(t, "/dev/loop-control", "the power-cut tests need loop devices, and this machine or container has none")
	if !kernelHas(t, kind) {
		_ = exec.Command("modprobe", kind).Run() // mount would do the same
		require.True(t, kernelHas(t, kind), "this kernel has no %s: /proc/filesystems does not list it", kind)
	}
}

func kernelHas(t *testing.T, kind string) bool {
	text, err := os.ReadFile("/proc/filesystems")
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 0 && fields[len(fields)-1] == kind {
			return true
		}
	}
	return false
}

// run runs a command and returns what it prints.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	require.NoError(t, err, "%s %s: %s", name, strings.Join(args, " "), out)
	return strings.TrimSpace(string(out))
}

func (d *disk) mount() { run(d.t, "mount", "-t", d.kind, d.device, d.dir) }

// Of linux/fs and xfs_fs.h; ext4 has taken over both.
const (
	iocGoingDown   = 0x8004587d
	goingNoLogSync = 2 // don't write out the journal first
)

// cut takes the power away: from now on nothing reaches the disk, and each write and sync of those who have files open
// fails. What was not synced before is gone, unless the kernel had a reason of its own to write it.
func (d *disk) cut() {
	f, err := os.Open(d.dir)
	require.NoError(d.t, err)
	defer f.Close()
	how := uint32(goingNoLogSync)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), iocGoingDown, uintptr(unsafe.Pointer(&how)))
	require.Zero(d.t, errno, "%s can't be shut down: %v", d.kind, errno)
}

// remount mounts the disk again after a cut, which replays its journal. Nobody may have a file open on it.
func (d *disk) remount() {
	d.t.Helper()
	var out []byte
	require.Eventually(d.t, func() bool {
		var err error
		out, err = exec.Command("umount", d.dir).CombinedOutput()
		return err == nil
	}, time.Minute, 20*time.Millisecond, "%s is still in use: %s", d.dir, out)
	d.mount()
}
