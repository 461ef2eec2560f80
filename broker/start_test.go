package broker_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/broker"
	"github.com/ratchetmq/ratchet/internal/config"
	"github.com/ratchetmq/ratchet/internal/vfs/vfstest"
)

// Whoever is told to stop while the store recovers gets no broker, and knows it.
func TestStartThatIsCutShortIsNoBroker(t *testing.T) {
	disk := vfstest.New()
	settings, _, err := config.LoadBroker("test", []byte(strings.Join([]string{
		"bindAddress=127.0.0.1", "listenPort=0", "vipPortEnable=false",
		"mappedFileSizeCommitLog=1048576", "maxHashSlotNum=1000", "maxIndexNum=4000",
	}, "\n")), "/store", config.OSEnv())
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	stop()
	b, err := broker.Start(ctx, broker.Config{Settings: settings, FS: disk, Logger: slog.New(slog.DiscardHandler)})
	require.ErrorIs(t, err, context.Canceled)
	require.Nil(t, b)
	_, err = disk.Stat("/store/abort")
	require.Error(t, err, "the stop was clean")
}
