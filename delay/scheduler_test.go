package delay

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/internal/vfs"
	"github.com/ratchetmq/ratchet/internal/vfs/vfstest"
	"github.com/ratchetmq/ratchet/message"
	"github.com/ratchetmq/ratchet/store"
)

func TestDeliversWhenDueAndNotBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := begin(t, vfstest.New(), nil)
		r.send(3, "ten")
		r.send(1, "one")
		r.send(2, "five")
		r.send(18, "hours")
		for _, c := range []struct {
			after time.Duration
			want  []string
		}{
			{999 * time.Millisecond, nil},
			{time.Millisecond, []string{"one"}},
			{3999 * time.Millisecond, []string{"one"}},
			{time.Millisecond, []string{"one", "five"}},
			{5 * time.Second, []string{"one", "five", "ten"}},
			{2*time.Hour - 10*time.Second - time.Millisecond, []string{"one", "five", "ten"}},
			{time.Millisecond, []string{"one", "five", "ten", "hours"}},
		} {
			time.Sleep(c.after) // the bubble's clock
			synctest.Wait()
			require.Equal(t, c.want, r.delivered())
		}
		r.each("T", 0, func(rec *message.Record) {
			require.Equal(t, int64(1000), rec.BornTimestamp)
			require.Equal(t, netip.MustParseAddrPort("10.0.0.1:1234"), rec.BornHost)
			require.Equal(t, int32(5), rec.Flag)
			require.Equal(t, message.FlagLZ4, rec.SysFlag)
			require.Equal(t, int32(2), rec.ReconsumeTimes)
			topic, _ := message.Property(rec.Properties, message.PropertyRealTopic)
			require.Equal(t, "T", string(topic))
		})
		for _, l := range r.scheduler.Progress() {
			require.Equal(t, l.High, l.Next, "level %d", l.Level)
		}
		require.Zero(t, r.logs.count("level=ERROR"))
		r.stop()
	})
}

func TestSleepsWhenNothingWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads := 0
		r := begin(t, vfstest.New(), func(s *seam, _ *Options) { s.read = func() { reads++ } })
		synctest.Wait()
		before := reads
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, before, reads)
		r.send(18, "hours")
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, before+1, reads, "a message that waits is read once")
		r.send(1, "one")
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, []string{"one"}, r.delivered())
		r.stop()
	})
}

// Scenario 3-01: an orderly stop while half are delivered repeats nothing.
func TestStoppedDuringDelivery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const total = 10_000
		sum := 0
		half := make(chan struct{})
		r := begin(t, vfstest.New(), func(s *seam, _ *Options) {
			s.appended = func(n int) {
				if sum < total/2 && sum+n >= total/2 {
					close(half)
				}
				sum += n
			}
		})
		r.load(total)
		<-half
		r.stop()
		require.Less(t, sum, total)
		require.Equal(t, total, requireAllOnce(t, r.disk, false))
	})
}

// Scenario 2-05: whatever damages the file after an orderly stop, its backup has all of it.
func TestStopLeavesABackup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := begin(t, vfstest.New(), nil)
		r.send(1, "one")
		time.Sleep(10 * time.Second)
		require.Equal(t, []string{"one"}, r.delivered())
		r.stop()
		good, err := vfs.ReadFile(r.disk, path)
		require.NoError(t, err)
		r.disk.WriteFile(path, nil)
		p, err := loadProgress(r.disk, path)
		require.NoError(t, err)
		want, err := parseProgress(good)
		require.NoError(t, err)
		require.Equal(t, want, p)
	})
}

// Scenario 3-01 with kill -9: what the log has is not delivered again, however old the progress on disk is.
func TestKilledDuringDelivery(t *testing.T) {
	for _, at := range []int{1, 800, 1999, 2000, 2040, 3000, 4999} {
		for _, moment := range []string{"before", "after"} {
			t.Run(fmt.Sprint(at, moment), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					disk := vfstest.New()
					var crashed *vfstest.Mem
					sum := 0
					step := func(now string) func(int) {
						return func(n int) {
							if now == moment && sum < at && sum+n >= at {
								crashed = disk.CrashClone(vfstest.KeepAll, 0)
							}
							if now == "after" {
								sum += n
							}
						}
					}
					r := begin(t, disk, func(s *seam, _ *Options) {
						s.append = func(n int) error { step("before")(n); return nil }
						s.appended = step("after")
					})
					r.load(5_000) // in 2.5 s: deliveries begin after 1 s, saves are made after 2 s and 3 s
					time.Sleep(2 * time.Second)
					synctest.Wait()
					require.Equal(t, numbers(0, 5_000), r.delivered())
					r.stop()
					require.NotNil(t, crashed)
					total := requireAllOnce(t, crashed, false)
					require.GreaterOrEqual(t, total, at)
				})
			})
		}
	}
}

