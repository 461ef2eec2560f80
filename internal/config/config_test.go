package config

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/internal/vfs"
)

func validText(s string) bool { return utf8.ValidString(s) }

var testEnv = Env{Home: "/home/op", Lookup: func(name string) (string, bool) {
	if name == "DATA" {
		return "/data", true
	}
	return "", false
}}

func load(t *testing.T, text string) (*Broker, []Pair) {
	t.Helper()
	b, unknown, err := LoadBroker("broker.conf", []byte(text), "/srv/store", testEnv)
	require.NoError(t, err)
	return b, unknown
}

func TestDefaultsAreRocketMQs(t *testing.T) {
	b, unknown := load(t, "")
	require.Empty(t, unknown)
	require.Equal(t, "DefaultCluster", b.Cluster)
	require.Equal(t, 10911, b.Port)
	require.Equal(t, AsyncMaster, b.Role)
	require.Equal(t, AsyncFlush, b.Flush)
	require.Equal(t, int64(1<<30), b.SegmentSize)
	require.Equal(t, 300000, b.QueueUnits())
	require.Equal(t, 4<<20, b.MaxMessageSize)
	require.Equal(t, 500*time.Millisecond, b.FlushEvery)
	require.Equal(t, 72*time.Hour, b.ReservedTime)
	require.Equal(t, List{"04"}, b.DeleteWhen)
	require.Equal(t, 6, b.Permission)
	require.Equal(t, 8, b.DefaultQueues)
	require.Len(t, strings.Fields(b.DelayLevels), 18)
	require.Equal(t, "/srv/store", b.StoreRoot)
	require.Equal(t, []string{"/srv/store/commitlog"}, b.CommitLogDirs())
	require.Equal(t, "/srv/store/config", b.ConfigDir())

	n, _, err := LoadNamesrv("", nil, "/srv/ns", testEnv)
	require.NoError(t, err)
	require.Equal(t, 9876, n.Port)
	require.Equal(t, "/srv/ns/kvConfig.json", n.KVPath)
}

// The file that RocketMQ ships, with a few keys of each version that Ratchet has no use for.
func TestStockFileRunsUnchanged(t *testing.T) {
	b, unknown := load(t, `# Licensed to somebody
brokerClusterName = DefaultCluster
brokerName = broker-a
brokerId = 0
deleteWhen = 04
fileReservedTime = 48
brokerRole = ASYNC_MASTER
flushDiskType = ASYNC_FLUSH
namesrvAddr=10.0.0.1:9876; 10.0.0.2:9876
sendMessageThreadPoolNums=128
useReentrantLockWhenPutMessage=true
aclEnable=false
`)
	require.Equal(t, "broker-a", b.Name)
	require.Equal(t, 48*time.Hour, b.ReservedTime)
	require.Equal(t, List{"10.0.0.1:9876", "10.0.0.2:9876"}, b.Namesrv)
	require.Equal(t, 128, b.SendWorkers)
	require.Equal(t, []string{"useReentrantLockWhenPutMessage", "aclEnable"}, keys(unknown))
	require.Equal(t, 11, unknown[0].Line)
	require.Contains(t, Text(b, unknown), "\naclEnable=false\n")
	require.Equal(t, 1, strings.Count(Text(b, unknown), "fileReservedTime"))
}

func keys(pairs []Pair) (out []string) {
	for _, p := range pairs {
		out = append(out, p.Key)
	}
	return out
}

// Scenario 7-13: no setting is accepted without a word and then not used. What no code reads says so in its tag, and
// whoever begins to read it takes that away.
func TestEverySettingIsReadOrSaysThatItIsNot(t *testing.T) {
	var code strings.Builder
	require.NoError(t, filepath.WalkDir("../..", func(path string, d os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "config" || d.Name() == ".git" || d.Name() == "testdata"):
			return filepath.SkipDir
		case filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		code.Write(text)
		return err
	}))
	for _, of := range []reflect.Type{reflect.TypeFor[Broker](), reflect.TypeFor[Namesrv]()} {
		for _, f := range tableOf(of).fields {
			name := of.Field(f.index).Name
			byMethod := name == "QueueFileSize" || name == "StoreRoot" || name == "CommitLogPath" || name == "ReadOnlyLogs" // read through methods of Broker
			read := byMethod || regexp.MustCompile(`\.`+name+`\b`).MatchString(code.String())
			require.False(t, !read && !f.unused && !f.protected, "nothing reads %s.%s: tag %s as unused", of.Name(), name, f.key)
			require.False(t, f.unused && f.live, f.key)
		}
	}
}

