package sim

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"regexp"
	"strconv"

	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/protocol"
	"github.com/ratchetmq/ratchet/remoting"
)

// weakness is a protection that is switched off, to see that the simulator notices.
type weakness uint8

const (
	none             weakness = iota
	openUnasked               // a master opens without asking its replicas
	neverSuspect              // a power cut is taken for a kill
	noQueueFloor              // after a loss queues go on with the next offset
	noLogGap                  // after a loss the log goes on where it ends
	countAnyAck               // an acknowledgement counts without a look at what the slave has, at a master with noLogGap
	showUnreplicated          // readers of a SYNC_MASTER see what no slave has
	overflowToMax             // a consumer that is ahead is moved to the queue's end
	overwriteOffsets          // another broker's offsets take the place of the own ones
	neverCompare              // a slave appends without comparing what it has, below a master with noLogGap
	neverHeal                 // a gap is not filled from a slave that comes back
	forgetResets              // offsets are merged by maximum alone
	countUndelivered          // another broker's count of delivered messages is one too high
	missDeletions             // slaves hear of deleted topics only when they compare tables
	trustDisk                 // a write that failed is taken for done
)

var weaknesses = [...]string{
	"none", "open unasked", "never suspect", "no queue floor", "no log gap", "count any ack", "show unreplicated", "overflow to max",
	"overwrite offsets", "never compare", "never heal", "forget resets", "count undelivered", "miss deletions", "trust disk",
}

func (w weakness) String() string { return weaknesses[w] }

// losesTail says whether the protection is for a master that has lost what its slaves have. By chance few seeds come to
// that.
func (w weakness) losesTail() bool {
	return w == openUnasked || w == noLogGap || w == countAnyAck || w == neverCompare || w == neverHeal
}

// dial opens a connection to an HA port, as this process.
func (p *process) dial(ctx context.Context, addr string) (net.Conn, error) {
	if p.dead.Load() {
		return nil, errDead
	}
	conn, err := p.c.net.dial(ctx, p.n.host, addr)
	if err != nil {
		return nil, err
	}
	weak := p.c.set.weak
	if weak == neverCompare && !p.group.Standing().Master || weak == countAnyAck && p.leading() {
		return &mirror{Conn: conn, p: p}, nil
	}
	if weak == missDeletions && !p.plain() && !p.group.Standing().Master {
		return &deaf{Conn: conn}, nil
	}
	return conn, nil
}

// deaf is a connection to an HA port on which nothing is said of deleted topics.
type deaf struct {
	net.Conn
	greeted bool
	heard   bytes.Buffer
}

func (d *deaf) Read(b []byte) (int, error) {
	if d.heard.Len() > 0 {
		return d.heard.Read(b)
	}
	const frameGaps, sizeAt, sumAt = 3, 4, 24
	head, at := make([]byte, frameHead), sizeAt
	if !d.greeted {
		head, at = head[:greetHead], greetHead-4
	}
	if _, err := io.ReadFull(d.Conn, head); err != nil {
		return 0, err
	}
	body := make([]byte, binary.BigEndian.Uint32(head[at:]))
	if _, err := io.ReadFull(d.Conn, body); err != nil {
		return 0, err
	}
	var places map[string]json.RawMessage
	if d.greeted && head[0] == frameGaps && json.Unmarshal(body, &places) == nil {
		delete(places, "deleted")
		body, _ = json.Marshal(places)
		binary.BigEndian.PutUint32(head[sizeAt:], uint32(len(body)))
		table := crc32.MakeTable(crc32.Castagnoli)
		binary.BigEndian.PutUint32(head[sumAt:], crc32.Update(crc32.Checksum(head[:sumAt], table), table, body))
	}
	d.greeted = true
	d.heard.Write(head)
	d.heard.Write(body)
	return d.heard.Read(b)
}

