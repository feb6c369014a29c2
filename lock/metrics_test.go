//nolint:forbidigo // its pauses are in bubbles of testing/synctest
package lock_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"firsttap/internal/testkit"
	"firsttap/lock"
)

// newCountedLocker returns a Locker and a function that returns the values of its metrics, by name and reason. The value
// of a histogram is the number of its observations.
func newCountedLocker(t *testing.T, s lock.Strategy, o lock.Options) (*lock.Locker, func() map[string]float64) {
	t.Helper()
	registry := prometheus.NewRegistry()
	o.Metrics = lock.NewMetrics(registry)
	l := lock.New(s, o)
	t.Cleanup(l.Close)
	return l, func() map[string]float64 {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		values := map[string]float64{}
		for _, f := range families {
			name := strings.TrimPrefix(f.GetName(), "firsttap_lock_")
			for _, m := range f.GetMetric() {
				for _, label := range m.GetLabel() {
					name = strings.TrimPrefix(f.GetName(), "firsttap_lock_") + " " + label.GetValue()
				}
				if v := m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount()); v != 0 {
					values[name] = v
				}
			}
		}
		return values
	}
}

func wantMetrics(t *testing.T, what string, values, want map[string]float64) {
	t.Helper()
	if !maps.Equal(values, want) {
		t.Errorf("%s: the metrics say\n%v, want\n%v", what, values, want)
	}
}

// slowMemory is a Memory whose extensions are answered late.
type slowMemory struct {
	*lock.Memory
	by time.Duration
}

type slowGrant struct {
	lock.Grant
	by time.Duration
}

func (s slowMemory) Acquire(ctx context.Context, name, owner string, ttl time.Duration) (lock.Grant, error) {
	g, err := s.Memory.Acquire(ctx, name, owner, ttl)
	if err != nil {
		return nil, err
	}
	return slowGrant{g, s.by}, nil
}

func (g slowGrant) Extend(ctx context.Context, ttl time.Duration) error {
	err := g.Grant.Extend(ctx, ttl) // the server executes it, and answers late
	select {
	case <-time.After(g.by):
		return err
	case <-ctx.Done():
		return errors.Join(lock.ErrUnavailable, ctx.Err())
	}
}

func TestMetricsOfAHold(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		l, values := newCountedLocker(t, lock.NewMemory(), lock.Options{})
		lease, err := l.Acquire(t.Context(), "a", lock.Renewed(3*time.Second, time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Acquire(t.Context(), "a", lock.Fixed(time.Second)); !errors.Is(err, lock.ErrHeld) {
			t.Fatal(err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := l.Acquire(ended, "b", lock.Fixed(time.Second)); !errors.Is(err, lock.ErrUnavailable) {
			t.Fatal(err)
		}
		<-time.After(1500 * time.Millisecond) // for one renewal
		wantMetrics(t, "held", values(), map[string]float64{
			"attempts_total": 3, "acquired_total": 1, "held_total": 1, "unavailable_total": 1, "leases": 1, "renewal_slack_ratio": 1,
		})
		if err := lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantMetrics(t, "released", values(), map[string]float64{
			"attempts_total": 3, "acquired_total": 1, "held_total": 1, "unavailable_total": 1, "renewal_slack_ratio": 1, "hold_seconds": 1,
		})
	})
}

// A renewal that is answered with less than a fifth of the TTL left is a near miss. One that is answered too late is a
// loss, which is logged.
func TestMetricsOfRenewals(t *testing.T) {
	const ttl, every = 3 * time.Second, time.Second
	// The lease is valid for 2.7 s and renewed after at most 1 s, so 1.7 s remain, less the time of the answer.
	for by, want := range map[time.Duration]map[string]float64{
		500 * time.Millisecond:  {"attempts_total": 1, "acquired_total": 1, "leases": 1, "renewal_slack_ratio": 1},
		1400 * time.Millisecond: {"attempts_total": 1, "acquired_total": 1, "leases": 1, "renewal_slack_ratio": 1, "near_misses_total": 1},
		3 * time.Second:         {"attempts_total": 1, "acquired_total": 1, "leases": 1, "lost_total unreachable": 1},
	} {
		t.Run(by.String(), func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				var log bytes.Buffer
				s := slowMemory{lock.NewMemory(), by}
				l, values := newCountedLocker(t, s, lock.Options{Timeout: 2 * time.Second, Log: slog.New(slog.NewTextHandler(&log, nil))})
				lease, err := l.Acquire(t.Context(), "a", lock.Hold{TTL: ttl, RenewEvery: every, AtMost: time.Hour})
				if err != nil {
					t.Fatal(err)
				}
				<-time.After(2800 * time.Millisecond)
				synctest.Wait() // until the loss is logged
				wantMetrics(t, "after a renewal", values(), want)
				if logged, lost := strings.Contains(log.String(), "lock lost"), lease.Context().Err() != nil; logged != lost {
					t.Errorf("lost: %t, and the log says\n%s", lost, log.String())
				}
				_ = lease.Release(t.Context())
			})
		})
	}
}

// Concurrent waiters of one process cost the server as much as a single waiter.
func TestOneOfACrowdAsks(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		s := lock.NewMemory()
		holder := newLocker(t, s)
		lease, err := holder.Acquire(t.Context(), "a", lock.Fixed(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		l, values := newCountedLocker(t, s, lock.Options{})
		hold := lock.Fixed(time.Minute)
		hold.Wait = 30 * time.Second
		const crowd = 100
		var waiting sync.WaitGroup
		for range crowd {
			waiting.Go(func() {
				if err := l.Do(t.Context(), "a", hold, func(context.Context) error { return nil }); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if got := values()["attempts_total"]; got != 2 { // one before the watch, and one when it begins
			t.Errorf("%v attempts by %d waiters", got, crowd)
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		waiting.Wait()
		if got := values()["attempts_total"]; got > 2*crowd+2 {
			t.Errorf("%v attempts until %d waiters acquired the name", got, crowd)
		}
	})
}
