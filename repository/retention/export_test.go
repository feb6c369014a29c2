package retention

import (
	"context"
	"time"
)

// What the tests see of the package.

const DeletedAtOnce = deletedAtOnce

// PruneAt is Prune at a time.
func (s *Cleaner) PruneAt(ctx context.Context, now time.Time) (int, error) { return s.prune(ctx, now) }
