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

// prefix has the hash codes of what stands before the keys of one topic: "topic#", and "topic#T#" before TAGS.
type prefix struct {
	topic       []byte
	plain, tags int32
}

// set makes it that of a topic. Records of one topic often follow each other.
func (p *prefix) set(topic []byte) {
	if bytes.Equal(p.topic, topic) {
		return
	}
	p.topic = append(p.topic[:0], topic...)
	p.plain = message.HashOn(message.HashCode(topic), []byte{'#'})
	p.tags = message.HashOn(p.plain, []byte(tagMark))
}

// hashOf is the hash that is stored for a key behind a prefix: Java's |String.hashCode| of the whole text, where |MIN_INT|
// is 0.
func hashOf(prefix int32, key []byte) uint32 {
	h := message.HashOn(prefix, key)
	if h < 0 {
		h = -h
	}
	return uint32(max(h, 0))
}

// appendHashes adds a record's hashes in the order of RocketMQ 5.4: unique key, each of KEYS, tags.
func (p *prefix) appendHashes(dst []uint32, r *message.DispatchRequest, tags bool) []uint32 {
	p.set(r.Topic)
	unique, user, marked := r.FindKeys()
	if len(unique) > 0 {
		dst = append(dst, hashOf(p.plain, unique))
	}
	for rest := user; len(rest) > 0; {
		var key []byte
		key, rest, _ = bytes.Cut(rest, []byte{' '})
		if len(key) > 0 {
			dst = append(dst, hashOf(p.plain, key))
		}
	}
	if tags && len(marked) > 0 {
		dst = append(dst, hashOf(p.tags, marked))
	}
	return dst
}

// Matches says whether the record really has the topic and the key that a query asked for: the index only compares
// hashes, and "AaTopic#BB" has the hash of "BBTopic#Aa".
func Matches(r *message.Record, topic, key string, kind Kind) bool {
	if key == "" || string(r.Topic) != topic {
		return false
	}
	unique, user, tags := r.FindKeys()
	if kind == TagKey {
		return string(tags) == key
	}
	if kind != UserKey && string(unique) == key {
		return true
	}
	if kind == UniqueKey {
		return false
	}
	for rest := user; len(rest) > 0; {
		var one []byte
		one, rest, _ = bytes.Cut(rest, []byte{' '})
		if string(one) == key {
			return true
		}
	}
	return false
}
