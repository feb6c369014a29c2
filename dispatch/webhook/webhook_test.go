package webhook

import (
	"errors"
	"testing"
	"time"
)

// TestSetStatus: a change by an admin, and the reason that the endpoint has then.
func TestSetStatus(t *testing.T) {
	since := time.Now()
	for _, c := range []struct {
		before      Status
		reason      PauseReason
		to          Status
		want        PauseReason
		stillFailed bool
	}{
		{Active, "", Paused, PausedByAdmin, true},
		{Active, "", Active, "", true},
		{Paused, PausedFailing, Paused, PausedFailing, true},
		{Paused, PausedFailing, Active, "", false},
		{Paused, PausedGone, Active, "", false},
	} {
		e := Endpoint{Status: c.before, PauseReason: c.reason, FailingSince: &since}
		e.SetStatus(c.to)
		if e.Status != c.to || e.PauseReason != c.want || (e.FailingSince != nil) != c.stillFailed {
			t.Errorf("%s %s, made %s: %+v", c.before, c.reason, c.to, e)
		}
	}
}

func TestParse(t *testing.T) {
	for _, bad := range []string{"", "x", "whk_", "whd_", "drv_0", "whk_'", "whd_\x00", "whk_" + "é", "WHK_0"} {
		if _, err := ParseID(bad); !errors.Is(err, ErrNotFound) {
			t.Errorf("%q: %v", bad, err)
		}
		if _, err := ParseDeliveryID(bad); !errors.Is(err, ErrDeliveryNotFound) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	id, err := ParseID("whk_0pgbv3614k2s9v1q7d0e5h8m3j")
	delivery, derr := ParseDeliveryID("whd_0pgbv3614k2s9v1q7d0e5h8m3d")
	if id != "whk_0pgbv3614k2s9v1q7d0e5h8m3j" || delivery != "whd_0pgbv3614k2s9v1q7d0e5h8m3d" || err != nil || derr != nil {
		t.Error(id, delivery, err, derr)
	}
}

// TestRetries: eight attempts, and how long each waits.
func TestRetries(t *testing.T) {
	total := time.Duration(0)
	for n := 1; n <= 7; n++ {
		wait, again := RetryAfter(n)
		if total += wait; !again || wait <= 0 {
			t.Errorf("after attempt %d: %v, %v", n, wait, again)
		}
	}
	if _, again := RetryAfter(8); again || total != 31*time.Hour+35*time.Minute+5*time.Second {
		t.Errorf("again after the last: %v; all waits %v", again, total)
	}
}
