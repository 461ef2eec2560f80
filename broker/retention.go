package broker

import (
	"strconv"

	"github.com/ratchetmq/ratchet/internal/config"
	"github.com/ratchetmq/ratchet/internal/offset"
	"github.com/ratchetmq/ratchet/store"
)

// retention reads the settings as they are now: most of them can change at run time.
func (b *Broker) retention() store.Retention {
	s := b.settings.Get()
	return store.Retention{
		Reserved: s.ReservedTime, Hours: hours(s),
		MaxUsed: float64(s.DiskMaxUsed) / 100, Force: float64(s.DiskForce) / 100, Refuse: float64(s.DiskWarn) / 100,
		Forcibly: s.CleanForcibly, Batch: deleteBatch,
	}
}

// deleteBatch is how many files go at one look, as in RocketMQ.
const deleteBatch = 10

func hours(s *config.Broker) (list []int) {
	for _, text := range s.DeleteWhen {
		if hour, err := strconv.Atoi(text); err == nil { // Check has refused anything else
			list = append(list, hour)
		}
	}
	return list
}

// expired says which groups lose messages that they have not consumed. Cleaning does not wait for consumers, but it must
// not go unnoticed (apache/rocketmq#4549).
func (b *Broker) expired(e store.Expired) {
	for _, group := range b.offsets.TopicGroups(e.Topic) {
		at, ok := b.offsets.Query(group, e.Topic, e.Queue)
		if unread := unreadIn(e.Bounds, at); ok && unread > 0 {
			b.unread.Add(unread)
			b.log.Warn("messages removed that a group has not consumed", "group", group, "topic", e.Topic,
				"queue", e.Queue, "count", unread, "qoff", int64(at), "low", int64(e.High))
		}
	}
}

// unreadIn is how many of the messages of a part of a queue a group at an offset has not consumed.
func unreadIn(part store.Bounds, at offset.Queue) int64 {
	return max(0, int64(part.High-max(part.Low, at)))
}

// MessagesExpiredUnread counts the messages that were removed before a group had consumed them, for each such group.
func (b *Broker) MessagesExpiredUnread() int64 { return b.unread.Load() }
