package ha

import (
	"context"
	"sync"
)

// turn lets one at a time do what asks other brokers and so may take long. Unlike behind a mutex, who waits can give up.
type turn struct {
	made  sync.Once
	token chan struct{}
}

func (t *turn) init() { t.made.Do(func() { t.token = make(chan struct{}, 1) }) }

// take waits for the turn, or until ctx is done.
func (t *turn) take(ctx context.Context) error {
	t.init()
	select {
	case t.token <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// give ends it.
func (t *turn) give() { <-t.token }
