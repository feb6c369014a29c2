package stream

import (
	"regexp"
	"strconv"
	"testing"

	"firsttap/testkit"
)

// TestReconnectsAreSpread: each stream asks its client to wait from 1 to 5 s before it connects again, at its start and when the
// instance shuts down. The waits differ, so that the clients of an instance do not all come at the same time.
func TestReconnectsAreSpread(t *testing.T) {
	const streams = 200
	h := runHub(t, Options{})
	clients := make([]*client, streams)
	for k := range clients {
		s, err := openDriver(t, h, kim(), "")
		clients[k] = listen(t, s, err)
	}
	for _, c := range clients {
		c.greeted()
	}
	h.Close()
	first, last := map[int]int{}, map[int]int{}
	for _, c := range clients {
		testkit.Await(t, "the stream ends", c.ended)
		said := c.said()
		first[retryOf(t, said[0])]++
		last[retryOf(t, said[len(said)-1])]++
	}
	for when, waits := range map[string]map[int]int{"at the start": first, "at the end": last} {
		early, late := 0, 0
		for ms, n := range waits {
			switch {
			case ms < 1000 || ms > 5000:
				t.Errorf("%s %d streams have %d ms, want 1000 to 5000", when, n, ms)
			case ms < 3000:
				early += n
			default:
				late += n
			}
		}
		if len(waits) < streams/2 || early < streams/4 || late < streams/4 {
			t.Errorf("%s %d streams have %d different waits, %d of them below 3 s and %d above", when, streams, len(waits), early, late)
		}
	}
}

// retryOf returns the milliseconds of a line retry: 1234.
func retryOf(t *testing.T, line string) int {
	t.Helper()
	digits := regexp.MustCompile(`^retry: (\d+)$`).FindStringSubmatch(line)
	if digits == nil {
		t.Fatalf("%q is no retry", line)
	}
	ms, err := strconv.Atoi(digits[1])
	if err != nil {
		t.Fatal(err)
	}
	return ms
}
