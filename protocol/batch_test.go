package protocol

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func batchOf(t testing.TB, body []byte) []BatchMessage {
	t.Helper()
	var all []BatchMessage
	require.NoError(t, EachBatchMessage(body, func(m BatchMessage) error {
		all = append(all, m)
		return nil
	}))
	return all
}

func TestGoldenBatches(t *testing.T) {
	for _, name := range []string{"send-batch", "send-batch-go", "send-batch-rocketmq", "send-batch-v1-client"} {
		body := goldenFrame(t, name, "request").body()
		all := batchOf(t, body)
		require.NotEmpty(t, all, name)
		var again []byte
		for _, m := range all {
			require.NotEmpty(t, m.Body, name)
			again = AppendBatchMessage(again, m)
		}
		require.Equal(t, body, again, name)
	}
	all := batchOf(t, goldenFrame(t, "send-batch", "request").body())
	require.Len(t, all, 3)
	require.Equal(t, "batch-1", string(all[0].Body))
	require.Equal(t, "KEYS\x01b1\x02UNIQ_KEY\x01FD00000000000000000000000000000279735FFD2B27933DC2F70005\x02WAIT\x01true\x02TAGS\x01TagA\x02",
		string(all[0].Properties))
}

func TestBatchCutAnywhereIsRefused(t *testing.T) {
	body := AppendBatchMessage(nil, BatchMessage{Flag: 7, Body: []byte("hello"), Properties: []byte("A\x01b\x02")})
	first := len(body)
	body = AppendBatchMessage(body, BatchMessage{})
	require.Equal(t, []BatchMessage{{7, []byte("hello"), []byte("A\x01b\x02")}, {0, []byte{}, []byte{}}}, batchOf(t, body))
	for n := 1; n < len(body); n++ {
		err := EachBatchMessage(body[:n:n], func(BatchMessage) error { return nil })
		if n == first {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, ErrBatch, "cut at %d", n)
		}
	}
	require.Empty(t, batchOf(t, nil))
}

func TestBatchWithLengthsThatDisagreeIsRefused(t *testing.T) {
	good := AppendBatchMessage(nil, BatchMessage{Body: []byte("hello"), Properties: []byte("A\x01b\x02")})
	for name, change := range map[string]func([]byte){
		"size 0":              func(b []byte) { copy(b, "\x00\x00\x00\x00") },
		"size negative":       func(b []byte) { copy(b, "\xff\xff\xff\xff") },
		"size too small":      func(b []byte) { b[3]-- },
		"size too large":      func(b []byte) { b[3]++ },
		"body negative":       func(b []byte) { copy(b[16:], "\xff\xff\xff\xff") },
		"body too long":       func(b []byte) { b[19] = 200 },
		"body too short":      func(b []byte) { b[19]-- },
		"properties negative": func(b []byte) { b[25] = 0x80 },
		"properties too long": func(b []byte) { b[26]++ },
		"properties short":    func(b []byte) { b[26]-- },
	} {
		b := slices.Clone(good)
		change(b)
		require.ErrorIs(t, EachBatchMessage(b, func(BatchMessage) error { return nil }), ErrBatch, name)
	}
	stop := errors.New("stop")
	calls := 0
	require.Equal(t, stop, EachBatchMessage(append(good, good...), func(BatchMessage) error { calls++; return stop }))
	require.Equal(t, 1, calls)
	require.Panics(t, func() { AppendBatchMessage(nil, BatchMessage{Properties: []byte(strings.Repeat("x", 32768))}) })
}
