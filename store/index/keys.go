package index

import (
	"bytes"

	"github.com/ratchetmq/ratchet/message"
)

// Kind says which of a message's keys a query means.
type Kind uint8

const (
	AnyKey    Kind = iota // the unique key or one of KEYS, as a query without a type
	UniqueKey             // UNIQ_KEY only (type U)
	UserKey               // one of KEYS only (type K)
	TagKey                // TAGS as a whole (type T)
)

// tagMark stands between topic and tags in the text whose hash is indexed for TAGS.
const tagMark = "T#"

// hashOf is the hash that is stored for a key: Java's |String.hashCode|, where |MIN_INT| is 0.
func hashOf(text []byte) uint32 {
	h := message.HashCode(text)
	if h < 0 {
		h = -h
	}
	return uint32(max(h, 0))
}

// appendText adds the text that is hashed for one key of a topic.
func appendText(dst []byte, topic []byte, mark string, key []byte) []byte {
	dst = append(dst, topic...)
	dst = append(dst, '#')
	dst = append(dst, mark...)
	return append(dst, key...)
}

// keys are the properties of a record that are indexed, parts of its bytes.
type keys struct{ unique, user, tags []byte }

func keysOf(props []byte) (k keys) {
	message.EachProperty(props, func(name, value []byte) bool {
		switch string(name) {
		case message.PropertyUniqueKey:
			k.unique = value
		case message.PropertyKeys:
			k.user = value
		case message.PropertyTags:
			k.tags = value
		}
		return true
	})
	return k
}

// appendHashes adds a record's hashes in the order of RocketMQ 5.4: unique key, each of KEYS, tags. text is scratch
// space and is returned for the next call.
func appendHashes(dst []uint32, text []byte, r *message.Record, tags bool) (hashes []uint32, scratch []byte) {
	k := keysOf(r.Properties)
	if len(k.unique) > 0 {
		text = appendText(text[:0], r.Topic, "", k.unique)
		dst = append(dst, hashOf(text))
	}
	for rest := k.user; len(rest) > 0; {
		var key []byte
		key, rest, _ = bytes.Cut(rest, []byte{' '})
		if len(key) > 0 {
			text = appendText(text[:0], r.Topic, "", key)
			dst = append(dst, hashOf(text))
		}
	}
	if tags && len(k.tags) > 0 {
		text = appendText(text[:0], r.Topic, tagMark, k.tags)
		dst = append(dst, hashOf(text))
	}
	return dst, text
}

// Matches says whether the record really has the topic and the key that a query asked for: the index only compares
// hashes, and "AaTopic#BB" has the hash of "BBTopic#Aa".
func Matches(r *message.Record, topic, key string, kind Kind) bool {
	if key == "" || string(r.Topic) != topic {
		return false
	}
	k := keysOf(r.Properties)
	if kind == TagKey {
		return string(k.tags) == key
	}
	if kind != UserKey && string(k.unique) == key {
		return true
	}
	if kind == UniqueKey {
		return false
	}
	for rest := k.user; len(rest) > 0; {
		var one []byte
		one, rest, _ = bytes.Cut(rest, []byte{' '})
		if string(one) == key {
			return true
		}
	}
	return false
}
