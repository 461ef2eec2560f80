package store

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ratchetmq/ratchet/internal/offset"
)

func TestMisnumbered(t *testing.T) {
	yes, no, unknown := witness{confirms: true}, witness{denies: true}, witness{}
	for name, c := range map[string]struct {
		number, next, again offset.Queue
		w                   witness
		want                bool
	}{
		"due":                                {9, 9, 0, unknown, false},
		"messages before it are lost":        {12, 9, 0, unknown, false},
		"ahead, the queue has it elsewhere":  {12, 9, 0, no, true},
		"back":                               {5, 9, 0, unknown, true},
		"twice":                              {8, 9, 0, unknown, true},
		"back, but the queue says so":        {5, 9, 0, yes, false},
		"topic made anew":                    {0, 9, 0, unknown, false},
		"0, but the queue has it elsewhere":  {0, 9, 0, no, true},
		"topic made anew, its first is lost": {6, 9, 6, unknown, false},
	} {
		require.Equal(t, c.want, misnumbered(c.number, c.next, c.again, c.w), name)
	}
}
