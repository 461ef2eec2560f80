package ha

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/internal/offset"
)

func has(end offset.Physical) Replica {
	return Replica{Name: fmt.Sprint("has", end), Answered: true, End: end}
}

var silentReplica = Replica{Name: "silent"}

func TestDecide(t *testing.T) {
	const limit = time.Minute
	forked := has(90)
	forked.Parted, forked.Forked, forked.Epoch = true, 40, 2
	forkedAtZero := has(90)
	forkedAtZero.Parted, forkedAtZero.Epoch = true, 2
	later := has(45)
	later.Epoch, later.Later = 2, 40
	followed := has(45)
	followed.Epoch, followed.Later = 2, 45
	cutToo := has(50)
	cutToo.Suspect = true
	leading := has(50)
	leading.Leads = true
	master := has(50)
	master.Master, master.Epoch, master.Later = true, 2, 50
	taking := has(50)
	taking.Takes = true
	newMaster := has(0)
	newMaster.Master = true
	young := has(900)
	young.Low = 500
	for _, c := range []struct {
		name   string
		own    Survival
		others []Replica
		waited time.Duration
		forced bool
		want   Decision // Why is not compared
	}{
		{"alone", Survival{End: 50}, nil, 0, false, Decision{Action: Open}},
		{"alone, after a power cut", Survival{End: 50, Suspect: true, Exposed: true}, nil, 0, false, Decision{Action: Open, QueueGap: true}},
		{"nobody has more", Survival{End: 50}, []Replica{has(50), has(40)}, 0, false, Decision{Action: Open}},
		{"after a power cut nobody has more, and nobody saw more", Survival{End: 50, Suspect: true}, []Replica{has(50)}, 0, false, Decision{Action: Open}},
		{"after a power cut nobody has more, but readers may have seen more", Survival{End: 50, Suspect: true, Exposed: true}, []Replica{has(50)}, 0, false, Decision{Action: Open, QueueGap: true}},
		{"the most advanced is asked", Survival{End: 50}, []Replica{has(60), has(80), has(70)}, 0, false, Decision{Action: Fetch, From: 1}},
		{"more beats silence", Survival{End: 50, Suspect: true}, []Replica{silentReplica, has(60)}, 0, false, Decision{Action: Fetch, From: 1}},
		{"silence matters not when nothing is missing", Survival{End: 50}, []Replica{silentReplica}, 0, false, Decision{Action: Open}},
		{"silence after a power cut", Survival{End: 50, Suspect: true}, []Replica{silentReplica, has(50)}, 0, false, Decision{Action: Wait}},
		{"silence after a power cut with SYNC_FLUSH", Survival{End: 50, Untold: true}, []Replica{silentReplica}, 0, false, Decision{Action: Wait}},
		{"silence for too long after a power cut with SYNC_FLUSH", Survival{End: 50, Untold: true}, []Replica{silentReplica}, limit, false, Decision{Action: Open, LogGap: true, QueueGap: true}},
		{"after a power cut with SYNC_FLUSH nobody has more", Survival{End: 50, Untold: true, Exposed: true}, []Replica{has(50)}, 0, false, Decision{Action: Open}},
		{"after a power cut with SYNC_FLUSH of both", Survival{End: 50, Untold: true}, []Replica{cutToo}, 0, false, Decision{Action: Open, QueueGap: true}},
		{"silence for too long", Survival{End: 50, Suspect: true}, []Replica{silentReplica, has(50)}, limit, false, Decision{Action: Open, LogGap: true, QueueGap: true}},
		{"silence where a part is damaged", Survival{End: 50, Damaged: true}, []Replica{silentReplica}, 0, false, Decision{Action: Wait}},
		{"silence for too long where a part is damaged", Survival{End: 50, Damaged: true}, []Replica{silentReplica}, limit, false, Decision{Action: Open}},
		{"an empty disk, and a silent replica", Survival{}, []Replica{silentReplica}, 0, false, Decision{Action: Wait}},
		{"an empty disk, and nobody has anything", Survival{}, []Replica{has(0)}, 0, false, Decision{Action: Open}},
		{"an operator's word", Survival{End: 50, Suspect: true}, []Replica{silentReplica}, 0, true, Decision{Action: Open, LogGap: true, QueueGap: true}},
		{"an operator's word against a replica that has more", Survival{End: 50}, []Replica{has(60)}, 0, true, Decision{Action: Open, LogGap: true, QueueGap: true}},
		{"another is the master", Survival{End: 50}, []Replica{leading}, limit, false, Decision{Action: Wait}},
		{"parted, and the other is later", Survival{End: 50, Epoch: 1}, []Replica{forked}, 0, false, Decision{Action: Cut, From: 0}},
		{"parted, and this is later", Survival{End: 50, Epoch: 3}, []Replica{forked}, 0, false, Decision{Action: Open}},
		{"parted, and nobody knows", Survival{End: 50, Epoch: 2}, []Replica{forked}, limit, false, Decision{Action: Wait}},
		{"parted from the first byte on", Survival{End: 50, Epoch: 2}, []Replica{forkedAtZero}, limit, false, Decision{Action: Wait}},
		{"parted, and an operator knows", Survival{End: 50, Epoch: 2}, []Replica{forked}, 0, true, Decision{Action: Open}},
		{"the other has less, of a later epoch", Survival{End: 50, Epoch: 1}, []Replica{later}, 0, false, Decision{Action: Fetch, From: 0}},
		{"the other has less, and has only heard of a later epoch", Survival{End: 50, Epoch: 1}, []Replica{followed}, 0, false, Decision{Action: Open}},
		{"a later epoch goes before a longer log", Survival{End: 30, Epoch: 1}, []Replica{has(60), later}, 0, false, Decision{Action: Fetch, From: 1}},
		{"in doubt, and the other has not taken the role over", Survival{End: 50, Suspect: true, Doubt: true}, []Replica{has(50)}, 0, false, Decision{Action: Open}},
		{"in doubt, and the other is about to", Survival{End: 50, Suspect: true, Doubt: true}, []Replica{taking}, 0, false, Decision{Action: Wait}},
		{"in doubt, and the other has", Survival{End: 50, Suspect: true, Doubt: true}, []Replica{master}, 0, false, Decision{Action: Yield}},
		{"a new disk, and another has taken the role over", Survival{New: true, Suspect: true}, []Replica{master}, 0, false, Decision{Action: Yield}},
		{"a new disk, and another that is as new", Survival{New: true, Suspect: true}, []Replica{newMaster}, 0, false, Decision{Action: Open}},
		{"an old disk, and another master that is not open", Survival{End: 50}, []Replica{master}, 0, false, Decision{Action: Open}},
		{"the other has lost its beginning", Survival{End: 50}, []Replica{young}, limit, false, Decision{Action: Wait}},
		{"the other has lost its beginning, and here is nothing", Survival{}, []Replica{young}, 0, false, Decision{Action: Fetch}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Decide(c.own, c.others, c.waited, limit, c.forced)
			require.NotEmpty(t, got.Why)
			got.Why = ""
			require.Equal(t, c.want, got)
		})
	}
}

