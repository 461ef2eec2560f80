package processor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTrafficOverTime(t *testing.T) {
	at := time.Date(2026, 3, 1, 23, 40, 0, 0, time.UTC)
	tr := newTraffic(at)
	report := func() map[string]string {
		table := map[string]string{}
		tr.report(table, at)
		return table
	}
	require.Equal(t, "0.00 0.00 0.00", report()["putTps"])
	second := func(puts int64) {
		at = at.Add(time.Second)
		tr.puts.Add(puts)
		tr.putBytes.Add(200 * puts)
		tr.pulled(int(2 * puts))
		tr.sample(at)
	}
	for range 20 {
		second(5)
	}
	require.Equal(t, "5.00 5.00 5.00", report()["putTps"], "since the start, while that is not long ago")
	for range 595 {
		second(0)
	}
	for range 5 {
		second(12)
	}
	table := report()
	require.Equal(t, "6.00 1.00 0.10", table["putTps"])
	require.Equal(t, "0.50 0.08 0.01", table["getFoundTps"])
	require.Equal(t, "0.50 0.92 0.99", table["getMissTps"])
	require.Equal(t, "1.00 1.00 1.00", table["getTotalTps"])
	require.Equal(t, "12.00 2.00 0.20", table["getTransferredTps"])
	require.Equal(t, "12.00 2.00 0.20", table["getTransferedTps"])
	require.Equal(t, "160", table["msgPutTotalTodayNow"])
	require.Equal(t, "0", table["msgPutTotalTodayMorning"])
	require.Equal(t, "320", table["msgGetTotalTodayNow"])
	require.Equal(t, "200.00", table["putMessageAverageSize"])
	for range 1200 { // over midnight
		second(1)
	}
	table = report()
	require.Equal(t, "1360", table["msgPutTotalTodayNow"])
	require.Equal(t, "740", table["msgPutTotalTodayMorning"])
	require.Equal(t, "0", table["msgPutTotalYesterdayMorning"])
	at = at.Add(24 * time.Hour)
	tr.sample(at)
	table = report()
	require.Equal(t, "740", table["msgPutTotalYesterdayMorning"])
	require.Equal(t, "1360", table["msgPutTotalTodayMorning"])
	require.LessOrEqual(t, len(tr.samples), 602)
}

func TestFormsOfRuntimeFigures(t *testing.T) {
	require.Equal(t, "[ 2 days, 3 hours, 4 minutes, 5 seconds ]", uptime(51*time.Hour+4*time.Minute+5*time.Second+900*time.Millisecond))
	require.Equal(t, "1023 B", readableBytes(1023))
	require.Equal(t, "1.5 KiB", readableBytes(1536))
	require.Equal(t, "8.0 EiB", readableBytes(1<<63-1))
}
