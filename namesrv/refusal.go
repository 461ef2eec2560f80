package namesrv

import (
	"errors"

	"github.com/ratchetmq/ratchet/internal/config"
	"github.com/ratchetmq/ratchet/protocol"
)

// Why a request is refused, besides malformed headers and bodies and what Register returns.
var (
	errCRC       = errors.New("crc32 not match")
	errNotReady  = errors.New("name server not ready")
	errNoRoute   = errors.New("No topic route info in name server for the topic") //nolint:staticcheck // RocketMQ's text
	errNoConfig  = errors.New("No config item")                                   //nolint:staticcheck // RocketMQ's text
	errDisabled  = errors.New("disable")
	errProtected = errors.New("config in black list can not be updated")
	errEmptyKey  = errors.New("namespace and key must not be empty")
)

// codes says which errors are answered with another code than SYSTEM_ERROR.
var codes = []struct {
	err  error
	code protocol.ResponseCode
}{
	{errNoRoute, protocol.TopicNotExist},
	{errNoConfig, protocol.QueryNotFound},
	{errProtected, protocol.NoPermission},
	{config.ErrProtected, protocol.NoPermission},
}

// maxRemark keeps the texts of peers out of our answers, except their beginning.
const maxRemark = 1024

func refusal(err error) protocol.Reply {
	rep := protocol.Reply{Code: protocol.SystemError, Remark: err.Error()}
	if len(rep.Remark) > maxRemark {
		rep.Remark = rep.Remark[:maxRemark]
	}
	for _, c := range codes {
		if errors.Is(err, c.err) {
			rep.Code = c.code
			break
		}
	}
	return rep
}
