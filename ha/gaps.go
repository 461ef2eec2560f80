package ha

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/message"
	"github.com/ratchetmq/ratchet/store"
)

// places are what a broker of ours says in a frameGaps. Who copies its log then knows that something is missing there, and
// does not take the difference for another log when one of both has got it back.
type places struct {
	Gaps    []store.Span `json:"gaps"`    // of its log
	Damaged []store.Span `json:"damaged"` // parts of its log that can't be read
	// Queues are offsets that it keeps free. They are told of once: what is filled in is in the log.
	Queues []store.QueueSpan `json:"queues,omitempty"`
	Unseen store.Unseen      `json:"unseen,omitzero"`
	// Deleted are topics, each below a position, told of once, and before what came later to topics of the same names.
	Deleted map[string]offset.Physical `json:"deleted,omitempty"`
}

func readPlaces(body []byte) (p places, err error) {
	if err = json.Unmarshal(body, &p); err != nil {
		err = fmt.Errorf("%w: gaps: %w", errFrame, err)
	}
	return p, err
}

// queuesAtOnce is how many gaps of queues go into a frame.
const queuesAtOnce = 10_000

// tellGaps tells a broker of ours which places are kept free here, with queues those of queues, too.
func (f *feed) tellGaps(at offset.Physical, queues bool) error {
	gaps := f.opts.Store.Gaps()
	p := places{Gaps: gaps.Log, Damaged: f.opts.Store.Damaged(), Unseen: gaps.Unseen, Deleted: f.opts.Store.Deleted()}
	known := f.deleted
	f.deleted = maps.Clone(p.Deleted)
	maps.DeleteFunc(p.Deleted, func(topic string, below offset.Physical) bool { return known[topic] == below })
	if queues {
		for part := range slices.Chunk(gaps.Queues, queuesAtOnce) {
			p.Queues = part
			if len(part) == queuesAtOnce {
				if err := f.tell(at, &p); err != nil {
					return err
				}
				p.Queues = nil
			}
		}
	}
	return f.tell(at, &p)
}

func (f *feed) tell(at offset.Physical, p *places) error {
	body, err := json.Marshal(p)
	if err != nil {
		return err
	}
	b := append(make([]byte, ownHead), body...)
	putOwnHead(b, frameGaps, at, f.opts.Store.Written(), len(body))
	if err := f.conn.SetWriteDeadline(time.Now().Add(f.opts.Silence)); err != nil {
		return err
	}
	_, err = f.conn.Write(b)
	return err
}

// learn takes what the other broker says that it does not have.
func (in *intake) learn(body []byte) error {
	p, err := readPlaces(body)
	if err != nil {
		return err
	}
	in.compare.Pass(p.Gaps, p.Damaged)
	in.free = p.Gaps
	if in.stream != nil {
		in.stream.KeptFree(in.free)
	}
	if err := in.store.Adopt(p.Queues, p.Unseen); err != nil {
		return err
	}
	if in.deleted == nil {
		in.deleted = p.Deleted
	}
	maps.Copy(in.deleted, p.Deleted)
	if err := in.adoptDeleted(); err != nil {
		return err
	}
	if in.lacks != nil {
		in.lacks(p)
	}
	return nil
}

// adoptDeleted deletes what the other broker has, once its log is known to be this one.
func (in *intake) adoptDeleted() error {
	if in.next < in.known {
		return nil
	}
	topics := in.deleted
	in.deleted = nil
	return in.store.AdoptDeleted(topics)
}

// endOf is up to where a broker that keeps places free may have what belongs into a gap, from its beginning on.
func endOf(gap store.Span, free []store.Span) offset.Physical {
	if left := offset.Without([]store.Span{gap}, free...); len(left) > 0 && left[0].From == gap.From {
		return left[0].To
	}
	return gap.From
}

// beyond is all that is in no log that has only have.
func beyond(have store.Span) []store.Span {
	return []store.Span{{To: have.From}, {From: have.To, To: math.MaxInt64}}
}

// pull takes the master's log. Beside that it fetches from the master what belongs into the gaps of this log, which the master
// got back after this broker had copied them, and into its damaged parts.
func (f *Follower) pull(ctx context.Context, p *puller, haAddr string, peer *Peer) error {
	told := make(chan places, 1)
	p.lacks = func(master places) {
		select {
		case <-told:
		default:
		}
		told <- master // there is room: nobody else puts anything in
	}
	filling, end := context.WithCancel(ctx)
	var fills sync.WaitGroup
	fills.Go(func() { f.fill(filling, haAddr, peer, told) })
	defer fills.Wait()
	defer end()
	return p.pull(ctx, haAddr, f.begin(peer), -1)
}

// fill does so each time that the master tells what it lacks itself, until ctx is done.
func (f *Follower) fill(ctx context.Context, haAddr string, peer *Peer, told <-chan places) {
	o, s := &f.opts, f.opts.Store
	p := quietPuller(s, o.Dial, o.Silence, o.Heartbeat, o.Peers.greeting(peer, o.Memory, false))
	low := offset.Physical(peer.Status.Low)
	for {
		var master places
		select {
		case master = <-told:
		case <-ctx.Done():
			return
		}
		for _, gap := range s.Gaps().Log {
			to := endOf(gap, master.Gaps)
			if to <= gap.From || low > gap.From {
				continue
			}
			f.log.Info("filling a gap", "addr", peer.Addr, "from", int64(gap.From), "to", int64(to))
			if err := p.refill(ctx, haAddr, gap.From, to, s.RefillStream(gap.From, true, true)); err != nil && ctx.Err() == nil {
				f.log.Error("a gap is not filled from the master", "addr", peer.Addr, "phy", int64(gap.From), "err", err)
			}
		}
		err := p.repair(ctx, haAddr, slices.Concat(master.Gaps, master.Damaged, beyond(store.Span{From: low, To: math.MaxInt64})))
		if err != nil && ctx.Err() == nil {
			f.log.Error("what is damaged here is not repaired from the master", "addr", peer.Addr, "err", err)
		}
	}
}

// repair fetches what is damaged here from the broker at addr, as far as that does not lack it itself.
func (p *puller) repair(ctx context.Context, addr string, lacks []store.Span) error {
	var errs []error
	for _, part := range offset.Without(p.store.Damaged(), lacks...) {
		err := p.refill(ctx, addr, part.From, part.To, p.store.RepairStream(part))
		if err == nil && len(offset.Without([]store.Span{part}, p.store.Damaged()...)) == 0 {
			err = fmt.Errorf("%w: what was sent for [%d, %d) ends elsewhere", message.ErrCorrupt, part.From, part.To)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
