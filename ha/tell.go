package ha

import (
	"context"
	"fmt"

	"github.com/ratchetmq/ratchet/protocol"
)

// tellOffsets gives the master what clients have committed here. A Java master has no request for that which could not take
// a group back.
func (m *Metadata) tellOffsets(ctx context.Context) error {
	if !m.own.Load() {
		return nil
	}
	return m.Offsets.TellMaster(func(table *protocol.ConsumerOffsetTable) error {
		body, err := protocol.Marshal(table)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, tableTimeout)
		defer cancel()
		resp, err := m.Client.Call(ctx, m.peer, protocol.MergeOffsets, nil, nil, body)
		if err == nil && resp.Code != int32(protocol.Success) {
			err = fmt.Errorf("offsets not taken: %w", answered(resp))
		}
		return err
	})
}
