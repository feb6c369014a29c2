package main

import (
	"testing"
	"time"
)

func TestNextAt(t *testing.T) {
	for _, c := range []struct{ zone, from, want string }{
		{"Asia/Seoul", "2026-11-21T18:59:59Z", "2026-11-21T19:00:00Z"}, // 04:00 in Seoul
		{"Asia/Seoul", "2026-11-21T19:00:00Z", "2026-11-22T19:00:00Z"},
		{"Asia/Seoul", "2026-12-31T20:00:00Z", "2027-01-01T19:00:00Z"},
		{"Europe/Berlin", "2026-03-28T03:30:00Z", "2026-03-29T02:00:00Z"}, // the night has 23 hours
		{"Europe/Berlin", "2026-10-24T02:30:00Z", "2026-10-25T03:00:00Z"}, // and 25
	} {
		from, err := time.Parse(time.RFC3339, c.from)
		if err != nil {
			t.Fatal(err)
		}
		if got := nextAt(from, 4, zone(t, c.zone)).UTC().Format(time.RFC3339); got != c.want {
			t.Errorf("after %s in %s: %s, want %s", c.from, c.zone, got, c.want)
		}
	}
}
