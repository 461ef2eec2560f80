package message

import "bytes"

// Names of message properties that RocketMQ's clients and brokers give a meaning.
const (
	PropertyKeys              = "KEYS"
	PropertyTags              = "TAGS"
	PropertyUniqueKey         = "UNIQ_KEY"
	PropertyWaitStore         = "WAIT"
	PropertyDelayLevel        = "DELAY"
	PropertyTimerDelaySec     = "TIMER_DELAY_SEC"
	PropertyTimerDelayMs      = "TIMER_DELAY_MS"
	PropertyTimerDeliverMs    = "TIMER_DELIVER_MS"
	PropertyRetryTopic        = "RETRY_TOPIC"
	PropertyRealTopic         = "REAL_TOPIC"
	PropertyRealQueueID       = "REAL_QID"
	PropertyTransaction       = "TRAN_MSG"
	PropertyProducerGroup     = "PGROUP"
	PropertyTransactionID     = "__transactionId__"
	PropertyOriginMessageID   = "ORIGIN_MESSAGE_ID"
	PropertyReconsumeTime     = "RECONSUME_TIME"
	PropertyMaxReconsumeTimes = "MAX_RECONSUME_TIMES"
	PropertyRegion            = "MSG_REGION"
	PropertyTrace             = "TRACE_ON"
	PropertyCluster           = "CLUSTER"
	PropertyPopCheckPoint     = "POP_CK"
	PropertyInnerNum          = "INNER_NUM"
	PropertyDLQOriginTopic    = "DLQ_ORIGIN_TOPIC"
	PropertyDLQOriginID       = "DLQ_ORIGIN_MESSAGE_ID"
	PropertyMultiDispatch     = "INNER_MULTI_DISPATCH"
	PropertyMultiQueueOffset  = "INNER_MULTI_QUEUE_OFFSET"
)

// In the stored text a name ends with nameSeparator and a property with propertySeparator. Clients before 5.0 leave
// the last propertySeparator out. There is no escaping.
const (
	nameSeparator     = 1
	propertySeparator = 2
)

// MaxPropertiesSize is the longest properties text that a record can hold, in bytes.
const MaxPropertiesSize = 32767

// EachProperty calls fn with every property of the text, in order, until fn returns false. Name and value are parts of
// props. As in RocketMQ, a piece without a separator, name or value is passed over.
func EachProperty(props []byte, fn func(name, value []byte) bool) {
	for len(props) > 0 {
		// Names are short, and so is the way to the separator; values may be long.
		i := 0
		for i < len(props) && props[i] != nameSeparator && props[i] != propertySeparator {
			i++
		}
		if i == len(props) {
			return
		}
		name, end := props[:i], i
		if props[i] == nameSeparator {
			if n := bytes.IndexByte(props[i+1:], propertySeparator); n >= 0 {
				end = i + 1 + n
			} else {
				end = len(props)
			}
			if value := props[i+1 : end]; i > 0 && len(value) > 0 && !fn(name, value) {
				return
			}
		}
		props = props[min(end+1, len(props)):]
	}
}

// Property is the value of one property, a part of props; of several with the same name the last counts.
func Property(props []byte, name string) (value []byte, ok bool) {
	n := len(name)
	if n == 0 || !storable(name) {
		return nil, false
	}
	for len(props) > n+1 {
		piece := props
		if end := bytes.IndexByte(props, propertySeparator); end >= 0 {
			piece, props = props[:end], props[end+1:]
		} else {
			props = nil
		}
		if len(piece) > n+1 && piece[n] == nameSeparator && string(piece[:n]) == name {
			value, ok = piece[n+1:], true
		}
	}
	return value, ok
}

// AppendProperty adds a property to the text in dst. A name or value that is empty, or that holds a separator, can't be
// stored and adds nothing.
func AppendProperty(dst []byte, name, value string) []byte {
	if name == "" || value == "" || !storable(value) || !storable(name) {
		return dst
	}
	dst = append(closeLast(dst), name...)
	dst = append(dst, nameSeparator)
	dst = append(dst, value...)
	return append(dst, propertySeparator)
}

// closeLast adds the separator that the text's last property may lack.
func closeLast(text []byte) []byte {
	if n := len(text); n > 0 && text[n-1] != propertySeparator {
		return append(text, propertySeparator)
	}
	return text
}

func storable(s string) bool {
	for i := range len(s) {
		if s[i] == nameSeparator || s[i] == propertySeparator {
			return false
		}
	}
	return true
}

// AppendWithout adds the properties of the text props to the text in dst, less those with one of the names.
func AppendWithout(dst, props []byte, names ...string) []byte {
	EachProperty(props, func(n, v []byte) bool {
		for _, name := range names {
			if string(n) == name {
				return true
			}
		}
		dst = append(closeLast(dst), n...)
		dst = append(dst, nameSeparator)
		dst = append(dst, v...)
		dst = append(dst, propertySeparator)
		return true
	})
	return dst
}
