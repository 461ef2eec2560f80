package state

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/internal/vfs/vfstest"
	"github.com/ratchetmq/ratchet/protocol"
)

func openGroups(t testing.TB, fsys *vfstest.Mem, auto func() bool) *Groups {
	t.Helper()
	g, err := OpenGroups(GroupOptions{Files: Files{FS: fsys, Dir: dir, Now: newClock().Now}, AutoCreate: auto})
	require.NoError(t, err)
	return g
}

func TestOwnGroupsAreThereFromTheStart(t *testing.T) {
	g := openGroups(t, vfstest.New(), no)
	require.Equal(t, []string{
		"CID_ONS-HTTP-PROXY", "CID_ONSAPI_OWNER", "CID_ONSAPI_PERMISSION", "CID_ONSAPI_PULL", "CID_RMQ_SYS_TRANS",
		"FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "TOOLS_CONSUMER",
	}, g.Names())
}

func TestGroupsOfJavaBrokersAreRead(t *testing.T) {
	for _, version := range []string{"4.9.7", "5.4.0"} {
		fsys := vfstest.New()
		fsys.WriteFile(at("subscriptionGroup.json"), fixture(t, "subscriptionGroup-"+version+".json"))
		c, ok := openGroups(t, fsys, no).Get("G1")
		require.True(t, ok)
		require.True(t, c.ConsumeEnable)
		require.True(t, c.NotifyConsumerIDsChangedEnable)
		require.Equal(t, int32(16), c.RetryMaxTimes)
		require.Equal(t, int64(1), c.WhichBrokerWhenConsumeSlowly)
		require.Equal(t, int32(15), c.ConsumeTimeoutMinute)
	}
	fsys := vfstest.New()
	fsys.WriteFile(at("subscriptionGroup.json"), []byte(`{"subscriptionGroupTable":{"../x":{},"a/b":{},"G":{}}}`))
	g := openGroups(t, fsys, no)
	require.Equal(t, len(ownGroups)+1, g.Len())
	c, _ := g.Get("G")
	require.True(t, c.ConsumeEnable, "what a file leaves out has Java's default")
}

func TestGroupsAreCreatedOnDemandWhereThatIsAllowed(t *testing.T) {
	fsys, auto := vfstest.New(), true
	g := openGroups(t, fsys, func() bool { return auto })
	version := g.Version()
	c, err := g.GetOrCreate("G")
	require.NoError(t, err)
	require.Equal(t, protocol.NewSubscriptionGroupConfig("G").RetryMaxTimes, c.RetryMaxTimes)
	again, err := g.GetOrCreate("G")
	require.NoError(t, err)
	require.Same(t, c, again)
	require.Equal(t, version.Counter+1, g.Version().Counter)

	auto = false
	_, err = g.GetOrCreate("H")
	require.ErrorIs(t, err, ErrNoGroup)
	_, err = g.GetOrCreate("G")
	require.NoError(t, err)
	_, err = g.GetOrCreate("CID_RMQ_SYS_X")
	require.NoError(t, err)
	for _, name := range []string{"../x", "", "a/b", "a b", strings.Repeat("a", 256)} {
		_, err = g.GetOrCreate(name)
		require.ErrorIs(t, err, protocol.ErrGroupName)
		_, err = g.Put(protocol.NewSubscriptionGroupConfig(name))
		require.ErrorIs(t, err, protocol.ErrGroupName)
	}
	_, ok := openGroups(t, killed(fsys), no).Get("G")
	require.True(t, ok)
}