// A power cut takes the end of the log with deliveries that were already counted in memory: those are made again.
func TestPowerCutDuringDelivery(t *testing.T) {
	for seed := range uint64(6) {
		synctest.Test(t, func(t *testing.T) {
			disk := vfstest.New()
			r := begin(t, disk, nil)
			keep := vfstest.KeepNothing
			if seed%2 == 1 {
				keep = vfstest.KeepSome
			}
			var crashed *vfstest.Mem
			time.AfterFunc(1200*time.Millisecond+time.Duration(seed)*300*time.Millisecond, func() {
				crashed = disk.CrashClone(keep, seed)
			})
			r.load(5_000)
			time.Sleep(2 * time.Second)
			r.stop()
			require.Positive(t, requireAllOnce(t, crashed, keep == vfstest.KeepSome))
		})
	}
}

// Two equal messages, as a producer's retry makes them, are two deliveries, also when the kill falls between them.
func TestEqualMessagesAreBothDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := vfstest.New()
		r := begin(t, disk, nil)
		r.send(1, "same")
		time.Sleep(500 * time.Millisecond)
		r.send(1, "same")
		time.Sleep(700 * time.Millisecond)
		synctest.Wait()
		require.Equal(t, []string{"same"}, r.delivered())
		crashed := disk.CrashClone(vfstest.KeepAll, 0)
		r.stop()
		time.Sleep(time.Second) // the other comes due while nobody is there
		require.Equal(t, 2, requireAllOnce(t, crashed, false))
	})
}

func TestJavasTableIsGoneOnWith(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := begin(t, vfstest.New(), nil)
		for i := range 10 {
			r.send(1, key(i))
		}
		time.Sleep(2 * time.Second)
		r.stop()
		// Java had counted four of them ten seconds before it was killed.
		r.disk.WriteFile(path, []byte("{\n\t\"offsetTable\":{1:4\n\t}\n}"))
		require.Equal(t, 10, requireAllOnce(t, r.disk, false))
	})
}

func TestProgressIsSavedWithinASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := vfstest.New()
		r := begin(t, disk, nil)
		r.send(1, "a")
		time.Sleep(2100 * time.Millisecond)
		synctest.Wait()
		p, err := loadProgress(disk, path)
		require.NoError(t, err)
		require.Equal(t, offset.Queue(1), p.next[1])
		require.Equal(t, r.store.Written(), p.mark)
		syncs := disk.Count(vfstest.OpRename)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, syncs, disk.Count(vfstest.OpRename), "nothing changed, nothing is written")
		r.stop()
		require.Equal(t, syncs+2, disk.Count(vfstest.OpRename), "the file once more, and its backup")
	})
}

func TestProgressIsSavedAsOftenAsConfigured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := vfstest.New()
		r := begin(t, disk, func(_ *seam, o *Options) { o.SaveEvery = 10 * time.Second })
		r.send(1, "a")
		time.Sleep(9 * time.Second)
		synctest.Wait()
		require.NotContains(t, disk.Files(), path)
		time.Sleep(1100 * time.Millisecond)
		synctest.Wait()
		p, err := loadProgress(disk, path)
		require.NoError(t, err)
		require.Equal(t, offset.Queue(1), p.next[1])
	})
}

// The wall clock jumps. Forward, messages are due by the clock. Back, they wait no longer than twice their delay.
func TestClockJumps(t *testing.T) {
	for _, c := range []struct {
		name         string
		jump         time.Duration
		early, until time.Duration // not delivered after early, delivered after until
	}{
		{"forward", time.Hour, 0, time.Second},
		{"back a little", -3 * time.Second, 12900 * time.Millisecond, 13100 * time.Millisecond},
		{"back by days", -48 * time.Hour, 0, time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var jump time.Duration
				r := begin(t, vfstest.New(), func(_ *seam, o *Options) {
					o.Now = func() time.Time {
						mu.Lock()
						defer mu.Unlock()
						return time.Now().Add(jump)
					}
				})
				r.send(3, "ten") // due in 10 s
				synctest.Wait()
				mu.Lock()
				jump = c.jump
				mu.Unlock()
				if c.early > 0 {
					time.Sleep(c.early)
					synctest.Wait()
					require.Empty(t, r.delivered())
				}
				time.Sleep(c.until - c.early + 10*time.Millisecond)
				synctest.Wait()
				require.Equal(t, []string{"ten"}, r.delivered())
				r.stop()
			})
		})
	}
}

