package processor

import (
	"errors"
	"fmt"

	"github.com/ratchetmq/ratchet/internal/state"
	"github.com/ratchetmq/ratchet/protocol"
	"github.com/ratchetmq/ratchet/store"
)

// refusal is a request's answer when it is not done: the code that a client acts on, and a sentence for the person who
// reads the client's log. It says what was asked and what the limit is.
type refusal struct {
	code protocol.ResponseCode
	text string
}

func (r *refusal) Error() string { return r.text }

func refuse(code protocol.ResponseCode, format string, args ...any) error {
	return &refusal{code: code, text: fmt.Sprintf(format, args...)}
}

// codes says what a client is told when the store or a table refuses; a test demands a row for each error that they
// export.
var codes = []struct {
	err  error
	code protocol.ResponseCode
}{
	{store.ErrTooLarge, protocol.MessageIllegal},
	{store.ErrProperties, protocol.MessageIllegal},
	{store.ErrTopic, protocol.MessageIllegal},
	{store.ErrFull, protocol.ServiceNotAvailable},
	{store.ErrHeld, protocol.ServiceNotAvailable},
	{store.ErrClosed, protocol.ServiceNotAvailable},
	{store.ErrBroken, protocol.ServiceNotAvailable},
	{store.ErrNotFound, protocol.SystemError},
	{store.ErrLayout, protocol.SystemError},
	{store.ErrLocked, protocol.SystemError},
	{state.ErrNoTopic, protocol.TopicNotExist},
	{state.ErrSystemTopic, protocol.InvalidParameter},
	{state.ErrTopicConfig, protocol.InvalidParameter},
	{state.ErrNoGroup, protocol.SubscriptionGroupNotExist},
	{state.ErrNegativeOffset, protocol.InvalidParameter},
	{state.ErrOffsetBeyond, protocol.InvalidParameter},
	{state.ErrOffsetName, protocol.InvalidParameter},
	{protocol.ErrTopicName, protocol.InvalidParameter},
	{protocol.ErrGroupName, protocol.InvalidParameter},
}

// errorReply is the one place where an error becomes an answer.
func errorReply(err error) protocol.Reply {
	var r *refusal
	if errors.As(err, &r) {
		return protocol.Reply{Code: r.code, Remark: r.text}
	}
	var field *protocol.FieldError
	if errors.As(err, &field) {
		return protocol.Reply{Code: protocol.SystemError, Remark: field.Error()}
	}
	for _, row := range codes {
		if errors.Is(err, row.err) {
			return protocol.Reply{Code: row.code, Remark: err.Error()}
		}
	}
	return protocol.Reply{Code: protocol.SystemError, Remark: err.Error()}
}
