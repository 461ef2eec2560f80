package store

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestQueuesAreFoundByName: more of them than there are near places, so that some share one, and none that is gone.
func TestQueuesAreFoundByName(t *testing.T) {
	set := &queueSet{m: map[queueKey]*queue{}}
	topic := func(i int) string { return fmt.Sprint(i, "Topic") } // of one end
	const topics = nearPlaces
	for range 2 {
		for i := range topics {
			for id := range int32(3) {
				require.Nil(t, set.get(topic(i), id))
				q := set.ensure(topic(i), id)
				require.Equal(t, queueKey{topic(i), id}, queueKey{q.topic, q.id})
				require.Same(t, q, set.find([]byte(topic(i)), id))
				require.Same(t, q, set.ensureNamed([]byte(topic(i)), id))
			}
		}
		for i := range topics {
			require.NotNil(t, set.get(topic(i), 2))
			require.Len(t, set.take(topic(i)), 3)
			for id := range int32(3) {
				require.Nil(t, set.get(topic(i), id))
			}
		}
	}
}