func TestEveryBadValueIsNamedWithFileAndLine(t *testing.T) {
	_, _, err := LoadBroker("broker.conf", []byte(`listenPort=abc
brokerRole=MASTER
slaveReadEnable=yes
flushIntervalCommitLog = 0
mappedFileSizeCommitLog=99999999999999999999
storePathRootDir=${nowhere}/x
listenPort=70000
`), "/s", testEnv)
	require.EqualError(t, err, `broker.conf:2: key "brokerRole": "MASTER" is none of ASYNC_MASTER, SYNC_MASTER, SLAVE
broker.conf:3: key "slaveReadEnable": "yes" is neither true nor false
broker.conf:4: key "flushIntervalCommitLog": 0 is below the least value, 1
broker.conf:5: key "mappedFileSizeCommitLog": 99999999999999999999 does not fit in 64 bits
broker.conf:6: key "storePathRootDir": ${nowhere} is not known
broker.conf:7: key "listenPort": 70000 is above the greatest value, 65535`)
	_, _, err = LoadBroker("b.conf", []byte("maxMessageSize=abc"), "/s", testEnv)
	require.EqualError(t, err, `b.conf:1: key "maxMessageSize": "abc" is not a number`)
}

func TestSettingsThatContradictEachOther(t *testing.T) {
	for text, want := range map[string]string{
		"brokerRole=SLAVE":               `f: key "brokerId": a slave's id can't be 0`,
		"brokerName=":                    `f: key "brokerName" is empty`,
		"brokerName=../x":                `f: brokerName "../x" and brokerClusterName "DefaultCluster" can't have a slash: they name topics`,
		"deleteWhen=04;25":               `f: key "deleteWhen": "25" is not an hour of the day, 00 to 23`,
		"diskSpaceCleanForciblyRatio=95": `f: diskSpaceCleanForciblyRatio 95 is above diskSpaceWarningLevelRatio 90`,
	} {
		_, _, err := LoadBroker("f", []byte(text), "/s", testEnv)
		require.EqualError(t, err, want)
	}
	b, _ := load(t, "brokerRole=SYNC_MASTER\nbrokerId=3")
	require.Zero(t, b.ID, "a master's id is 0")
	b, _ = load(t, "brokerRole=slave\nbrokerId=3")
	require.Equal(t, int64(3), b.ID)
}

func TestPathsAreExpanded(t *testing.T) {
	for text, want := range map[string]string{
		"${user.home}/store":  "/home/op/store",
		"~/store":             "/home/op/store",
		"~":                   "/home/op",
		"${DATA}/rmq//store/": "/data/rmq/store",
		"~bob/x":              "~bob/x",
		"/a/~/b":              "/a/~/b",
		"":                    "/srv/store",
	} {
		b, _ := load(t, "storePathRootDir="+text)
		require.Equal(t, want, b.StoreRoot)
	}
	b, _ := load(t, "storePathCommitLog=~/a, ${DATA}/b")
	require.Equal(t, []string{"/home/op/a", "/data/b"}, b.CommitLogDirs())
	require.Empty(t, b.ReadOnlyCommitLogDirs())
	b, _ = load(t, "readOnlyCommitLogStorePaths=/old,~/older")
	require.Equal(t, []string{"/old", "/home/op/older"}, b.ReadOnlyCommitLogDirs())
}

func TestACommaTooManyIsNoFolder(t *testing.T) {
	b, _ := load(t, "storePathCommitLog=/a/commitlog, ,/b/commitlog,\nreadOnlyCommitLogStorePaths=/c,")
	require.Equal(t, []string{"/a/commitlog", "/b/commitlog"}, b.CommitLogDirs())
	require.Equal(t, []string{"/c"}, b.ReadOnlyCommitLogDirs())
	b, _ = load(t, "storePathCommitLog=,\nreadOnlyCommitLogStorePaths=,")
	require.Equal(t, []string{"/srv/store/commitlog"}, b.CommitLogDirs())
	require.Empty(t, b.ReadOnlyCommitLogDirs())
}

