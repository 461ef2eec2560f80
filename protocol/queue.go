package protocol

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"strconv"
)

// MessageQueue names one queue of one broker.
type MessageQueue struct {
	BrokerName string `json:"brokerName"`
	QueueID    int32  `json:"queueId"`
	Topic      string `json:"topic"`
}

func compareQueues(a, b MessageQueue) int {
	return cmp.Or(
		cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.BrokerName, b.BrokerName), cmp.Compare(a.QueueID, b.QueueID),
	)
}

// appendJSON writes what Marshal would.
func (q *MessageQueue) appendJSON(dst []byte) []byte {
	dst = appendQuoted(append(dst, `{"brokerName":`...), q.BrokerName)
	dst = strconv.AppendInt(append(dst, `,"queueId":`...), int64(q.QueueID), 10)
	dst = appendQuoted(append(dst, `,"topic":`...), q.Topic)
	return append(dst, '}')
}

// QueueTable is a map keyed by message queues. On the wire its keys are bare objects, {{"brokerName":…}:5}, which is no
// JSON but the one form that all Java and Go peers read.
type QueueTable[V any] map[MessageQueue]V

// MarshalJSON writes the form with bare objects as keys, in the order of topic, broker and queue.
func (t QueueTable[V]) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	for i, q := range slices.SortedFunc(maps.Keys(t), compareQueues) {
		value, err := Marshal(t[q])
		if err != nil {
			return nil, err
		}
		if i > 0 {
			b = append(b, ',')
		}
		b = append(q.appendJSON(b), ':')
		b = append(b, value...)
	}
	return append(b, '}'), nil
}

// UnmarshalJSON reads the form in which Unmarshal hands it on: the keys are strings that hold objects.
func (t *QueueTable[V]) UnmarshalJSON(data []byte) error {
	var texts map[string]V
	if err := decode(data, &texts); err != nil || texts == nil {
		return err
	}
	*t = make(QueueTable[V], len(texts))
	for text, value := range texts {
		var q MessageQueue
		if err := Unmarshal([]byte(text), &q); err != nil {
			return err
		}
		(*t)[q] = value
	}
	return nil
}

// Codes is a set of tag hashes. Go clients send them as strings.
type Codes []int32

// UnmarshalJSON reads numbers and strings.
func (c *Codes) UnmarshalJSON(data []byte) error {
	*c = nil
	between := func(r rune) bool { return r == '[' || r == ']' || r == ',' || r <= ' ' }
	for _, part := range bytes.FieldsFunc(data, between) {
		n, ok := atoi(bytes.Trim(part, `"`))
		if !ok || int64(int32(n)) != n {
			if string(data) == "null" {
				return nil
			}
			return notNumber("codeSet", part)
		}
		*c = append(*c, int32(n))
	}
	return nil
}

// ByteString is a Java byte array: base64 from fastjson 1 (before 5.4), a list of numbers from fastjson 2. We write
// base64, which both read.
type ByteString []byte

// UnmarshalJSON reads both forms.
func (s *ByteString) UnmarshalJSON(data []byte) error {
	if len(data) == 0 || data[0] != '[' {
		return decode(data, (*[]byte)(s))
	}
	var numbers []int16 // Java's bytes are signed
	if err := decode(data, &numbers); err != nil {
		return err
	}
	*s = make(ByteString, len(numbers))
	for i, n := range numbers {
		(*s)[i] = byte(n)
	}
	return nil
}

// EnumText is the name of a Java enum's value. Go clients send the number of some: it is read as its digits.
type EnumText string

// UnmarshalJSON reads a string or a number.
func (e *EnumText) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '"' {
		return decode(data, (*string)(e))
	}
	if *e = EnumText(data); *e == "null" {
		*e = ""
	}
	return nil
}
