//nolint:forbidigo // its pauses are in bubbles of testing/synctest
package app

import (
	"context"
	"fmt"
	"testing"
	"time"

	"firsttap/internal/testkit"
)

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
		testkit.Bubble(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), c.canceled)
			defer cancel()
			result, err := retain(ctx, func(ctx context.Context) (n int, err error) { // a row a second
				for range c.rows {
					select {
					case <-time.After(time.Second + 1): // never at the very end of the time
						n++
					case <-ctx.Done():
						return n, ctx.Err()
					}
				}
				return n, nil
			})
			if result != c.result || (err != nil) != c.fails {
				t.Errorf("%q, %v; want %q", result, err, c.result)
			}
		})
	}
}