// Each tag is well formed, each default is legal, and the text of each setting reads back as the same value.
func TestWhatIsPrintedReadsBack(t *testing.T) {
	b, _ := load(t, "brokerRole=SYNC_MASTER\nnamesrvAddr=a:1;b:2\nfileReservedTime=7\ntimerMaxDelaySec=100")
	again, idle := load(t, Text(b, nil))
	require.Equal(t, []string{"timerMaxDelaySec"}, keys(idle))
	require.Equal(t, b, again)

	var n, m Namesrv
	Defaults(&n)
	Defaults(&m)
	idle, err := Load(&m, "n", []byte(Text(&n, nil)), testEnv)
	require.NoError(t, err)
	require.Empty(t, idle)
	require.Equal(t, n, m)

	v, ok := Get(b, "fileReservedTime")
	require.True(t, ok)
	require.Equal(t, "7", v)
	_, ok = Get(b, "nosuch")
	require.False(t, ok)
}

func TestNoKeyStandsTwice(t *testing.T) {
	for _, text := range []string{Text(new(Broker), nil), Text(new(Namesrv), nil)} {
		seen := map[string]bool{}
		for line := range strings.Lines(text) {
			key, _, _ := strings.Cut(line, "=")
			require.False(t, seen[key], key)
			seen[key] = true
		}
	}
}

func live(t *testing.T, text string) *Live[Broker] {
	t.Helper()
	b, unknown := load(t, text)
	return NewLive(b, unknown, testEnv)
}

func TestAChangeIsInForceOrNeedsARestart(t *testing.T) {
	l := live(t, "oldKey=1")
	var seen [][2]int
	l.OnChange(func(before, after *Broker) { seen = append(seen, [2]int{before.Permission, after.Permission}) })
	held := l.Get()

	for _, c := range []struct {
		key, value string
		want       Effect
		shown      string
	}{
		{"brokerPermission", "4", AtOnce, "4"},
		{"brokerPermission", "4", Unchanged, "4"},
		{"listenPort", "10999", NeedsRestart, "10911"},
		{"shortPollingTimeMills", "1024", AtOnce, "1024"},
		{"rejectTransactionMessage", "true", Kept, "true"},
	} {
		effect, err := l.Set(c.key, c.value)
		require.NoError(t, err)
		require.Equal(t, c.want, effect, c.key)
		v, _ := Get(l.Get(), c.key)
		require.Equal(t, c.shown, v)
	}
	require.Equal(t, 4, l.Get().Permission)
	require.Equal(t, 6, held.Permission, "a snapshot that somebody holds does not change")
	require.Equal(t, [][2]int{{6, 4}, {4, 4}}, seen)
	_, counter := l.Version()
	require.Equal(t, int64(3), counter)

	effect, err := l.Set("oldKey", "2")
	require.NoError(t, err)
	require.Equal(t, Kept, effect)
	require.Contains(t, l.Text(), "\noldKey=2\n")
	require.NotContains(t, l.Text(), "oldKey=1")
	require.Contains(t, l.Text(), "\nbrokerPermission=4\n")
	require.Contains(t, l.Text(), "\nlistenPort=10911\n", "what is shown is what is in force")
}

func TestABadPairRefusesTheWholeUpdate(t *testing.T) {
	l := live(t, "")
	_, err := l.Update([]Pair{{Key: "brokerPermission", Value: "4"}, {Key: "maxMessageSize", Value: "abc"}})
	require.EqualError(t, err, `key "maxMessageSize": "abc" is not a number`)
	require.Equal(t, 6, l.Get().Permission)
	_, err = l.Update([]Pair{{Key: "diskSpaceCleanForciblyRatio", Value: "95"}})
	require.Error(t, err)
	_, err = l.Update([]Pair{{Key: "brokerId", Value: "-1"}})
	require.Error(t, err, "a value that waits for a restart is checked as well")
	effects, err := l.Update([]Pair{{Key: "diskSpaceCleanForciblyRatio", Value: "95"}, {Key: "diskSpaceWarningLevelRatio", Value: "96"}})
	require.NoError(t, err, "pairs are checked together")
	require.Equal(t, []Effect{AtOnce, AtOnce}, effects)
}

