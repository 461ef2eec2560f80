package state

import (
	"fmt"

	"github.com/ratchetmq/ratchet/protocol"
)

// CreateOnSend returns the topic that a message is for. One that does not exist is created after the pattern that the
// send names, usually TBW102, if that lets itself be inherited from: with its permissions and as many queues as the
// send asks for, but no more than the pattern has.
//
// When it returns the topic is in the file, whoever created it: a message in a topic that a power cut takes away can't be
// read. Errors: protocol.ErrTopicName, ErrNoTopic, and those of the disk: the message might find room where the file does not.
func (t *Topics) CreateOnSend(topic, pattern string, queues int32, unit bool) (*protocol.TopicConfig, error) {
	if c, ok := t.inFile(topic); ok {
		return c, nil
	}
	if c, ok := t.Get(topic); ok {
		return t.create(c)
	}
	if err := protocol.ValidateTopic(topic); err != nil {
		return nil, err
	}
	if t.IsSystem(topic) {
		return nil, fmt.Errorf("topic %s is reserved: %w", topic, ErrNoTopic)
	}
	if pattern == protocol.TopicDefault && !t.opts.AutoCreate() {
		if _, ok := t.Get(pattern); ok {
			t.SwitchAutoCreate() // it was switched off a moment ago
		}
		return nil, fmt.Errorf("topic %s, and autoCreateTopicEnable is false: %w", topic, ErrNoTopic)
	}
	from, ok := t.Get(pattern)
	switch {
	case !ok:
		return nil, fmt.Errorf("topic %s, nor %q to create it from: %w", topic, pattern, ErrNoTopic)
	case from.Perm&protocol.PermInherit == 0:
		return nil, fmt.Errorf("topic %s, and %q with permission %d can't be inherited from: %w", topic, pattern, from.Perm, ErrNoTopic)
	}
	// Java may create a topic without any queue, which then refuses each message.
	n := max(1, min(queues, from.WriteQueueNums))
	c := newTopic(topic, n, from.Perm&^protocol.PermInherit)
	c.TopicFilterType = from.TopicFilterType
	if unit {
		c.TopicSysFlag = protocol.TopicUnit
	}
	return t.create(c)
}

// CreateRetry returns the retry topic of a group, with that many queues if it does not exist yet.
func (t *Topics) CreateRetry(group string, queues int32, unit bool) (*protocol.TopicConfig, error) {
	return t.createFor(group, protocol.RetryTopic(group), queues, unit)
}

// CreateDLQ returns the dead letter topic of a group, which can be read as well as written.
func (t *Topics) CreateDLQ(group string) (*protocol.TopicConfig, error) {
	return t.createFor(group, protocol.DLQTopic(group), 1, false)
}

func (t *Topics) createFor(group, topic string, queues int32, unit bool) (*protocol.TopicConfig, error) {
	if c, ok := t.written(topic); ok {
		return c, nil
	}
	if err := protocol.ValidateGroup(group); err != nil {
		return nil, err
	}
	if err := protocol.ValidateTopic(topic); err != nil {
		return nil, err
	}
	c := newTopic(topic, max(1, min(queues, maxQueues)), permRW)
	if unit {
		c.TopicSysFlag = protocol.TopicUnitSub
	}
	c, _ = t.create(c) // logged; its messages are those of a group, which comes again
	return c, nil
}

// CreateSystem returns one of the broker's own topics, which is made when it is first needed.
func (t *Topics) CreateSystem(topic string, queues int32) *protocol.TopicConfig {
	if c, ok := t.written(topic); ok {
		return c
	}
	c, _ := t.create(newTopic(topic, queues, permRW)) // logged
	return c
}

// create puts the topic in, unless another goroutine was faster, and returns what is there. An error says that it is not in the file.
func (t *Topics) create(c *protocol.TopicConfig) (*protocol.TopicConfig, error) {
	created := false
	v, err := t.changeForClient(func(e *edit[protocol.TopicConfig]) {
		if _, ok := e.entries[c.TopicName]; !ok {
			e.put(c.TopicName, c)
			created = true
		}
	})
	if err != nil {
		t.files.Logger.Error("topics not saved", "topic", c.TopicName, "err", err)
	}
	if created {
		t.files.Logger.Info("topic created", "topic", c.TopicName)
		t.tell(TopicChange{Put: []*protocol.TopicConfig{c}, Version: v.version})
	} else if there, ok := v.entries[c.TopicName]; ok {
		c = there
	}
	return c, err
}