// deceive changes what a master of a weakened kind hears of its slaves: that there is nothing that could be fetched.
func (p *process) deceive(code protocol.RequestCode, resp *remoting.Response) {
	weak := p.c.set.weak
	switch {
	case weak == forgetResets && code == protocol.GetAllConsumerOffset:
		var table protocol.ConsumerOffsetTable
		if protocol.Unmarshal(resp.Body, &table) == nil {
			table.Ratchet = nil
			resp.Body, _ = protocol.Marshal(table)
		}
	case weak == countUndelivered && code == protocol.GetAllDelayOffset:
		resp.Body = regexp.MustCompile(`\b[1-9][0-9]*:[0-9]+`).ReplaceAllFunc(resp.Body, func(level []byte) []byte {
			number, next, _ := bytes.Cut(level, []byte{':'})
			n, _ := strconv.ParseInt(string(next), 10, 64)
			return fmt.Appendf(nil, "%s:%d", number, n+1)
		})
	}
	if weak != neverHeal && weak != countAnyAck || resp.Code != int32(protocol.Success) || !p.leading() {
		return
	}
	switch code {
	case protocol.GetReplicaStatus:
		var s protocol.ReplicaStatus
		if protocol.Unmarshal(resp.Body, &s) == nil && s.Role == "SLAVE" {
			s.End = 0
			resp.Body, _ = protocol.Marshal(s)
		}
	case protocol.GetBrokerRuntimeInfo:
		var kv protocol.KVTable
		if protocol.Unmarshal(resp.Body, &kv) == nil {
			kv.Table["commitLogMaxOffset"] = "0"
			resp.Body, _ = protocol.Marshal(kv)
		}
	default:
	}
}

// The greeting between brokers of ours, see ha/hello.go.
const (
	helloMagic = 0xF052415443484554
	greetHead  = 12
	frameHead  = 32
)

// mirror is a connection to an HA port on which the part of the log that a broker has already comes from itself, so that it
// finds nothing to differ.
type mirror struct {
	net.Conn
	p     *process
	asked bool
	first bytes.Buffer // to be read before the rest
}

func (m *mirror) Write(b []byte) (int, error) {
	if m.asked {
		return m.Conn.Write(b)
	}
	m.asked = true
	end := m.p.store.Written()
	if binary.BigEndian.Uint64(b) != helloMagic {
		from := offset.Physical(binary.BigEndian.Uint64(b))
		if from < 1 || from >= end {
			return m.Conn.Write(b)
		}
		m.own(from, end, func(at offset.Physical, body []byte) []byte {
			head := binary.BigEndian.AppendUint64(nil, uint64(at))
			return binary.BigEndian.AppendUint32(head, uint32(len(body)))
		})
		_, err := m.Conn.Write(binary.BigEndian.AppendUint64(nil, uint64(end)))
		return len(b), err
	}
	var hello map[string]any
	if err := protocol.Unmarshal(b[greetHead:], &hello); err != nil {
		return 0, err
	}
	from, _ := hello["from"].(float64)
	hello["from"] = int64(max(end, offset.Physical(from)))
	text, err := protocol.Marshal(hello)
	if err != nil {
		return 0, err
	}
	out := binary.BigEndian.AppendUint64(nil, helloMagic)
	out = binary.BigEndian.AppendUint32(out, uint32(len(text)))
	if _, err := m.Conn.Write(append(out, text...)); err != nil {
		return 0, err
	}
	// The answer first, then the own bytes.
	head := make([]byte, greetHead)
	if _, err := io.ReadFull(m.Conn, head); err != nil {
		return 0, err
	}
	answer := make([]byte, binary.BigEndian.Uint32(head[8:]))
	if _, err := io.ReadFull(m.Conn, answer); err != nil {
		return 0, err
	}
	m.first.Write(head)
	m.first.Write(answer)
	m.own(offset.Physical(from), end, func(at offset.Physical, body []byte) []byte {
		head := binary.BigEndian.AppendUint32(nil, 1<<24)
		head = binary.BigEndian.AppendUint32(head, uint32(len(body)))
		head = binary.BigEndian.AppendUint64(head, uint64(at))
		head = binary.BigEndian.AppendUint64(head, uint64(end))
		table := crc32.MakeTable(crc32.Castagnoli)
		sum := crc32.Update(crc32.Checksum(head, table), table, body)
		return append(binary.BigEndian.AppendUint32(head, sum), 0, 0, 0, 0)
	})
	return len(b), nil
}

// own adds frames of this broker's bytes.
func (m *mirror) own(from, end offset.Physical, head func(at offset.Physical, body []byte) []byte) {
	for from < end {
		body := make([]byte, end-from)
		n, err := m.p.store.ReadLog(from, body)
		if err != nil || n == 0 {
			return
		}
		m.first.Write(head(from, body[:n]))
		m.first.Write(body[:n])
		from += offset.Physical(n)
	}
}

func (m *mirror) Read(b []byte) (int, error) {
	if m.first.Len() > 0 {
		return m.first.Read(b)
	}
	return m.Conn.Read(b)
}
