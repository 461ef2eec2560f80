package ha

import (
	"context"
	"fmt"

	"github.com/ratchetmq/ratchet/protocol"
)

// tellOffsets gives the master what clients have committed here, before its tables are taken over: a group that is new here
// is then known there. A Java master has no request for that which could not take a group back.
func (m *Metadata) tellOffsets(ctx context.Context, addr string) error {
	if err := m.turn.take(ctx); err != nil {
		return err
	}
	ours := m.peer == addr && m.own.Load()
	m.turn.give()
	if !ours {
		return nil
	}
	told := false
	err := m.Offsets.TellMaster(func(table *protocol.ConsumerOffsetTable) error {
		body, err := protocol.Marshal(table)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, tableTimeout)
		defer cancel()
		resp, err := m.Client.Call(ctx, addr, protocol.MergeOffsets, nil, nil, body)
		if err == nil && resp.Code != int32(protocol.Success) {
			err = fmt.Errorf("offsets not taken: %w", answered(resp))
		}
		told = err == nil
		return err
	})
	if !told {
		return err
	}
	// What was committed here may be less than the master has. Its table does not change by that, and yet it is wanted.
	if err := m.turn.take(ctx); err != nil {
		return err
	}
	m.offsets = ""
	m.turn.give()
	return nil
}
