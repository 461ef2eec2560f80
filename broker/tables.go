package broker

import (
	"path/filepath"

	"github.com/ratchetmq/ratchet/delay"
	"github.com/ratchetmq/ratchet/internal/config"
	"github.com/ratchetmq/ratchet/internal/state"
)

// openTables loads topics, groups and consumer offsets, and the delivery of delayed messages.
func (b *Broker) openTables(c Config, levels delay.Levels) (err error) {
	s := c.Settings
	files := state.Files{FS: c.FS, Dir: s.ConfigDir(), Logger: b.log}
	b.topics, err = state.OpenTopics(state.TopicOptions{
		Files: files, Broker: s.Name, Cluster: s.Cluster,
		AutoCreate:    func() bool { return b.settings.Get().AutoCreateTopic },
		DefaultQueues: int32(s.DefaultQueues), DelayLevels: int32(len(levels)),
		TraceTopic: traceTopic(s), ReviveQueues: int32(s.ReviveQueues),
		ClusterTopic: s.ClusterTopic, BrokerTopic: s.BrokerTopic,
	})
	if err != nil {
		return err
	}
	b.groups, err = state.OpenGroups(state.GroupOptions{
		Files: files, AutoCreate: func() bool { return b.settings.Get().AutoCreateGroup },
	})
	if err != nil {
		return err
	}
	if b.offsets, err = state.OpenOffsets(state.OffsetOptions{Files: files, SaveEvery: s.OffsetSaveEvery}); err != nil {
		return err
	}
	b.delay, err = delay.Open(delay.Options{
		SaveEvery: c.Settings.DelaySaveEvery,
		Store:     b.store, Levels: levels, FS: c.FS, Path: filepath.Join(s.ConfigDir(), "delayOffset.json"), Logger: b.log,
	})
	return err
}

func traceTopic(s *config.Broker) string {
	if s.TraceTopic {
		return s.TraceTopicName
	}
	return ""
}

// saver writes changed settings to the file that the broker was started with.
func saver(c Config) func(...config.Pair) error {
	if c.File == "" {
		return nil
	}
	return func(changed ...config.Pair) error { return config.UpdateFile(c.FS, c.File, changed...) }
}
