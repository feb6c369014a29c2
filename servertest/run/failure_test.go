package main

import (
	"errors"
	"strings"
	"testing"
)

// The summary names each failed test with the lines that ended it, and a program's last lines if no test of it has failed.
func TestFailuresInTheSummary(t *testing.T) {
	run := func(events ...event) string {
		r := &result{suite: suite{pkg: "limit"}, err: errors.New("exit status 1"), output: map[string]*strings.Builder{}}
		for _, e := range events {
			r.add(e)
		}
		var out strings.Builder
		r.printFailures(&out)
		return out.String()
	}
	said := run(
		event{Action: "output", Test: "TestRoom", Output: "=== RUN   TestRoom\n"},
		event{Action: "output", Test: "TestRoom/of_ten", Output: "    room_test.go:12: 11 calls, want 10\n"},
		event{Action: "fail", Test: "TestRoom/of_ten"},
		event{Action: "fail", Test: "TestRoom/of_none"},
		event{Action: "fail", Test: "TestRoom"},
		event{Action: "output", Test: "TestEnd", Output: "    room_test.go:30: it ended\n"},
		event{Action: "pass", Test: "TestEnd"},
	)
	const want = "  firsttap/limit: TestRoom/of_ten\n      room_test.go:12: 11 calls, want 10\n  firsttap/limit: TestRoom\n"
	if said != want {
		t.Errorf("failed tests are listed as\n%swant\n%s", said, want)
	}
	said = run(event{Action: "output", Output: "panic: no memory\n"})
	if want := "  firsttap/limit: exit status 1\n      panic: no memory\n"; said != want {
		t.Errorf("a panic is listed as\n%swant\n%s", said, want)
	}
}
