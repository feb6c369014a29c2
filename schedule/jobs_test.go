//nolint:forbidigo // its pauses are in bubbles of testing/synctest
package schedule

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"firsttap/cronjob"
)

// longHistory is deleted, a row a second.
type longHistory struct {
	rows int
}

func (h *longHistory) Prune(ctx context.Context) (n int, err error) {
	for range h.rows {
		select {
		case <-time.After(time.Second + 1): // never at the very end of the time
			n++
		case <-ctx.Done():
			return n, ctx.Err()
		}
	}
	return n, nil
}

// A run that does not come to the end of the history within its time has succeeded all the same; one that is canceled has not.
func TestRetentionHasItsTime(t *testing.T) {
	const most = int(retentionTime / time.Second)
	for _, c := range []struct {
		rows     int
		canceled time.Duration
		result   string
		fails    bool
	}{
		{most / 2, time.Hour, fmt.Sprintf("%d rows deleted", most/2), false},
		{2 * most, time.Hour, fmt.Sprintf("%d rows deleted; the next run deletes more", most-1), false},
		{2 * most, 90500 * time.Millisecond, "90 rows deleted", true},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), c.canceled)
			defer cancel()
			jobs := Jobs(JobStores{Retention: &longHistory{rows: c.rows}}, 0)
			retention := jobs[slices.IndexFunc(jobs, func(j Job) bool { return j.Name == "retention" })]
			result, err := retention.Work(ctx, cronjob.Run{})
			if result != c.result || (err != nil) != c.fails {
				t.Errorf("%q, %v; want %q", result, err, c.result)
			}
		})
	}
}
