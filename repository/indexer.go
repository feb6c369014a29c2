package repository

import (
	"context"
	"sync"
	"time"
)

const (
	// indexBatch is how many drivers or dispatches are indexed in a transaction, which locks their rows: a claim of one of them waits for it.
	indexBatch = 100
	// indexInterval is the time between two looks for what is not indexed.
	indexInterval = 30 * time.Second
)

// RunIndexer indexes the drivers and the dispatches that are not indexed, until ctx ends: all of them after the migration, then those that
// an instance of the version before changes.
func (s *Store) RunIndexer(ctx context.Context) {
	var both sync.WaitGroup
	both.Go(func() {
		s.keepIndexed(ctx, s.IndexAllDrivers, "drivers were indexed by their regions and words", "drivers",
			"drivers could not be indexed; previews, the board and searches are slow until a later try succeeds")
	})
	both.Go(func() {
		s.keepIndexed(ctx, s.IndexAllDispatches, "dispatches were indexed by their words", "dispatches",
			"dispatches could not be indexed; searches are slow until a later try succeeds")
	})
	both.Wait()
}

func (s *Store) keepIndexed(ctx context.Context, indexAll func(context.Context) (int, error), done, of, failure string) {
	tick := time.NewTicker(indexInterval)
	defer tick.Stop()
	failed := false
	for {
		n, err := indexAll(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			failed = false
		case !failed:
			failed = true
			s.log.Warn(failure, "error", err)
		}
		if n >= indexBatch {
			s.log.Info(done, of, n)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// untilNone calls index, which indexes some, until it finds none, and returns how many there were.
func untilNone(ctx context.Context, index func(context.Context) (int, error)) (total int, err error) {
	for {
		n, err := index(ctx)
		total += n
		if err != nil || n == 0 {
			return total, err
		}
	}
}
