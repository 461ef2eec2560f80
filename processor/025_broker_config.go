// UPDATE_BROKER_CONFIG (25), GET_BROKER_CONFIG (26).
//
// Kept: properties text both ways; keys that say where files are can't be changed over the network (CVE-2023-33246).
// Changed: a value that is not legal is refused with a sentence that says so, and the answer says of each key whether it
// is in force or takes a restart; of the file given with -c only the changed lines are rewritten, and comments stay.

package processor

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/ratchetmq/ratchet/internal/config"
	"github.com/ratchetmq/ratchet/protocol"
	"github.com/ratchetmq/ratchet/remoting"
)

func (p *Processor) updateConfig(_ context.Context, r *remoting.Request) (protocol.Reply, error) {
	pairs, err := config.ParseProperties("request", r.Body)
	if err != nil {
		return protocol.Reply{}, refuse(protocol.InvalidParameter, "%v", err)
	}
	pairs = pairs.Effective()
	p.saving.Lock() // from before the change: the file is to end as the settings do
	defer p.saving.Unlock()
	effects, err := p.live.Update(pairs)
	switch {
	case errors.Is(err, config.ErrProtected):
		return protocol.Reply{}, refuse(protocol.NoPermission, "%v: it can't be changed over the network", err)
	case err != nil:
		return protocol.Reply{}, refuse(protocol.InvalidParameter, "%v", err)
	}
	var remarks []string
	var changed []config.Pair
	for i, pair := range pairs {
		if effects[i] != config.Unchanged {
			remarks = append(remarks, pair.Key+": "+effects[i].String())
			changed = append(changed, pair)
		}
		p.log.Info("setting changed", "key", pair.Key, "value", pair.Value, "effect", effects[i].String(),
			"client", r.Conn.RemoteAddr())
	}
	remark := strings.Join(remarks, "; ")
	if len(changed) > 0 && p.saveSettings != nil {
		if err := p.saveSettings(changed...); err != nil {
			return protocol.Reply{}, refuse(protocol.SystemError, "not saved: %v (%s)", err, remark)
		}
	}
	return protocol.Reply{Remark: remark}, nil
}

func (p *Processor) getConfig(context.Context, *remoting.Request) (protocol.Reply, error) {
	timestamp, counter := p.live.Version()
	version := `{"counter":` + strconv.FormatInt(counter, 10) + `,"stateVersion":0,"timestamp":` +
		strconv.FormatInt(timestamp, 10) + `}`
	return protocol.Reply{
		Header: &protocol.GetBrokerConfigResponse{Version: version},
		Body:   []byte(p.live.Text()),
	}, nil
}