func TestGroupsPutAndDelete(t *testing.T) {
	fsys := vfstest.New()
	g := openGroups(t, fsys, no)
	conf := protocol.NewSubscriptionGroupConfig("G")
	conf.RetryMaxTimes = 3
	changed, err := g.Put(conf)
	require.NoError(t, err)
	require.True(t, changed)
	changed, err = g.Put(conf)
	require.NoError(t, err)
	require.False(t, changed)
	require.NoError(t, g.SetReadable("G", "T", false))
	require.False(t, g.Readable("G", "T"))
	require.True(t, g.Readable("G", "U"))
	require.True(t, g.Readable("H", "T"))

	again := openGroups(t, killed(fsys), no)
	c, ok := again.Get("G")
	require.True(t, ok)
	require.Equal(t, int32(3), c.RetryMaxTimes)
	require.False(t, again.Readable("G", "T"))
	require.Equal(t, map[string]map[string]int32{"G": {"T": 4}}, again.Forbidden())
	require.NoError(t, again.SetReadable("G", "T", true))
	require.NoError(t, again.SetReadable("G", "U", true))
	require.Empty(t, again.Forbidden())

	existed, err := g.Delete("G")
	require.NoError(t, err)
	require.True(t, existed)
	existed, err = g.Delete("G")
	require.NoError(t, err)
	require.False(t, existed)
	require.True(t, g.Readable("G", "T"), "a group that is created again is not forbidden what the old one was")
	_, ok = openGroups(t, killed(fsys), no).Get("G")
	require.False(t, ok)
}

func TestAReplicaTakesItsMastersGroupsOver(t *testing.T) {
	g := openGroups(t, vfstest.New(), yes)
	_, err := g.GetOrCreate("mine")
	require.NoError(t, err)
	other := &protocol.SubscriptionGroupWrapper{
		DataVersion:            protocol.DataVersion{Counter: 9},
		SubscriptionGroupTable: map[string]protocol.SubscriptionGroupConfig{"theirs": protocol.NewSubscriptionGroupConfig("theirs"), "../x": {}},
		ForbiddenTable:         map[string]map[string]int32{"theirs": {"T": 4}},
	}
	require.NoError(t, g.Adopt(other, other.DataVersion, nil))
	require.Equal(t, other.DataVersion, g.Version())
	require.Contains(t, g.Names(), "mine")
	require.Contains(t, g.Names(), "theirs")
	require.NotContains(t, g.Names(), "../x")
	require.False(t, g.Readable("theirs", "T"))
	require.Equal(t, []string{"mine"}, g.Lacking(other.SubscriptionGroupTable))
	require.NoError(t, g.Adopt(other, other.DataVersion, []string{"mine", "theirs", protocol.GroupTools}))
	require.NotContains(t, g.Names(), "mine")
	require.Contains(t, g.Names(), "theirs")
	require.Contains(t, g.Names(), protocol.GroupTools, "its own groups stay")
}

// A master that returns takes what it lacks, and nothing else changes.
func TestAddMissingGroups(t *testing.T) {
	fsys := vfstest.New()
	g := openGroups(t, fsys, yes)
	both := protocol.NewSubscriptionGroupConfig("both")
	_, err := g.Put(both)
	require.NoError(t, err)
	require.NoError(t, g.SetReadable("both", "T", false))
	version := g.Version()
	both.RetryMaxTimes = 1
	other := &protocol.SubscriptionGroupWrapper{
		SubscriptionGroupTable: map[string]protocol.SubscriptionGroupConfig{"new": protocol.NewSubscriptionGroupConfig("new"), "both": both, "../x": {}},
		ForbiddenTable:         map[string]map[string]int32{"new": {"T": 4}, "both": {"U": 4}},
	}
	for _, want := range [][]string{{"new"}, nil} {
		added, err := g.AddMissing(other)
		require.NoError(t, err)
		require.Equal(t, want, added)
		require.Equal(t, version.Counter+1, g.Version().Counter)
	}
	other.DataVersion.Counter = 1000
	_, err = g.AddMissing(other)
	require.NoError(t, err)
	require.Equal(t, int64(1001), g.Version().Counter)
	c, _ := openGroups(t, killed(fsys), no).Get("both")
	require.Equal(t, int32(16), c.RetryMaxTimes)
	require.Equal(t, map[string]map[string]int32{"new": {"T": 4}, "both": {"T": 4}}, g.Forbidden())
}
