//go:build soak

package lock_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
	"firsttap/lock"
	"firsttap/lock/locktest"
)

// onEachRig runs the test on a server of each kind of strategy.
func onEachRig(t *testing.T, test func(t *testing.T, open func() *lock.Locker)) {
	for name, rig := range map[string]locktest.Rig{
		"Redis": singleRedisRig(), "Quorum": quorumRig(), "Table of SQLite": sqliteRig(),
		"Table of MariaDB": tableRig(servertest.MariaDB), "Table of MySQL": tableRig(servertest.MySQL),
		"Named of MariaDB": sessionRig(servertest.MariaDB, named), "Named of MySQL": sessionRig(servertest.MySQL, named),
		"Rows of MariaDB": rowsRig(servertest.MariaDB), "Rows of MySQL": rowsRig(servertest.MySQL),
	} {
		t.Run(name, func(t *testing.T) {
			server := rig.Start(t)
			test(t, func() *lock.Locker {
				l := lock.New(rig.Open(t, server.URL, time.Minute), lock.Options{})
				t.Cleanup(l.Close)
				return l
			})
		})
	}
}

// A thousand want the same name, again and again: never two of them have it, whatever the server answers.
func TestSoakAThousandWant(t *testing.T) {
	onEachRig(t, func(t *testing.T, open func() *lock.Locker) {
		const clients, goroutines = 4, 1000
		lockers := make([]*lock.Locker, clients)
		for i := range lockers {
			lockers[i] = open()
		}
		hold := lock.Renewed(5*time.Second, time.Minute)
		hold.Wait = 500 * time.Millisecond
		var inside, overlaps, entered, unanswered, lost atomic.Int64
		end := time.Now().Add(testkit.SoakTime(t) / 9)
		for time.Now().Before(end) {
			testkit.Together(goroutines, func(i int) {
				err := lockers[i%clients].Do(t.Context(), "wanted", hold, func(ctx context.Context) error {
					if inside.Add(1) > 1 {
						overlaps.Add(1)
					}
					entered.Add(1)
					select {
					case <-ctx.Done():
					case <-time.After(100 * time.Millisecond):
					}
					inside.Add(-1)
					return nil
				})
				switch {
				case errors.Is(err, lock.ErrUnavailable):
					unanswered.Add(1)
				case errors.Is(err, lock.ErrLost):
					lost.Add(1)
				case err != nil && !errors.Is(err, lock.ErrHeld):
					t.Errorf("got %v", err)
				}
			})
		}
		t.Logf("%d entered; %d were not answered, and %d lost the lease", entered.Load(), unanswered.Load(), lost.Load())
		if overlaps.Load() > 0 || entered.Load() == 0 {
			t.Errorf("%d of %d entered while another was inside", overlaps.Load(), entered.Load())
		}
	})
}
