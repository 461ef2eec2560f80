package ha

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/internal/vfs/vfstest"
)

func openMemory(t *testing.T, fsys *vfstest.Mem) *Memory {
	t.Helper()
	require.NoError(t, fsys.MkdirAll("/store")) // the store has made it durable
	require.NoError(t, fsys.SyncDir("/"))
	m, err := OpenMemory(fsys, "/store")
	require.NoError(t, err)
	return m
}

func TestAwake(t *testing.T) {
	yes, no := func() bool { return true }, func() bool { return false }
	for _, c := range []struct {
		name          string
		before        string // boot id; empty: it never ran
		boot          string
		clean, synced bool
		lost          func() bool
		want          bool
	}{
		{"first start", "", "b", true, false, yes, false},
		{"taken over from a Java broker that was killed", "", "b", false, false, no, false},
		{"taken over after a power cut", "", "b", false, false, yes, true},
		{"clean stop", "a", "b", true, false, yes, false},
		{"killed", "a", "a", false, false, yes, false},
		{"power cut", "a", "b", false, false, no, true},
		{"power cut with SYNC_FLUSH", "a", "b", false, true, no, false},
		{"the page cache is not trusted", "a", "", false, false, yes, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			fsys := vfstest.New()
			if c.before != "" {
				_, err := openMemory(t, fsys).Awake(c.before, true, c.synced, no)
				require.NoError(t, err)
			}
			got, err := openMemory(t, fsys).Awake(c.boot, c.clean, c.synced, c.lost)
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
}

// TestAnotherFlushTypeSavesNothingThatIsGone: what counts is how the life that a power cut ended had flushed.
func TestAnotherFlushTypeSavesNothingThatIsGone(t *testing.T) {
	no := func() bool { return false }
	for _, synced := range []bool{false, true} {
		fsys := vfstest.New()
		_, err := openMemory(t, fsys).Awake("a", true, synced, no)
		require.NoError(t, err)
		for _, now := range []bool{!synced, synced} { // the second after a kill, before anything was made good
			m := openMemory(t, fsys)
			suspect, err := m.Awake("b", false, now, no)
			require.NoError(t, err)
			require.Equal(t, !synced, suspect)
			require.Equal(t, synced, m.Untold(), "slaves may have what was not flushed")
		}
	}
}

func TestSameBoot(t *testing.T) {
	fsys := vfstest.New()
	require.False(t, openMemory(t, fsys).SameBoot("a"), "nobody was awake yet")
	_, err := openMemory(t, fsys).Awake("a", true, false, func() bool { return false })
	require.NoError(t, err)
	require.True(t, openMemory(t, fsys).SameBoot("a"))
	require.False(t, openMemory(t, fsys).SameBoot("b"))
	_, err = openMemory(t, fsys).Awake("", true, false, func() bool { return false })
	require.NoError(t, err)
	require.False(t, openMemory(t, fsys).SameBoot(""), "a boot that is not known, or not trusted")
}

// TestSuspicionLastsUntilTheMasterIsOpen: a second crash in the same boot, before what a power cut took was made good.
func TestSuspicionLastsUntilTheMasterIsOpen(t *testing.T) {
	fsys := vfstest.New()
	no := func() bool { return false }
	awake := func(boot string) bool {
		suspect, err := openMemory(t, fsys.CrashClone(vfstest.KeepNothing, 1)).Awake(boot, false, false, no)
		require.NoError(t, err)
		return suspect
	}
	m := openMemory(t, fsys)
	_, err := m.Awake("a", true, false, no)
	require.NoError(t, err)
	require.True(t, awake("b"))
	_, err = openMemory(t, fsys).Awake("b", false, false, no)
	require.NoError(t, err)
	require.True(t, awake("b"))
	m = openMemory(t, fsys)
	require.NoError(t, m.Opened(0, 500, true))
	require.False(t, awake("b"))
	require.True(t, openMemory(t, fsys).Exposed())
}

func TestEpochsRiseAndOldOnesGo(t *testing.T) {
	fsys := vfstest.New()
	m := openMemory(t, fsys)
	for i := range offset.Physical(4) {
		require.NoError(t, m.Opened(0, 100*i, false))
	}
	require.EqualValues(t, 4, m.Epoch())
	require.NoError(t, m.Opened(250, 400, false))
	require.Equal(t, []Epoch{{3, 200}, {4, 300}, {5, 400}}, openMemory(t, fsys).Epochs())
}

func TestSwitchHoldsUntilTheConfigurationChanges(t *testing.T) {
	fsys := vfstest.New()
	require.NoError(t, openMemory(t, fsys).SetRole(Switch{Configured: "SLAVE 1", Role: "SYNC_MASTER", ID: 0}))
	s, ok := openMemory(t, fsys).Role("SLAVE 1")
	require.True(t, ok)
	require.Equal(t, "SYNC_MASTER", s.Role)
	_, ok = openMemory(t, fsys).Role("SLAVE 2")
	require.False(t, ok)
}