// CVE-2023-33246: these move files about, or open the list that protects them.
func TestProtectedKeysAreRefused(t *testing.T) {
	l := live(t, "configBlackList=regionId;customKey")
	for _, key := range []string{"brokerConfigPath", "rocketmqHome", "configBlackList", "regionId", "customKey"} {
		_, err := l.Set(key, "/tmp/x")
		require.ErrorIs(t, err, ErrProtected, key)
	}
	n, _, err := LoadNamesrv("", nil, "/srv/ns", testEnv)
	require.NoError(t, err)
	ln := NewLive(n, nil, testEnv)
	for _, key := range []string{"kvConfigPath", "configStorePath", "configBlackList", "rocketmqHome"} {
		_, err := ln.Set(key, "/tmp/x")
		require.ErrorIs(t, err, ErrProtected, key)
	}
}

func TestReadersNeverSeeHalfOfAChange(t *testing.T) {
	l := live(t, "accessMessageInMemoryMaxRatio=1\nbrokerPermission=1")
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 1; i < 500; i++ {
			v := strconv.Itoa(1 + i%8)
			_, err := l.Update([]Pair{{Key: "accessMessageInMemoryMaxRatio", Value: v}, {Key: "brokerPermission", Value: v}})
			if err != nil {
				panic(err)
			}
		}
	}()
	for {
		select {
		case <-done:
			return
		default:
			b := l.Get()
			require.Equal(t, b.MemoryRatio, b.Permission)
		}
	}
}

// Who acts on changes must end with the last one, however long an earlier one takes.
func TestChangesAreToldInTheirOrder(t *testing.T) {
	l := live(t, "")
	begun, second := make(chan struct{}), make(chan struct{})
	told := 0
	l.OnChange(func(_, after *Broker) {
		if after.Permission == 4 {
			close(begun)
			select {
			case <-second:
			case <-time.After(100 * time.Millisecond):
			}
		} else {
			close(second)
		}
		told = after.Permission
	})
	first := make(chan error)
	go func() {
		_, err := l.Set("brokerPermission", "4")
		first <- err
	}()
	<-begun
	_, err := l.Set("brokerPermission", "2")
	require.NoError(t, err)
	require.NoError(t, <-first)
	require.Equal(t, 2, l.Get().Permission)
	require.Equal(t, 2, told)
}

func TestUpdateFileKeepsCommentsAndABackup(t *testing.T) {
	path := filepath.Join(t.TempDir(), "broker.conf")
	before := "# my broker\r\nbrokerName = a\r\n\r\n! old\r\nbrokerPermission:6\r\n"
	require.NoError(t, os.WriteFile(path, []byte(before), 0o600))
	require.NoError(t, UpdateFile(vfs.OS{}, path, Pair{Key: "brokerPermission", Value: "4"}))
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, strings.Replace(before, ":6", ":4", 1), string(after))
	backup, err := os.ReadFile(path + ".bak")
	require.NoError(t, err)
	require.Equal(t, before, string(backup))

	fresh := filepath.Join(t.TempDir(), "new.conf")
	require.NoError(t, UpdateFile(vfs.OS{}, fresh, Pair{Key: "a", Value: "1"}, Pair{Key: "b", Value: "2"}))
	text, err := vfs.ReadFile(vfs.OS{}, fresh)
	require.NoError(t, err)
	require.Equal(t, "a=1\nb=2\n", string(text))
}

func BenchmarkLiveGet(b *testing.B) {
	cfg, _, err := LoadBroker("", nil, "/s", testEnv)
	if err != nil {
		b.Fatal(err)
	}
	l := NewLive(cfg, nil, testEnv)
	for b.Loop() {
		if l.Get().Permission != 6 {
			b.Fatal("permission changed")
		}
	}
}
