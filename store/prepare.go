package store

import (
	"context"
	"errors"
	"time"
)

// runPreparer makes the segment behind the one that is being written, once that is half full, so that no append waits
// for it. While the disk is full it tries again and again.
func (s *Store) runPreparer(ctx context.Context) error {
	retry := time.NewTimer(0)
	<-retry.C
	defer retry.Stop()
	s.prepare.ring()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.failed:
			<-ctx.Done()
			return nil
		case <-s.prepare:
		case <-retry.C:
		}
		if err := s.prepareNext(); err != nil {
			if !errors.Is(err, ErrFull) {
				s.logger.Error("next segment not made", "err", err)
			}
			retry.Reset(2 * fullPause)
		}
	}
}

func (s *Store) prepareNext() error {
	end := s.log.written.load()
	seg, err := s.log.ensure(end)
	if err != nil {
		return err
	}
	if int64(end-seg.start) < s.log.size/2 {
		return nil
	}
	_, err = s.log.ensure(seg.end)
	return err
}
