package schedule

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"firsttap/cronjob"
)

// slowHistory has rows to delete.
type slowHistory struct {
	JobStore
	left, batches int
	work          func() // of a batch
}

func (h *slowHistory) Prune(ctx context.Context, limit int, rest func(context.Context) error) (int, error) {
	h.work()
	n := min(limit, h.left)
	h.left -= n
	h.batches++
	return n, rest(ctx)
}

func retentionOf(h *slowHistory) (work func(context.Context) (string, error)) {
	for _, j := range Jobs(h, 0) {
		if j.Name == "retention" {
			return func(ctx context.Context) (string, error) { return j.Work(ctx, cronjob.Run{}) }
		}
	}
	return nil
}

// The deletion of history leaves the database to others for half of the time, however long a batch takes, and stops at once when its run
// is over.
func TestRetentionAtHalfSpeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &slowHistory{left: 10*batchSize + 7, work: func() { <-time.After(time.Second) }}
		began := time.Now()
		result, err := retentionOf(h)(t.Context())
		if err != nil || result != fmt.Sprintf("%d rows deleted", 10*batchSize+7) || h.left != 0 {
			t.Errorf("%q, %v, %d left", result, err, h.left)
		}
		if took := time.Since(began); h.batches != 11 || took != 22*time.Second {
			t.Errorf("%d batches of a second took %s, want 11 and as many pauses", h.batches, took)
		}
	})
	synctest.Test(t, func(t *testing.T) { // a run that does not come to the end of the history has succeeded all the same
		h := &slowHistory{left: 100 * batchSize, work: func() { <-time.After(time.Minute) }}
		began := time.Now()
		result, err := retentionOf(h)(t.Context())
		if took := time.Since(began); err != nil || took != retentionTime || result != fmt.Sprintf("%d rows deleted; the next run deletes more", 15*batchSize) {
			t.Errorf("%q, %v after %s", result, err, took)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		h := &slowHistory{left: 10 * batchSize, work: func() { <-time.After(time.Minute) }}
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
		defer cancel()
		result, err := retentionOf(h)(ctx)
		if err == nil || result != fmt.Sprintf("%d rows deleted", batchSize) || time.Since(began) != 90*time.Second {
			t.Errorf("%q, %v after %s, want the first batch within its 90 s", result, err, time.Since(began))
		}
	})
}
