//nolint:forbidigo // its pauses are in bubbles of testing/synctest
package lock_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"firsttap/internal/testkit"
	"firsttap/lock"
)

// remoteMemory is a Memory that answers late or not at all.
type remoteMemory struct {
	*lock.Memory
	latency     time.Duration
	unreachable bool
}

func (f *remoteMemory) Acquire(ctx context.Context, name, owner string, ttl time.Duration) (lock.Grant, error) {
	if f.unreachable {
		return nil, fmt.Errorf("%w: connection refused", lock.ErrUnavailable)
	}
	select {
	case <-time.After(f.latency):
		return f.Memory.Acquire(ctx, name, owner, ttl)
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", lock.ErrUnavailable, ctx.Err())
	}
}

// waitRepeatedly waits 20 times for a name that is held. It returns the number of warnings, the value of the metric, and
// the last error.
func waitRepeatedly(t *testing.T, f *remoteMemory) (warnings int, unavailable float64, err error) {
	t.Helper()
	testkit.Bubble(t, func(t *testing.T) {
		var log bytes.Buffer
		l, values := newCountedLocker(t, f, lock.Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
		rival := lock.New(f.Memory, lock.Options{})
		defer rival.Close()
		held, acquired := rival.Acquire(t.Context(), "name", lock.Renewed(time.Minute, time.Hour))
		if acquired != nil {
			t.Fatal(acquired)
		}
		defer held.Release(context.Background())
		for range 20 {
			_, err = l.Acquire(t.Context(), "name", lock.Hold{TTL: time.Minute, Wait: 950 * time.Millisecond})
		}
		warnings, unavailable = strings.Count(log.String(), "lock unavailable"), values()["unavailable_total"]
	})
	return warnings, unavailable, err
}

// The last attempt of a waiter is canceled by the end of the wait, which is not an outage.
func TestWaitingIsNoOutage(t *testing.T) {
	warnings, unavailable, err := waitRepeatedly(t, &remoteMemory{Memory: lock.NewMemory(), latency: 300 * time.Millisecond})
	if !errors.Is(err, lock.ErrHeld) || warnings != 0 || unavailable != 0 {
		t.Errorf("%v, with %d warnings and %v unanswered attempts", err, warnings, unavailable)
	}
}

// An outage is counted for each attempt and logged once.
func TestAnOutageIsLoggedOnce(t *testing.T) {
	f := &remoteMemory{Memory: lock.NewMemory(), unreachable: true}
	warnings, unavailable, err := waitRepeatedly(t, f)
	if !errors.Is(err, lock.ErrUnavailable) || warnings != 1 || unavailable < 100 {
		t.Errorf("%v, with %d warnings and %v unanswered attempts", err, warnings, unavailable)
	}
}