// damage overwrites bytes of the log.
func damage(t *testing.T, disk *vfstest.Mem, at offset.Physical, b []byte) {
	t.Helper()
	f, err := disk.Open(root + "/commitlog/00000000000000000000")
	require.NoError(t, err)
	_, err = f.WriteAt(b, int64(at))
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

func TestUnreadableMessagesAreSkipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := vfstest.New()
		release := make(chan struct{})
		r := begin(t, disk, func(s *seam, _ *Options) {
			s.read = func() { <-release } // nothing is read before the damage is done
		})
		var at []offset.Physical
		for i := range 10 {
			at = append(at, r.store.Written())
			r.send(1, key(i))
		}
		synctest.Wait() // all are in the queue
		damage(t, disk, at[3], make([]byte, 8))
		damage(t, disk, at[9], make([]byte, 8))
		close(release)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Equal(t, append(numbers(0, 3), numbers(4, 9)...), r.delivered())
		require.Positive(t, r.logs.count("delayed messages skipped that can't be read"))
		require.Equal(t, offset.Queue(10), r.scheduler.Progress()[0].Next)
		r.send(1, "after")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Equal(t, "after", r.delivered()[8])
		r.stop()
	})
}

func TestMessagesThatCannotBeDeliveredAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := begin(t, vfstest.New(), nil)
		for i, p := range [][]byte{
			props("DELAY", "1"),
			props("DELAY", "1", "REAL_TOPIC", "T"),
			props("DELAY", "1", "REAL_TOPIC", "T", "REAL_QID", "x"),
			props("DELAY", "1", "REAL_TOPIC", "T", "REAL_QID", "-1"),
			props("DELAY", "1", "REAL_TOPIC", Topic, "REAL_QID", "0"),
			props("DELAY", "1", "REAL_TOPIC", topicHalf, "REAL_QID", "0"),
			props("DELAY", "1", "REAL_TOPIC", "../../etc", "REAL_QID", "0"), // the log refuses it
		} {
			_, err := r.store.Append(store.Message{Topic: Topic, QueueID: 0, Properties: p, Body: []byte("b")})
			require.NoError(t, err)
			r.send(1, key(i))
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Equal(t, numbers(0, 7), r.delivered())
		require.Equal(t, 7, r.logs.count("delayed message dropped"))
		r.stop()
	})
}

func TestFailedAppendsAreTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full, asked := true, 0
		var mu sync.Mutex
		r := begin(t, vfstest.New(), func(s *seam, _ *Options) {
			s.append = func(int) error {
				mu.Lock()
				defer mu.Unlock()
				asked++
				if full {
					return fmt.Errorf("append: %w", store.ErrFull)
				}
				return nil
			}
		})
		for i := range 100 {
			r.send(1, key(i))
		}
		for range 600 { // ten minutes, in which messages go on coming in
			time.Sleep(time.Second)
			r.send(2, "late")
		}
		synctest.Wait()
		require.Empty(t, r.delivered())
		mu.Lock()
		require.Less(t, asked, 150, "the pauses grow")
		full = false
		mu.Unlock()
		require.LessOrEqual(t, r.logs.count("level=ERROR"), 12, "one line a minute")
		time.Sleep(2 * lastPause)
		synctest.Wait()
		got := r.delivered()
		require.Len(t, got, 700)
		got = slices.DeleteFunc(got, func(key string) bool { return key == "late" })
		require.Equal(t, numbers(0, 100), got, "in order")
		r.stop()
	})
}

func TestBrokenStoreEndsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct{ err, want error }{{store.ErrBroken, store.ErrBroken}, {store.ErrClosed, nil}} {
			r := begin(t, vfstest.New(), func(s *seam, _ *Options) { s.append = func(int) error { return c.err } })
			r.send(1, "a")
			time.Sleep(2 * time.Second)
			synctest.Wait()
			require.ErrorIs(t, r.stopDelay(), c.want)
			require.NoError(t, r.stopStore())
			require.NoError(t, r.store.Close())
		}
	})
}

// The queue's end was lost: what comes is numbered from there again, and must not be passed over.
func TestProgressBeyondTheQueueGoesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := vfstest.New()
		require.NoError(t, disk.MkdirAll("/store/config"))
		disk.WriteFile(path, []byte(`{"offsetTable":{1:50},"deliveredTo":999999}`))
		r := begin(t, disk, nil)
		synctest.Wait()
		require.Equal(t, 1, r.logs.count("delay progress ahead of the log"))
		r.send(1, "a")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		r.send(1, "b")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Equal(t, 1, r.logs.count("delay queue read on elsewhere"))
		require.Equal(t, "b", r.delivered()[len(r.delivered())-1])
		r.stop()
		p, err := loadProgress(disk, path)
		require.NoError(t, err)
		require.Equal(t, offset.Queue(2), p.next[1])
	})
}