// TestDecideKeepsThePromises walks over every small situation.
func TestDecideKeepsThePromises(t *testing.T) {
	const limit = time.Minute
	var kinds []Replica
	for _, end := range []offset.Physical{0, 1, 2, 3} {
		for epoch := range int32(3) {
			kinds = append(kinds, Replica{Name: "r", Answered: true, End: end, Epoch: epoch})
			kinds = append(kinds, Replica{Name: "r", Answered: true, End: end, Epoch: epoch, Parted: true, Forked: offset.Physical(epoch % 2)})
		}
		kinds = append(kinds, Replica{Name: "r", Answered: true, End: end, Leads: true})
	}
	kinds = append(kinds, silentReplica)
	opened := 0
	for _, a := range kinds {
		for _, b := range kinds {
			for bits := range 16 {
				own := Survival{End: offset.Physical(bits & 3), Suspect: bits&4 != 0, Exposed: bits&8 != 0, Epoch: 1}
				for _, waited := range []time.Duration{0, limit} {
					others := []Replica{a, b}
					d := Decide(own, others, waited, limit, false)
					switch d.Action {
					case Wait:
						require.False(t, waited == limit && !a.Answered && !b.Answered, "nobody is to be waited for any more")
					case Fetch:
						require.True(t, others[d.From].Answered)
						require.True(t, others[d.From].End > own.End || others[d.From].Epoch > own.Epoch)
					case Cut:
						require.Greater(t, others[d.From].Epoch, own.Epoch)
					case Yield:
						require.Fail(t, "only a broker that has begun to hand over gives its role up")
					case Open:
						opened++
						for _, r := range others {
							require.False(t, r.Leads, "two masters")
							if r.Answered && !r.Parted {
								require.LessOrEqual(t, r.End, own.End, "P5: %+v", r)
								require.False(t, r.Epoch > own.Epoch && r.End > 0, "the later life is given up: %+v", r)
							}
							if !r.Answered && own.Suspect {
								require.Equal(t, limit, waited)
								require.True(t, d.LogGap && d.QueueGap, "P2, P3: what it has may be given out again")
							}
						}
						if own.Suspect && own.Exposed {
							require.True(t, d.QueueGap, "P2: readers may have seen what is gone")
						}
					}
				}
			}
		}
	}
	require.Greater(t, opened, 100)
}
