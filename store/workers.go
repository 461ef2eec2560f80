package store

import (
	"context"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
)

// spread calls fn for all of the list, from several goroutines, and returns when these have ended. After an error no
// further calls begin.
func spread[T any](workers int, list []T, fn func(T) error) error {
	if workers = min(workers, len(list)); workers <= 1 {
		for _, v := range list {
			if err := fn(v); err != nil {
				return err
			}
		}
		return nil
	}
	var next atomic.Int64
	g, ctx := errgroup.WithContext(context.Background())
	for range workers {
		g.Go(func() error {
			for ctx.Err() == nil {
				i := next.Add(1) - 1
				if i >= int64(len(list)) {
					return nil
				}
				if err := fn(list[i]); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}
