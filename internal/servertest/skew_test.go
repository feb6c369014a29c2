package servertest

import (
	"fmt"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"firsttap/internal/testkit"
)

var offsets = []time.Duration{10 * time.Second, -10 * time.Second}

// mustBeOff fails the test unless now is off by offset.
func mustBeOff(t *testing.T, offset time.Duration, now func() time.Time) {
	t.Helper()
	before := time.Now()
	got := now().Add(-offset)
	if after := time.Now(); got.Before(before.Add(-time.Millisecond)) || got.After(after.Add(time.Millisecond)) {
		t.Errorf("off by %v more than %v", got.Sub(before), offset)
	}
}

func TestRedisSkewed(t *testing.T) {
	for _, offset := range offsets {
		t.Run(offset.String(), func(t *testing.T) {
			t.Parallel()
			var last int
			t.Cleanup(func() { mustLeaveNoClock(t, last) })
			r := StartRedisSkewed(t, offset)
			clock := func() time.Time {
				answer, err := ask(t.Context(), r.Addr(), "TIME")
				if err != nil {
					t.Fatal(err)
				}
				var s, us int64
				if _, err := fmt.Sscan(answer, &s, &us); err != nil {
					t.Fatalf("%q: %v", answer, err)
				}
				return time.Unix(s, us*1000)
			}
			mustBeOff(t, offset, clock)
			mustAnswer(t, r, "OK", "SET", "past", "v", "PXAT", strconv.FormatInt(time.Now().Add(5*time.Second).UnixMilli(), 10))
			want := "v"
			if offset > 0 {
				want = "" // expired, by this server's clock
			}
			mustAnswer(t, r, want, "GET", "past")

			// The clock's rate is the usual one: later it is as far off.
			mustBeOff(t, offset, clock)
			mustAnswer(t, r, "OK", "SET", "k", "v", "PX", "300")
			testkit.Retry(t, func() error {
				if got, err := ask(t.Context(), r.Addr(), "GET", "k"); got != "" || err != nil {
					return fmt.Errorf("got %q, %w", got, err)
				}
				return nil
			})
			mustBeOff(t, offset, clock)

			first := r.child.process.Pid
			r.Kill()
			r.Start()
			mustLeaveNoClock(t, first)
			mustBeOff(t, offset, clock)
			last = r.child.process.Pid
		})
	}
}

func TestMariaDBSkewed(t *testing.T) {
	for _, offset := range offsets {
		t.Run(offset.String(), func(t *testing.T) {
			t.Parallel()
			var pid int
			t.Cleanup(func() { mustLeaveNoClock(t, pid) })
			d := StartMariaDBSkewed(t, offset)
			pid = d.child.process.Pid
			db := open(t, d.DSN(""))
			clock := func() (now time.Time) {
				if err := db.QueryRow("SELECT UTC_TIMESTAMP(6)").Scan(&now); err != nil {
					t.Fatal(err)
				}
				return now
			}
			mustBeOff(t, offset, clock)
			mustScan(t, db, "SELECT SLEEP(0.3)", "0")
			mustBeOff(t, offset, clock) // the clock's rate is the usual one
		})
	}
}

// mustLeaveNoClock fails the test if the ended process pid left shared memory behind.
func mustLeaveNoClock(t *testing.T, pid int) {
	t.Helper()
	if left, _ := filepath.Glob(fmt.Sprintf("/dev/shm/*faketime_*_%d", pid)); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
