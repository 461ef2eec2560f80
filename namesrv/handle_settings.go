package namesrv

import (
	"errors"
	"fmt"

	"github.com/ratchetmq/ratchet/internal/config"
	"github.com/ratchetmq/ratchet/protocol"
	"github.com/ratchetmq/ratchet/remoting"
)

// updateSettings answers UPDATE_NAMESRV_CONFIG (318); the body is a .properties text.
//
// Kept: a key of the black list, which itself is protected, refuses the whole with code 16.
//
// Changed: RocketMQ rewrites its file with all settings; here only the lines of the keys change, and a value that makes
// no sense refuses the whole with code 1. Without configStorePath nothing is written.
func (s *Server) updateSettings(r *remoting.Request) (protocol.Reply, error) {
	parsed, err := config.ParseProperties("request", r.Body)
	if err != nil {
		return protocol.Reply{}, err
	}
	pairs := parsed.Effective()
	s.saving.Lock() // from before the change: the file is to end as the settings do
	defer s.saving.Unlock()
	effects, err := s.settings.Update(pairs)
	if err != nil {
		if errors.Is(err, config.ErrProtected) {
			err = fmt.Errorf("%w %w", errProtected, err)
		}
		return protocol.Reply{}, err
	}
	for i, p := range pairs {
		s.log.Info("setting changed", "key", p.Key, "value", p.Value, "effect", effects[i].String())
	}
	path := s.settings.Get().ConfPath
	if path == "" || len(pairs) == 0 {
		return protocol.Reply{}, nil
	}
	if err := config.UpdateFile(s.fs, path, pairs...); err != nil {
		return protocol.Reply{}, fmt.Errorf("settings are in force but not saved: %w", err)
	}
	return protocol.Reply{}, nil
}

// getSettings answers GET_NAMESRV_CONFIG (319).
func (s *Server) getSettings(*remoting.Request) (protocol.Reply, error) {
	return protocol.Reply{Body: []byte(s.settings.Text())}, nil
}