// A slave keeps its master's table and, made master, repeats nothing (scenario 3-17).
func TestMergeMax(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		master := begin(t, vfstest.New(), nil)
		for i := range 20 {
			master.send(1, key(i))
		}
		time.Sleep(1100 * time.Millisecond)
		synctest.Wait()
		table := master.scheduler.Table()
		require.ErrorIs(t, master.scheduler.MergeMax(table, 0), ErrRunning)

		empty := begin(t, vfstest.New(), nil)
		require.NoError(t, empty.stopDelay())
		require.ErrorIs(t, empty.scheduler.MergeMax(table, 0), ErrAhead)
		require.ErrorIs(t, empty.scheduler.MergeMax([]byte("{"), 0), errTable)
		empty.stop()

		slaveDisk := master.disk.CrashClone(vfstest.KeepAll, 0)
		require.NoError(t, slaveDisk.RemoveAll("/store/config"), "a slave has no progress of its own")
		slave := begin(t, slaveDisk, nil)
		require.NoError(t, slave.stopDelay())
		end := slave.store.Written()
		bare := []byte(`{"offsetTable":{1:4,2:7}}`) // as Java's, which says nothing of the log
		require.ErrorIs(t, slave.scheduler.MergeMax(bare, end+1), ErrAhead)
		require.NoError(t, slave.scheduler.MergeMax(bare, end))
		require.NoError(t, slave.scheduler.MergeMax(table, 0))
		require.NoError(t, slave.scheduler.MergeMax([]byte(`{"offsetTable":{1:3,2:1}}`), end), "less changes nothing")
		p, err := loadProgress(slaveDisk, path)
		require.NoError(t, err)
		require.Equal(t, map[int]offset.Queue{1: 20, 2: 7}, p.next)
		require.Equal(t, parsed(t, table).mark, p.mark)
		slaveDisk.SetFault(func(op vfstest.Op) *vfstest.Fault {
			if strings.HasPrefix(op.Name, path) { // the store is at work on its own files meanwhile
				return &vfstest.Fault{Err: errTest}
			}
			return nil
		})
		require.NoError(t, slave.scheduler.MergeMax(table, 0), "what is known already is not written again")
		slaveDisk.SetFault(nil)
		run := background(slave.scheduler.Run)
		time.Sleep(2 * time.Second)
		require.NoError(t, run())
		require.Equal(t, numbers(0, 20), slave.delivered())
		slave.stop()
		master.stop()
	})
}

func TestSecondRunIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := begin(t, vfstest.New(), nil)
		synctest.Wait()
		require.ErrorIs(t, r.scheduler.Run(t.Context()), ErrRunning)
		r.stop()
	})
}

// Messages of a level that the table no longer has are not left behind.
func TestLevelsThatTheTableHasNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := begin(t, vfstest.New(), func(_ *seam, o *Options) { o.Levels = Levels{time.Second, 2 * time.Second} })
		r.send(18, "old")
		time.Sleep(2100 * time.Millisecond)
		synctest.Wait()
		require.Equal(t, []string{"old"}, r.delivered())
		r.stop()
	})
}

var errTest = errors.New("test")

func TestUnsavedProgressIsAnErrorAndRepeatsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := begin(t, vfstest.New(), nil)
		r.disk.SetFault(func(op vfstest.Op) *vfstest.Fault {
			if op.Kind == vfstest.OpCreate && strings.HasPrefix(op.Name, path) {
				return &vfstest.Fault{Err: errTest}
			}
			return nil
		})
		for i := range 10 {
			r.send(1, key(i))
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.Equal(t, 1, r.logs.count("delay progress not saved"))
		require.ErrorIs(t, r.stopDelay(), errTest)
		require.NoError(t, r.stopStore())
		require.NoError(t, r.store.Close())
		r.disk.SetFault(nil)
		require.Equal(t, 10, requireAllOnce(t, r.disk, false))
	})
}

func TestStopWaitsForASlowDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := begin(t, vfstest.New(), func(s *seam, _ *Options) { s.slow = 20 * time.Second })
		r.send(1, key(0))
		time.Sleep(3 * time.Second)
		r.stop()
		require.Equal(t, 1, requireAllOnce(t, r.disk, false))
	})
}

func parsed(t *testing.T, table []byte) progress {
	t.Helper()
	p, err := parseProgress(table)
	require.NoError(t, err)
	return p
}
