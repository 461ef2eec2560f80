package namesrv

import (
	"fmt"
	"strings"
	"time"

	"github.com/ratchetmq/ratchet/protocol"
	"github.com/ratchetmq/ratchet/remoting"
)

// getRoute answers GET_ROUTEINFO_BY_TOPIC (105).
//
// Kept: broker ids are quoted only for versions from 4.9.4 on or with acceptStandardJsonOnly; __ZONE_MODE and
// __ZONE_NAME show one zone's brokers only; code 17 for what is not known. needWaitForService answers code 1 for
// unknown topics for the first waitSecondsForService.
//
// Changed: code 1 instead of 17 while the table is empty after a start, see the package comment (apache/rocketmq#5322).
func (s *Server) getRoute(r *remoting.Request) (protocol.Reply, error) {
	var h protocol.GetRouteInfoRequest
	if err := r.ReadHeader(&h); err != nil {
		return protocol.Reply{}, err
	}
	quoted := h.AcceptStandardJSONOnly || r.Version >= protocol.StandardJSONVersion
	var body []byte
	var ok bool
	if zone := zoneOf(&r.Fields); zone != "" {
		body, ok = s.table.ZoneRoute(h.Topic, zone, quoted)
	} else {
		body, ok = s.table.Route(h.Topic, quoted)
	}
	if ok {
		return protocol.Reply{Body: body}, nil
	}
	if err := s.notReady(); err != nil {
		return protocol.Reply{}, err
	}
	return protocol.Reply{}, fmt.Errorf("%w: %s", errNoRoute, h.Topic)
}

// notReady says whether an unknown topic is unknown only because brokers had no time to register yet.
func (s *Server) notReady() error {
	set := s.settings.Get()
	since := s.now().Sub(s.started)
	switch {
	case set.NeedWait && since < set.WaitFor:
		return fmt.Errorf("%w: it started %s ago and waits %s for all brokers", errNotReady,
			since.Round(time.Second), set.WaitFor)
	case since < s.grace && !s.table.Registered():
		return fmt.Errorf("%w: it started %s ago and no broker has registered yet", errNotReady,
			since.Round(time.Second))
	}
	return nil
}

// Fields that clients and brokers in a zone add to their requests.
const (
	fieldZoneName = "__ZONE_NAME"
	fieldZoneMode = "__ZONE_MODE"
)

// zoneOf is the zone that the client wants to be kept in, "" for none.
func zoneOf(f *protocol.Fields) string {
	mode, ok := f.Get(fieldZoneMode)
	if !ok || !strings.EqualFold(mode, "true") {
		return ""
	}
	zone, _ := f.Get(fieldZoneName)
	return strings.TrimSpace(zone)
}
