package protocol

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// ErrRegister is what a malformed body of code 103 fails with.
var ErrRegister = errors.New("registration body is malformed")

const (
	versionRegisterBody = 37       // 3.0.11: before it the body is the topic table alone
	versionMapping      = 413      // 5.0.0: from it on the compressed form has a mapping section
	maxInflated         = 64 << 20 // bytes; about 500,000 topics
)

// RegisterBrokerBody is the body of code 103.
type RegisterBrokerBody struct {
	FilterServerList            []string                    `json:"filterServerList"`
	TopicConfigSerializeWrapper TopicConfigSerializeWrapper `json:"topicConfigSerializeWrapper"`
}

// BodyCRC is the checksum of a registration body as it is sent, for RegisterBrokerRequest.BodyCRC32. There 0 means that
// the receiver shall not check.
func BodyCRC(body []byte) int32 { return int32(crc32.ChecksumIEEE(body) & 0x7FFFFFFF) }

// DecodeRegisterBody reads the body of code 103 that a broker of the given version sent, with the header's compressed
// flag. No body is an empty table. An error is ErrRegister or ErrJSON.
func DecodeRegisterBody(body []byte, compressed bool, version int32) (*RegisterBrokerBody, error) {
	out := new(RegisterBrokerBody)
	switch {
	case len(body) == 0:
		return out, nil
	case version < versionRegisterBody:
		return out, Unmarshal(body, &out.TopicConfigSerializeWrapper)
	case !compressed:
		return out, Unmarshal(body, out)
	}
	plain, err := inflate(body, maxInflated)
	if err != nil {
		return nil, err
	}
	return out, out.parse(plain, version >= versionMapping)
}

func inflate(body []byte, limit int) ([]byte, error) {
	z, err := zlib.NewReader(bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRegister, err)
	}
	plain, err := io.ReadAll(io.LimitReader(z, int64(limit)+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrRegister, err)
	case len(plain) > limit:
		return nil, fmt.Errorf("%w: it inflates to more than %d bytes", ErrRegister, limit)
	}
	return plain, nil
}

// The compressed form is, inflated, a row of parts, each an int32 length and as many bytes: the data version as JSON;
// after an int32 count, the topics as text; the filter servers as JSON; since 5.0.0, after another count, the queue
// mappings as JSON.

func (r *RegisterBrokerBody) parse(b []byte, mapping bool) error {
	w := &r.TopicConfigSerializeWrapper
	b, err := parseJSONPart(b, "data version", &w.DataVersion)
	if err != nil {
		return err
	}
	w.TopicConfigTable = make(map[string]TopicConfig)
	b, err = eachPart(b, "topic", func(text []byte) error {
		topic, err := parseTopicText(string(text))
		w.TopicConfigTable[topic.TopicName] = topic
		return err
	})
	if err != nil {
		return err
	}
	if b, err = parseJSONPart(b, "filter servers", &r.FilterServerList); err != nil || !mapping || len(b) == 0 {
		return err
	}
	w.TopicQueueMappingInfoMap = make(map[string]Raw)
	_, err = eachPart(b, "mapping", func(text []byte) error {
		strict, err := strictJSON(text)
		if err != nil {
			return err
		}
		var info struct {
			Topic string `json:"topic"`
		}
		if err := decode(strict, &info); err != nil {
			return err
		}
		w.TopicQueueMappingInfoMap[info.Topic] = bytes.Clone(strict)
		return nil
	})
	return err
}

func parseJSONPart(b []byte, what string, v any) ([]byte, error) {
	part, rest, ok := cut32(b)
	if !ok {
		return nil, fmt.Errorf("%w: cut in the %s", ErrRegister, what)
	}
	return rest, Unmarshal(part, v)
}

func eachPart(b []byte, what string, fn func([]byte) error) ([]byte, error) {
	if len(b) < 4 {
		return nil, fmt.Errorf("%w: cut before the %ss", ErrRegister, what)
	}
	n := int32(binary.BigEndian.Uint32(b))
	b = b[4:]
	if n < 0 || int(n) > len(b)/4 {
		return nil, fmt.Errorf("%w: %d %ss in %d bytes", ErrRegister, n, what, len(b))
	}
	for i := range n {
		part, rest, ok := cut32(b)
		if !ok {
			return nil, fmt.Errorf("%w: cut in %s %d", ErrRegister, what, i)
		}
		if err := fn(part); err != nil {
			return nil, err
		}
		b = rest
	}
	return b, nil
}

// parseTopicText reads "name readQueues writeQueues perm filterType", and since 5.0.0 the attributes as JSON.
func parseTopicText(text string) (TopicConfig, error) {
	parts := strings.SplitN(text, " ", 6)
	if len(parts) < 5 {
		return TopicConfig{}, fmt.Errorf("%w: topic %q", ErrRegister, text)
	}
	t := TopicConfig{TopicName: parts[0], TopicFilterType: EnumText(parts[4])}
	for i, p := range []*int32{&t.ReadQueueNums, &t.WriteQueueNums, &t.Perm} {
		n, err := strconv.ParseInt(parts[i+1], 10, 32)
		if err != nil {
			return t, fmt.Errorf("%w: topic %q", ErrRegister, text)
		}
		*p = int32(n)
	}
	if len(parts) == 6 && strings.TrimSpace(parts[5]) != "" {
		return t, Unmarshal([]byte(parts[5]), &t.Attributes)
	}
	return t, nil
}

// EncodeRegisterBody writes the body of code 103 as a broker of the given version does. Of a topic, the compressed form
// carries neither the order nor the system flag.
func EncodeRegisterBody(r *RegisterBrokerBody, compressed bool, version int32) ([]byte, error) {
	switch {
	case version < versionRegisterBody:
		return Marshal(&r.TopicConfigSerializeWrapper)
	case !compressed:
		return Marshal(r)
	}
	plain, err := r.format(version >= versionMapping)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	z, err := zlib.NewWriterLevel(&out, zlib.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := z.Write(plain); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func (r *RegisterBrokerBody) format(mapping bool) ([]byte, error) {
	w := &r.TopicConfigSerializeWrapper
	version, err := Marshal(&w.DataVersion)
	if err != nil {
		return nil, err
	}
	servers, err := Marshal(r.FilterServerList)
	if err != nil {
		return nil, err
	}
	be := binary.BigEndian
	b := appendPart(nil, version)
	b = be.AppendUint32(b, uint32(len(w.TopicConfigTable)))
	for _, name := range slices.Sorted(maps.Keys(w.TopicConfigTable)) {
		t := w.TopicConfigTable[name]
		text := fmt.Sprintf("%s %d %d %d %s", t.TopicName, t.ReadQueueNums, t.WriteQueueNums, t.Perm, t.TopicFilterType)
		if mapping {
			attributes, err := Marshal(t.Attributes)
			if err != nil {
				return nil, err
			}
			text += " " + string(attributes)
		}
		b = appendPart(b, []byte(text))
	}
	b = appendPart(b, servers)
	if !mapping {
		return b, nil
	}
	b = be.AppendUint32(b, uint32(len(w.TopicQueueMappingInfoMap)))
	for _, name := range slices.Sorted(maps.Keys(w.TopicQueueMappingInfoMap)) {
		b = appendPart(b, w.TopicQueueMappingInfoMap[name])
	}
	return b, nil
}

func appendPart(dst, part []byte) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(part)))
	return append(dst, part...)
}
