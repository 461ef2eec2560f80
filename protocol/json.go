package protocol

import (
	"encoding/json"
	"fmt"

	"github.com/bytedance/sonic"
)

// Raw is JSON text that is handed on unread.
type Raw = json.RawMessage

// codec is how bodies are written and read. Keys of maps are sorted so that equal bodies are equal bytes; strings are
// copied since they outlive the frame; what MarshalJSON returns is written as it is, since the peers want maps keyed by
// message queues in a form that is no JSON.
var codec = sonic.Config{
	SortMapKeys:             true,
	CopyString:              true,
	NoNullSliceOrMap:        true,
	NoValidateJSONMarshaler: true,
	EncodeNullForInfOrNan:   true,
	CaseSensitive:           true,
}.Froze()

// Marshal writes a body as every peer reads it: without white space (Go clients take none), integer keys in quotes, no
// null where a list or map belongs, and maps keyed by message queues with the queue as a bare object.
func Marshal(v any) ([]byte, error) { return codec.Marshal(v) }

// Unmarshal reads a body as Java peers write them: besides JSON it takes keys that are bare numbers, booleans, words or
// objects, strings and keys in single quotes, and commas before a closing bracket. It copies what it keeps of data.
func Unmarshal(data []byte, v any) error {
	strict, err := strictJSON(data)
	if err != nil {
		return err
	}
	return decode(strict, v)
}

// decode is Unmarshal for text that is JSON already: what an UnmarshalJSON method gets.
func decode(data []byte, v any) error {
	if err := codec.Unmarshal(data, v); err != nil {
		return fmt.Errorf("%w: %w", ErrJSON, err)
	}
	return nil
}
